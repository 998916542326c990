package transfer

import (
	"errors"
	"io"
	"sync"
	"time"
)

// cursor hands the bytes of a stream on, from an offset that the registry lacks.
type cursor struct {
	stream *stream
	at     int64 // the next byte to hand on
	block  *block
	marked func(position)
}

// fill makes sure that the block holds the byte at the cursor.
func (c *cursor) fill() error {
	for c.block == nil || c.block.end() <= c.at {
		c.drop()
		b, err := c.stream.next()
		if err != nil {
			return err
		}
		if b.mark != nil {
			c.marked(*b.mark)
		}
		c.block = b
	}
	return nil
}

// drop gives the block back.
func (c *cursor) drop() {
	if c.block != nil {
		c.stream.release(c.block)
		c.block = nil
	}
}

// rest reads to the end of the stream, for the hashes alone.
func (c *cursor) rest() error {
	for {
		c.drop()
		b, err := c.stream.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if b.mark != nil {
			c.marked(*b.mark)
		}
		c.block = b
	}
}

// section is the body of one request: the bytes of a cursor up to an end. The HTTP
// client may read it for a moment after its answer came; after detach it does not.
type section struct {
	cursor *cursor
	end    int64
	count  func(int64)
	stall  *time.Timer // runs while the registry is to take bytes or to answer

	mu     sync.Mutex
	closed bool
}

// newSection starts to watch for a registry that takes no bytes; it calls stalled then.
func newSection(c *cursor, end int64, count func(int64), stalled func()) *section {
	return &section{cursor: c, end: end, count: count, stall: time.AfterFunc(stallTimeout, stalled)}
}

func (s *section) Read(p []byte) (int, error) {
	s.stall.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := s.peek(int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer s.stall.Reset(stallTimeout)
	n := copy(p, data)
	s.advance(int64(n))
	return n, nil
}

// writeTo writes what the next block has, at most limit bytes. The block stays ours
// until it is written: detach waits for that.
func (s *section) writeTo(w io.Writer, limit int64) (int64, error) {
	s.stall.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := s.peek(limit)
	if err != nil {
		return 0, err
	}
	s.stall.Reset(stallTimeout)
	n, err := w.Write(data)
	s.advance(int64(n))
	return int64(n), err
}

// peek waits for bytes at the cursor and returns at most limit of them.
func (s *section) peek(limit int64) ([]byte, error) {
	if s.closed {
		return nil, io.ErrClosedPipe
	}
	if s.cursor.at >= s.end {
		s.stall.Reset(stallTimeout) // for the answer
		return nil, io.EOF
	}
	if err := s.cursor.fill(); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	b := s.cursor.block
	rest := b.data[s.cursor.at-b.at:]
	return rest[:min(int64(len(rest)), limit, s.end-s.cursor.at)], nil
}

// advance moves the cursor behind what was handed on.
func (s *section) advance(n int64) {
	s.cursor.at += n
	s.count(n)
}

// Close is called by the HTTP client.
func (s *section) Close() error { return nil }

// detach ends all reading; it waits for one that is under way, which ends when the stream does.
func (s *section) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.stall.Stop()
}
