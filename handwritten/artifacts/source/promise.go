package source

import (
	"crypto/sha1" //nolint:gosec // git's object ids are SHA-1; nothing of ours relies on it alone
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
)

// promise compares the bytes of a file with the digest that the source promised.
type promise struct {
	path string
	want string
	hash hash.Hash // nil when nothing is promised
}

// newPromise goes on from a state of an earlier promise of the same file, or
// begins when it is empty and offset is 0.
func newPromise(file File, offset int64, state []byte) (*promise, error) {
	p := &promise{path: file.Path}
	switch {
	case file.SHA256 != "":
		p.want, p.hash = file.SHA256, sha256.New()
	case file.GitBlob != "" && file.Size >= 0:
		p.want, p.hash = file.GitBlob, sha1.New() //nolint:gosec // see the import
		fmt.Fprintf(p.hash, "blob %d\x00", file.Size)
	default:
		return p, nil
	}
	if offset == 0 {
		return p, nil
	}
	if len(state) == 0 {
		return nil, errors.New("the state of the digest is missing, so what came before cannot be checked")
	}
	resumed, _ := p.hash.(encoding.BinaryUnmarshaler)
	if err := resumed.UnmarshalBinary(state); err != nil {
		return nil, errors.New("the state of the digest is damaged")
	}
	return p, nil
}

func (p *promise) write(data []byte) {
	if p.hash != nil {
		_, _ = p.hash.Write(data) // never fails
	}
}

// state is what newPromise goes on from; empty when nothing is promised.
func (p *promise) state() []byte {
	if p.hash == nil {
		return nil
	}
	kept, _ := p.hash.(encoding.BinaryMarshaler)
	state, err := kept.MarshalBinary()
	if err != nil {
		return nil // then the file is read again from the start
	}
	return state
}

// kept tells whether all bytes together are those that were promised.
func (p *promise) kept() error {
	if p.hash == nil {
		return nil
	}
	if got := hex.EncodeToString(p.hash.Sum(nil)); got != p.want {
		return Broken(ErrDigest, "checking %s: the digest is %s, promised is %s", p.path, got, p.want)
	}
	return nil
}
