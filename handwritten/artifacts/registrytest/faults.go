package registrytest

import (
	"io"
	"net/http"
	"sync/atomic"
)

// Faults break requests in front of a registry. All fields may be nil.
type Faults struct {
	// Before may answer a request itself; it returns true then.
	Before func(w http.ResponseWriter, r *http.Request) bool
	// CutAfter is how many bytes of a request's body are let through before its
	// connection is reset; 0 for all. It is asked at every PATCH and PUT.
	CutAfter func(r *http.Request) int64
	// Header changes the header of an answer.
	Header func(r *http.Request, status int, header http.Header)
	// OnBytes is called with Received whenever it grew.
	OnBytes func(received int64)
	// Received counts the bytes of bodies of PATCH and PUT to uploads.
	Received atomic.Int64
	// Requests counts all requests that write.
	Requests atomic.Int64
}

// Wrap stands in front of the registry.
func (f *Faults) Wrap(registry http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writes := r.Method == http.MethodPatch || r.Method == http.MethodPut || r.Method == http.MethodPost
		if writes {
			f.Requests.Add(1)
		}
		if f.Before != nil && f.Before(w, r) {
			return
		}
		if writes && r.Body != nil {
			body := &countedBody{ReadCloser: r.Body, faults: f, left: -1}
			if f.CutAfter != nil {
				if cut := f.CutAfter(r); cut > 0 {
					body.left = cut
				}
			}
			r.Body = body
		}
		if f.Header != nil {
			w = &changedHeader{ResponseWriter: w, request: r, change: f.Header}
		}
		registry.ServeHTTP(w, r)
		if body, ok := r.Body.(*countedBody); ok && body.left == 0 {
			// The answer is lost with the connection.
			panic(http.ErrAbortHandler)
		}
	})
}

// countedBody counts, and ends with a broken connection when it is to be cut.
type countedBody struct {
	io.ReadCloser
	faults *Faults
	left   int64 // -1 for no cut
}

func (b *countedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	if b.left > 0 {
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err := b.ReadCloser.Read(p)
	received := b.faults.Received.Add(int64(n))
	if n > 0 && b.faults.OnBytes != nil {
		b.faults.OnBytes(received)
	}
	if b.left > 0 {
		b.left -= int64(n)
	}
	return n, err
}

type changedHeader struct {
	http.ResponseWriter
	request *http.Request
	change  func(*http.Request, int, http.Header)
}

func (c *changedHeader) WriteHeader(status int) {
	c.change(c.request, status, c.Header())
	c.ResponseWriter.WriteHeader(status)
}
