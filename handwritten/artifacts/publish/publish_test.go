package publish

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/registry/remote"

	"magicstick.dev/operator/handwritten/artifacts/layout"
	"magicstick.dev/operator/handwritten/artifacts/registrytest"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingfacestandin"
	"magicstick.dev/operator/handwritten/artifacts/source/ollamastandin"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
	"magicstick.dev/operator/handwritten/artifacts/transfer"
)

// model is a model with two shards that are layers of their own.
func model() map[string]standin.Content {
	return map[string]standin.Content{
		"config.json":                      standin.Bytes([]byte(`{"architectures":["LlamaForCausalLM"]}`)),
		"empty.txt":                        standin.Bytes(nil),
		"tokenizer/tokenizer.json":         standin.Pattern(3, 300_000),
		"model-00001-of-00002.safetensors": standin.Pattern(1, layout.OwnLayerSize+11),
		"model-00002-of-00002.safetensors": standin.Pattern(2, layout.OwnLayerSize),
	}
}

// startHub serves the model as owner/model until the test ends.
func startHub(t *testing.T) *huggingfacestandin.Hub {
	t.Helper()
	hub, err := huggingfacestandin.Start()
	require.NoError(t, err)
	t.Cleanup(hub.Close)
	hub.Add(huggingfacestandin.Repository{Name: "owner/model", Commit: strings.Repeat("a", 40), Files: model()})
	return hub
}

func startRegistry(t *testing.T, options registrytest.Options) *registrytest.Registry {
	t.Helper()
	options.Scratch = t.TempDir()
	registry, err := registrytest.Start(options)
	require.NoError(t, err)
	t.Cleanup(registry.Stop)
	return registry
}

// planOf resolves and lays out a source.
func planOf(t *testing.T, hub *huggingfacestandin.Hub, text string) Plan {
	t.Helper()
	origins := Origins{}
	if hub != nil {
		origins = Origins{HuggingFace: hub.URL().String(), Hosts: hub.Hosts()}
	}
	snapshot, closing, err := Resolve(t.Context(), text, origins)
	require.NoError(t, err)
	t.Cleanup(closing)
	plan, err := NewPlan(snapshot, layout.Metadata{})
	require.NoError(t, err)
	return plan
}

func targetOf(t *testing.T, registry *registrytest.Registry, name string) *transfer.Target {
	t.Helper()
	target, err := transfer.NewTarget(registry.Address+"/"+name, transfer.TargetOptions{PlainHTTP: true, Username: registrytest.Username, Password: registrytest.Password})
	require.NoError(t, err)
	return target
}

func quick() Options {
	return Options{Transfer: transfer.Options{Retry: transfer.Retry{For: 5 * time.Second, First: time.Millisecond, Longest: 50 * time.Millisecond}}}
}

// pull fetches a manifest and all it needs with oras.
func pull(t *testing.T, registry *registrytest.Registry, name, reference string) (*memory.Store, ocispec.Manifest) {
	t.Helper()
	from, err := remote.NewRepository(registry.Address + "/" + name)
	require.NoError(t, err)
	from.PlainHTTP = true
	to := memory.New()
	descriptor, err := oras.Copy(t.Context(), from, reference, to, "", oras.DefaultCopyOptions)
	require.NoError(t, err)
	body, err := to.Fetch(t.Context(), descriptor)
	require.NoError(t, err)
	var manifest ocispec.Manifest
	require.NoError(t, json.NewDecoder(body).Decode(&manifest))
	return to, manifest
}

