package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// block is a run of bytes of a blob on its way through the stages.
type block struct {
	data []byte // len is what is filled, cap the block size
	at   int64  // where it starts in the blob
	runs []run  // which of its bytes are a file's
	mark *position
}

// run is a part of a block that belongs to a file.
type run struct {
	file     *File
	from, to int   // within the block
	offset   int64 // of from within the file
}

func (b *block) end() int64 { return b.at + int64(len(b.data)) }

// maxShort is how many connections in a row may end without a byte before the file
// counts as shorter than its source said.
const maxShort = 5

// stream reads a blob from an offset and hashes what was not hashed before. Three
// goroutines pass blocks on: reading, the blob's hash, the file's hash. The owner
// takes them with next and gives them back with release.
type stream struct {
	blob   *Blob
	meter  *Meter
	retry  Retry
	free   chan *block
	out    chan *block
	cancel context.CancelFunc
	done   chan struct{} // closed when all stages have ended

	mu     sync.Mutex
	err    error
	hashed position // behind the last block that passed all stages
}

// markEvery is how many blocks lie between two positions that a checkpoint may name.
const markEvery = 8

// openStream starts to read at from, which is at most hashed.at or behind it; what lies
// in front of hashed.at is read but not hashed. blocks are the buffers; the
// stream owns them until stop.
func openStream(ctx context.Context, blob *Blob, from int64, hashed position, blocks []*block, meter *Meter, retry Retry) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{
		blob: blob, meter: meter, retry: retry, cancel: cancel, hashed: hashed, done: make(chan struct{}),
		free: make(chan *block, len(blocks)), out: make(chan *block, len(blocks)),
	}
	hashes, err := hashed.open(blob)
	if err != nil {
		cancel()
		return nil, err
	}
	for _, b := range blocks {
		s.free <- b
	}
	read := make(chan *block, len(blocks))
	half := make(chan *block, len(blocks))
	go func() {
		defer close(read)
		if err := s.read(ctx, from, read); err != nil {
			s.fail(err)
		}
	}()
	go func() {
		defer close(half)
		for b := range read {
			hashes.addBlob(b)
			half <- b
		}
	}()
	go func() {
		defer close(s.done)
		defer close(s.out)
		broken := false
		for b := range half {
			if err := hashes.addFiles(b); err != nil {
				s.fail(err)
				s.free <- b
				broken = true
				break
			}
			s.out <- b
		}
		for b := range half {
			s.free <- b
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hashed = position{}
		if !broken { // wrong bytes must never be taken for checked ones
			s.hashed = hashes.position()
		}
	}()
	return s, nil
}

// fail keeps the first error and ends the reading. That the reading was ended is no error.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !errors.Is(err, context.Canceled) {
		s.err = err
	}
	s.cancel()
}

