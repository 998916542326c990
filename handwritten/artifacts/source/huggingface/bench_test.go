package huggingface_test

import (
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/fetch"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingface"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingfacestandin"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

// BenchmarkRead compares reading one file through the whole of this package with
// plain copies of the same bytes over the same loopback, with and without SHA-256.
// Server and client share the cores.
func BenchmarkRead(b *testing.B) {
	const size = 256 << 20
	hub, err := huggingfacestandin.Start()
	require.NoError(b, err)
	b.Cleanup(hub.Close)
	content := standin.Pattern(1, size)
	hub.Add(huggingfacestandin.Repository{Name: "a/b", Commit: pinned, Files: map[string]standin.Content{"m": content}})
	plain, err := standin.Start(func(w http.ResponseWriter, r *http.Request) { standin.Serve(w, r, content, "x", standin.Fault{}) })
	require.NoError(b, err)
	b.Cleanup(plain.Close)
	client := huggingface.New(huggingface.Options{Endpoint: hub.URL(), Fetch: fetch.Options{Hosts: hub.Hosts(), PlainHTTP: true, Private: hub.Addresses()}})
	b.Cleanup(client.Close)
	snapshot, err := client.Resolve(context.Background(), huggingface.Reference{Owner: "a", Name: "b"})
	require.NoError(b, err)

	copyOf := func(w func() io.Writer) func(*testing.B) {
		return func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				answer, err := http.Get(plain.URL().String())
				require.NoError(b, err)
				n, err := io.Copy(w(), answer.Body)
				require.NoError(b, err)
				require.EqualValues(b, size, n)
				require.NoError(b, answer.Body.Close())
			}
		}
	}
	b.Run("control=io.Copy", copyOf(func() io.Writer { return io.Discard }))
	b.Run("control=io.Copy+SHA-256", copyOf(func() io.Writer { return sha256.New() }))
	for name, connections := range map[string]int{"connections=1": 1, "connections=4": 4} {
		for _, promised := range []bool{false, true} {
			file := snapshot.Files[0]
			if !promised {
				file.SHA256 = ""
			}
			b.Run(map[bool]string{false: "no-digest/", true: "SHA-256/"}[promised]+name, func(b *testing.B) {
				b.SetBytes(size)
				buffers := source.NewBuffers(connections+2, 4<<20)
				for b.Loop() {
					reader, err := source.NewReader(context.Background(), file, source.ReadOptions{Connections: connections, Buffers: buffers})
					require.NoError(b, err)
					_, err = reader.WriteTo(io.Discard)
					require.NoError(b, err)
					require.NoError(b, reader.Close())
				}
			})
		}
	}
}
