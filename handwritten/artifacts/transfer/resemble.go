package transfer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/opencontainers/go-digest"
)

const (
	// samples is how many places of a blob are compared, sampleSize how many bytes at each.
	samples, sampleSize = 4, 4 << 10
)

// resembles compares some places of the blob with the one that the registry has
// under the digest. A model that was trained further has the same
// sizes and other bytes: without this, it would be read once for nothing. When in
// doubt the answer is no, and the blob is sent while it is hashed.
func (u *upload) resembles(ctx context.Context, d digest.Digest) bool {
	for i := range int64(samples) {
		at := u.blob.Size / samples * i
		at += (u.blob.Size/samples - sampleSize) / 2
		theirs, err := u.target.readRange(ctx, d, max(at, 0), min(sampleSize, u.blob.Size))
		if err != nil {
			return false
		}
		ours, err := u.blob.readRange(ctx, max(at, 0), int64(len(theirs)))
		if err != nil || !bytes.Equal(ours, theirs) {
			return false
		}
		u.options.Meter.read.Add(int64(len(ours)))
	}
	return true
}

// readRange reads a part of a blob of the registry.
func (t *Target) readRange(ctx context.Context, d digest.Digest, at, length int64) ([]byte, error) {
	doing := "reading a part of blob " + d.String()
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", at, at+length-1)}}
	response, cancel, err := t.do(ctx, doing, http.MethodGet, t.base+"/blobs/"+d.String(), nil, 0, header, requestTimeout)
	defer cancel()
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusPartialContent {
		return nil, answerError(doing, response)
	}
	defer func() { _ = response.Body.Close() }()
	part := make([]byte, length)
	_, err = io.ReadFull(response.Body, part)
	return part, registryFailure(doing, err)
}

// readRange reads a part of the blob from the source.
func (b *Blob) readRange(ctx context.Context, at, length int64) ([]byte, error) {
	part := make([]byte, 0, length)
	for piece := range b.Pieces(at) {
		want := length - int64(len(part))
		if want == 0 {
			break
		}
		if piece.Literal != nil {
			part = append(part, piece.Literal[:min(int64(len(piece.Literal)), want)]...)
			continue
		}
		want = min(want, piece.Length)
		if want == 0 {
			continue
		}
		reader, err := piece.File.Open(ctx, piece.Offset, want)
		if err != nil {
			return nil, err
		}
		from := len(part)
		part = part[:from+int(want)]
		_, err = io.ReadFull(reader, part[from:])
		_ = reader.Close()
		if err != nil {
			return nil, err
		}
	}
	return part, nil
}
