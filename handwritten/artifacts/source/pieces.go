package source

import (
	"context"
	"errors"
	"io"

	"magicstick.dev/operator/generated/conditions"
)

// maxTries bounds the connections for one piece even when each brings a byte.
const maxTries = 100

// piece is one range of a file on its way.
type piece struct {
	buffer []byte        // as taken
	data   []byte        // what belongs into it
	offset int64         // of data in the file
	done   chan struct{} // closed when data is complete or err is set
	err    error
}

// schedule starts the pieces from offset to the end in order, at most as many at
// the same time as there are connections, and closes r.pieces behind the last.
func (r *Reader) schedule(ctx context.Context, offset int64) {
	defer close(r.pieces)
	connections := make(chan struct{}, r.options.Connections)
	for offset < r.file.Size {
		buffer, err := r.options.Buffers.take(ctx)
		if err != nil {
			return
		}
		data := buffer[:min(int64(len(buffer)), r.file.Size-offset)]
		next := &piece{buffer: buffer, data: data, offset: offset, done: make(chan struct{})}
		offset += int64(len(data))
		select {
		case <-ctx.Done():
			r.options.Buffers.give(buffer)
			return
		case connections <- struct{}{}:
		}
		go func() {
			next.err = r.fill(ctx, next)
			<-connections
			close(next.done)
		}()
		select {
		case <-ctx.Done():
			<-next.done
			r.options.Buffers.give(buffer)
			return
		case r.pieces <- next:
		}
	}
}

// abandon gives back all buffers; the context must have ended, or all be read.
func (r *Reader) abandon() {
	r.release()
	if r.pieces == nil {
		return
	}
	for left := range r.pieces {
		<-left.done
		r.options.Buffers.give(left.buffer)
	}
}

// fill fetches a piece, going on at the last byte when the connection breaks.
func (r *Reader) fill(ctx context.Context, p *piece) error {
	got, failures := 0, 0
	for tries := 1; ; tries++ {
		n, err := r.part(ctx, p.offset+int64(got), p.data[got:])
		got += n
		if got == len(p.data) {
			return nil
		}
		if n > 0 {
			failures = 0
		}
		failures++
		var broken *interruption
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.As(err, &broken):
			return err
		case failures >= r.options.Retry.Tries() || tries >= maxTries:
			return Interrupted(broken.cause, "reading %s: the connection broke at byte %d, in attempt %d", r.file.Path, p.offset+int64(got), tries)
		}
		if err := r.options.Retry.Wait(ctx, failures, 0); err != nil {
			return err
		}
	}
}

// interruption is an error in the middle of a stream that another connection may
// cure. Errors of Open are none: Open has tried often enough.
type interruption struct{ cause error }

func (i *interruption) Error() string { return i.cause.Error() }
func (i *interruption) Unwrap() error { return i.cause }

// interrupted tells errors of a stream that may heal from those that will not.
func interrupted(err error) error {
	var failed *Error
	if errors.As(err, &failed) && !failed.Temporary {
		return err
	}
	return &interruption{cause: err}
}

// part reads one range into data and returns how much came.
func (r *Reader) part(ctx context.Context, offset int64, data []byte) (int, error) {
	body, err := r.file.Open(ctx, offset, int64(len(data)))
	if err != nil {
		return 0, err
	}
	defer body.Close()
	n, err := io.ReadFull(body, data)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return n, interrupted(err)
	}
	return n, nil
}

// stream reads a file from one place to its end over one connection at a time:
// the way for files of unknown size and for sources that ignore ranges.
type stream struct {
	reader   *Reader
	discard  bool // every connection starts at 0
	body     io.ReadCloser
	failures int // since the last byte
	tries    int
}

func (r *Reader) newStream(discard bool) *stream { return &stream{reader: r, discard: discard} }

func (s *stream) close() {
	if s.body != nil {
		_ = s.body.Close()
		s.body = nil
	}
}

// read returns bytes, or the error that ends the file; io.EOF at its end.
func (s *stream) read(p []byte) (int, error) {
	r := s.reader
	if r.file.Size >= 0 {
		// One byte more than promised must be noticed, not passed on.
		if r.offset >= r.file.Size {
			return 0, io.EOF
		}
		p = p[:min(int64(len(p)), r.file.Size-r.offset)]
	}
	for {
		n, err := s.once(p)
		if n > 0 {
			s.failures = 0
			return n, nil
		}
		if err == nil {
			continue
		}
		s.close()
		if errors.Is(err, io.EOF) && r.file.Size < 0 {
			return 0, io.EOF
		}
		if errors.Is(err, io.EOF) {
			err = &interruption{cause: io.ErrUnexpectedEOF}
		}
		s.failures++
		s.tries++
		var broken *interruption
		switch {
		case r.ctx.Err() != nil:
			return 0, r.ctx.Err()
		case !errors.As(err, &broken):
			return 0, err
		case s.failures >= r.options.Retry.Tries() || s.tries >= maxTries:
			return 0, Interrupted(broken.cause, "reading %s: the connection broke at byte %d, in attempt %d", r.file.Path, r.offset, s.tries)
		}
		if err := r.options.Retry.Wait(r.ctx, s.failures, 0); err != nil {
			return 0, err
		}
	}
}

// once reads from the present connection, or opens one.
func (s *stream) once(p []byte) (int, error) {
	if s.body == nil {
		if err := s.open(); err != nil {
			return 0, err
		}
	}
	n, err := s.body.Read(p)
	switch {
	case n > 0:
		return n, nil // the error comes again
	case errors.Is(err, io.EOF):
		return 0, io.EOF
	case err != nil:
		return 0, interrupted(err)
	}
	return 0, nil
}

func (s *stream) open() error {
	from := s.reader.offset
	if s.discard {
		from = 0
	}
	body, err := s.reader.file.Open(s.reader.ctx, from, -1)
	if err != nil {
		return err
	}
	s.body = body
	if s.discard && s.reader.offset > 0 {
		if _, err := io.CopyN(io.Discard, body, s.reader.offset); err != nil {
			return interrupted(err)
		}
	}
	return nil
}

// ReadFile reads a small file as a whole and checks it; at most limit bytes, or
// the error wraps ErrTooLarge.
func ReadFile(ctx context.Context, file File, limit int64) ([]byte, error) {
	if file.Size > limit {
		return nil, Fail(conditions.ModelReasonUnsupportedFormat, ErrTooLarge, "reading %s: it has %d bytes, allowed are %d", file.Path, file.Size, limit)
	}
	reader, err := NewReader(ctx, file, ReadOptions{Connections: 1})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	data, err := io.ReadAll(io.LimitReader(reader, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, Fail(conditions.ModelReasonUnsupportedFormat, ErrTooLarge, "reading %s: it has more than the allowed %d bytes", file.Path, limit)
	}
	return data, nil
}
