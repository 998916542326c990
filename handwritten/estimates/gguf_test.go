package estimates

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	gguf "github.com/gpustack/gguf-parser-go"
)

// small is a model that one would not notice.
func small() *ggufWriter {
	return newGGUF("llama").numbers(map[string]uint32{
		"block_count": 1, "embedding_length": 64, "context_length": 128, "feed_forward_length": 64,
		"attention.head_count": 2, "attention.head_count_kv": 2,
	}).words(8).
		tensor("token_embd.weight", f16, 64, 8).
		blocks(1, f16, 64, 64, 64, 64).
		tensor("output_norm.weight", f32, 64)
}

func TestHeaderIsRead(t *testing.T) {
	model := small().set("general.alignment", uint32(64)).set("general.file_type", uint32(1)).set("general.type", "model").
		set("tokenizer.chat_template", strings.Repeat("{%", 5000)).set("llama.rope.freq_base", ggufRaw{typeFloat32, make([]byte, 4)}).
		set("split.count", uint32(1)).set("split.tensors.count", int32(11)).set("llama.attention.head_count_kv", []uint32{2}).
		set("empty", []string{}).read(t)
	if model.Architecture() != "llama" || model.ContextWindow() != 128 || model.Layers() != 2 {
		t.Errorf("%s %d %d", model.Architecture(), model.ContextWindow(), model.Layers())
	}
	if _, err := model.Estimate(OllamaRequest{}); err != nil {
		t.Error(err)
	}
}

