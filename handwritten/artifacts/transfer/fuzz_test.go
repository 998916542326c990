package transfer

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

// FuzzRange reads what a registry says about how much it has.
func FuzzRange(f *testing.F) {
	for _, seed := range []string{"", "0-0", "0-1023", "bytes=0-1023", "0-", "-5", "1-2", "0--1", "0-9223372036854775807", "0-9223372036854775806", "0-99999999999999999999", "0-0x10", "a-b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got := accepted(http.Header{"Range": {value}})
		if got < -1 {
			t.Errorf("%q gives %d bytes", value, got)
		}
	})
}

// FuzzCheckpoint goes on from foreign checkpoints: never a panic, never bytes that were not checked.
func FuzzCheckpoint(f *testing.F) {
	data := content(1, 200_000)
	blob := (&origin{}).blob("a", data)
	good, err := openStream(context.Background(), &blob, 0, position{}, newBlocks(), &Meter{}, Retry{})
	if err != nil {
		f.Fatal(err)
	}
	b, err := good.next()
	if err != nil {
		f.Fatal(err)
	}
	good.release(b)
	half, err := json.Marshal(good.stop())
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(half), `{}`, `{"at":100}`, `{"at":600,"path":"a.gguf"}`, `{"at":600,"blob":"AAAA","path":"b"}`, `{"at":-1}`, `{"at":9223372036854775807}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, saved string) {
		var at position
		if json.Unmarshal([]byte(saved), &at) != nil || at.At < 0 || at.At > blob.Size {
			return // openLedger and run refuse these
		}
		if _, err := at.open(&blob); err != nil {
			return
		}
		s, err := openStream(t.Context(), &blob, at.At, at, newBlocks(), &Meter{}, Retry{})
		if err != nil {
			return
		}
		for {
			b, err := s.next()
			if err != nil {
				break
			}
			s.release(b)
		}
		end := s.stop()
		if s.failure() == nil {
			assert.Equal(t, blob.Size, end.At)
		}
	})
}

func newBlocks() []*block {
	blocks := make([]*block, 4)
	for i := range blocks {
		blocks[i] = &block{data: make([]byte, 0, 64<<10)}
	}
	return blocks
}
