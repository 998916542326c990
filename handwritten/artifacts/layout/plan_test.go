package layout

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlanLayers(t *testing.T) {
	for name, c := range map[string]struct {
		files []File
		want  []string
	}{
		"G01_one_small_file":         {[]File{{Path: "model.gguf", Size: 5}}, []string{"model.gguf"}},
		"G01_one_large_file":         {[]File{{Path: "model.gguf", Size: OwnLayerSize}}, []string{"model.gguf"}},
		"G02_small_files_come_first": {[]File{{Path: "a-00001.safetensors", Size: OwnLayerSize}, {Path: "a-00002.safetensors", Size: OwnLayerSize}, {Path: "config.json", Size: 1024}, {Path: "tokenizer.json", Size: 9}}, []string{".: config.json tokenizer.json", "a-00001.safetensors", "a-00002.safetensors"}},
		"just_below_the_threshold":   {[]File{{Path: "a.gguf", Size: OwnLayerSize - 1}, {Path: "b", Size: 0}}, []string{".: a.gguf b"}},
		"single_small_companion":     {[]File{{Path: "z.gguf", Size: OwnLayerSize}, {Path: "config.json", Size: 2}}, []string{"config.json", "z.gguf"}},
	} {
		t.Run(name, func(t *testing.T) {
			layers, err := Plan(c.files)
			require.NoError(t, err)
			got := make([]string, len(layers))
			for i, layer := range layers {
				got[i] = layer.Path()
				if got[i] == "." {
					got[i] += ":"
					for _, file := range layer.Files {
						got[i] += " " + file.Path
					}
				}
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestPlanKeepsToTheLayersOfAnOverlayMount(t *testing.T) {
	files := []File{{Path: "config.json", Size: 1}}
	for i := range 1000 {
		files = append(files, File{Path: fmt.Sprintf("model-%05d.safetensors", i), Size: OwnLayerSize})
	}
	layers, err := Plan(files)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(layers), MaxLayers)
	count := 0
	for _, layer := range layers {
		count += len(layer.Files)
	}
	assert.Equal(t, len(files), count)
	layers, err = Plan(files[:MaxLayers])
	require.NoError(t, err)
	assert.Len(t, layers, MaxLayers, "as long as there is room, every large file has a layer of its own")
}

func TestPlanRefuses(t *testing.T) {
	one := func(path string, size int64) []File { return []File{{Path: path, Size: size}} }
	for name, c := range map[string]struct {
		files []File
		want  string
	}{
		"nothing":           {nil, "there is no file"},
		"too_many":          {make([]File, MaxFiles+1), "at most 100000"},
		"empty_path":        {one("", 1), "its path is empty"},
		"absolute":          {one("/etc/passwd", 1), "not relative and clean"},
		"parent":            {one("../x", 1), "not relative and clean"},
		"inner_parent":      {one("a/../../x", 1), "not relative and clean"},
		"dot":               {one(".", 1), "not relative and clean"},
		"unclean":           {one("a//b", 1), "not relative and clean"},
		"backslash":         {one(`a\b`, 1), "backslash"},
		"newline":           {one("a\nb", 1), "control character"},
		"drive":             {one("C:x", 1), "drive letter"},
		"not_utf8":          {one("a\xff", 1), "not UTF-8"},
		"long_path":         {one(strings.Repeat("a/", 3000)+"b", 1), "at most 4096"},
		"long_name":         {one(strings.Repeat("a", 256), 1), "at most 255"},
		"whiteout":          {one("a/.wh.b", 1), ".wh."},
		"size_unknown":      {one("a", -1), "size is unknown"},
		"too_large":         {one("a", MaxFileSize+1), "at most 2199023255552"},
		"twice":             {[]File{{Path: "a"}, {Path: "a"}}, `file "a": it is listed twice`},
		"case_only":         {[]File{{Path: "a"}, {Path: "A"}}, `upper and lower case only`},
		"file_and_folder":   {[]File{{Path: "a/b"}, {Path: "a"}}, `file "a": it is a folder of "a/b"`},
		"file_and_folder_2": {[]File{{Path: "a/b"}, {Path: "a/c"}, {Path: "A"}}, `file "A": it is a folder of "a/b"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(c.files)
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.want)
			assert.Contains(t, err.Error(), "planning the layers: ")
		})
	}
}

func TestKeyIsTheIdentityOfPromisedBytes(t *testing.T) {
	file := File{Path: "a", Size: 1, SHA256: strings.Repeat("0", 64)}
	key := func(files ...File) string { return newLayer(files).Key() }
	changed := func(change func(*File)) File {
		other := file
		change(&other)
		return other
	}
	assert.NotEmpty(t, key(file))
	assert.Equal(t, key(file), key(file))
	assert.Empty(t, key(file, File{Path: "b", Size: 1}), "a file without a promise")
	assert.NotEqual(t, key(file), key(changed(func(f *File) { f.Path = "b" })))
	assert.NotEqual(t, key(file), key(changed(func(f *File) { f.Size = 2 })))
	assert.NotEqual(t, key(file), key(changed(func(f *File) { f.SHA256 = strings.Repeat("1", 64) })))
	assert.NotEqual(t, Fingerprint([]Layer{newLayer([]File{file})}), Fingerprint([]Layer{newLayer([]File{file, changed(func(f *File) { f.Path = "b" })})}))
}

func TestBaseOfALayer(t *testing.T) {
	for path, want := range map[string]Base{
		"model.safetensors": Weight, "a/b/MODEL.GGUF": Weight, "config.json": WeightConfig, "tokenizer.model": WeightConfig,
		"README.md": Doc, "LICENSE": Doc, "modeling.py": Code, "data.parquet": Dataset, "merges.txt": WeightConfig,
	} {
		assert.Equal(t, want, newLayer([]File{{Path: path, Size: 1}}).Base(), path)
	}
	assert.Equal(t, Weight, newLayer([]File{{Path: "weights-of-a-new-kind", Size: OwnLayerSize}}).Base())
	assert.Equal(t, WeightConfig, newLayer([]File{{Path: "tokenizer.json", Size: OwnLayerSize}}).Base())
	assert.Equal(t, WeightConfig, newLayer([]File{{Path: "README.md"}, {Path: "config.json"}}).Base())
	assert.Equal(t, Weight, newLayer([]File{{Path: "README.md"}, {Path: "config.json"}, {Path: "m.gguf"}}).Base())
}
