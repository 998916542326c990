package estimates

import (
	"errors"
	"strings"
	"testing"
)

func TestReferenceForms(t *testing.T) {
	for text, want := range map[string]Reference{
		"Qwen/Qwen2.5-0.5B-Instruct":                       {"Qwen", "Qwen2.5-0.5B-Instruct"},
		"hf://Qwen/Qwen2.5-0.5B-Instruct":                  {"Qwen", "Qwen2.5-0.5B-Instruct"},
		"HF://a/b":                                         {"a", "b"},
		"  hf://a/b\n":                                     {"a", "b"},
		"https://huggingface.co/a/b":                       {"a", "b"},
		"https://www.huggingface.co/a/b":                   {"a", "b"},
		"HTTPS://HuggingFace.co/a/b":                       {"a", "b"},
		"https://huggingface.co/a/b/":                      {"a", "b"},
		"https://huggingface.co/a/b/tree/main":             {"a", "b"},
		"https://huggingface.co/a/b/blob/main/config.json": {"a", "b"},
		"https://huggingface.co/a/b/resolve/main/model-00001-of-00002.safetensors":       {"a", "b"},
		"https://huggingface.co/a/b/resolve/refs%2Fpr%2F1/config.json?download=true#top": {"a", "b"},
		"0x/1_2.3-4": {"0x", "1_2.3-4"},
		"resolve/b":  {"resolve", "b"},
	} {
		got, err := ParseReference(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	shownAs := Reference{"a", "b"}
	if shownAs.Repo() != "a/b" || shownAs.HF() != "hf://a/b" || shownAs.SourceURL() != "https://huggingface.co/a/b" {
		t.Errorf("%s %s %s", shownAs.Repo(), shownAs.HF(), shownAs.SourceURL())
	}
}

func TestReferenceIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                  "",
		"only one part":            "llama",
		"three parts":              "a/b/c",
		"empty owner":              "/b",
		"empty model":              "a/",
		"leading dot":              "a/.b",
		"way up":                   "../b",
		"leading dash":             "-a/b",
		"space inside":             "a/b c",
		"line break inside":        "a/b\nc",
		"escaped slash":            "a%2Fb/c",
		"no ASCII":                 "ä/b",
		"http":                     "http://huggingface.co/a/b",
		"another host":             "https://example.com/a/b",
		"host that only begins so": "https://huggingface.co.example.com/a/b",
		"host that only ends so":   "https://evilhuggingface.co/a/b",
		"port":                     "https://huggingface.co:8443/a/b",
		"user":                     "https://me@huggingface.co/a/b",
		"user that looks so":       "https://huggingface.co@example.com/a/b",
		"view that is none":        "https://huggingface.co/a/b/discussions/1",
		"data set":                 "https://huggingface.co/datasets/squad",
		"space":                    "spaces/demo",
		"only the host":            "https://huggingface.co",
		"Ollama":                   "ollama://qwen2.5:0.5b",
		"scheme without name":      "://a/b",
		"revision":                 "hf://a/b@main",
		"too long":                 "hf://a/" + strings.Repeat("b", 2048),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseReference(text)
			var problem *Problem
			if !errors.As(err, &problem) || problem.Source != sourceReference || problem.Field != "url" || problem.Rule == "" {
				t.Errorf("%q: %+v, %v", text, got, err)
			}
		})
	}
}

func TestReferenceErrorsHideTheQuery(t *testing.T) {
	_, err := ParseReference("https://example.com/a/b?token=secret")
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

// A reference that is accepted can be written down and read again, and leads
// nowhere but to huggingface.co.
func FuzzParseReference(f *testing.F) {
	for _, text := range []string{"a/b", "hf://a/b", "https://huggingface.co/a/b/tree/main", "https://a@huggingface.co:1/%2e%2e/b?c#d", "://", "hf://"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		reference, err := ParseReference(text)
		if err != nil {
			return
		}
		for _, form := range []string{reference.Repo(), reference.HF(), reference.SourceURL()} {
			if again, err := ParseReference(form); err != nil || again != reference {
				t.Fatalf("%q became %+v, %q reads as %+v, %v", text, reference, form, again, err)
			}
		}
	})
}
