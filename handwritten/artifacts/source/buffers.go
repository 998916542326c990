package source

import "context"

// BufferBytes is the size of the buffers of a Reader that has none of its own: 4 MiB.
const BufferBytes = 4 << 20

// Buffers bounds the memory of any number of Readers that share it. Buffers are
// made when they are first needed and then kept.
type Buffers struct {
	size int
	free chan []byte // nil stands for one that is not made yet
}

// NewBuffers returns count buffers of size bytes each, both at least 1.
func NewBuffers(count, size int) *Buffers {
	b := &Buffers{size: max(size, 1), free: make(chan []byte, max(count, 1))}
	for range cap(b.free) {
		b.free <- nil
	}
	return b
}

// take waits for a free buffer. A Reader takes buffers in the order in which it
// gives them back, so readers that share buffers cannot wait for one another in a
// circle, as long as each is read without waiting for the others.
func (b *Buffers) take(ctx context.Context) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case buffer := <-b.free:
		if buffer == nil {
			buffer = make([]byte, b.size)
		}
		return buffer[:b.size], nil
	}
}

func (b *Buffers) give(buffer []byte) { b.free <- buffer }
