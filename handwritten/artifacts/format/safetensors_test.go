package format_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/format"
)

// safetensors is a file with a header and weights of a size in bytes.
func safetensors(header string, weights int) []byte {
	content := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(content, header...), make([]byte, weights)...)
}

const twoTensors = `{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`

func TestReadSafetensors(t *testing.T) {
	t.Parallel()
	tensors, err := format.ReadSafetensors(t.Context(), file("m.safetensors", safetensors(twoTensors, 16)))
	require.NoError(t, err)
	require.Len(t, tensors, 2)
	require.Equal(t, "a", tensors[0].Name)
	require.EqualValues(t, 1, tensors[0].Elements)
	require.EqualValues(t, 6, tensors[1].Elements)
	for name, test := range map[string]struct {
		content []byte
		problem string
	}{
		"empty":             {nil, "in the middle"},
		"header too long":   {binary.LittleEndian.AppendUint64(nil, 1<<63), "length of the header"},
		"beyond the file":   {binary.LittleEndian.AppendUint64(nil, 50), "length of the header"},
		"no JSON":           {safetensors(`{a`, 0), "no JSON"},
		"cut short":         {safetensors(twoTensors, 15), "the file has 15 bytes"},
		"more than tensors": {safetensors(twoTensors, 17), "the file has 17 bytes"},
		"unknown type":      {safetensors(`{"a":{"dtype":"X","shape":[1],"data_offsets":[0,1]}}`, 1), "dtype"},
		"wrong size":        {safetensors(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}`, 1), "span 1 bytes"},
		"overlap":           {safetensors(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), "begins at byte 1"},
		"gap":               {safetensors(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "begins at byte 1"},
		"twice":             {safetensors(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "twice"},
		"overflow":          {safetensors(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0), "2^57"},
		"negative":          {safetensors(`{"a":{"dtype":"U8","shape":[-1,-1],"data_offsets":[0,1]}}`, 1), "whole numbers"},
		"trailing":          {safetensors(`{}{}`, 0), "follows"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			t.Parallel()
			_, err := format.ReadSafetensors(t.Context(), file("m.safetensors", test.content))
			require.ErrorContains(t, err, test.problem)
		})
	}
}

func TestCheckIndex(t *testing.T) {
	t.Parallel()
	index := []byte(`{"metadata":{"total_parameters":7},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}`)
	total, err := format.CheckIndex("unet/m.safetensors.index.json", index, []string{"unet/a.safetensors", "unet/b.safetensors"})
	require.NoError(t, err)
	require.EqualValues(t, 7, total)
	_, err = format.CheckIndex("m.safetensors.index.json", index, []string{"a.safetensors"})
	require.ErrorContains(t, err, `the first is "b.safetensors"`)
}

func FuzzReadSafetensors(f *testing.F) {
	f.Add(safetensors(twoTensors, 16))
	f.Add(safetensors(`{}`, 0))
	f.Add(safetensors(`{"a":{"dtype":"F4","shape":[0,9],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, content []byte) {
		tensors, err := format.ReadSafetensors(t.Context(), file("m.safetensors", content))
		if err != nil {
			return
		}
		end := int64(0)
		for _, tensor := range tensors {
			require.Equal(t, end, tensor.Offsets[0])
			end = tensor.Offsets[1]
		}
		require.LessOrEqual(t, end, int64(len(content)))
	})
}
