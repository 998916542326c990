package source_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/source"
)

func named(paths ...string) []source.File {
	files := make([]source.File, 0, len(paths))
	for _, path := range paths {
		files = append(files, source.File{Path: path})
	}
	return files
}

// D9: one quantization out of a large repository.
func TestSelect(t *testing.T) {
	t.Parallel()
	all := []string{"README.md", "config.json", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "q/m-Q4_K_M-00001-of-00002.gguf", "q/r/x.json", "täst.json"}
	tests := map[string]struct {
		include, exclude []string
		want             []string
	}{
		"nothing_given_is_all":         {nil, nil, all},
		"base_name_at_any_depth":       {[]string{"*Q4_K_M*.gguf"}, nil, []string{"m-Q4_K_M.gguf", "q/m-Q4_K_M-00001-of-00002.gguf"}},
		"exact":                        {[]string{"m-Q8_0.gguf"}, nil, []string{"m-Q8_0.gguf"}},
		"star_stops_at_a_slash":        {[]string{"q/*.json", "*/x.json", "README*"}, nil, nil},
		"two_stars_do_not":             {[]string{"q/**/*.json"}, nil, []string{"q/r/x.json"}},
		"two_stars_match_no_folder":    {[]string{"**/config.json"}, nil, []string{"config.json"}},
		"folder":                       {[]string{"q/**"}, nil, []string{"q/m-Q4_K_M-00001-of-00002.gguf", "q/r/x.json"}},
		"rooted":                       {[]string{"/*.json"}, nil, []string{"config.json", "täst.json"}},
		"exclude_wins":                 {[]string{"*.gguf"}, []string{"*Q8*", "q/**"}, []string{"m-Q4_K_M.gguf"}},
		"question_mark_is_a_character": {[]string{"t?st.json"}, nil, []string{"täst.json"}},
		"set":                          {[]string{"m-Q[48]_*"}, nil, []string{"m-Q4_K_M.gguf", "m-Q8_0.gguf", "q/m-Q4_K_M-00001-of-00002.gguf"}},
		"negated_set":                  {[]string{"m-Q[!8]_K*"}, nil, []string{"m-Q4_K_M.gguf", "q/m-Q4_K_M-00001-of-00002.gguf"}},
		"case_differs":                 {[]string{"readme.md"}, nil, nil},
		"dot_is_a_dot":                 {[]string{"configXjson"}, nil, nil},
		"misspelt_include":             {[]string{"*.gguf", "*.safetensors"}, nil, nil},
		"nothing_left":                 {nil, []string{"**"}, nil},
		"empty":                        {[]string{""}, nil, nil},
		"open_set":                     {[]string{"a[b"}, nil, nil},
		"reversed_set":                 {[]string{"[z-a]"}, nil, nil},
		"too_long":                     {[]string{strings.Repeat("a", 257)}, nil, nil},
		"too_many":                     {make([]string, 65), nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := source.Select(named(all...), test.include, test.exclude)
			if test.want == nil {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			var paths []string
			for _, file := range got {
				paths = append(paths, file.Path)
			}
			require.Equal(t, test.want, paths)
		})
	}
}

func FuzzSelect(f *testing.F) {
	f.Add("*Q4_K_M*.gguf", "a/b-Q4_K_M.gguf")
	f.Add("[!a-z]/**/?", "A/x")
	f.Add("[]]", "]")
	f.Fuzz(func(t *testing.T, glob, path string) {
		got, err := source.Select(named(path), []string{glob}, nil)
		if (err == nil) != (len(got) == 1) {
			t.Fatalf("%d files, error %v", len(got), err)
		}
	})
}

func TestArrange(t *testing.T) {
	t.Parallel()
	files, err := source.Arrange(named("b", "a/x", "a", "a-b"))
	require.NoError(t, err)
	var paths []string
	for _, file := range files {
		paths = append(paths, file.Path)
	}
	require.Equal(t, []string{"a", "a-b", "a/x", "b"}, paths)
	for name, bad := range map[string][]source.File{
		"twice":        named("a", "b", "a"),
		"empty":        named(""),
		"dot":          named("."),
		"dots":         named(".."),
		"up":           named("a/../../b"),
		"unclean":      named("a//b"),
		"slash_behind": named("a/"),
		"absolute":     named("/a"),
		"too_long":     named(strings.Repeat("a", 1025)),
		"overflow":     {{Path: "a", Size: 1 << 62}, {Path: "b", Size: 1 << 62}},
		"negative":     {{Path: "a", Size: -2}},
		"too_many":     make([]source.File, source.MaxFiles+1),
	} {
		_, err := source.Arrange(bad)
		require.Error(t, err, name)
	}
}
