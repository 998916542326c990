package standin

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's object ids are SHA-1
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
)

// Content is bytes of a known number that can be read from anywhere, at the same time.
type Content interface {
	io.ReaderAt
	// Size is in bytes.
	Size() int64
}

// Bytes is content that lies in memory.
func Bytes(data []byte) Content { return bytes.NewReader(data) }

// Pattern is content of any size that takes no memory: the same for the same seed,
// and as hard to compress as noise.
func Pattern(seed uint64, size int64) Content {
	p := &pattern{size: size}
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	_, _ = rand.NewChaCha8(key).Read(p.block[:])
	return p
}

// pattern repeats a block whose first bytes hold its number.
type pattern struct {
	size  int64
	block [1 << 20]byte
}

func (p *pattern) Size() int64 { return p.size }

func (p *pattern) ReadAt(out []byte, offset int64) (int, error) {
	if offset < 0 || offset >= p.size {
		return 0, io.EOF
	}
	var err error
	if int64(len(out)) > p.size-offset {
		out, err = out[:p.size-offset], io.EOF
	}
	done := 0
	for done < len(out) {
		at := offset + int64(done)
		number, within := at/int64(len(p.block)), int(at%int64(len(p.block)))
		n := copy(out[done:], p.block[within:])
		if within < 8 {
			var stamp [8]byte
			binary.LittleEndian.PutUint64(stamp[:], uint64(number))
			copy(out[done:done+n], stamp[within:])
		}
		done += n
	}
	return done, err
}

// SHA256 is the digest of content in lower-case hex.
func SHA256(content Content) string { return digest(sha256.New(), content) }

// GitBlob is the git object id of content.
func GitBlob(content Content) string {
	h := sha1.New() //nolint:gosec // see the import
	fmt.Fprintf(h, "blob %d\x00", content.Size())
	return digest(h, content)
}

func digest(h hash.Hash, content Content) string {
	_, _ = io.Copy(h, io.NewSectionReader(content, 0, content.Size()))
	return hex.EncodeToString(h.Sum(nil))
}
