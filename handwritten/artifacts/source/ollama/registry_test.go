package ollama_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/fetch"
	"magicstick.dev/operator/handwritten/artifacts/source/ollama"
	"magicstick.dev/operator/handwritten/artifacts/source/ollamastandin"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

func TestParse(t *testing.T) {
	t.Parallel()
	type reference = ollama.Reference
	pin := "sha256:" + strings.Repeat("0a", 32)
	tests := map[string]struct {
		text string
		want reference
	}{
		"B07_tag_latest":       {"https://ollama.com/library/qwen3", reference{Namespace: "library", Name: "qwen3", Tag: "latest"}},
		"A12_tag":              {"https://ollama.com/library/qwen3:8b", reference{Namespace: "library", Name: "qwen3", Tag: "8b"}},
		"host_in_any_case":     {"https://WWW.Ollama.com/library/qwen3:8b/", reference{Namespace: "library", Name: "qwen3", Tag: "8b"}},
		"J1_query_is_ignored":  {"https://ollama.com/library/qwen3:8b?x=1#y", reference{Namespace: "library", Name: "qwen3", Tag: "8b"}},
		"short":                {"ollama://qwen2.5:0.5b-instruct_q4", reference{Namespace: "library", Name: "qwen2.5", Tag: "0.5b-instruct_q4"}},
		"short_with_namespace": {"ollama://me/mine", reference{Namespace: "me", Name: "mine", Tag: "latest"}},
		"pinned":               {"qwen3:8b@" + pin, reference{Namespace: "library", Name: "qwen3", Tag: "8b", Layer: pin}},
		"no_scheme":            {"qwen3:8b", reference{Namespace: "library", Name: "qwen3", Tag: "8b"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ollama.Parse(test.text)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
	for name, text := range map[string]string{
		"B08_empty_tag":         "https://ollama.com/library/qwen3:",
		"B09_more_path":         "https://ollama.com/library/qwen3:8b/x",
		"A13_another_namespace": "https://ollama.com/me/private",
		"plain_http":            "http://ollama.com/library/qwen3",
		"another_host":          "https://example.com/library/qwen3",
		"user":                  "https://secret@ollama.com/library/qwen3",
		"another_port":          "https://ollama.com:444/library/qwen3",
		"dots":                  "https://ollama.com/library/..",
		"escaped":               "https://ollama.com/library/a%2fb",
		"three_parts":           "ollama://a/b/c",
		"pinned_to_no_digest":   "ollama://qwen3:8b@sha256:abc",
		"empty":                 "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ollama.Parse(text)
			require.Error(t, err)
			require.Equal(t, conditions.ModelReasonUnsupportedSource, source.Reason(err))
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

type world struct {
	*ollamastandin.Registry
	client *ollama.Registry
	gguf   standin.Content
}

// gguf begins like the file of a model; the rest is noise.
type gguf struct{ standin.Content }

func (g gguf) ReadAt(p []byte, offset int64) (int, error) {
	n, err := g.Content.ReadAt(p, offset)
	if offset < 4 {
		copy(p[:n], "GGUF"[offset:])
	}
	return n, err
}

func patient() source.Retry {
	return source.Retry{Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	registry, err := ollamastandin.Start()
	require.NoError(t, err)
	t.Cleanup(registry.Close)
	w := &world{Registry: registry, gguf: gguf{standin.Pattern(7, 2<<20+5)}}
	w.add(t, nil)
	w.client = ollama.New(ollama.Options{Endpoint: registry.URL(), Fetch: fetch.Options{
		Hosts: registry.Hosts(), Private: registry.Addresses(), PlainHTTP: true, Retry: patient()}})
	t.Cleanup(w.client.Close)
	return w
}

// add serves qwen3:8b after a change.
func (w *world) add(t *testing.T, change func(*ollamastandin.Model)) {
	t.Helper()
	model := ollamastandin.Model{Name: "library/qwen3", Tag: "8b",
		Config: map[string]any{"model_format": "GGUF", "model_family": "", "model_families": []string{"qwen3"}, "model_type": "8.2B", "file_type": "Q4_K_M", "renderer": "qwen3-coder", "parser": "qwen3-coder"},
		Layers: []ollamastandin.Layer{
			{MediaType: "application/vnd.ollama.image.model", Content: w.gguf},
			{MediaType: "application/vnd.ollama.image.template", Content: standin.Bytes([]byte("{{ .Prompt }}"))},
			{MediaType: "application/vnd.ollama.image.license", Content: standin.Bytes([]byte("\n  Apache License\nVersion 2.0\n"))},
			{MediaType: "application/vnd.ollama.image.system", Content: standin.Bytes([]byte("You help."))},
			{MediaType: "application/vnd.ollama.image.params", Content: standin.Bytes([]byte(`{"num_ctx":8192,"stop":["x"]}`))},
		}}
	if change != nil {
		change(&model)
	}
	_, err := w.Add(model)
	require.NoError(t, err)
}

var qwen = ollama.Reference{Namespace: "library", Name: "qwen3", Tag: "8b"}

func read(t *testing.T, file source.File) ([]byte, error) {
	t.Helper()
	reader, err := source.NewReader(t.Context(), file, source.ReadOptions{Buffers: source.NewBuffers(3, 300_000), Retry: patient()})
	require.NoError(t, err)
	defer reader.Close()
	return io.ReadAll(reader)
}

func TestResolve_F12_pins_and_declares(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	snapshot, err := w.client.Resolve(t.Context(), qwen)
	require.NoError(t, err)
	digest := standin.SHA256(w.gguf)
	require.Equal(t, "8b@sha256:"+digest, snapshot.Revision)
	require.Equal(t, "ollama.com/library/qwen3:8b", snapshot.Origin)
	require.Equal(t, source.KindOllama, snapshot.Kind)
	require.Equal(t, source.Declared{Family: "qwen3", ParameterCount: 8_200_000_000, Quantization: "Q4_K_M", ContextWindowTokens: 8192,
		License: "Apache License", Features: []string{"qwen3-coder"}}, snapshot.Declared)
	require.Len(t, snapshot.Files, 1)
	file := snapshot.Files[0]
	require.Equal(t, "qwen3-8b-q4_k_m.gguf", file.Path)
	require.Equal(t, digest, file.SHA256)
	require.Equal(t, w.gguf.Size(), file.Size)

	// The tag moves: the bytes stay those of the pinned layer.
	w.add(t, func(model *ollamastandin.Model) { model.Layers[0].Content = gguf{standin.Pattern(8, 1<<20)} })
	_, err = w.client.Resolve(t.Context(), ollama.Reference{Namespace: "library", Name: "qwen3", Tag: "8b", Layer: "sha256:" + digest})
	require.ErrorIs(t, err, source.ErrChanged, "a restarted worker must not go on with other bytes")
	data, err := read(t, file)
	require.NoError(t, err)
	require.Equal(t, digest, standin.SHA256(standin.Bytes(data)))
}

func TestResolve_F10_refuses_other_manifests(t *testing.T) {
	t.Parallel()
	type document = map[string]any
	model := func(content string) ollamastandin.Layer {
		return ollamastandin.Layer{MediaType: "application/vnd.ollama.image.model", Content: gguf{standin.Bytes([]byte(content))}}
	}
	layer := func(i int, key string, value any) func(document) {
		return func(manifest document) { manifest["layers"].([]any)[i].(document)[key] = value }
	}
	tests := map[string]func(*ollamastandin.Model){
		"two_model_layers": func(m *ollamastandin.Model) { m.Layers = append(m.Layers, model("GGUF2")) },
		"no_model_layer":   func(m *ollamastandin.Model) { m.Layers = m.Layers[1:] },
		"bad_digest":       func(m *ollamastandin.Model) { m.Change = layer(0, "digest", "sha256:XYZ") },
		"other_digest":     func(m *ollamastandin.Model) { m.Change = layer(0, "digest", "sha512:"+strings.Repeat("a", 128)) },
		"size_zero":        func(m *ollamastandin.Model) { m.Change = layer(0, "size", 0) },
		"negative_size":    func(m *ollamastandin.Model) { m.Change = layer(0, "size", -1) },
		"schemaVersion_1":  func(m *ollamastandin.Model) { m.Change = func(manifest document) { manifest["schemaVersion"] = 1 } },
		"an_index": func(m *ollamastandin.Model) {
			m.Change = func(manifest document) { manifest["mediaType"] = "application/vnd.oci.image.index.v1+json" }
		},
		"params_too_large": func(m *ollamastandin.Model) { m.Change = layer(4, "size", 256<<10+1) },
		"config_too_large": func(m *ollamastandin.Model) { m.Config["x"] = strings.Repeat("x", 1<<20) },
		"not_GGUF":         func(m *ollamastandin.Model) { m.Config["model_format"] = "safetensors" },
		"an_adapter": func(m *ollamastandin.Model) {
			m.Layers = append(m.Layers, ollamastandin.Layer{MediaType: "application/vnd.ollama.image.adapter", Content: standin.Bytes([]byte("GGUF"))})
		},
		"F11_first_bytes_are_not_GGUF": func(m *ollamastandin.Model) { m.Layers[0].Content = standin.Bytes([]byte("PK\x03\x04 zip")) },
		"F11_less_than_four_bytes":     func(m *ollamastandin.Model) { m.Layers[0].Content = standin.Bytes([]byte("GG")) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.add(t, change)
			_, err := w.client.Resolve(t.Context(), qwen)
			require.Error(t, err)
			require.Equal(t, conditions.ModelReasonUnsupportedFormat, source.Reason(err), err)
		})
	}
}

func TestResolve_accepts_what_real_models_have(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(t, func(m *ollamastandin.Model) {
		m.Layers = append(m.Layers, ollamastandin.Layer{MediaType: "application/vnd.ollama.image.license", Content: standin.Bytes([]byte("Use policy"))},
			ollamastandin.Layer{MediaType: "application/vnd.ollama.image.projector", Content: gguf{standin.Pattern(3, 5000)}})
		m.Change = func(manifest map[string]any) { delete(manifest, "mediaType") }
	})
	snapshot, err := w.client.Resolve(t.Context(), qwen)
	require.NoError(t, err)
	require.Len(t, snapshot.Files, 2, "a vision model is blind without its projector")
	require.Equal(t, "mmproj-qwen3-8b.gguf", snapshot.Files[0].Path)
	require.Equal(t, "Apache License", snapshot.Declared.License)
}

func TestResolve_missing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.client.Resolve(t.Context(), ollama.Reference{Namespace: "library", Name: "qwen3", Tag: "nope"})
	require.ErrorIs(t, err, source.ErrNotFound)
	require.Equal(t, conditions.ModelReasonSourceNotFound, source.Reason(err))
}

func TestAccess_token_flow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Locked = true
	snapshot, err := w.client.Resolve(t.Context(), qwen)
	require.NoError(t, err)
	// The token and the address of the storage expire half-way.
	w.Expire()
	data, err := read(t, snapshot.Files[0])
	require.NoError(t, err)
	require.Equal(t, snapshot.Files[0].SHA256, standin.SHA256(standin.Bytes(data)))
	asked := 0
	for _, request := range w.Site.Requests() {
		if request.Path == "/token" {
			asked++
			require.Empty(t, request.Header.Get("Authorization"))
			require.Contains(t, request.Query, "scope=repository%3Alibrary%2Fqwen3%3Apull")
		}
	}
	require.Equal(t, 2, asked)
	for _, request := range w.Storage.Requests() {
		require.NotContains(t, fmt.Sprint(request), "stand-in-token")
	}
}

func TestAccess_token_service_elsewhere_is_not_asked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, challenge := range []string{`Bearer realm="https://example.com/token"`, `Bearer realm="http://169.254.169.254/latest"`, `Basic realm="x"`, `Bearer realm="`, `Bearer`, ``} {
		w.Site.Faults.Clear()
		w.Site.Faults.Add(standin.Fault{Kind: standin.Status, Status: 401, Header: map[string]string{"WWW-Authenticate": challenge}})
		_, err := w.client.Resolve(t.Context(), qwen)
		require.Error(t, err, challenge)
		require.Contains(t, []string{conditions.ModelReasonAuthenticationFailed, conditions.ModelReasonUnsupportedSource}, source.Reason(err), challenge)
		require.False(t, source.Temporary(err), challenge)
	}
}

func TestRead_faults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault  standin.Fault
		reason string // "" = survives
	}{
		"reset":            {standin.Fault{Kind: standin.Reset, At: 70_000, Times: 6}, ""},
		"500":              {standin.Fault{Kind: standin.Status, Status: 500, Times: 3}, ""},
		"429":              {standin.Fault{Kind: standin.Status, Status: 429, Times: 3}, ""},
		"expired_address":  {standin.Fault{Kind: standin.Status, Status: 403, Times: 1}, ""},
		"F07_no_ranges":    {standin.Fault{Kind: standin.NoRanges}, ""},
		"truncated":        {standin.Fault{Kind: standin.Truncate, At: 1 << 20}, conditions.ModelReasonIntegrityCheckFailed},
		"wrong_byte":       {standin.Fault{Kind: standin.WrongByte, At: 1 << 20}, conditions.ModelReasonIntegrityCheckFailed},
		"changed":          {standin.Fault{Kind: standin.Changed, At: 1 << 20}, conditions.ModelReasonIntegrityCheckFailed},
		"to_loopback":      {standin.Fault{Kind: standin.Redirect, Location: "http://127.0.0.1:1/"}, conditions.ModelReasonUnsupportedSource},
		"to_link-local":    {standin.Fault{Kind: standin.Redirect, Location: "http://169.254.169.254/"}, conditions.ModelReasonUnsupportedSource},
		"always_resetting": {standin.Fault{Kind: standin.Reset}, conditions.ModelReasonPublicationFailed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			snapshot, err := w.client.Resolve(t.Context(), qwen)
			require.NoError(t, err)
			w.Storage.Faults.Add(test.fault)
			data, err := read(t, snapshot.Files[0])
			if test.reason != "" {
				require.Error(t, err)
				require.Equal(t, test.reason, source.Reason(err), err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, snapshot.Files[0].SHA256, standin.SHA256(standin.Bytes(data)))
		})
	}
}

