package format_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/format"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// file is one in memory.
func file(name string, content []byte) source.File {
	return source.File{Path: name, Size: int64(len(content)), Open: func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
		rest := content[min(offset, int64(len(content))):]
		if length >= 0 {
			rest = rest[:min(length, int64(len(rest)))]
		}
		return io.NopCloser(bytes.NewReader(rest)), nil
	}}
}

func named(names ...string) []source.File {
	files := make([]source.File, 0, len(names))
	for _, name := range names {
		files = append(files, file(name, []byte("....")))
	}
	slices.SortFunc(files, func(a, b source.File) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) })
	return files
}

func TestSelect(t *testing.T) {
	t.Parallel()
	pickle := format.Options{AllowPickle: true}
	for name, test := range map[string]struct {
		files   []string
		options format.Options
		format  string
		want    []string
		problem string
	}{
		"C01": {files: []string{"config.json", "model.safetensors"}, format: format.Safetensors, want: []string{"config.json", "model.safetensors"}},
		"C02": {
			files:  []string{"config.json", "model-00001-of-2.safetensors", "model.safetensors.index.json", "README.md", "modeling.py", "onnx/model.onnx"},
			format: format.Safetensors, want: []string{"config.json", "model-00001-of-2.safetensors", "model.safetensors.index.json"},
		},
		"C03": {files: []string{"model.gguf"}, format: format.GGUF, want: []string{"model.gguf"}},
		"C04": {
			files:  []string{"model_index.json", "unet/diffusion_pytorch_model.safetensors"},
			format: format.Diffusers, want: []string{"model_index.json", "unet/diffusion_pytorch_model.safetensors"},
		},
		"C06":                            {files: []string{"config.json"}, problem: "no file with weights"},
		"C07":                            {files: []string{"config.json", "x.safetensors", "lib.so"}, problem: `"lib.so" may not be in a model`},
		"C08":                            {files: []string{"config.json", "x.safetensors", "weights.zip"}, problem: `"weights.zip" may not be in a model`},
		"C10":                            {files: []string{"model_index.json", "config.json", "x.safetensors"}, format: format.Diffusers, want: []string{"config.json", "model_index.json", "x.safetensors"}},
		"C11":                            {files: []string{"docs/tokenizer.json", "config.json", "x.safetensors"}, format: format.Safetensors, want: []string{"config.json", "x.safetensors"}},
		"C14":                            {files: []string{"weights/extra.txt", "config.json", "x.safetensors"}, format: format.Safetensors, want: []string{"config.json", "x.safetensors"}},
		"two formats are ambiguous":      {files: []string{"config.json", "model.safetensors", "model.gguf"}, problem: "Safetensors and GGUF"},
		"Python alone is no model":       {files: []string{"a.py"}, problem: "finding the format"},
		"several quantizations":          {files: []string{"m-Q4_K_M.gguf", "m-Q8_0.gguf"}, problem: "m-Q4_K_M.gguf, m-Q8_0.gguf"},
		"one quantization is named":      {files: []string{"m-Q4_K_M.gguf", "m-Q8_0.gguf", "config.json"}, options: format.Options{Wanted: "m-Q8_0.gguf"}, format: format.GGUF, want: []string{"config.json", "m-Q8_0.gguf"}},
		"a part stands for all":          {files: []string{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "n.gguf"}, options: format.Options{Wanted: "m-00002-of-00002.gguf"}, format: format.GGUF, want: []string{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}},
		"a part is missing":              {files: []string{"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}, problem: "part 2 of 3 is missing"},
		"a projector is a companion":     {files: []string{"m.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"}, format: format.GGUF, want: []string{"m.gguf", "mmproj-F16.gguf"}},
		"a projector alone is no model":  {files: []string{"mmproj-F16.gguf"}, problem: "no file with weights"},
		"pickle alone is refused":        {files: []string{"model_index.json", "unet/diffusion_pytorch_model.bin"}, problem: "pickle"},
		"pickle may be allowed":          {files: []string{"model_index.json", "unet/diffusion_pytorch_model.bin"}, options: pickle, format: format.Diffusers, want: []string{"model_index.json", "unet/diffusion_pytorch_model.bin"}},
		"pickle beside safe weights":     {files: []string{"model_index.json", "u/model.safetensors", "u/pytorch_model.bin"}, format: format.Diffusers, want: []string{"model_index.json", "u/model.safetensors"}},
		"pickle of one part is refused":  {files: []string{"model_index.json", "u/model.safetensors", "v/pytorch_model.bin"}, problem: "v/pytorch_model.bin"},
		"pickle of transformers refused": {files: []string{"config.json", "pytorch_model.bin"}, problem: "pickle"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selection, err := format.Select(t.Context(), named(test.files...), test.options)
			if test.problem != "" {
				var failed *source.Error
				require.ErrorAs(t, err, &failed)
				require.Equal(t, conditions.ModelReasonUnsupportedFormat, failed.Reason)
				require.ErrorContains(t, err, test.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.format, selection.Format)
			var got []string
			for _, kept := range selection.Files {
				got = append(got, kept.Path)
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestSelect_C13_magic_of_a_single_file_without_extension(t *testing.T) {
	t.Parallel()
	selection, err := format.Select(t.Context(), []source.File{file("model", []byte("GGUF\x03\x00"))}, format.Options{})
	require.NoError(t, err)
	require.Equal(t, format.GGUF, selection.Format)
	_, err = format.Select(t.Context(), []source.File{file("model", []byte("PK\x03\x04\x00"))}, format.Options{})
	require.ErrorContains(t, err, "finding the format")
}
