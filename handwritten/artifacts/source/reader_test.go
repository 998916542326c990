package source_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

// memory is a file whose connections break when broken says so.
type memory struct {
	content standin.Content
	broken  func(offset int64) int64 // bytes until the connection breaks; -1 never
	opened  atomic.Int64
	open    atomic.Int64
	most    atomic.Int64
	read    atomic.Int64
}

func (m *memory) file() source.File {
	return source.File{Path: "m.bin", Size: m.content.Size(), SHA256: standin.SHA256(m.content), Open: m.connect}
}

func (m *memory) connect(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
	m.opened.Add(1)
	for now := m.open.Add(1); ; {
		most := m.most.Load()
		if now <= most || m.most.CompareAndSwap(most, now) {
			break
		}
	}
	if length < 0 {
		length = m.content.Size() - offset
	}
	left := int64(-1)
	if m.broken != nil {
		left = m.broken(offset)
	}
	return &connection{ctx: ctx, memory: m, Reader: io.NewSectionReader(m.content, offset, length), left: left}, nil
}

type connection struct {
	io.Reader
	ctx    context.Context
	memory *memory
	left   int64
}

func (c *connection) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, c.ctx.Err()
	}
	if c.left == 0 {
		return 0, errors.New("connection reset by peer")
	}
	if c.left > 0 {
		p = p[:min(int64(len(p)), c.left)]
	}
	n, err := c.Reader.Read(p)
	c.memory.read.Add(int64(n))
	if c.left > 0 {
		c.left -= int64(n)
	}
	return n, err
}

func (c *connection) Close() error {
	c.memory.open.Add(-1)
	return nil
}

func patient() source.Retry {
	return source.Retry{Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

func drain(t *testing.T, file source.File, options source.ReadOptions, writeTo bool) ([]byte, error) {
	t.Helper()
	reader, err := source.NewReader(t.Context(), file, options)
	require.NoError(t, err)
	defer reader.Close()
	if writeTo {
		var out bytes.Buffer
		_, err := reader.WriteTo(&out)
		return out.Bytes(), err
	}
	return io.ReadAll(struct{ io.Reader }{reader})
}

func TestReader_hands_on_every_byte_in_order_and_reads_none_twice(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int64{0, 1, 4095, 4096, 4097, 1 << 20, 1<<20 + 333} {
		for _, connections := range []int{1, 3, 8} {
			for _, writeTo := range []bool{false, true} {
				var mutex sync.Mutex
				m := &memory{content: standin.Pattern(5, size), broken: func(int64) int64 {
					mutex.Lock()
					defer mutex.Unlock()
					return 1 + random.Int64N(9000)
				}}
				var told int64
				options := source.ReadOptions{Connections: connections, Buffers: source.NewBuffers(connections+1, 4096), Retry: patient(), Progress: func(n int64) { told += n }}
				data, err := drain(t, m.file(), options, writeTo)
				require.NoError(t, err)
				require.Equal(t, standin.SHA256(m.content), standin.SHA256(standin.Bytes(data)))
				require.Equal(t, size, told)
				require.Equal(t, size, m.read.Load(), "every byte is read once")
				require.LessOrEqual(t, m.most.Load(), int64(connections))
				require.Zero(t, m.open.Load())
			}
		}
	}
}

func TestReader_goes_on_from_a_checkpoint(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*source.File){
		"with_SHA-256":         func(*source.File) {},
		"with_a_git_object_id": func(f *source.File) { f.SHA256 = "" },
		"without_a_promise":    func(f *source.File) { f.SHA256, f.GitBlob = "", "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &memory{content: standin.Pattern(6, 100_000)}
			file := m.file()
			file.GitBlob = standin.GitBlob(m.content)
			prepare(&file)
			options := source.ReadOptions{Buffers: source.NewBuffers(3, 4096)}
			first, err := source.NewReader(t.Context(), file, options)
			require.NoError(t, err)
			head := make([]byte, 12_345)
			_, err = io.ReadFull(first, head)
			require.NoError(t, err)
			options.Offset, options.State = first.Offset(), first.State()
			require.LessOrEqual(t, len(options.State), 256)
			require.NoError(t, first.Close())
			tail, err := drain(t, file, options, true)
			require.NoError(t, err)
			require.Equal(t, standin.SHA256(m.content), standin.SHA256(standin.Bytes(append(head, tail...))))

			if file.SHA256+file.GitBlob == "" {
				return
			}
			for _, damaged := range [][]byte{nil, []byte("x"), options.State[1:]} {
				_, err = source.NewReader(t.Context(), file, source.ReadOptions{Offset: options.Offset, State: damaged})
				require.ErrorContains(t, err, "state")
			}
			// A state of other bytes is noticed at the end.
			file.Open = (&memory{content: standin.Pattern(7, 100_000)}).connect
			_, err = drain(t, file, options, false)
			require.ErrorIs(t, err, source.ErrDigest)
		})
	}
}

func TestReader_bounds(t *testing.T) {
	t.Parallel()
	file := (&memory{content: standin.Pattern(6, 10)}).file()
	for _, options := range []source.ReadOptions{{Offset: -1}, {Offset: 11}, {Connections: -1}, {Connections: 65}} {
		_, err := source.NewReader(t.Context(), file, options)
		require.Error(t, err)
	}
}

