package standin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Request is what a server was asked.
type Request struct {
	// Method, Path and Query of the URL.
	Method, Path, Query string
	// Header is a copy.
	Header http.Header
}

// Server is an HTTP server on a free port of 127.0.0.1 that keeps a record of what
// it was asked.
type Server struct {
	// Faults are its switches.
	Faults Faults

	server   *http.Server
	address  netip.AddrPort
	mutex    sync.Mutex
	requests []Request
	served   sync.WaitGroup
}

// Start starts a server; Close it.
func Start(handler func(http.ResponseWriter, *http.Request)) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	s := &Server{address: address}
	s.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.record(r)
		handler(w, r)
	})}
	s.served.Add(1)
	go func() {
		defer s.served.Done()
		_ = s.server.Serve(listener) // ends with Close
	}()
	return s, nil
}

// Close ends all connections.
func (s *Server) Close() {
	_ = s.server.Close()
	s.served.Wait()
}

// Address is where it listens.
func (s *Server) Address() netip.AddrPort { return s.address }

// URL is its root.
func (s *Server) URL() *url.URL { return &url.URL{Scheme: "http", Host: s.address.String()} }

// Requests are those since the start or Forget, oldest first.
func (s *Server) Requests() []Request {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.requests)
}

// Forget empties the record.
func (s *Server) Forget() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.requests = nil
}

// maxRecord bounds the record; benchmarks ask often.
const maxRecord = 100_000

func (s *Server) record(r *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.requests) < maxRecord {
		s.requests = append(s.requests, Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone()})
	}
}
