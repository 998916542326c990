package transfer

import (
	"context"
	"crypto/sha1" //nolint:gosec // git names its objects so; the registry's digest is SHA-256
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"iter"

	"github.com/opencontainers/go-digest"
)

// Algorithm is how the source computes the digest that it promises for a file.
type Algorithm string

const (
	// Unpromised files have no digest to compare with.
	Unpromised Algorithm = ""
	// SHA256 is the digest of the file's bytes.
	SHA256 Algorithm = "sha256"
	// GitBlob is the object ID of git: SHA-1 over "blob <size>\x00" and the bytes.
	GitBlob Algorithm = "git-blob"
)

// File is one file of the source.
type File struct {
	// Path names it in messages and checkpoints.
	Path string
	// Size is in bytes.
	Size int64
	// Algorithm and Promise are what the source says about the bytes; Promise is lower-case hexadecimal.
	Algorithm Algorithm
	// Promise is the digest.
	Promise string
	// Open reads length bytes from offset. The stream may be shorter only when the
	// connection broke; it is then opened again behind the last byte.
	Open func(ctx context.Context, offset, length int64) (io.ReadCloser, error)
}

// newHash starts the hash of the file's bytes, nil when nothing is promised.
func (f *File) newHash() hash.Hash {
	switch f.Algorithm {
	case SHA256:
		return sha256.New()
	case GitBlob:
		h := sha1.New() //nolint:gosec // see the import
		fmt.Fprintf(h, "blob %d\x00", f.Size)
		return h
	case Unpromised:
	}
	return nil
}

// Piece is a run of bytes of a blob: Literal ones, or Length bytes of File from Offset.
type Piece struct {
	// Literal are the bytes themselves; nil for a part of a file.
	Literal []byte
	// File holds the bytes.
	File *File
	// Offset and Length are in bytes.
	Offset, Length int64
}

// Blob is what becomes one blob of the registry.
type Blob struct {
	// Name identifies the blob within a push, in messages and checkpoints.
	Name string
	// Size is in bytes.
	Size int64
	// Key identifies the bytes as far as the source vouches for them: two blobs with the
	// same key have the same digest. "" when that cannot be told.
	Key string
	// Expected is a blob of the repository that is probably the same, "" for none. When some
	// places of the two are the same, the blob is hashed first, and sent only when
	// its digest is another one.
	Expected digest.Digest
	// Unpinned says that nothing vouches for the bytes being the same when another
	// process reads them: a checkpoint then keeps what the registry has, but
	// everything is hashed again.
	Unpinned bool
	// Pieces are the bytes from an offset to the end, every call the same.
	Pieces func(from int64) iter.Seq[Piece]
}
