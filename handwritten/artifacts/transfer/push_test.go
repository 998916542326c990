package transfer

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/registrytest"
)

func TestPushReadsAndSendsEachByteOnce(t *testing.T) {
	t.Parallel()
	for storage, folder := range map[string]string{"memory": "", "filesystem": t.TempDir()} {
		t.Run(storage, func(t *testing.T) {
			t.Parallel()
			registry := startRegistry(t, registrytest.Options{Folder: folder})
			to := target(t, registry, "ai/model")
			from, meter := &origin{}, &Meter{}
			var blobs []Blob
			var data [][]byte
			for i, size := range []int{3<<20 + 7, 0, 1, 100, 5<<20 + 1, 64 << 10, 2 << 20} {
				data = append(data, content(uint64(i), size))
				blobs = append(blobs, from.blob(name(i), data[i]))
			}
			pushed, err := to.Push(t.Context(), blobs, quick(meter))
			require.NoError(t, err)
			total := int64(0)
			for i := range blobs {
				assertHeld(t, to, pushed[i], bytesOf(name(i), data[i]))
				assert.False(t, pushed[i].Present)
				total += blobs[i].Size
			}
			totals := meter.Totals()
			assert.Equal(t, Totals{
				Total: total, Done: total, Read: from.read.Load(), Sent: total, Blobs: 7, BlobsDone: 7,
			}, totals)
			assert.Equal(t, total-7*1536, totals.Read, "each byte of the source once")
		})
	}
}

func TestBlobsThatTheRegistryHasAreNotSent(t *testing.T) {
	t.Parallel()
	registry := startRegistry(t, registrytest.Options{Folder: t.TempDir()})
	to := target(t, registry, "ai/model")
	data := [][]byte{content(1, 3<<20), content(2, 1000)}
	from := &origin{}
	blobs := []Blob{from.blob("a", data[0]), from.blob("b", data[1])}
	index := &memory{}
	options := quick(nil)
	options.Index = index
	first, err := to.Push(t.Context(), blobs, options)
	require.NoError(t, err)

	t.Run("the_digest_is_known", func(t *testing.T) {
		from.read.Store(0)
		options, meter := options, &Meter{}
		options.Meter = meter
		second, err := to.Push(t.Context(), blobs, options)
		require.NoError(t, err)
		assert.Equal(t, first[0].Digest, second[0].Digest)
		assert.True(t, second[0].Present && second[1].Present)
		totals := meter.Totals()
		assert.Zero(t, totals.Sent+totals.Read+from.read.Load(), "nothing is read before the registry was asked")
		assert.Equal(t, totals.Total, totals.Present)
	})
	t.Run("the_digest_is_only_known_after_hashing", func(t *testing.T) {
		from.read.Store(0)
		meter := &Meter{}
		expected := []Blob{blobs[0], blobs[1]}
		expected[0].Expected = first[0].Digest
		second, err := to.Push(t.Context(), expected, quick(meter))
		require.NoError(t, err)
		assert.True(t, second[0].Present && second[1].Present)
		assert.Zero(t, meter.Totals().Sent)
		assert.Equal(t, int64(3<<20+1000+samples*sampleSize), from.read.Load(), "once, and what was compared")
	})
	t.Run("taken_from_another_repository", func(t *testing.T) {
		from.read.Store(0)
		options, meter := options, &Meter{}
		options.Meter = meter
		other := target(t, registry, "ai/other")
		second, err := other.Push(t.Context(), blobs, options)
		require.NoError(t, err)
		assertHeld(t, other, second[0], bytesOf("a", data[0]))
		assert.Zero(t, meter.Totals().Sent+from.read.Load())
	})
	t.Run("expected_and_nearly_the_same", func(t *testing.T) {
		meter := &Meter{}
		other := bytes.Clone(data[0])
		other[5] ^= 1
		blob := from.blob("a", other)
		blob.Expected = first[0].Digest
		pushed, err := to.Push(t.Context(), []Blob{blob}, quick(meter))
		require.NoError(t, err)
		assertHeld(t, to, pushed[0], bytesOf("a", other))
		assert.Equal(t, blob.Size, meter.Totals().Sent)
	})
	t.Run("expected_and_trained_further", func(t *testing.T) {
		from.read.Store(0)
		meter := &Meter{}
		other := content(3, len(data[0]))
		blob := from.blob("a", other)
		blob.Expected = first[0].Digest
		pushed, err := to.Push(t.Context(), []Blob{blob}, quick(meter))
		require.NoError(t, err)
		assertHeld(t, to, pushed[0], bytesOf("a", other))
		assert.Equal(t, blob.Size, meter.Totals().Sent)
		assert.LessOrEqual(t, from.read.Load(), int64(len(other)+sampleSize), "read once, not once more to hash it")
	})
	t.Run("expected_but_missing", func(t *testing.T) {
		meter := &Meter{}
		blob := from.blob("c", content(3, 2<<20))
		blob.Expected = digest.FromString("gone")
		pushed, err := to.Push(t.Context(), []Blob{blob}, quick(meter))
		require.NoError(t, err)
		assertHeld(t, to, pushed[0], bytesOf("c", content(3, 2<<20)))
		assert.Equal(t, blob.Size, meter.Totals().Sent)
	})
	t.Run("the_index_names_a_blob_that_is_gone", func(t *testing.T) {
		gone := from.blob("d", content(4, 2<<20))
		index := &memory{known: map[string]Known{gone.Key: {Digest: first[0].Digest[:70] + "0", Repository: to.Repository()}}}
		if first[0].Digest[70] == '0' {
			index.known[gone.Key] = Known{Digest: first[0].Digest[:70] + "1"}
		}
		options := quick(nil)
		options.Index = index
		pushed, err := to.Push(t.Context(), []Blob{gone}, options)
		require.NoError(t, err)
		assertHeld(t, to, pushed[0], bytesOf("d", content(4, 2<<20)))
		assert.Equal(t, pushed[0].Digest, index.known[gone.Key].Digest)
	})
}