// failure is the error that ended the stream, nil while there is none.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// next waits for the next block. It returns io.EOF behind the last one, and when the
// reading was ended.
func (s *stream) next() (*block, error) {
	if b, ok := <-s.out; ok {
		return b, nil
	}
	if err := s.failure(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

// release gives a block back to be filled again.
func (s *stream) release(b *block) { s.free <- b }

// stop ends the reading, lets the hashes take in what was read, and returns how far they are.
func (s *stream) stop() position {
	s.cancel()
	for b := range s.out {
		s.release(b)
	}
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hashed
}

// read fills blocks with the bytes of the pieces.
func (s *stream) read(ctx context.Context, from int64, out chan<- *block) error {
	fill := &filler{stream: s, out: out, at: from}
	for piece := range s.blob.Pieces(from) {
		var err error
		if piece.Literal != nil {
			err = fill.literal(ctx, piece.Literal)
		} else {
			err = fill.file(ctx, piece)
		}
		if err != nil {
			return err
		}
	}
	return fill.flush()
}

// filler is the block that is being filled.
type filler struct {
	stream *stream
	out    chan<- *block
	block  *block
	at     int64
	count  int
}

// room makes sure that there is a block with room.
func (f *filler) room(ctx context.Context) error {
	if f.block != nil && len(f.block.data) < cap(f.block.data) {
		return nil
	}
	if err := f.flush(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case f.block = <-f.stream.free:
	}
	f.block.data, f.block.at, f.block.runs, f.block.mark = f.block.data[:0], f.at, f.block.runs[:0], nil
	return nil
}

// flush passes the block on.
func (f *filler) flush() error {
	if f.block == nil {
		return nil
	}
	f.count++
	if f.count%markEvery == 0 {
		f.block.mark = &position{}
	}
	f.out <- f.block // never waits: the channel has room for all blocks
	f.block = nil
	return nil
}

func (f *filler) literal(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		if err := f.room(ctx); err != nil {
			return err
		}
		n := copy(f.block.data[len(f.block.data):cap(f.block.data)], data)
		f.block.data = f.block.data[:len(f.block.data)+n]
		f.at += int64(n)
		data = data[n:]
	}
	return nil
}

// file reads a part of a file, and goes on behind the last byte when the connection breaks.
func (f *filler) file(ctx context.Context, piece Piece) error {
	if piece.Length == 0 {
		return f.empty(ctx, piece)
	}
	patience, short := f.stream.retry.begin(), 0
	for done := int64(0); done < piece.Length; {
		n, err := f.once(ctx, piece.File, piece.Offset+done, piece.Length-done)
		done += n
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			continue
		}
		if n > 0 {
			patience.progress()
			short = 0
		} else if errors.Is(err, errTruncated) {
			short++
		}
		if short == maxShort {
			return fmt.Errorf("%w: %q ends at byte %d of %d", ErrSource, piece.File.Path, piece.Offset+done, piece.File.Size)
		}
		if !temporarySource(err) {
			return fmt.Errorf("%w: %q at byte %d: %w", ErrSource, piece.File.Path, piece.Offset+done, err)
		}
		if wait := patience.wait(ctx, err); wait != nil {
			if ctx.Err() != nil {
				return wait
			}
			return fmt.Errorf("%w: %q at byte %d: given up after %s without progress: %w",
				ErrSource, piece.File.Path, piece.Offset+done, patience.retry.For, err)
		}
	}
	return nil
}

// empty notes an empty file, so that its promise is checked.
func (f *filler) empty(ctx context.Context, piece Piece) error {
	if err := f.room(ctx); err != nil {
		return err
	}
	f.block.runs = append(f.block.runs, run{file: piece.File, from: len(f.block.data), to: len(f.block.data)})
	return nil
}

// once reads over one connection. It returns how many bytes it put into blocks.
func (f *filler) once(ctx context.Context, file *File, offset, length int64) (done int64, err error) {
	reader, err := file.Open(ctx, offset, length)
	if err != nil {
		return 0, err
	}
	defer func() { _ = reader.Close() }()
	for done < length {
		if err := f.room(ctx); err != nil {
			return done, err
		}
		have := len(f.block.data)
		want := int(min(int64(cap(f.block.data)-have), length-done))
		n, err := io.ReadFull(reader, f.block.data[have:have+want])
		if n > 0 {
			f.block.data = f.block.data[:have+n]
			f.block.runs = append(f.block.runs, run{file: file, from: have, to: have + n, offset: offset + done})
			f.at += int64(n)
			done += int64(n)
			f.stream.meter.read.Add(int64(n))
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return done, errTruncated
		}
		if err != nil {
			return done, err
		}
	}
	return done, f.ended(reader)
}

// ended makes sure that there is nothing behind what was asked for.
func (f *filler) ended(reader io.Reader) error {
	var extra [1]byte
	if n, _ := reader.Read(extra[:]); n > 0 {
		return errLonger
	}
	return nil
}

var (
	errTruncated = errors.New("the connection ended early")
	errLonger    = fmt.Errorf("more bytes came than were asked for: %w", ErrIntegrity)
)

// temporarySource tells whether reading may be tried again. A source says so with
// a method Temporary; what says nothing may.
func temporarySource(err error) bool {
	if errors.Is(err, ErrIntegrity) || errors.Is(err, context.Canceled) {
		return false
	}
	var says interface{ Retryable() bool }
	if errors.As(err, &says) {
		return says.Retryable()
	}
	return true
}
