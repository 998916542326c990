package transfer

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/registrytest"
)

// TestSmallestChunk obeys a registry that wants larger chunks than we would send.
func TestSmallestChunk(t *testing.T) {
	t.Parallel()
	const least = 3 << 20
	var small atomic.Int64
	faults := &registrytest.Faults{
		Header: func(r *http.Request, status int, header http.Header) {
			if r.Method == http.MethodPost && status == http.StatusAccepted {
				header.Set("OCI-Chunk-Min-Length", fmt.Sprint(least))
			}
		},
		Before: func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch && r.ContentLength < least {
				small.Add(1)
			}
			return false
		},
	}
	registry := startRegistry(t, registrytest.Options{Folder: t.TempDir(), Wrap: faults.Wrap})
	to, data := target(t, registry, "ai/model"), content(1, 7<<20)
	pushed, err := to.Push(t.Context(), []Blob{(&origin{}).blob("a", data)}, quick(nil))
	require.NoError(t, err)
	assertHeld(t, to, pushed[0], bytesOf("a", data))
	assert.LessOrEqual(t, small.Load(), int64(1), "only the last chunk may be smaller")
}

// TestLocationsOfUploads follows what registries answer, and refuses to leave https.
func TestLocationsOfUploads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ base, location, want string }{
		"absolute":            {"https://r.example/v2/a/blobs/uploads/", "https://r.example/u/1?_state=x", "https://r.example/u/1?_state=x"},
		"relative":            {"https://r.example/v2/a/blobs/uploads/", "/v2/a/blobs/uploads/1", "https://r.example/v2/a/blobs/uploads/1"},
		"none":                {"https://r.example/u/1", "", "https://r.example/u/1"},
		"other_host":          {"https://r.example/u/1", "https://s3.example/u/1", "https://s3.example/u/1"},
		"proxy_that_ends_TLS": {"https://r.example/u/1", "http://r.example:5000/u/2", "https://r.example/u/2"},
		"leaves_https":        {"https://r.example/u/1", "http://evil.example/u/2", ""},
		"unusable":            {"https://r.example/u/1", "http://[::1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &session{location: c.base}
			err := s.follow(&http.Response{Header: http.Header{"Location": {c.location}}})
			if c.want == "" {
				require.Error(t, err)
				assert.Equal(t, c.base, s.location)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, s.location)
		})
	}
}
