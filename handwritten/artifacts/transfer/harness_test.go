package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/registrytest"
)

// content are random bytes that compress and repeat nowhere.
func content(seed uint64, size int) []byte {
	out := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 1})
	_, _ = source.Read(out)
	return out
}

// origin is a source of files in memory.
type origin struct {
	// opened counts connections, read the bytes that were handed on.
	opened, read atomic.Int64
	// broken is asked at every Open; it may return another reader or an error.
	broken func(path string, offset int64, data []byte) (io.ReadCloser, error)
}

// blob is one with a header of ours, a file, and padding, as a tar has.
func (o *origin) blob(name string, data []byte) Blob {
	sum := sha256.Sum256(data)
	file := &File{Path: name + ".gguf", Size: int64(len(data)), Algorithm: SHA256, Promise: hex.EncodeToString(sum[:])}
	file.Open = func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		o.opened.Add(1)
		if o.broken != nil {
			if reader, err := o.broken(file.Path, offset, data[offset:offset+length]); reader != nil || err != nil {
				return reader, err
			}
		}
		return io.NopCloser(&countedReader{ctx: ctx, reader: bytes.NewReader(data[offset : offset+length]), read: &o.read}), nil
	}
	header, tail := bytes.Repeat([]byte(name[:1]), 512), make([]byte, 1024)
	size := int64(len(header)+len(tail)) + file.Size
	return Blob{Name: name, Size: size, Key: file.Promise, Pieces: func(from int64) iter.Seq[Piece] {
		return func(yield func(Piece) bool) {
			at := int64(len(header))
			if from < at && !yield(Piece{Literal: header[from:]}) {
				return
			}
			if skip := max(from-at, 0); skip < file.Size && !yield(Piece{File: file, Offset: skip, Length: file.Size - skip}) {
				return
			}
			at += file.Size
			if skip := max(from-at, 0); skip < int64(len(tail)) {
				yield(Piece{Literal: tail[skip:]})
			}
		}
	}}
}

// bytesOf are the bytes that the blob stands for.
func bytesOf(name string, data []byte) []byte {
	return append(append(bytes.Repeat([]byte(name[:1]), 512), data...), make([]byte, 1024)...)
}

type countedReader struct {
	ctx    context.Context
	reader io.Reader
	read   *atomic.Int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.reader.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// memory is a State and an Index.
type memory struct {
	mu    sync.Mutex
	data  []byte
	saves int
	known map[string]Known
	// onSave is called with every checkpoint, after it was kept.
	onSave func(saves int)
}

func (m *memory) Load(context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.data), nil
}

func (m *memory) Save(_ context.Context, data []byte) error {
	m.mu.Lock()
	m.data = bytes.Clone(data)
	m.saves++
	saves, hook := m.saves, m.onSave
	m.mu.Unlock()
	if hook != nil {
		hook(saves)
	}
	return nil
}

func (m *memory) Find(_ context.Context, key string) (Known, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, found := m.known[key]
	return known, found, nil
}

func (m *memory) Add(_ context.Context, key string, known Known) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[string]Known{}
	}
	m.known[key] = known
	return nil
}

// startRegistry runs a registry until the test ends.
func startRegistry(t *testing.T, options registrytest.Options) *registrytest.Registry {
	t.Helper()
	options.Scratch = t.TempDir()
	registry, err := registrytest.Start(options)
	require.NoError(t, err)
	t.Cleanup(registry.Stop)
	return registry
}

// target is a repository of the registry, by plain http and without the
// docker configuration of whoever runs the test.
func target(t *testing.T, registry *registrytest.Registry, name string) *Target {
	t.Helper()
	repository, err := NewTarget(registry.Address+"/"+name, TargetOptions{PlainHTTP: true, Username: registrytest.Username, Password: registrytest.Password})
	require.NoError(t, err)
	return repository
}

// quick are options for blobs of a few megabytes.
func quick(meter *Meter) Options {
	return Options{
		BlockSize: 64 << 10, Blocks: 8, Chunk: 1 << 20, Meter: meter, CheckpointEvery: time.Millisecond,
		Retry: Retry{For: 10 * time.Second, First: time.Millisecond, Longest: 20 * time.Millisecond},
	}
}

// assertHeld compares what the registry has with the bytes.
func assertHeld(t *testing.T, to *Target, pushed Pushed, want []byte) {
	t.Helper()
	assert.Equal(t, digest.FromBytes(want), pushed.Digest)
	ctx := to.authorize(t.Context())
	descriptor, err := to.repository.Blobs().Resolve(ctx, pushed.Digest.String())
	require.NoError(t, err)
	body, err := to.repository.Blobs().Fetch(ctx, descriptor)
	require.NoError(t, err)
	defer func() { _ = body.Close() }()
	got, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got), "the registry holds other bytes")
}

func name(i int) string { return fmt.Sprintf("%c-layer", 'a'+rune(i)) }