// badGGUF are headers that must be refused, each with a part of the field that is
// named. Several of them end or exhaust a process when the library reads them.
func badGGUF() map[string]struct {
	file  *ggufWriter
	field string
} {
	item := func(value uint64) []byte { return binary.LittleEndian.AppendUint64(nil, value) }
	nested := func(levels int) ggufArray {
		var items []byte
		for range levels {
			items = binary.LittleEndian.AppendUint32(items, typeArray)
			items = binary.LittleEndian.AppendUint64(items, 1)
		}
		return ggufArray{typeArray, 1, items}
	}
	lie := func(tensors, pairs int64) *ggufWriter {
		w := small()
		w.tensorCount, w.pairCount = tensors, pairs
		return w
	}
	kinds := func(magic string, version uint32) *ggufWriter {
		w := small()
		w.magic, w.version = magic, version
		return w
	}
	missing := small()
	missing.missingBytes = 1
	overlong := small()
	overlong.tensors[0].offset = 1 << 60
	beyond := small()
	beyond.tensors[0].offset = 1 << 20
	twice := small()
	twice.tensors[1].name = twice.tensors[0].name
	without := func(key string) *ggufWriter {
		w := small()
		for i, pair := range w.pairs {
			if pair.key == key {
				w.pairs = append(w.pairs[:i:i], w.pairs[i+1:]...)
				break
			}
		}
		return w
	}
	again := small()
	again.pairs = append(again.pairs, ggufPair{"general.architecture", "llama"})
	return map[string]struct {
		file  *ggufWriter
		field string
	}{
		"another magic":                   {kinds("GGML", 3), "magic"},
		"big endian":                      {kinds("FUGG", 3), "magic"},
		"version 1":                       {kinds("GGUF", 1), "version"},
		"version 4":                       {kinds("GGUF", 4), "version"},
		"no tensors":                      {lie(0, -1), "tensor_count"},
		"too many tensors":                {lie(maxTensors+1, -1), "tensor_count"},
		"a huge number of tensors":        {lie(math.MaxInt64, -1), "tensor_count"},
		"more tensors than there are":     {lie(500, -1), ""},
		"no keys":                         {lie(-1, 0), "metadata_kv_count"},
		"a huge number of keys":           {lie(-1, math.MaxInt64), "metadata_kv_count"},
		"more keys than there are":        {lie(-1, 4000), ""},
		"an empty key":                    {small().set("", "x"), "length"},
		"a long key":                      {small().set(strings.Repeat("k", 257), "x"), "length"},
		"a key with a space":              {small().set("a b", "x"), "key"},
		"a key that is no ASCII":          {small().set("ä", "x"), "key"},
		"a key twice":                     {again, "general.architecture"},
		"a value of no type":              {small().set("x", ggufRaw{13, nil}), "x"},
		"a value of a huge type":          {small().set("x", ggufRaw{math.MaxUint32, nil}), "x"},
		"a huge text":                     {small().set("x", ggufRaw{typeString, item(math.MaxUint64)}), "x length"},
		"a text longer than the file":     {small().set("x", ggufRaw{typeString, item(1 << 24)}), "header"},
		"a huge list":                     {small().set("x", ggufArray{typeUint8, math.MaxUint64, nil}), "x length"},
		"a list longer than the file":     {small().set("x", ggufArray{typeUint64, 1 << 20, nil}), "header"},
		"a list of no type":               {small().set("x", ggufArray{99, 1, nil}), "x"},
		"a list of lists":                 {small().set("x.feed_forward_length", nested(1)), "x.feed_forward_length"},
		"lists that nest without end":     {small().set("x.feed_forward_length", nested(1<<20)), "x.feed_forward_length"},
		"a huge text in a list":           {small().set("x", ggufArray{typeString, 1, item(math.MaxUint64 / 2)}), "item length"},
		"no architecture":                 {without("general.architecture"), "general.architecture"},
		"an architecture that is no text": {small().set("general.architecture", uint32(1)), "general.architecture"},
		"an empty architecture":           {small().set("general.architecture", ""), "general.architecture"},
		"a projector":                     {small().set("general.architecture", "clip"), "general.architecture"},
		"an adapter":                      {small().set("general.type", "adapter"), "general.type"},
		"no number of blocks":             {without("llama.block_count"), "llama.block_count"},
		"blocks in a text":                {small().set("llama.block_count", "1"), "llama.block_count"},
		"no blocks":                       {small().set("llama.block_count", uint32(0)), "llama.block_count"},
		"a loop without end":              {small().set("llama.block_count", uint64(math.MaxUint64)), "llama.block_count"},
		"a long loop":                     {small().set("llama.block_count", uint64(1<<40)), "llama.block_count"},
		"a negative number":               {small().set("llama.embedding_length", int32(-1)), "llama.embedding_length"},
		"a huge context":                  {small().set("llama.context_length", uint64(1<<31)), "llama.context_length"},
		"a number that is a float":        {small().set("llama.attention.key_length", ggufRaw{typeFloat64, item(math.Float64bits(math.NaN()))}), "llama.attention.key_length"},
		"a number that is a list":         {small().set("llama.attention.sliding_window", []uint32{1}), "llama.attention.sliding_window"},
		"an empty list of heads":          {small().set("llama.attention.head_count", []uint32{}), "llama.attention.head_count"},
		"a long list of heads":            {small().set("llama.attention.head_count_kv", make([]uint32, 1025)), "llama.attention.head_count_kv"},
		"a list of texts for heads":       {small().set("llama.attention.head_count", []string{"1"}), "llama.attention.head_count"},
		"a huge number in a list":         {small().set("llama.attention.head_count", []uint32{1 << 20}), "llama.attention.head_count"},
		"alignment zero":                  {small().set("general.alignment", uint32(0)), "general.alignment"},
		"alignment of three":              {small().set("general.alignment", uint32(24)), "general.alignment"},
		"alignment of another type":       {small().set("general.alignment", uint64(32)), "general.alignment"},
		"huge alignment":                  {small().set("general.alignment", uint32(1<<31)), "general.alignment"},
		"a part of a model":               {small().set("split.count", uint32(3)), "split.count"},
		"a huge allocation":               {small().set("split.tensors.count", uint64(1<<40)), "split.tensors.count"},
		"an allocation by text":           {small().set("split.tensors.count", "1099511627776"), "split.tensors.count"},
		"a tensor of no dimensions":       {small().tensor("x", f16), "x dimensions"},
		"a tensor of five dimensions":     {small().tensor("x", f16, 1, 1, 1, 1, 1), "x dimensions"},
		"a tensor without width":          {small().tensor("x", f16, 0), "x dimension 0"},
		"a tensor that is too wide":       {small().tensor("x", f16, 1<<32+1), "x dimension 0"},
		"a tensor that overflows":         {small().tensor("x", f16, 1<<32, 1<<32), "x"},
		"a tensor of no type":             {small().tensor("x", gguf.GGMLType(1000), 32), "x type"},
		"a type that is out of use":       {small().tensor("x", gguf.GGMLTypeQ4_2, 32), "x type"},
		"half a block":                    {small().tensor("x", q40, 33), "x dimension 0"},
		"a tensor at the end of the file": {missing, "output_norm.weight"},
		"a tensor far behind the file":    {overlong, "offset"},
		"a tensor behind the file":        {beyond, "token_embd.weight"},
		"a tensor twice":                  {twice, "tensor"},
		"a tensor without a name":         {small().tensor("", f16, 32), "length"},
	}
}