func TestPublishedArtifactIsWhatWasInTheSource(t *testing.T) {
	t.Parallel()
	hub, registry := startHub(t), startRegistry(t, registrytest.Options{Folder: t.TempDir()})
	plan := planOf(t, hub, "owner/model")
	result, err := Publish(t.Context(), plan, targetOf(t, registry, "ai/model"), "v1", quick())
	require.NoError(t, err)
	assert.Equal(t, 5, result.Files)
	assert.Equal(t, 3, result.Layers)
	assert.Equal(t, "v1-image", result.ImageTag)
	assert.Equal(t, strings.Repeat("a", 40), result.Revision)
	var bytes int64
	for _, file := range plan.Snapshot.Files {
		bytes += file.Size
	}
	assert.Equal(t, bytes, result.BytesRead)
	assert.GreaterOrEqual(t, result.BytesUploaded, plan.SizeBytes)
	assert.LessOrEqual(t, result.BytesUploaded, plan.SizeBytes+4096, "the layers and two configs")

	// The image is an image by the OCI rules: diff IDs are the digests of its uncompressed layers.
	store, manifest := pull(t, registry, "ai/model", result.Image.String())
	var config ocispec.Image
	readJSON(t, store, manifest.Config, &config)
	require.Len(t, config.RootFS.DiffIDs, len(manifest.Layers))
	got := map[string]digest.Digest{}
	for i, layer := range manifest.Layers {
		assert.Equal(t, ocispec.MediaTypeImageLayer, layer.MediaType)
		body, err := store.Fetch(t.Context(), layer)
		require.NoError(t, err)
		verifier := config.RootFS.DiffIDs[i].Verifier()
		reader := tar.NewReader(io.TeeReader(body, verifier))
		for {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			sum, err := digest.FromReader(reader)
			require.NoError(t, err)
			got[header.Name] = sum
		}
		_, err = io.Copy(verifier, body)
		require.NoError(t, err)
		assert.True(t, verifier.Verified())
	}
	want := map[string]digest.Digest{}
	for path, content := range model() {
		want[path] = digest.NewDigestFromEncoded(digest.SHA256, standin.SHA256(content))
	}
	assert.Equal(t, want, got)
	require.NotNil(t, manifest.Subject)
	assert.Equal(t, result.ModelPack, manifest.Subject.Digest)

	// The ModelPack manifest lies over the same blobs.
	_, modelPack := pull(t, registry, "ai/model", "v1")
	assert.Equal(t, layout.ArtifactType, modelPack.ArtifactType)
	for i := range manifest.Layers {
		assert.Equal(t, manifest.Layers[i].Digest, modelPack.Layers[i].Digest)
	}
}

func readJSON(t *testing.T, store *memory.Store, descriptor ocispec.Descriptor, into any) {
	t.Helper()
	body, err := store.Fetch(t.Context(), descriptor)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(body).Decode(into))
}

