package ollama

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParameterCount_rounds_to_the_nearest(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"8.2B": 8_200_000_000, "70b": 70_000_000_000, "137M": 137_000_000, "22.7K": 22_700, "0.6B": 600_000_000, "1.1B": 1_100_000_000,
		"": 0, "B": 0, "8": 0, "-1B": 0, "1e9B": 0, "8.2T": 0, "999999999B": 0, "8x7B": 0,
	} {
		require.Equal(t, want, parameterCount(text), text)
	}
}

func TestFileName(t *testing.T) {
	t.Parallel()
	reference := Reference{Namespace: "library", Name: "qwen3", Tag: "8b"}
	require.Equal(t, "qwen3-8b-q4_k_m.gguf", fileName(reference, "Q4_K_M"))
	require.Equal(t, "qwen3-8b.gguf", fileName(reference, ""))
	require.Equal(t, "qwen3-8b.gguf", fileName(reference, "../../x"))
}

func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		`{"schemaVersion":2,"config":{"mediaType":"a","digest":"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","size":5},"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","size":5}]}`,
		`{"schemaVersion":1}`, `{"layers":[{"size":1e99}]}`, `null`, `{"model_format":"gguf","model_families":["a"],"model_type":"8B"}`, `{"num_ctx":8192}`, `{"num_ctx":"x"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if chosen, err := parseManifest(data); err == nil {
			if chosen.model.check(0) != nil || chosen.config.check(maxConfig) != nil || chosen.params != nil && chosen.params.check(maxSmall) != nil {
				t.Fatalf("accepted %+v", chosen)
			}
		}
		if parsed, err := parseConfig(data); err == nil && (len(parsed.Family) > maxFact || parameterCount(parsed.Type) < 0) {
			t.Fatalf("accepted %+v", parsed)
		}
		if contextWindow(data) < 0 || len(firstLine(data)) > maxFact {
			t.Fatal("unbounded")
		}
	})
}

func FuzzChallenge(f *testing.F) {
	for _, seed := range []string{`Bearer realm="https://ollama.com/token",service="ollama.com",scope="repository:library/x:pull"`, `Bearer realm=a,,b="`, `Basic x`, `Bearer =`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, challenge string) {
		if at, err := tokenService(challenge); err == nil && at.Host == "" {
			t.Fatalf("accepted %q", challenge)
		}
	})
}