func TestBadGGUFNamesTheField(t *testing.T) {
	for name, test := range badGGUF() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, size := test.file.file()
			model, err := ReadGGUF(from, size)
			var problem *Problem
			if !errors.As(err, &problem) || problem.Source != sourceGGUF {
				t.Fatalf("%+v, %v", model, err)
			}
			if !strings.Contains(problem.Field, test.field) || problem.Field == "" || len(err.Error()) > 700 {
				t.Errorf("%v, want one with %s", err, test.field)
			}
		})
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	header := small().header()
	for length := range header {
		_, err := ReadGGUF(bytes.NewReader(header[:length]), int64(length))
		var problem *Problem
		if !errors.As(err, &problem) {
			t.Fatalf("cut off after %d of %d bytes: %v", length, len(header), err)
		}
	}
}

func TestSizeOfTheFileIsBounded(t *testing.T) {
	from, _ := small().file()
	for _, size := range []int64{-1, 0, maxGGUF + 1, math.MaxInt64} {
		_, err := ReadGGUF(from, size)
		var problem *Problem
		if !errors.As(err, &problem) || problem.Field != "size" {
			t.Errorf("%d: %v", size, err)
		}
	}
}

// ranges counts what is asked for.
type ranges struct {
	hollow
	asked []int64
	read  int64
	fail  error
}

func (r *ranges) ReadAt(p []byte, at int64) (int, error) {
	if r.fail != nil {
		return 0, r.fail
	}
	r.asked = append(r.asked, at)
	r.read += int64(len(p))
	return r.hollow.ReadAt(p, at)
}

func TestHeaderIsFetchedInFewRanges(t *testing.T) {
	from, size := small().set("x", ggufArray{typeUint8, 4 << 20, make([]byte, 4<<20)}).set("y", ggufArray{typeUint8, 3 << 20, make([]byte, 3<<20)}).file()
	counted := &ranges{hollow: hollow{from.data, size + 1<<35}}
	if _, err := ReadGGUF(counted, size+1<<35); err != nil {
		t.Fatal(err)
	}
	if len(counted.asked) > 4 || counted.read > 16<<20 {
		t.Errorf("%d bytes in ranges at %d", counted.read, counted.asked)
	}
	tiny, size := small().file()
	counted = &ranges{hollow: tiny}
	if _, err := ReadGGUF(counted, size); err != nil || len(counted.asked) != 1 || counted.read > size {
		t.Errorf("%d bytes in ranges at %d, %v", counted.read, counted.asked, err)
	}
}