// TestG05SameBytesGiveSameDigests takes one model from two sources, to two registries.
func TestG05SameBytesGiveSameDigests(t *testing.T) {
	t.Parallel()
	hub := startHub(t)
	folder := filepath.Join(t.TempDir(), "my-model")
	for path, content := range model() {
		name := filepath.Join(folder, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		file, err := os.Create(name)
		require.NoError(t, err)
		_, err = io.Copy(file, io.NewSectionReader(content, 0, content.Size()))
		require.NoError(t, errors.Join(err, file.Close()))
	}
	first, second := startRegistry(t, registrytest.Options{Folder: t.TempDir()}), startRegistry(t, registrytest.Options{Basic: true, Folder: t.TempDir()})
	remote, err := Publish(t.Context(), planOf(t, hub, "hf://owner/model@main"), targetOf(t, first, "ai/model"), "v1", quick())
	require.NoError(t, err)
	local, err := Publish(t.Context(), planOf(t, nil, folder), targetOf(t, second, "other/name"), "v2", quick())
	require.NoError(t, err)
	assert.Equal(t, remote.ModelPack, local.ModelPack)
	assert.Equal(t, remote.Image, local.Image)
	assert.Equal(t, "my-model", local.Source)

	t.Run("again_nothing_is_sent", func(t *testing.T) {
		again, err := Publish(t.Context(), planOf(t, nil, folder), targetOf(t, first, "ai/model"), "v1", quick())
		require.NoError(t, err)
		assert.Equal(t, remote.Image, again.Image)
		assert.Zero(t, again.BytesUploaded)
		assert.InDelta(t, remote.BytesRead, again.BytesRead, 64<<10, "nobody vouches for local files: they are compared and hashed")
	})
}

func TestSecondRunReadsNothing(t *testing.T) {
	t.Parallel()
	hub, registry := startHub(t), startRegistry(t, registrytest.Options{Folder: t.TempDir()})
	cache := t.TempDir()
	publish := func(name string) Result {
		plan := planOf(t, hub, "owner/model")
		target := targetOf(t, registry, name)
		checkpoint, err := OpenCheckpoint(cache, target.Repository(), plan)
		require.NoError(t, err)
		defer checkpoint.Close()
		_, err = OpenCheckpoint(cache, target.Repository(), plan)
		require.ErrorContains(t, err, "another process publishes the same")
		options := quick()
		options.Transfer.State, options.Transfer.Index = checkpoint.State, checkpoint.Index
		result, err := Publish(t.Context(), plan, target, "v1", options)
		require.NoError(t, err)
		checkpoint.Done()
		return result
	}
	first, second, other := publish("ai/model"), publish("ai/model"), publish("ai/elsewhere")
	assert.Equal(t, first.Image, second.Image)
	assert.Equal(t, first.Image, other.Image)
	// Only the small files have no SHA-256 of their source.
	small := int64(300_000 + 38)
	assert.Equal(t, small, second.BytesRead)
	assert.Zero(t, second.BytesUploaded)
	assert.Equal(t, small, other.BytesRead)
	assert.Less(t, other.BytesUploaded, int64(310_000+4096), "the large layers are mounted")
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, entries, 1, "only the index stays")
	info, err := entries[0].Info()
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestSourceFaultsEndWithAReason(t *testing.T) {
	t.Parallel()
	shard := "model-00001-of-00002.safetensors"
	for name, c := range map[string]struct {
		fault func(*huggingfacestandin.Hub)
		code  int
		says  string
	}{
		"right_size_wrong_bytes": {func(hub *huggingfacestandin.Hub) {
			hub.CDN.Faults.Add(standin.Fault{Kind: standin.WrongByte, At: 1 << 20})
		}, ExitIntegrity, "the bytes are not those that the source promised"},
		"wrong_bytes_in_a_small_file": {func(hub *huggingfacestandin.Hub) {
			hub.Site.Faults.Add(standin.Fault{Kind: standin.WrongByte, Path: "resolve/" + strings.Repeat("a", 40) + "/config.json", At: 3})
		}, ExitIntegrity, "config.json"},
		"changed_half_way": {func(hub *huggingfacestandin.Hub) {
			hub.CDN.Faults.Add(standin.Fault{Kind: standin.Changed, At: 20 << 20})
		}, ExitSource, "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub, folder := startHub(t), t.TempDir()
			registry := startRegistry(t, registrytest.Options{Folder: folder})
			plan := planOf(t, hub, "owner/model")
			c.fault(hub)
			_, err := Publish(t.Context(), plan, targetOf(t, registry, "ai/model"), "v1", quick())
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, c.code, ExitCode(err), "%v", err)
			_, err = targetOf(t, registry, "ai/model").Manifest(t.Context(), transfer.Retry{}, "v1")
			require.NoError(t, err)
			blobs, _, err := registrytest.Blobs(folder)
			require.NoError(t, err)
			for sum, size := range blobs {
				assert.NotEqual(t, int64(layout.OwnLayerSize+11+512+1024+501), size, "%s of %s was committed", sum, shard)
			}

			hub.CDN.Faults.Clear()
			hub.Site.Faults.Clear()
			_, err = Publish(t.Context(), plan, targetOf(t, registry, "ai/model"), "v1", quick())
			require.NoError(t, err)
		})
	}
}

