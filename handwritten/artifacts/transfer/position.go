package transfer

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/opencontainers/go-digest"
)

// position is how far a blob was hashed, and the state of its hashes there. The zero
// value is the start.
type position struct {
	// At is the offset in the blob up to which bytes were hashed.
	At int64 `json:"at"`
	// Blob is the state of the blob's hash.
	Blob []byte `json:"blob,omitempty"`
	// Path is the file that At lies in, "" when it lies in none; File is the state of its hash.
	Path string `json:"path,omitempty"`
	File []byte `json:"file,omitempty"`
}

// hashes are the running hashes of a blob. addBlob and addFiles are called by one
// goroutine each, in the order of the blocks.
type hashes struct {
	from     int64 // what lies before it was hashed already
	blob     hash.Hash
	blobAt   int64
	file     hash.Hash // of the file that is open, nil for none
	filePath string
	filesAt  int64
}

// open restores the hashes of a position.
func (p position) open(blob *Blob) (*hashes, error) {
	h := &hashes{from: p.At, blob: sha256.New(), blobAt: p.At, filesAt: p.At, filePath: p.Path}
	if p.At == 0 {
		return h, nil
	}
	if err := restore(h.blob, p.Blob); err != nil {
		return nil, fmt.Errorf("reading the checkpoint of %q: %w", blob.Name, err)
	}
	open := openFileAt(blob, p.At)
	switch {
	case open == nil && p.Path == "":
		return h, nil
	case open == nil || open.Path != p.Path:
		return nil, fmt.Errorf("reading the checkpoint of %q: it is in the middle of %q, and the blob is not", blob.Name, p.Path)
	}
	h.file = open.newHash()
	if err := restore(h.file, p.File); err != nil {
		return nil, fmt.Errorf("reading the checkpoint of %q: %w", p.Path, err)
	}
	return h, nil
}

// openFileAt is the file with a promised digest in whose middle an offset lies, nil when there is none.
func openFileAt(blob *Blob, at int64) *File {
	for piece := range blob.Pieces(at) {
		if piece.File != nil && piece.Offset > 0 && piece.File.Algorithm != Unpromised {
			return piece.File
		}
		break
	}
	return nil
}

func restore(h hash.Hash, state []byte) error {
	unmarshaler, ok := h.(encoding.BinaryUnmarshaler)
	if !ok {
		return fmt.Errorf("the hash %T has no state to restore", h)
	}
	return unmarshaler.UnmarshalBinary(state)
}

func save(h hash.Hash) []byte {
	marshaler, ok := h.(encoding.BinaryMarshaler)
	if !ok {
		return nil
	}
	state, err := marshaler.MarshalBinary()
	if err != nil {
		return nil // the hashes of the standard library never fail
	}
	return state
}

// addBlob takes in what of the block was not hashed before.
func (h *hashes) addBlob(b *block) {
	if skip := max(h.blobAt-b.at, 0); skip < int64(len(b.data)) {
		_, _ = h.blob.Write(b.data[skip:]) // a hash never fails
		h.blobAt = b.end()
	}
	if b.mark != nil {
		if b.end() != h.blobAt {
			b.mark = nil // the hashes are further on already
			return
		}
		b.mark.At, b.mark.Blob = h.blobAt, save(h.blob)
	}
}

// addFiles takes in the files of a block, and compares a file that ends in it with
// what the source promised.
func (h *hashes) addFiles(b *block) error {
	for _, run := range b.runs {
		if err := h.addRun(b, run); err != nil {
			return err
		}
	}
	h.filesAt = max(h.filesAt, b.end())
	if b.mark != nil && h.file != nil {
		b.mark.Path, b.mark.File = h.filePath, save(h.file)
	}
	return nil
}

func (h *hashes) addRun(b *block, r run) error {
	if b.at+int64(r.to) <= h.from && r.from != r.to || b.at+int64(r.to) < h.from {
		return nil
	}
	if skip := h.from - b.at; skip > int64(r.from) {
		moved := int(skip) - r.from
		r.from, r.offset = r.from+moved, r.offset+int64(moved)
	}
	if r.offset == 0 {
		h.file, h.filePath = r.file.newHash(), r.file.Path
	}
	if h.file == nil {
		return nil
	}
	_, _ = h.file.Write(b.data[r.from:r.to]) // a hash never fails
	if r.offset+int64(r.to-r.from) < r.file.Size {
		return nil
	}
	got := hex.EncodeToString(h.file.Sum(nil))
	h.file, h.filePath = nil, ""
	if got != r.file.Promise {
		return fmt.Errorf("reading %q: %w: %s is %s, promised was %.128s", r.file.Path, ErrIntegrity, r.file.Algorithm, got, r.file.Promise)
	}
	return nil
}

// position is where both hashes stand. It is called when both have taken in the same blocks.
func (h *hashes) position() position {
	at := position{At: h.blobAt, Blob: save(h.blob)}
	if h.file != nil {
		at.Path, at.File = h.filePath, save(h.file)
	}
	return at
}

// digest is that of the bytes up to the position.
func (p position) digest(blob *Blob) (digest.Digest, error) {
	h, err := p.open(blob)
	if err != nil {
		return "", err
	}
	return digest.NewDigest(digest.SHA256, h.blob), nil
}
