package source

import (
	"context"
	"errors"
	"fmt"
	"io"

	"magicstick.dev/operator/generated/conditions"
)

// ReadOptions says how a file is read. The zero value reads all of it with four
// connections and 24 MiB of buffers.
type ReadOptions struct {
	// Offset is where reading starts, in bytes.
	Offset int64
	// State is that of a Reader at this offset; needed when Offset is not 0 and the
	// source promises a digest.
	State []byte
	// Connections is how many ranges are read at the same time, 1 to 64; 4 when 0.
	Connections int
	// Buffers are shared with other Readers; own ones when nil. A range is as large
	// as a buffer.
	Buffers *Buffers
	// Retry is for connections that break in the middle.
	Retry Retry
	// Progress, when not nil, is told how many more bytes were handed on. It is
	// called from Read and WriteTo.
	Progress func(bytes int64)
}

// Reader hands on the bytes of a file in order. It reads several ranges at the
// same time, goes on at the last byte when a connection breaks, and ends with
// io.EOF only when size and promised digest are right: what was read before
// another error must not be used. Errors are *Error, or that of the context.
type Reader struct {
	parent  context.Context
	ctx     context.Context // of the connections; ends with parent or Close
	cancel  context.CancelFunc
	file    File
	options ReadOptions
	promise *promise

	offset int64 // of the next byte to hand on
	failed error // sticky, io.EOF included

	pieces chan *piece // in order; nil when the file is read in one stream
	piece  *piece      // the one that is being handed on
	rest   []byte      // of that piece
	stream *stream     // nil when ranges are read
}

// NewReader starts to read. Close it, also after an error.
func NewReader(ctx context.Context, file File, options ReadOptions) (*Reader, error) {
	fail := func(format string, arguments ...any) error {
		return Fail(conditions.ModelReasonPublicationFailed, nil, "reading %s: "+format, append([]any{file.Path}, arguments...)...)
	}
	if options.Offset < 0 || file.Size >= 0 && options.Offset > file.Size {
		return nil, fail("the offset %d is outside of its %d bytes", options.Offset, file.Size)
	}
	if options.Connections < 0 || options.Connections > 64 {
		return nil, fail("%d connections; allowed are 1 to 64", options.Connections)
	}
	if options.Connections == 0 {
		options.Connections = 4
	}
	promise, err := newPromise(file, options.Offset, options.State)
	if err != nil {
		return nil, fail("going on at byte %d: %w", options.Offset, err)
	}
	r := &Reader{file: file, options: options, promise: promise, offset: options.Offset, parent: ctx}
	r.ctx, r.cancel = context.WithCancel(ctx)
	switch {
	case file.Size < 0:
		r.stream = r.newStream(false)
	case options.Offset < file.Size:
		if r.options.Buffers == nil {
			r.options.Buffers = NewBuffers(options.Connections+2, int(min(BufferBytes, file.Size-options.Offset)))
		}
		r.pieces = make(chan *piece, options.Connections)
		go r.schedule(r.ctx, r.options.Offset)
	}
	return r, nil
}

// Offset is where the next byte stands in the file.
func (r *Reader) Offset() int64 { return r.offset }

// State is what a Reader needs to go on at Offset; empty when the source promises
// no digest. At most 256 bytes.
func (r *Reader) State() []byte { return r.promise.state() }

// Close ends all connections and gives back the buffers. It returns nil.
func (r *Reader) Close() error {
	r.cancel()
	if r.failed == nil {
		r.failed = Fail(conditions.ModelReasonPublicationFailed, context.Canceled, "reading %s", r.file.Path)
	}
	r.abandon()
	if r.stream != nil {
		r.stream.close()
	}
	return nil
}

// Read hands on the next bytes.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.failed == nil {
		if len(r.rest) > 0 {
			n := copy(p, r.rest)
			r.promise.write(p[:n])
			r.advance(n)
			return n, nil
		}
		if r.stream == nil {
			r.next()
			continue
		}
		n, err := r.stream.read(p)
		r.promise.write(p[:n])
		r.count(n)
		if err != nil {
			r.end(err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, r.failed
}

// WriteTo hands on all bytes, with one core for the digest and one for w.
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
	var written int64
	var scratch []byte
	for r.failed == nil {
		data := r.rest
		if len(data) == 0 && r.stream == nil {
			r.next()
			continue
		}
		if r.stream != nil && len(data) == 0 {
			if scratch == nil {
				scratch = make([]byte, 256<<10)
			}
			n, err := r.stream.read(scratch)
			if err != nil {
				r.end(err)
			}
			data = scratch[:n]
		}
		hashed := make(chan struct{})
		go func() {
			defer close(hashed)
			r.promise.write(data)
		}()
		n, err := w.Write(data)
		<-hashed
		written += int64(n)
		if err == nil && n < len(data) {
			err = io.ErrShortWrite
		}
		if err != nil {
			// The digest is ahead of what was taken: nobody can go on from here.
			r.failed = fmt.Errorf("passing on %s: %w", r.file.Path, err)
			return written, r.failed
		}
		if len(r.rest) > 0 {
			r.advance(n)
		} else {
			r.count(n)
		}
	}
	if errors.Is(r.failed, io.EOF) {
		return written, nil
	}
	return written, r.failed
}

// advance takes n bytes from the piece that is handed on.
func (r *Reader) advance(n int) {
	r.rest = r.rest[n:]
	r.count(n)
	if len(r.rest) == 0 {
		r.release()
	}
}

func (r *Reader) count(n int) {
	r.offset += int64(n)
	if r.options.Progress != nil && n > 0 {
		r.options.Progress(int64(n))
	}
}

func (r *Reader) release() {
	if r.piece != nil {
		r.options.Buffers.give(r.piece.buffer)
		r.piece, r.rest = nil, nil
	}
}

// next waits for the next piece, or ends.
func (r *Reader) next() {
	if r.offset >= r.file.Size {
		r.end(io.EOF)
		return
	}
	var ready *piece
	select {
	case ready = <-r.pieces:
	case <-r.ctx.Done():
	}
	if ready == nil { // schedule ends early only with the context
		r.end(r.ctx.Err())
		return
	}
	r.piece = ready
	<-ready.done // ends with the context at the latest
	if errors.Is(ready.err, ErrNoRanges) {
		r.cancel()
		r.abandon()
		r.ctx, r.cancel = context.WithCancel(r.parent)
		r.stream = r.newStream(true)
		return
	}
	if ready.err != nil {
		r.end(ready.err)
		return
	}
	r.rest = ready.data
}

// end remembers how reading ended; at the end of the file only after the check.
func (r *Reader) end(err error) {
	if errors.Is(err, io.EOF) {
		err = io.EOF
		if r.file.Size >= 0 && r.offset != r.file.Size {
			err = Broken(ErrDigest, "checking %s: it has %d bytes, promised are %d", r.file.Path, r.offset, r.file.Size)
		} else if broken := r.promise.kept(); broken != nil {
			err = broken
		}
	}
	r.failed = err
}
