package estimates

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// sourceGGUF is the Source of problems with a GGUF file.
const sourceGGUF = "the GGUF file"

// Bounds of a GGUF header, well above every published model: the largest
// tokenizers take 12 MiB, the largest models have 2000 tensors.
const (
	maxHeader      = 32 << 20
	maxGGUF        = 1 << 42 // of the whole file, in bytes: what can be mapped
	maxKeys        = 4096
	maxKey         = 256
	maxArray       = 1 << 22
	maxTensors     = 1 << 13
	maxTensorName  = 128
	maxDimensions  = 4
	maxDimension   = 1 << 32
	firstChunk     = 1 << 20
	defaultAlign   = 32
	maxAlign       = 1 << 16
	smallTextBytes = 1024
)

// Types of metadata values, from the description of the format
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
const (
	typeUint8 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

// typeSizes are the bytes of values of fixed size.
var typeSizes = map[uint32]int64{
	typeUint8: 1, typeInt8: 1, typeBool: 1, typeUint16: 2, typeInt16: 2,
	typeUint32: 4, typeInt32: 4, typeFloat32: 4, typeUint64: 8, typeInt64: 8, typeFloat64: 8,
}

// ggufValue is a metadata value. Only what the checks need is kept.
type ggufValue struct {
	kind uint32
	// whole is the number of a whole-number type or of a bool; MinInt64 stands for
	// anything that does not fit.
	whole int64
	// text is a text of at most 1 KiB.
	text string
	// item is the kind of items of an array, length how many there are, numbers
	// the items when they are whole numbers and few.
	item    uint32
	length  int64
	numbers []int64
}

// isWhole tells a value of a whole-number type.
func (v ggufValue) isWhole() bool { return isWholeKind(v.kind) }

func isWholeKind(kind uint32) bool {
	switch kind {
	case typeUint8, typeInt8, typeUint16, typeInt16, typeUint32, typeInt32, typeUint64, typeInt64:
		return true
	default:
		return false
	}
}

// ggufTensor is the description of one tensor.
type ggufTensor struct {
	name       string
	dimensions []int64
	kind       uint32
	offset     int64
}

// ggufHeader is what stands before the weights of a GGUF file.
type ggufHeader struct {
	bytes   []byte
	size    int64
	values  map[string]ggufValue
	tensors []ggufTensor
}

// ggufReader reads a header from front to back, in growing pieces, and never
// beyond its bounds. The first problem stays; from then on everything reads as
// zero.
type ggufReader struct {
	from io.ReaderAt
	size int64
	data []byte
	at   int
	err  error
}

// scanGGUF reads and bounds the header of a GGUF file of a size in bytes.
func scanGGUF(from io.ReaderAt, size int64) (*ggufHeader, error) {
	if size < 1 || size > maxGGUF {
		return nil, &Problem{Source: sourceGGUF, Field: "size", Rule: fmt.Sprintf("must be from 1 to %d bytes", maxGGUF), Value: fmt.Sprint(size)}
	}
	r := &ggufReader{from: from, size: size}
	tensors, keys := r.preamble()
	header := &ggufHeader{size: size, values: map[string]ggufValue{}}
	for i := int64(0); i < keys && r.err == nil; i++ {
		r.pair(header.values, i)
	}
	names := map[string]bool{}
	for i := int64(0); i < tensors && r.err == nil; i++ {
		tensor := r.tensor(i)
		if names[tensor.name] {
			r.refuse("tensor "+shown(tensor.name), "must have a name of its own", "")
		}
		names[tensor.name] = true
		header.tensors = append(header.tensors, tensor)
	}
	if r.err != nil {
		return nil, r.err
	}
	header.bytes = r.data[:r.at]
	return header, nil
}

// preamble reads magic, version and the two counts.
func (r *ggufReader) preamble() (tensors, keys int64) {
	if magic := string(r.take(4)); r.err == nil && magic != "GGUF" {
		r.refuse("magic", "must be GGUF in little-endian order", shown(magic))
	}
	if version := r.uint32(); r.err == nil && version != 2 && version != 3 {
		r.refuse("version", "must be 2 or 3", fmt.Sprint(version))
	}
	tensors = r.count("tensor_count", 1, maxTensors)
	keys = r.count("metadata_kv_count", 1, maxKeys)
	return tensors, keys
}

// refuse keeps the first problem.
func (r *ggufReader) refuse(field, rule, value string) {
	if r.err == nil {
		r.err = &Problem{Source: sourceGGUF, Field: field, Rule: rule, Value: value}
	}
}

// take gives the next bytes, which the reader keeps; nil after a problem.
func (r *ggufReader) take(count int64) []byte {
	if r.err != nil {
		return nil
	}
	end := int64(r.at) + count
	switch {
	case end > r.size:
		r.refuse("header", fmt.Sprintf("ends at byte %d, in the middle of a value", r.size), "")
		return nil
	case end > maxHeader:
		r.refuse("header", fmt.Sprintf("may not be longer than %d bytes", maxHeader), "")
		return nil
	case end > int64(len(r.data)):
		r.fetch(end)
		if r.err != nil {
			return nil
		}
	}
	taken := r.data[r.at:end]
	r.at = int(end)
	return taken
}

// fetch reads ahead at least to end: each piece is as long as everything before
// it, so that few ranges are asked for and at most half is in vain.
func (r *ggufReader) fetch(end int64) {
	have := int64(len(r.data))
	upTo := min(max(end, 2*have, firstChunk), maxHeader, r.size)
	grown := make([]byte, upTo)
	copy(grown, r.data)
	read, err := r.from.ReadAt(grown[have:], have)
	if int64(read) < upTo-have {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		r.err = fmt.Errorf("reading the header of %s at byte %d: %w", sourceGGUF, have+int64(read), err)
		return
	}
	r.data = grown
}

func (r *ggufReader) uint32() uint32 {
	taken := r.take(4)
	if taken == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(taken)
}

// count reads a number of 64 bits that counts something.
func (r *ggufReader) count(field string, low, high int64) int64 {
	taken := r.take(8)
	if taken == nil {
		return 0
	}
	number := binary.LittleEndian.Uint64(taken)
	if number > math.MaxInt64 || int64(number) < low || int64(number) > high {
		r.refuse(field, fmt.Sprintf("must be from %d to %d", low, high), fmt.Sprint(number))
		return 0
	}
	return int64(number)
}

// name reads a key or the name of a tensor: printable ASCII without spaces.
func (r *ggufReader) name(field string, longest int64) string {
	name := r.take(r.count(field+" length", 1, longest))
	for _, letter := range name {
		if letter <= ' ' || letter > '~' {
			r.refuse(field, "must be printable ASCII without spaces", shown(string(name)))
		}
	}
	return string(name)
}

// pair reads a key and its value.
func (r *ggufReader) pair(values map[string]ggufValue, index int64) {
	key := r.name(fmt.Sprintf("key %d", index), maxKey)
	if _, twice := values[key]; twice {
		r.refuse(key, "must occur once", "")
	}
	kind := r.uint32()
	value := ggufValue{kind: kind}
	switch {
	case r.err != nil:
		return
	case kind == typeString:
		value.text = r.text(key)
	case kind == typeArray:
		r.array(key, &value)
	case typeSizes[kind] > 0:
		value.whole = wholeValue(kind, r.take(typeSizes[kind]))
	default:
		r.refuse(key, "must have one of the 13 types of values", fmt.Sprint(kind))
	}
	values[key] = value
}

// text reads a text and keeps it when it is short.
func (r *ggufReader) text(key string) string {
	text := r.take(r.count(key+" length", 0, maxHeader))
	if len(text) > smallTextBytes {
		return ""
	}
	return string(text)
}

// array reads past an array and keeps few whole numbers. Arrays of arrays have no
// use, and reading them would nest without bounds.
func (r *ggufReader) array(key string, value *ggufValue) {
	value.item = r.uint32()
	value.length = r.count(key+" length", 0, maxArray)
	size := typeSizes[value.item]
	switch {
	case r.err != nil:
	case value.item == typeString:
		field := key + " item length"
		for i := int64(0); i < value.length && r.err == nil; i++ {
			r.take(r.count(field, 0, maxHeader))
		}
	case size > 0:
		items := r.take(value.length * size)
		if items == nil || value.length > maxLayers {
			return
		}
		for i := int64(0); i < value.length; i++ {
			value.numbers = append(value.numbers, wholeValue(value.item, items[i*size:(i+1)*size]))
		}
	default:
		r.refuse(key, "must be a list of numbers, texts or truth values", fmt.Sprint(value.item))
	}
}

// wholeValue reads a whole number or a bool; MinInt64 for everything else.
func wholeValue(kind uint32, data []byte) int64 {
	if len(data) == 0 {
		return math.MinInt64
	}
	order := binary.LittleEndian
	switch kind {
	case typeUint8, typeBool:
		return int64(data[0])
	case typeInt8:
		return int64(int8(data[0])) // #nosec G115 -- the bits are those of an int8
	case typeUint16:
		return int64(order.Uint16(data))
	case typeInt16:
		return int64(int16(order.Uint16(data))) // #nosec G115 -- the bits are those of an int16
	case typeUint32:
		return int64(order.Uint32(data))
	case typeInt32:
		return int64(int32(order.Uint32(data))) // #nosec G115 -- the bits are those of an int32
	case typeInt64:
		return int64(order.Uint64(data)) // #nosec G115 -- the bits are those of an int64
	case typeUint64:
		if number := order.Uint64(data); number <= math.MaxInt64 {
			return int64(number)
		}
	}
	return math.MinInt64
}

// tensor reads the description of a tensor.
func (r *ggufReader) tensor(index int64) ggufTensor {
	tensor := ggufTensor{name: r.name(fmt.Sprintf("tensor %d", index), maxTensorName)}
	dimensions := r.uint32()
	if r.err == nil && (dimensions < 1 || dimensions > maxDimensions) {
		r.refuse(tensor.name+" dimensions", fmt.Sprintf("must be from 1 to %d", maxDimensions), fmt.Sprint(dimensions))
	}
	for i := uint32(0); i < dimensions && r.err == nil; i++ {
		tensor.dimensions = append(tensor.dimensions, r.count(fmt.Sprintf("%s dimension %d", tensor.name, i), 1, maxDimension))
	}
	tensor.kind = r.uint32()
	tensor.offset = r.count(tensor.name+" offset", 0, maxGGUF)
	return tensor
}
