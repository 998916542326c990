package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/registrytest"
)

// refuse answers a request with an error of the registry.
func refuse(w http.ResponseWriter, status int, code string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"made up by the test"}]}`, code)
	return true
}

// every lets the n-th of each n calls be true.
func every(n int64) func() bool {
	var count atomic.Int64
	return func() bool { return count.Add(1)%n == 0 }
}

// once lets the n-th call be true.
func once(n int64) func() bool {
	var count atomic.Int64
	return func() bool { return count.Add(1) == n }
}

// TestRegistryFaults breaks the registry while three layers are pushed. All of them must arrive,
// and what is sent again is bounded.
func TestRegistryFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		faults func() *registrytest.Faults
		// again is how many bytes may be sent twice.
		again int64
	}{
		"connection_reset_after_n_bytes": {func() *registrytest.Faults {
			hit := every(3)
			return &registrytest.Faults{CutAfter: func(r *http.Request) int64 {
				if r.Method == http.MethodPatch && hit() {
					return 300_000
				}
				return 0
			}}
		}, 6 << 20},
		"500_on_the_kth_chunk_before_it_was_read": {func() *registrytest.Faults {
			hit := every(3)
			return &registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
				return r.Method == http.MethodPatch && hit() && refuse(w, 500, "UNKNOWN")
			}}
		}, 8 << 20},
		"500_after_the_chunk_was_taken": {func() *registrytest.Faults {
			hit := every(3)
			return &registrytest.Faults{Header: func(r *http.Request, status int, header http.Header) {
				if r.Method == http.MethodPatch && status == http.StatusAccepted && hit() {
					header.Set("Range", "0-77") // as good as an error: it contradicts what was sent
				}
			}}
		}, 0},
		"G10_503_with_retry_after": {func() *registrytest.Faults {
			hit := every(4)
			return &registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Retry-After", "0")
				return hit() && refuse(w, http.StatusServiceUnavailable, "UNAVAILABLE")
			}}
			// Which requests are hit is chance: of about 21 and those that a hit adds
			// at most ten, at the worst each of them a full chunk.
		}, 20 << 20},
		"429": {func() *registrytest.Faults {
			hit := every(5)
			return &registrytest.Faults{Before: func(w http.ResponseWriter, _ *http.Request) bool {
				return hit() && refuse(w, http.StatusTooManyRequests, "TOOMANYREQUESTS")
			}}
		}, 20 << 20},
		"wrong_offset_in_the_state": {func() *registrytest.Faults {
			cut, wrong := once(4), once(1)
			return &registrytest.Faults{
				CutAfter: func(r *http.Request) int64 {
					if r.Method == http.MethodPatch && cut() {
						return 10_000
					}
					return 0
				},
				Header: func(r *http.Request, _ int, header http.Header) {
					if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/uploads/") && wrong() {
						header.Set("Range", "0-99999999999")
					}
				},
			}
		}, 6 << 20},
		"session_lost": {func() *registrytest.Faults {
			lost := once(6)
			var mu sync.Mutex
			dead := ""
			return &registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				if r.Method == http.MethodPatch && lost() {
					dead = r.URL.Path
				}
				return dead != "" && r.URL.Path == dead && refuse(w, http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN")
			}}
		}, 6 << 20},
		"answer_to_the_commit_is_lost": {func() *registrytest.Faults {
			hit := every(1)
			return &registrytest.Faults{Header: func(r *http.Request, status int, _ http.Header) {
				if r.Method == http.MethodPut && status == http.StatusCreated && hit() {
					panic(http.ErrAbortHandler)
				}
			}}
		}, 0},
		"chunks_of_a_megabyte_are_too_large": {func() *registrytest.Faults {
			return &registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
				return r.Method == http.MethodPatch && r.ContentLength > 1<<20 && refuse(w, http.StatusRequestEntityTooLarge, "SIZE_INVALID")
			}}
		}, 4 << 20},
		"one_request_only": {func() *registrytest.Faults {
			return &registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
				return r.Method == http.MethodPatch && r.Header.Get("Content-Range") != "" && refuse(w, http.StatusBadRequest, "BLOB_UPLOAD_INVALID")
			}}
		}, 16 << 20},
		"no_chunks_at_all": {func() *registrytest.Faults {
			return &registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
				return r.Method == http.MethodPatch && refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED")
			}}
		}, 16 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := c.faults()
			registry := startRegistry(t, registrytest.Options{Folder: t.TempDir(), Wrap: faults.Wrap})
			to, from, meter := target(t, registry, "ai/model"), &origin{}, &Meter{}
			var blobs []Blob
			for i := range 3 {
				blobs = append(blobs, from.blob(fmt.Sprintf("%c", 'a'+i), content(uint64(i), 5<<20+i)))
			}
			options := quick(meter)
			options.Chunk = 2 << 20
			options.Parallel = 2
			pushed, err := to.Push(t.Context(), blobs, options)
			require.NoError(t, err)
			faults.Before, faults.CutAfter = nil, nil
			for i, blob := range blobs {
				assertHeld(t, to, pushed[i], bytesOf(blob.Name, content(uint64(i), 5<<20+i)))
			}
			totals := meter.Totals()
			assert.Equal(t, totals.Total, totals.Done)
			assert.LessOrEqual(t, totals.Sent-totals.Total, c.again, "sent again")
			assert.LessOrEqual(t, faults.Received.Load(), totals.Sent)
		})
	}
}

func TestRegistryRestartedInTheMiddle(t *testing.T) {
	t.Parallel()
	var registry *registrytest.Registry
	hit := once(5)
	faults := &registrytest.Faults{CutAfter: func(r *http.Request) int64 {
		if r.Method == http.MethodPatch && hit() {
			go func() { assert.NoError(t, registry.Restart()) }()
		}
		return 0
	}}
	registry = startRegistry(t, registrytest.Options{Folder: t.TempDir(), Wrap: faults.Wrap})
	from, meter := &origin{}, &Meter{}
	data := content(1, 9<<20)
	to := target(t, registry, "ai/model")
	pushed, err := to.Push(t.Context(), []Blob{from.blob("a", data), from.blob("b", data)}, quick(meter))
	require.NoError(t, err)
	assertHeld(t, to, pushed[0], bytesOf("a", data))
	assertHeld(t, to, pushed[1], bytesOf("b", data))
	assert.Less(t, meter.Totals().Sent, meter.Totals().Total*3/2)
}

// TestRegistryThatForgets keeps its blobs in memory and is restarted: everything
// that was sent is lost, but nothing is hashed or checked twice.
func TestRegistryThatForgets(t *testing.T) {
	t.Parallel()
	var registry *registrytest.Registry
	hit := once(4)
	faults := &registrytest.Faults{CutAfter: func(r *http.Request) int64 {
		if r.Method == http.MethodPatch && hit() {
			go func() { assert.NoError(t, registry.Restart()) }()
		}
		return 0
	}}
	registry = startRegistry(t, registrytest.Options{Wrap: faults.Wrap})
	data := content(1, 6<<20)
	to := target(t, registry, "ai/model")
	pushed, err := to.Push(t.Context(), []Blob{(&origin{}).blob("a", data)}, quick(nil))
	require.NoError(t, err)
	assertHeld(t, to, pushed[0], bytesOf("a", data))
}

func TestTokenExpiresHalfWay(t *testing.T) {
	t.Parallel()
	tokens, err := registrytest.StartTokens(t.TempDir(), 2*time.Second)
	require.NoError(t, err)
	t.Cleanup(tokens.Stop)
	registry := startRegistry(t, registrytest.Options{Tokens: tokens, Folder: t.TempDir(), Wrap: (&registrytest.Faults{
		Before: func(http.ResponseWriter, *http.Request) bool {
			time.Sleep(100 * time.Millisecond) // a slow registry: the upload outlives its token
			return false
		},
	}).Wrap})
	data := content(1, 32<<20)
	to := target(t, registry, "ai/model")
	pushed, err := to.Push(t.Context(), []Blob{(&origin{}).blob("a", data)}, quick(nil))
	require.NoError(t, err)
	assert.Greater(t, tokens.Given.Load(), int64(1))
	assertHeld(t, to, pushed[0], bytesOf("a", data))
}

// TestRegistriesThatNeverTakeIt end with a reason, soon, and with no word of a credential.
func TestRegistriesThatNeverTakeIt(t *testing.T) {
	t.Parallel()
	chunk := every(3)
	for name, c := range map[string]struct {
		options registrytest.Options
		want    error
		says    string
	}{
		"read_only": {registrytest.Options{ReadOnly: true}, ErrReadOnly, "405"},
		"full_507": {registrytest.Options{Wrap: (&registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPatch && chunk() && refuse(w, http.StatusInsufficientStorage, "UNKNOWN")
		}}).Wrap}, ErrFull, "507"},
		"full_disk": {registrytest.Options{Wrap: (&registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPatch && refuse(w, 500, "UNKNOWN: write /data: no space left on device")
		}}).Wrap}, ErrFull, "no space left"},
		"denied": {registrytest.Options{Wrap: (&registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPost && refuse(w, http.StatusForbidden, "DENIED")
		}}).Wrap}, ErrDenied, "DENIED"},
		"500_for_ever": {registrytest.Options{Wrap: (&registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
			return r.Method == http.MethodPatch && refuse(w, 500, "UNKNOWN")
		}}).Wrap}, ErrUnavailable, "made up by the test"},
		"G11_other_bytes_arrive": {registrytest.Options{Wrap: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPatch {
					r.Body = io.NopCloser(&flipped{reader: r.Body})
				}
				next.ServeHTTP(w, r)
			})
		}}, ErrRegistryBytes, "DIGEST_INVALID"},
		"G06_registry_names_another_digest": {registrytest.Options{Wrap: (&registrytest.Faults{Header: func(r *http.Request, status int, header http.Header) {
			if r.Method == http.MethodPut && status == http.StatusCreated {
				header.Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64))
			}
		}}).Wrap}, ErrRegistryBytes, "it calls them"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := startRegistry(t, c.options)
			options := quick(nil)
			options.Retry.For = 300 * time.Millisecond
			_, err := target(t, registry, "ai/model").Push(t.Context(), []Blob{(&origin{}).blob("a", content(1, 5<<20))}, options)
			require.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, c.says)
			assert.ErrorContains(t, err, `pushing "a": `)
			assert.NotContains(t, err.Error(), "_state", "the location of an upload is a capability")
		})
	}
}

// flipped turns a bit of every read.
type flipped struct{ reader io.Reader }

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.reader.Read(p)
	if n > 0 {
		p[0] ^= 1
	}
	return n, err
}

func TestRegistryThatIsNotThere(t *testing.T) {
	t.Parallel()
	registry := startRegistry(t, registrytest.Options{})
	registry.Stop()
	options := quick(nil)
	options.Retry.For = 100 * time.Millisecond
	_, err := target(t, registry, "ai/model").Push(t.Context(), []Blob{(&origin{}).blob("a", content(1, 5<<20))}, options)
	require.ErrorIs(t, err, ErrUnavailable)
	assert.ErrorContains(t, err, "connection refused")
}

func TestSourceFaults(t *testing.T) {
	t.Parallel()
	data := content(1, 5<<20)
	wrong := bytes.Clone(data)
	wrong[3<<20] ^= 1
	for name, c := range map[string]struct {
		broken func(opened int64, offset int64, rest []byte) (io.ReadCloser, error)
		want   error
		says   string
	}{
		"connection_breaks_every_megabyte": {func(_, _ int64, rest []byte) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(rest[:min(len(rest), 1<<20)]), failing{})), nil
		}, nil, ""},
		"ends_early_and_goes_on": {func(_, _ int64, rest []byte) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(rest[:min(len(rest), 700_000)])), nil
		}, nil, ""},
		"cannot_be_opened_now_and_then": {func(opened, _ int64, rest []byte) (io.ReadCloser, error) {
			if opened%2 == 1 {
				return nil, errors.New("no route to host")
			}
			return io.NopCloser(bytes.NewReader(rest[:min(len(rest), 2<<20)])), nil
		}, nil, ""},
		"truncated": {func(_, offset int64, rest []byte) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(rest[:max(4<<20-offset, 0)])), nil
		}, ErrSource, `"a.gguf" ends at byte 4194304 of 5242880`},
		"longer_than_promised": {func(_, _ int64, rest []byte) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(bytes.NewReader(rest), strings.NewReader("more"))), nil
		}, ErrIntegrity, "more bytes came than were asked for"},
		"right_size_wrong_bytes": {func(_, offset int64, _ []byte) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(wrong[offset:])), nil
		}, ErrIntegrity, `reading "a.gguf"`},
		"changed_half_way": {func(opened, offset int64, rest []byte) (io.ReadCloser, error) {
			if offset > 0 {
				return nil, final{}
			}
			return io.NopCloser(bytes.NewReader(rest[:2<<20])), nil
		}, ErrSource, "the content changed"},
		"never_there": {func(_, _ int64, _ []byte) (io.ReadCloser, error) {
			return nil, errors.New("no route to host")
		}, ErrSource, "given up after"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			registry := startRegistry(t, registrytest.Options{Folder: folder})
			to, from, state := target(t, registry, "ai/model"), &origin{}, &memory{}
			from.broken = func(_ string, offset int64, rest []byte) (io.ReadCloser, error) {
				return c.broken(from.opened.Load(), offset, rest)
			}
			options := quick(nil)
			options.State = state
			options.Retry.For = 300 * time.Millisecond
			pushed, err := to.Push(t.Context(), []Blob{from.blob("a", data)}, options)
			if c.want == nil {
				require.NoError(t, err)
				assertHeld(t, to, pushed[0], bytesOf("a", data))
				return
			}
			require.ErrorIs(t, err, c.want)
			assert.ErrorContains(t, err, c.says)
			blobs, _, err := registrytest.Blobs(folder)
			require.NoError(t, err)
			assert.Empty(t, blobs, "nothing was committed")

			// What was wrong stays out, also when the next attempt goes on at the checkpoint.
			from.broken = nil
			pushed, err = to.Push(t.Context(), []Blob{from.blob("a", data)}, options)
			require.NoError(t, err)
			assertHeld(t, to, pushed[0], bytesOf("a", data))
		})
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset by peer") }

// final is an error that its source calls hopeless.
type final struct{}

func (final) Error() string   { return "the content changed" }
func (final) Retryable() bool { return false }

// TestResumeAfterAnyCheckpoint stops a push, as kill -9 would, right after each of its checkpoints
// and goes on with another process's eyes: the checkpoint and the registry.
func TestResumeAfterAnyCheckpoint(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	registry := startRegistry(t, registrytest.Options{Folder: folder})
	data := [][]byte{content(1, 7<<20), content(2, 4<<20), content(3, 50_000)}
	for _, stop := range []int{1, 2, 3, 5, 8, 12, 17} {
		t.Run(fmt.Sprint(stop), func(t *testing.T) {
			to := target(t, registry, fmt.Sprintf("ai/model-%d", stop))
			from, state := &origin{}, &memory{}
			blobs := []Blob{from.blob("a", data[0]), from.blob("b", data[1]), from.blob("c", data[2])}
			options := quick(nil)
			options.State, options.Fingerprint = state, "one"

			ctx, cancel := context.WithCancel(t.Context())
			var frozen []byte
			state.onSave = func(saves int) {
				if saves == stop {
					frozen, _ = state.Load(ctx)
					cancel()
				}
			}
			_, err := to.Push(ctx, blobs, options)
			cancel()
			state.onSave = nil
			if frozen != nil {
				require.Error(t, err)
				state.data = frozen // what was saved on the way out is lost, too
			}
			read := from.read.Load()

			meter := &Meter{}
			options.Meter = meter
			pushed, err := to.Push(t.Context(), blobs, options)
			require.NoError(t, err)
			for i, blob := range blobs {
				assertHeld(t, to, pushed[i], bytesOf(blob.Name, data[i]))
			}
			total := int64(len(data[0]) + len(data[1]) + len(data[2]))
			// Two layers are under way, and each has its buffers and a checkpoint behind it.
			slack := int64(3 * (8*64<<10 + markEvery*64<<10 + 2<<20))
			assert.LessOrEqual(t, read+meter.Totals().Read, total+slack)
		})
	}
}

// TestTwoPushesOfTheSameBytes run at the same time, into one repository.
func TestTwoPushesOfTheSameBytes(t *testing.T) {
	t.Parallel()
	registry := startRegistry(t, registrytest.Options{Folder: t.TempDir()})
	data := content(1, 6<<20)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			to := target(t, registry, "ai/model")
			pushed, err := to.Push(t.Context(), []Blob{(&origin{}).blob("a", data)}, quick(nil))
			if assert.NoError(t, err) {
				assertHeld(t, to, pushed[0], bytesOf("a", data))
			}
		})
	}
	group.Wait()
}

func TestCancelEndsAtOnce(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{})
	var closing sync.Once
	registry := startRegistry(t, registrytest.Options{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch {
				closing.Do(func() { close(reached) })
				<-r.Context().Done() // a registry that takes nothing
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-reached
		cancel(errors.New("enough"))
	}()
	_, err := target(t, registry, "ai/model").Push(ctx, []Blob{(&origin{}).blob("a", content(1, 20<<20))}, quick(nil))
	require.Error(t, err)
	assert.ErrorContains(t, err, "enough")
}