func TestResolve_small_blobs_are_checked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Storage.Faults.Add(standin.Fault{Kind: standin.WrongByte, At: 1})
	_, err := w.client.Resolve(t.Context(), qwen)
	require.ErrorIs(t, err, source.ErrDigest)
	w.Storage.Faults.Clear()
	w.Site.Faults.Add(standin.Fault{Kind: standin.WrongByte, At: 1, Path: "/manifests/"})
	_, err = w.client.Resolve(t.Context(), qwen)
	require.ErrorIs(t, err, source.ErrDigest)
}

// The stand-in is one that the reference client of OCI registries can pull from.
func TestStandIn_oras_pulls_the_model(t *testing.T) {
	t.Parallel()
	for _, locked := range []bool{false, true} {
		w := newWorld(t)
		w.Locked = locked
		repository, err := remote.NewRepository(w.Site.Address().String() + "/library/qwen3")
		require.NoError(t, err)
		repository.PlainHTTP = true
		repository.Client = &auth.Client{}
		store := memory.New()
		root, err := oras.Copy(t.Context(), repository, "8b", store, "8b", oras.DefaultCopyOptions)
		require.NoError(t, err)
		require.Equal(t, "application/vnd.docker.distribution.manifest.v2+json", root.MediaType)
		snapshot, err := w.client.Resolve(t.Context(), qwen)
		require.NoError(t, err)
		descriptor, err := repository.Blobs().Resolve(t.Context(), "sha256:"+snapshot.Files[0].SHA256)
		require.NoError(t, err)
		require.Equal(t, w.gguf.Size(), descriptor.Size)
		descriptor.MediaType = "application/vnd.ollama.image.model" // as the manifest says
		exists, err := store.Exists(t.Context(), descriptor)
		require.NoError(t, err)
		require.True(t, exists)
		byDigest, err := repository.Resolve(t.Context(), root.Digest.String())
		require.NoError(t, err)
		require.Equal(t, root.Digest, byDigest.Digest)
	}
}
