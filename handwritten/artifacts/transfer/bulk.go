package transfer

import (
	"errors"
	"io"
	"net"
)

// bulkConn sends the body of an upload as it lies in the blocks of its stream: with
// large writes, and without the copy through a small buffer that net/http makes. Bodies of
// other kinds, and connections with TLS, go the usual way.
type bulkConn struct{ net.Conn }

// ReadFrom is what net/http calls for the body of a request.
func (c bulkConn) ReadFrom(r io.Reader) (int64, error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		return io.Copy(c.Conn, r)
	}
	body, ok := limited.R.(*section)
	if !ok {
		return io.Copy(c.Conn, r)
	}
	var sent int64
	for limited.N > 0 {
		n, err := body.writeTo(c.Conn, limited.N)
		limited.N -= n
		sent += n
		if errors.Is(err, io.EOF) {
			return sent, nil
		}
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}
