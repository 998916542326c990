package huggingface_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/fetch"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingface"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingfacestandin"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

func TestResolve_bounds(t *testing.T) {
	t.Parallel()
	one := standin.Bytes([]byte("x"))
	tooMany := map[string]standin.Content{}
	for i := range source.MaxFiles + 1 {
		tooMany[fmt.Sprintf("f%05d", i)] = one
	}
	tests := map[string]map[string]standin.Content{
		"more_than_10000_files":   tooMany,
		"a_path_beyond_1024":      {strings.Repeat("p", 1025): one},
		"a_path_out_of_the_tree":  {"../evil": one},
		"an_absolute_path":        {"/etc/passwd": one},
		"a_path_with_a_backslash": {`a\b`: one},
		"a_path_with_a_line":      {"a\nb": one},
	}
	for name, files := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "")
			w.Add(huggingfacestandin.Repository{Name: "a/bad", Commit: pinned, Files: files})
			_, err := w.resolve(t, "a/bad")
			require.Error(t, err)
			require.Equal(t, conditions.ModelReasonUnsupportedSource, source.Reason(err), err)
			require.Less(t, len(err.Error()), 500)
		})
	}
}

func TestResolve_list_that_never_ends(t *testing.T) {
	t.Parallel()
	blob := strings.Repeat("a", 40)
	endless := 0
	server, err := standin.Start(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/revision/"):
			fmt.Fprintf(w, `{"sha":%q}`, pinned)
		case strings.Contains(r.URL.Path, "/huge/"):
			_, _ = w.Write([]byte(`["`))
			for range 33 {
				_, _ = w.Write(make([]byte, 1<<20))
			}
		default:
			endless++
			w.Header().Set("Link", fmt.Sprintf(`<https://huggingface.co/x?cursor=%d>; rel="next"`, endless))
			fmt.Fprintf(w, `[{"type":"directory","oid":%q,"size":0,"path":"d"}]`, blob)
		}
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	client := huggingface.New(huggingface.Options{Endpoint: server.URL(), Fetch: fetch.Options{PlainHTTP: true, Private: []netip.AddrPort{server.Address()}}})
	defer client.Close()
	for _, name := range []string{"endless", "huge"} {
		_, err := client.Resolve(t.Context(), huggingface.Reference{Owner: "a", Name: name})
		require.ErrorIs(t, err, source.ErrTooLarge, name)
	}
}