func TestLogin(t *testing.T) {
	t.Parallel()
	tokens, err := registrytest.StartTokens(t.TempDir(), time.Minute)
	require.NoError(t, err)
	t.Cleanup(tokens.Stop)
	for name, options := range map[string]registrytest.Options{
		"basic": {Basic: true}, "token": {Tokens: tokens},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := startRegistry(t, options)
			from := &origin{}
			blobs := []Blob{from.blob("a", content(1, 2<<20))}
			pushed, err := target(t, registry, "ai/model").Push(t.Context(), blobs, quick(nil))
			require.NoError(t, err)
			assertHeld(t, target(t, registry, "ai/model"), pushed[0], bytesOf("a", content(1, 2<<20)))

			for who, credentials := range map[string]TargetOptions{
				"wrong": {PlainHTTP: true, Username: registrytest.Username, Password: "hunter2"},
			} {
				to, err := NewTarget(registry.Address+"/ai/model", credentials)
				require.NoError(t, err)
				_, err = to.Push(t.Context(), []Blob{from.blob("b", content(2, 2<<20))}, quick(nil))
				require.ErrorIs(t, err, ErrDenied, who)
				assert.NotContains(t, err.Error(), "hunter2")
			}
		})
	}
}

// TestDockerConfiguration logs in with what "docker login" left behind.
func TestDockerConfiguration(t *testing.T) {
	registry := startRegistry(t, registrytest.Options{Basic: true})
	folder := t.TempDir()
	// The value is base64 of the test registry's user.
	config := fmt.Sprintf(`{"auths":{%q:{"auth":"YWxpY2U6Y29ycmVjdCBob3JzZQ=="}}}`, registry.Address)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o600))
	t.Setenv("DOCKER_CONFIG", folder)
	to, err := NewTarget(registry.Address+"/ai/model", TargetOptions{PlainHTTP: true})
	require.NoError(t, err)
	pushed, err := to.Push(t.Context(), []Blob{(&origin{}).blob("a", content(1, 2<<20))}, quick(nil))
	require.NoError(t, err)
	assertHeld(t, to, pushed[0], bytesOf("a", content(1, 2<<20)))
}

func TestCustomCA(t *testing.T) {
	t.Parallel()
	issuer := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(issuer.Close)
	certificate := issuer.TLS.Certificates[0]
	registry := startRegistry(t, registrytest.Options{TLS: &tls.Certificate{Certificate: certificate.Certificate, PrivateKey: certificate.PrivateKey}})
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw}), 0o600))
	blobs := []Blob{(&origin{}).blob("a", content(1, 2<<20))}
	for name, c := range map[string]struct {
		options TargetOptions
		works   bool
	}{
		"CA":       {TargetOptions{CAFile: file}, true},
		"insecure": {TargetOptions{Insecure: true}, true},
		"unknown":  {TargetOptions{}, false},
	} {
		to, err := NewTarget(registry.Address+"/ai/model", c.options)
		require.NoError(t, err)
		began := time.Now()
		_, err = to.Push(t.Context(), blobs, quick(nil))
		assert.Equal(t, c.works, err == nil, "%s: %v", name, err)
		assert.Less(t, time.Since(began), 5*time.Second, "an unknown certificate does not heal by waiting")
	}
	_, err := NewTarget("host/name", TargetOptions{CAFile: filepath.Join(t.TempDir(), "missing")})
	require.ErrorContains(t, err, "reading the CA certificates")
}