// TestBrokenConnectionsOfTheSource heal without a byte too many.
func TestBrokenConnectionsOfTheSource(t *testing.T) {
	t.Parallel()
	hub, registry := startHub(t), startRegistry(t, registrytest.Options{Folder: t.TempDir()})
	plan := planOf(t, hub, "owner/model")
	hub.CDN.Faults.Add(standin.Fault{Kind: standin.Reset, At: 700_000, Times: 7})
	hub.CDN.Faults.Add(standin.Fault{Kind: standin.Status, Status: http.StatusServiceUnavailable, Times: 3})
	_, err := Publish(t.Context(), plan, targetOf(t, registry, "ai/model"), "v1", quick())
	require.NoError(t, err)
}

func TestManifestsAreReadBack(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "model.gguf"), []byte("GGUF"), 0o600))
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"G06_another_manifest_comes_back": func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/manifests/sha256:") {
					other := []byte(`{"schemaVersion":2}`)
					w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
					w.Header().Set("Docker-Content-Digest", digest.FromBytes(other).String())
					_, _ = w.Write(other)
					return
				}
				next.ServeHTTP(w, r)
			})
		},
		"a_blob_is_missing": func(next http.Handler) http.Handler {
			manifests := 0
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
					manifests++
				}
				if manifests >= 2 && r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/blobs/") {
					http.NotFound(w, r)
					return
				}
				next.ServeHTTP(w, r)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := startRegistry(t, registrytest.Options{Wrap: wrap})
			options := quick()
			options.Transfer.Retry.For = 200 * time.Millisecond
			_, err := Publish(t.Context(), planOf(t, nil, folder), targetOf(t, registry, "ai/model"), "v1", options)
			require.Error(t, err)
			assert.NotZero(t, ExitCode(err))
		})
	}
}

func TestNarrow(t *testing.T) {
	t.Parallel()
	snapshot := source.Snapshot{Origin: "owner/model", Files: []source.File{{Path: "a.Q4_K_M.gguf"}, {Path: "a.Q8_0.gguf"}, {Path: "config.json"}}}
	paths := func(snapshot source.Snapshot, err error) string {
		if err != nil {
			return err.Error()
		}
		var out []string
		for _, file := range snapshot.Files {
			out = append(out, file.Path)
		}
		return strings.Join(out, " ")
	}
	assert.Equal(t, "a.Q4_K_M.gguf a.Q8_0.gguf config.json", paths(Narrow(snapshot, nil, nil)))
	// D9: one quantization out of a large repository.
	assert.Equal(t, "a.Q4_K_M.gguf config.json", paths(Narrow(snapshot, []string{"*Q4_K_M*", "config.json"}, nil)))
	assert.Equal(t, "a.Q4_K_M.gguf a.Q8_0.gguf", paths(Narrow(snapshot, nil, []string{"*.json"})))
	assert.Contains(t, paths(Narrow(snapshot, []string{"*.bin"}, nil)), `choosing files of owner/model: include "*.bin"`)
	snapshot.Wanted = "a.Q8_0.gguf"
	assert.Equal(t, "a.Q8_0.gguf", paths(Narrow(snapshot, nil, nil)))
	assert.Equal(t, "config.json", paths(Narrow(snapshot, []string{"config.json"}, nil)), "globs win")
	snapshot.Wanted = "b.gguf"
	assert.Contains(t, paths(Narrow(snapshot, nil, nil)), `"b.gguf" of owner/model`)
}