func TestHeaderLongerThanItsBoundIsNotFetched(t *testing.T) {
	w := small()
	for i := range 10 {
		w.set(fmt.Sprintf("x%d", i), ggufArray{typeUint8, 4 << 20, make([]byte, 4<<20)})
	}
	from, size := w.file()
	counted := &ranges{hollow: from}
	_, err := ReadGGUF(counted, size)
	var problem *Problem
	if !errors.As(err, &problem) || problem.Field != "header" || counted.read > maxHeader {
		t.Errorf("%v after %d bytes", err, counted.read)
	}
}

func TestErrorsOfTheSourceAreKept(t *testing.T) {
	gone := errors.New("connection lost")
	_, err := ReadGGUF(&ranges{fail: gone}, 1000)
	if !errors.Is(err, gone) {
		t.Error(err)
	}
	from, size := small().file()
	_, err = ReadGGUF(hollow{from.data, 10}, size)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a source that is shorter than it says: %v", err)
	}
}

func TestPanicsOfTheLibraryAreProblems(t *testing.T) {
	err := recovered(func() error { panic(strings.Repeat("index out of range ", 100)) })
	var problem *Problem
	if !errors.As(err, &problem) || problem.Source != sourceGGUF || len(problem.Rule) > 200 {
		t.Error(err)
	}
	// The library reads this key as a text, without looking; our checks do not know it.
	from, size := small().set("tokenizer.ggml.model", uint32(1)).file()
	model, err := ReadGGUF(from, size)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := model.Estimate(OllamaRequest{}); !errors.As(err, &problem) {
		t.Errorf("%v", err)
	}
}

// Whatever a file says, it is refused with a problem or estimated within bounds:
// no panic, no allocation by numbers of the file, no loop without end.
func FuzzReadGGUF(f *testing.F) {
	f.Add(small().header(), int64(1<<20), uint8(0))
	for _, file := range []*ggufWriter{nomic(), deepSeekLite().words(4), gemma().words(4), mixtral().words(4)} {
		_, size := file.file()
		f.Add(file.header(), size, uint8(3))
	}
	f.Add(newGGUF("mamba").numbers(map[string]uint32{
		"block_count": 1, "embedding_length": 64, "context_length": 64, "ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "ssm.time_step_rank": 4,
	}).tensor("token_embd.weight", f16, 64, 8).tensor("blk.0.ssm_in.weight", f16, 64, 256).tensor("blk.0.ssm_a", f32, 16, 128).header(), int64(1<<20), uint8(1))
	for _, bad := range badGGUF() {
		if header := bad.file.header(); len(header) < 4096 {
			_, size := bad.file.file()
			f.Add(header, size, uint8(2))
		}
	}
	f.Fuzz(func(t *testing.T, header []byte, size int64, choice uint8) {
		model, err := ReadGGUF(hollow{header, max(size, 0)}, size)
		var problem *Problem
		switch {
		case errors.As(err, &problem):
			return
		case err != nil:
			t.Fatalf("untyped %v", err)
		}
		request := OllamaRequest{
			OnCPU: choice&1 != 0, FlashAttention: choice&2 != 0, MaxNumSeqs: int64(choice >> 4),
			KVCacheType: []string{"", "q8_0", "q4_0", "f16"}[choice>>2&3],
		}
		if choice&8 != 0 {
			request.BudgetMi = 1000
		}
		got, err := model.Estimate(request)
		switch {
		case errors.As(err, &problem):
			return
		case err != nil:
			t.Fatalf("untyped %v", err)
		case got.WeightsMi < 0 || got.KVCacheMi < 0 || got.ReserveMi < 0 || got.MinimumMi < 1 || got.MinimumMi > 3*maxMi || got.RecommendedMi < got.MinimumMi:
			t.Fatalf("%+v", got)
		case got.Placement.RAMMi < 1 || got.Placement.VRAMMi < 0 || got.Placement.GPULayers > got.Placement.Layers:
			t.Fatalf("%+v", got.Placement)
		}
	})
}