func TestTargetRefuses(t *testing.T) {
	t.Parallel()
	for repository, want := range map[string]string{
		"https://host/name":   "it has a scheme",
		"host/name:tag":       "it has a tag",
		"host":                "reading the repository",
		"host/UPPER":          "reading the repository",
		"host/name@sha256:ab": "reading the repository",
	} {
		_, err := NewTarget(repository, TargetOptions{})
		require.ErrorContains(t, err, want, repository)
	}
}

func TestGitBlobPromise(t *testing.T) {
	t.Parallel()
	registry := startRegistry(t, registrytest.Options{})
	to := target(t, registry, "ai/model")
	data := content(1, 100_000)
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
	from := &origin{}
	promise := func(value string) Blob {
		blob := from.blob("a", data)
		for piece := range blob.Pieces(0) {
			if piece.File != nil {
				piece.File.Algorithm, piece.File.Promise = GitBlob, value
			}
		}
		return blob
	}
	_, err := to.Push(t.Context(), []Blob{promise(hex.EncodeToString(sum[:]))}, quick(nil))
	require.NoError(t, err)
	_, err = to.Push(t.Context(), []Blob{promise(hex.EncodeToString(make([]byte, 20)))}, quick(nil))
	require.ErrorIs(t, err, ErrIntegrity)
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "100000": maxRetryAfter, "x": 0,
		"Thu, 01 Jan 2026 00:00:09 GMT": 9 * time.Second, "Thu, 01 Jan 2026 01:00:00 GMT": maxRetryAfter, "Wed, 31 Dec 2025 00:00:00 GMT": 0,
	} {
		assert.Equal(t, want, retryAfter(http.Header{"Retry-After": {value}}, now), value)
	}
}

// TestPausesGrow takes the pauses from a clock that only the pauses move.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	retry := Retry{For: time.Hour, First: 4, Longest: 32, Now: func() time.Time { return now }, Jitter: func() float64 { return 0.999 }}
	patience := retry.begin()
	for range 5 {
		require.NoError(t, patience.wait(t.Context(), errors.New("broken")))
	}
	now = now.Add(time.Hour + 1)
	err := patience.wait(t.Context(), errors.New("broken"))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "given up after 5 tries in 1h0m0s: broken")
	patience.progress()
	require.NoError(t, patience.wait(t.Context(), errors.New("broken")), "progress is a new start")
}

// TestMemoryDoesNotGrowWithTheModel counts every allocation of a push, of one model and of one eight times as large.
func TestMemoryDoesNotGrowWithTheModel(t *testing.T) {
	// A registry that takes everything and keeps nothing.
	got := atomic.Int64{}
	sum := atomic.Pointer[string]{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/v2/ai/model/blobs/uploads/one")
		switch r.Method {
		case http.MethodPost:
			got.Store(0)
			w.WriteHeader(http.StatusAccepted)
		case http.MethodPatch:
			n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, 64<<10))
			w.Header().Set("Range", fmt.Sprintf("0-%d", got.Add(n)-1))
			w.WriteHeader(http.StatusAccepted)
		case http.MethodPut:
			digest := r.URL.Query().Get("digest")
			sum.Store(&digest)
			w.WriteHeader(http.StatusCreated)
		case http.MethodHead:
			w.Header().Set("Content-Length", fmt.Sprint(got.Load()))
			w.Header().Set("Docker-Content-Digest", *sum.Load())
		}
	}))
	t.Cleanup(server.Close)
	allocated := func(size int64) uint64 {
		to, err := NewTarget(strings.TrimPrefix(server.URL, "http://")+"/ai/model", TargetOptions{PlainHTTP: true, Username: "a", Password: "b"})
		require.NoError(t, err)
		file := &File{Path: "model.gguf", Size: size, Open: func(_ context.Context, _, length int64) (io.ReadCloser, error) {
			return io.NopCloser(io.LimitReader(zeros{}, length)), nil
		}}
		blob := Blob{Name: "a", Size: size, Pieces: func(from int64) iter.Seq[Piece] {
			return func(yield func(Piece) bool) { yield(Piece{File: file, Offset: from, Length: size - from}) }
		}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = to.Push(t.Context(), []Blob{blob}, Options{Chunk: 16 << 20})
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	small, large := allocated(64<<20), allocated(512<<20)
	assert.Less(t, large, small+8<<20, "small %d, large %d bytes in all, never mind the garbage collector", small, large)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