func TestLocalSources(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	name := filepath.Join(folder, "model.gguf")
	require.NoError(t, os.WriteFile(name, []byte("GGUF"), 0o600))
	open := func(text string) (source.Snapshot, error) {
		snapshot, _, err := Resolve(t.Context(), text, Origins{})
		return snapshot, err
	}
	single, err := open(name)
	require.NoError(t, err)
	require.Len(t, single.Files, 1)
	assert.Equal(t, "model.gguf", single.Files[0].Path)

	_, err = open(filepath.Join(folder, "missing"))
	require.ErrorIs(t, err, source.ErrNotFound)
	assert.Equal(t, ExitSource, ExitCode(err))

	require.NoError(t, os.WriteFile(name, []byte("GGUF!"), 0o600))
	_, err = single.Files[0].Open(context.Background(), 0, -1)
	require.ErrorIs(t, err, source.ErrChanged)

	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(folder, "link")))
	_, err = open(folder)
	require.Error(t, err, "a link out of the folder")
	assert.Equal(t, ExitSource, ExitCode(err))
}

// TestOllamaModel publishes what the stand-in of Ollama's registry has.
func TestOllamaModel(t *testing.T) {
	t.Parallel()
	ollama, err := ollamastandin.Start()
	require.NoError(t, err)
	t.Cleanup(ollama.Close)
	content := append([]byte("GGUF"), make([]byte, 3<<20)...)
	_, err = ollama.Add(ollamastandin.Model{
		Name: "library/tiny", Tag: "1b", Config: map[string]any{"model_format": "gguf", "model_family": "llama", "model_type": "1B", "file_type": "Q4_K_M"},
		Layers: []ollamastandin.Layer{{MediaType: "application/vnd.ollama.image.model", Content: standin.Bytes(content)}},
	})
	require.NoError(t, err)
	registry := startRegistry(t, registrytest.Options{})
	snapshot, closing, err := Resolve(t.Context(), "https://ollama.com/library/tiny:1b", Origins{Ollama: ollama.URL().String(), Hosts: ollama.Hosts()})
	require.NoError(t, err)
	defer closing()
	plan, err := NewPlan(snapshot, layout.Metadata{})
	require.NoError(t, err)
	result, err := Publish(t.Context(), plan, targetOf(t, registry, "ai/tiny"), "v1", quick())
	require.NoError(t, err)
	assert.Equal(t, 1, result.Layers)
	assert.Equal(t, int64(len(content)), result.BytesRead)
}

func TestParseReference(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"registry.example/models/qwen":                         "registry.example/models/qwen latest",
		"127.0.0.1:5000/a:v1":                                  "127.0.0.1:5000/a v1",
		"https://registry.example/models":                      "it has a scheme",
		"registry.example/a@sha256:" + strings.Repeat("0", 64): "it has a digest",
		"registry.example":                                     "reading the reference",
		"registry.example/A":                                   "reading the reference",
		"registry.example/a:" + strings.Repeat("t", 129):       "reading the reference",
	} {
		repository, tag, err := ParseReference(text)
		got := repository + " " + tag
		if err != nil {
			got = err.Error()
		}
		assert.Contains(t, got, want)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		done, total int64
		want        string
	}{{0, 0, ""}, {0, 100, "0%"}, {50, 100, "50%"}, {100, 100, "99%"}, {999, 1000, "99%"}, {1 << 62, 1 << 62, "99%"}, {-5, 100, "0%"}} {
		assert.Equal(t, c.want, Percent(c.done, c.total), "G15: %d of %d", c.done, c.total)
	}
	var recent speed
	at := time.Unix(0, 0)
	for i := range 100 {
		recent.add(at.Add(time.Duration(i)*time.Second), int64(i*1000))
	}
	assert.Equal(t, int64(1000), recent.rate())
	assert.LessOrEqual(t, len(recent.times), 12, "only the last seconds count")
	assert.Equal(t, 5*time.Second, remaining(5000, 10_000, recent.rate()))
	assert.Equal(t, -time.Second, remaining(5000, 10_000, 0))
	assert.Zero(t, (&speed{}).rate())
	assert.Equal(t, "  waiting", pace(1, 2, 0))
	assert.Equal(t, fmt.Sprintf("  %s/s  %s left", "2.0 MiB", "1s"), pace(2<<20, 4<<20, 2<<20))
}
