package huggingface_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingface"
)

func TestParse(t *testing.T) {
	t.Parallel()
	type reference = huggingface.Reference
	sha := strings.Repeat("0a", 20)
	tests := map[string]struct {
		text string
		want reference
	}{
		"B01_revision_in_the_path":               {"https://huggingface.co/Qwen/Qwen3-8B/tree/main", reference{Owner: "Qwen", Name: "Qwen3-8B", Revision: "main"}},
		"B02_revision_in_the_query":              {"https://huggingface.co/Qwen/Qwen3-8B?revision=abc", reference{Owner: "Qwen", Name: "Qwen3-8B", Revision: "abc"}},
		"B05_host_in_any_case":                   {"https://WWW.HuggingFace.co/a/b", reference{Owner: "a", Name: "b"}},
		"short_host":                             {"https://hf.co/a/b/", reference{Owner: "a", Name: "b"}},
		"path_wins_over_query":                   {"https://huggingface.co/a/b/tree/x?revision=y", reference{Owner: "a", Name: "b", Revision: "x"}},
		"tree_without_revision_leaves_the_query": {"https://huggingface.co/a/b/tree?revision=y", reference{Owner: "a", Name: "b", Revision: "y"}},
		"blob_names_a_file":                      {"https://huggingface.co/a/b/blob/main/q/m-Q4_K_M.gguf", reference{Owner: "a", Name: "b", Revision: "main", File: "q/m-Q4_K_M.gguf"}},
		"resolve_names_a_file":                   {"https://huggingface.co/a/b/resolve/v1/m.gguf?download=true", reference{Owner: "a", Name: "b", Revision: "v1", File: "m.gguf"}},
		"query_names_a_file":                     {"https://huggingface.co/a/b?file=m.gguf", reference{Owner: "a", Name: "b", File: "m.gguf"}},
		"branch_with_slash_in_the_query":         {"https://huggingface.co/a/b?revision=refs/pr/1", reference{Owner: "a", Name: "b", Revision: "refs/pr/1"}},
		"branch_with_escaped_slash_in_the_path":  {"https://huggingface.co/a/b/tree/refs%2Fpr%2F1", reference{Owner: "a", Name: "b", Revision: "refs/pr/1"}},
		"fragment_is_ignored":                    {"https://huggingface.co/a/b#usage", reference{Owner: "a", Name: "b"}},
		"scheme_hf":                              {"hf://a/b", reference{Owner: "a", Name: "b"}},
		"scheme_hf_revision_and_file":            {"hf://a/b@v1/d/m.gguf", reference{Owner: "a", Name: "b", Revision: "v1", File: "d/m.gguf"}},
		"scheme_hf_file_with_at":                 {"hf://a/b/d/m@2.gguf", reference{Owner: "a", Name: "b", File: "d/m@2.gguf"}},
		"scheme_hf_escaped_revision":             {"hf://a/b@refs%2Fpr%2F1", reference{Owner: "a", Name: "b", Revision: "refs/pr/1"}},
		"short":                                  {"a/b", reference{Owner: "a", Name: "b"}},
		"short_with_commit":                      {"a/b@" + sha, reference{Owner: "a", Name: "b", Revision: sha}},
		"short_with_slash_in_revision":           {"a/b@refs/pr/1", reference{Owner: "a", Name: "b", Revision: "refs/pr/1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := huggingface.Parse(test.text)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestParse_refuses(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"B04_owner_only":        "https://huggingface.co/Qwen",
		"A11_owner_only":        "https://hf.co/x",
		"B06_other_host":        "https://example.com/a/b",
		"plain_http":            "http://huggingface.co/a/b",
		"other_port":            "https://huggingface.co:444/a/b",
		"user_in_the_URL":       "https://hf_secret@huggingface.co/a/b",
		"host_as_prefix":        "https://huggingface.co.example.com/a/b",
		"datasets":              "https://huggingface.co/datasets/a/b",
		"spaces":                "https://huggingface.co/spaces/a/b",
		"api":                   "https://huggingface.co/api/models",
		"models":                "https://huggingface.co/models/a",
		"docs":                  "https://huggingface.co/docs/hub",
		"other_page":            "https://huggingface.co/a/b/discussions/1",
		"folder_alone":          "https://huggingface.co/a/b/tree/main/unet",
		"dots_as_name":          "https://huggingface.co/a/..",
		"escaped_dots_as_owner": "https://huggingface.co/%2e%2e/b",
		"slash_in_a_name":       "https://huggingface.co/a/b%2Fc",
		"double_dash":           "https://huggingface.co/a/b--c",
		"file_leaves_the_tree":  "https://huggingface.co/a/b/blob/main/..%2F..%2Fx",
		"absolute_file":         "https://huggingface.co/a/b?file=/etc/passwd",
		"revision_with_dots":    "https://huggingface.co/a/b?revision=a..b",
		"revision_with_line":    "https://huggingface.co/a/b?revision=a%0Ab",
		"bad_escape":            "https://huggingface.co/a/b%zz",
		"empty":                 "",
		"one_word":              "qwen",
		"three_parts":           "a/b/c",
		"empty_revision":        "a/b@",
		"too_long":              "a/b@" + strings.Repeat("x", 256),
		"far_too_long":          "https://huggingface.co/a/b?revision=" + strings.Repeat("x", 4096),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := huggingface.Parse(text)
			require.Error(t, err)
			require.Equal(t, conditions.ModelReasonUnsupportedSource, source.Reason(err))
			require.NotContains(t, err.Error(), "hf_secret")
			require.Less(t, len(err.Error()), 600)
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"https://huggingface.co/Qwen/Qwen3-8B/tree/main", "hf://a/b@v1/d/m.gguf", "a/b@refs/pr/1", "https://hf.co/a/b?revision=%2e%2e&file=x", "https://u:p@hf.co/a/b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := huggingface.Parse(text)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		for _, value := range []string{got.Owner, got.Name} {
			if value == "" || value == "." || value == ".." || strings.ContainsAny(value, "/?#%\\ ") {
				t.Fatalf("%q gives %+v", text, got)
			}
		}
		if got.File != "" && source.CheckPath(got.File) != nil || strings.Contains(got.Revision, "..") {
			t.Fatalf("%q gives %+v", text, got)
		}
	})
}
