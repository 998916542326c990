package estimates

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	gguf "github.com/gpustack/gguf-parser-go"
)

// ggufWriter writes GGUF headers with chosen numbers, right or wrong.
type ggufWriter struct {
	magic        string
	version      uint32
	pairs        []ggufPair
	tensors      []ggufTestTensor
	tensorCount  int64 // when the header lies; -1 counts
	pairCount    int64 // likewise
	missingBytes int64 // how much of the weights the file lacks
}

type ggufPair struct {
	key   string
	value any
}

// ggufArray is an array with a count of its own, for lies.
type ggufArray struct {
	kind   uint32
	length uint64
	items  []byte
}

// ggufRaw is a value with a type of its own.
type ggufRaw struct {
	kind uint32
	data []byte
}

type ggufTestTensor struct {
	name       string
	kind       gguf.GGMLType
	dimensions []uint64
	offset     uint64
}

func newGGUF(architecture string) *ggufWriter {
	w := &ggufWriter{magic: "GGUF", version: 3, tensorCount: -1, pairCount: -1}
	return w.set("general.architecture", architecture)
}

// set writes a pair, in place of an earlier one.
func (w *ggufWriter) set(key string, value any) *ggufWriter {
	for i := range w.pairs {
		if w.pairs[i].key == key {
			w.pairs[i].value = value
			return w
		}
	}
	w.pairs = append(w.pairs, ggufPair{key, value})
	return w
}

// numbers writes whole numbers below the architecture.
func (w *ggufWriter) numbers(numbers map[string]uint32) *ggufWriter {
	for name, number := range numbers {
		w.set(w.pairs[0].value.(string)+"."+name, number)
	}
	return w
}

// words writes a vocabulary.
func (w *ggufWriter) words(count int) *ggufWriter {
	words := make([]string, count)
	for i := range words {
		words[i] = fmt.Sprintf("word%d", i)
	}
	return w.set("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.tokens", words)
}

func (w *ggufWriter) tensor(name string, kind gguf.GGMLType, dimensions ...uint64) *ggufWriter {
	offset := uint64(0)
	if last := len(w.tensors) - 1; last >= 0 {
		offset = (w.tensors[last].offset + tensorBytes(w.tensors[last]) + 31) / 32 * 32
	}
	w.tensors = append(w.tensors, ggufTestTensor{name, kind, dimensions, offset})
	return w
}

// tensorBytes is for tensors that make sense; others have none.
func tensorBytes(tensor ggufTestTensor) uint64 {
	trait, known := tensor.kind.Trait()
	if !known || trait.BlockSize == 0 {
		return 0
	}
	size := uint64(1)
	for _, dimension := range tensor.dimensions {
		size *= dimension
	}
	return size / trait.BlockSize * trait.TypeSize
}

// blocks writes the tensors of n ordinary layers.
func (w *ggufWriter) blocks(n int, kind gguf.GGMLType, width, heads, kv, feedForward uint64) *ggufWriter {
	for i := range n {
		block := fmt.Sprintf("blk.%d.", i)
		w.tensor(block+"attn_norm.weight", gguf.GGMLTypeF32, width)
		w.tensor(block+"attn_q.weight", kind, width, heads)
		w.tensor(block+"attn_k.weight", kind, width, kv)
		w.tensor(block+"attn_v.weight", kind, width, kv)
		w.tensor(block+"attn_output.weight", kind, heads, width)
		w.tensor(block+"ffn_norm.weight", gguf.GGMLTypeF32, width)
		w.tensor(block+"ffn_gate.weight", kind, width, feedForward)
		w.tensor(block+"ffn_up.weight", kind, width, feedForward)
		w.tensor(block+"ffn_down.weight", kind, feedForward, width)
	}
	return w
}

func (w *ggufWriter) header() []byte {
	out := []byte(w.magic)
	order := binary.LittleEndian
	out = order.AppendUint32(out, w.version)
	count := func(lie int64, truth int) {
		if lie >= 0 {
			truth = int(lie)
		}
		out = order.AppendUint64(out, uint64(truth))
	}
	count(w.tensorCount, len(w.tensors))
	count(w.pairCount, len(w.pairs))
	for _, pair := range w.pairs {
		out = appendText(out, pair.key)
		out = appendValue(out, pair.value)
	}
	for _, tensor := range w.tensors {
		out = appendText(out, tensor.name)
		out = order.AppendUint32(out, uint32(len(tensor.dimensions)))
		for _, dimension := range tensor.dimensions {
			out = order.AppendUint64(out, dimension)
		}
		out = order.AppendUint32(out, uint32(tensor.kind))
		out = order.AppendUint64(out, tensor.offset)
	}
	return out
}

func appendText(out []byte, text string) []byte {
	out = binary.LittleEndian.AppendUint64(out, uint64(len(text)))
	return append(out, text...)
}

func appendValue(out []byte, value any) []byte {
	order := binary.LittleEndian
	switch value := value.(type) {
	case string:
		return appendText(order.AppendUint32(out, typeString), value)
	case uint32:
		return order.AppendUint32(order.AppendUint32(out, typeUint32), value)
	case int32:
		return order.AppendUint32(order.AppendUint32(out, typeInt32), uint32(value))
	case uint64:
		return order.AppendUint64(order.AppendUint32(out, typeUint64), value)
	case bool:
		if value {
			return append(order.AppendUint32(out, typeBool), 1)
		}
		return append(order.AppendUint32(out, typeBool), 0)
	case []string:
		out = order.AppendUint32(order.AppendUint32(out, typeArray), typeString)
		out = order.AppendUint64(out, uint64(len(value)))
		for _, item := range value {
			out = appendText(out, item)
		}
		return out
	case []uint32:
		out = order.AppendUint32(order.AppendUint32(out, typeArray), typeUint32)
		out = order.AppendUint64(out, uint64(len(value)))
		for _, item := range value {
			out = order.AppendUint32(out, item)
		}
		return out
	case ggufArray:
		out = order.AppendUint32(order.AppendUint32(out, typeArray), value.kind)
		return append(order.AppendUint64(out, value.length), value.items...)
	case ggufRaw:
		return append(order.AppendUint32(out, value.kind), value.data...)
	default:
		panic(fmt.Sprintf("no way to write a %T", value))
	}
}

// file gives the header followed by a hole where the weights are, and the size.
func (w *ggufWriter) file() (hollow, int64) {
	header := w.header()
	alignment := int64(32)
	for _, pair := range w.pairs {
		if value, ok := pair.value.(uint32); ok && pair.key == "general.alignment" && value > 0 {
			alignment = int64(value)
		}
	}
	size := (int64(len(header)) + alignment - 1) / alignment * alignment
	if last := len(w.tensors) - 1; last >= 0 {
		size += int64(w.tensors[last].offset + tensorBytes(w.tensors[last]))
	}
	return hollow{header, size - w.missingBytes}, size - w.missingBytes
}

func (w *ggufWriter) read(t testing.TB) *GGUF {
	t.Helper()
	from, size := w.file()
	model, err := ReadGGUF(from, size)
	if err != nil {
		t.Fatalf("reading a written header: %v", err)
	}
	return model
}

// hollow is a file of a size that begins with data and goes on with zeros.
type hollow struct {
	data []byte
	size int64
}

func (h hollow) ReadAt(p []byte, at int64) (int, error) {
	if at >= h.size {
		return 0, io.EOF
	}
	clear(p)
	n := int(min(int64(len(p)), h.size-at))
	if at < int64(len(h.data)) {
		copy(p[:n], h.data[at:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