func TestReader_unknown_size(t *testing.T) {
	t.Parallel()
	broken := atomic.Int64{}
	m := &memory{content: standin.Pattern(6, 1<<20), broken: func(int64) int64 {
		if broken.Add(1) < 4 {
			return 100_000
		}
		return -1
	}}
	file := m.file()
	file.Size = -1
	data, err := drain(t, file, source.ReadOptions{Retry: patient()}, true)
	require.NoError(t, err)
	require.Equal(t, file.SHA256, standin.SHA256(standin.Bytes(data)))
	require.EqualValues(t, 1<<20, m.read.Load())
}

func TestReader_gives_up(t *testing.T) {
	t.Parallel()
	m := &memory{content: standin.Pattern(6, 1<<20), broken: func(int64) int64 { return 0 }}
	_, err := drain(t, m.file(), source.ReadOptions{Connections: 1, Retry: patient()}, false)
	require.True(t, source.Temporary(err), err)
	require.EqualValues(t, 8, m.opened.Load(), "eight attempts without a byte")

	drip := &memory{content: standin.Pattern(6, 1<<20), broken: func(int64) int64 { return 1 }}
	_, err = drain(t, drip.file(), source.ReadOptions{Connections: 1, Retry: patient()}, false)
	require.True(t, source.Temporary(err), err)
	require.EqualValues(t, 100, drip.opened.Load(), "a byte now and then does not keep it going for ever")
}

func TestReader_error_of_the_writer_is_the_writers(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	reader, err := source.NewReader(t.Context(), (&memory{content: standin.Pattern(6, 1<<20)}).file(), source.ReadOptions{})
	require.NoError(t, err)
	defer reader.Close()
	_, err = reader.WriteTo(failing{full})
	require.ErrorIs(t, err, full)
	_, err = reader.Read(make([]byte, 1))
	require.ErrorIs(t, err, full)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestReader_closed_early_gives_everything_back(t *testing.T) {
	t.Parallel()
	m := &memory{content: standin.Pattern(6, 1<<20)}
	buffers := source.NewBuffers(3, 4096)
	for range 20 {
		reader, err := source.NewReader(t.Context(), m.file(), source.ReadOptions{Buffers: buffers})
		require.NoError(t, err)
		_, err = io.ReadFull(reader, make([]byte, 5000))
		require.NoError(t, err)
		require.NoError(t, reader.Close())
		require.NoError(t, reader.Close())
		require.Zero(t, m.open.Load())
		_, err = reader.Read(make([]byte, 1))
		require.ErrorIs(t, err, context.Canceled)
	}
	data, err := drain(t, m.file(), source.ReadOptions{Buffers: buffers}, true)
	require.NoError(t, err)
	require.Len(t, data, 1<<20)
}

// Many readers share few buffers: none waits for ever.
func TestReader_shared_buffers(t *testing.T) {
	t.Parallel()
	buffers := source.NewBuffers(2, 1024)
	var group sync.WaitGroup
	failures := make(chan error, 12)
	for i := range 12 {
		group.Go(func() {
			m := &memory{content: standin.Pattern(uint64(i), 64<<10)}
			reader, err := source.NewReader(t.Context(), m.file(), source.ReadOptions{Buffers: buffers})
			if err == nil {
				_, err = io.Copy(io.Discard, reader)
				_ = reader.Close()
			}
			failures <- err
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
}

func TestReader_memory_is_that_of_the_buffers(t *testing.T) {
	size := int64(512 << 20)
	m := &memory{content: standin.Pattern(6, size)}
	file := m.file()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	_, err := drainTo(t.Context(), file, source.ReadOptions{Buffers: source.NewBuffers(6, 1<<20)})
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), "allocated in all for %d MiB", size>>20)
}

func drainTo(ctx context.Context, file source.File, options source.ReadOptions) (int64, error) {
	reader, err := source.NewReader(ctx, file, options)
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	return reader.WriteTo(io.Discard)
}

func TestReadFile_is_bounded(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		file := (&memory{content: standin.Pattern(6, 1000)}).file()
		if !known {
			file.Size = -1
		}
		data, err := source.ReadFile(t.Context(), file, 1000)
		require.NoError(t, err)
		require.Len(t, data, 1000)
		_, err = source.ReadFile(t.Context(), file, 999)
		require.ErrorIs(t, err, source.ErrTooLarge)
	}
}

func TestRetry_grows_with_full_jitter(t *testing.T) {
	t.Parallel()
	var pauses []time.Duration
	retry := source.Retry{Jitter: func(limit time.Duration) time.Duration { return limit / 2 }, Pause: func(_ context.Context, pause time.Duration) error {
		pauses = append(pauses, pause)
		return nil
	}}
	for attempt := range 8 {
		require.NoError(t, retry.Wait(t.Context(), attempt+1, 0))
	}
	require.Equal(t, "[250ms 500ms 1s 2s 4s 8s 15s 15s]", fmt.Sprint(pauses))
	require.NoError(t, retry.Wait(t.Context(), 1, time.Minute))
	require.Equal(t, time.Minute, pauses[8])

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, source.Retry{}.Wait(ended, 8, time.Hour), context.Canceled)
}
