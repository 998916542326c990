package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

const (
	// userAgent is a fixed product token (contract/models.md C.3).
	userAgent = "magicstick"
	// tlsTimeout and headerTimeout bound what comes before a body (contract/models.md C.3).
	tlsTimeout    = 10 * time.Second
	headerTimeout = 60 * time.Second
	// idleTimeout is how long one read of a body may take (contract/models.md C.3).
	idleTimeout = 120 * time.Second
	// maxHeaderBytes bounds the head of an answer.
	maxHeaderBytes = 256 << 10
	// maxIdle is how many connections to one host are kept for the next range.
	maxIdle = 64
)

// Options say whom a Client may ask.
type Options struct {
	// Hosts are the allowed hosts in lower case: "example.org", "example.org:8443"
	// or ".example.org" for all names below.
	Hosts []string
	// PlainHTTP allows http:// beside https://.
	PlainHTTP bool
	// Private are addresses that may be connected to although they do not belong
	// to the internet: those of a mirror, of a stand-in.
	Private []netip.AddrPort
	// Trusted are names, host:port in lower case, that may lead anywhere: those of a
	// mirror inside of a network, given by whoever runs this. They have to be in
	// Hosts, too.
	Trusted []string
	// Proxy is used for every request when not nil; it may be anywhere, and it is
	// then what has to refuse private addresses. Hosts still holds.
	Proxy *url.URL
	// RootCAs are trusted instead of the system's when not nil.
	RootCAs *x509.CertPool
	// Resolver looks up names; the system's when nil.
	Resolver *net.Resolver
	// Retry is for requests that fail.
	Retry source.Retry
	// Idle is how long one read of a body may take; 120 s when 0.
	Idle time.Duration
	// Now is the clock; the system's when nil.
	Now func() time.Time
	// Notice, when not nil, is told about every repetition: what failed and how.
	// It holds no credentials.
	Notice func(message string)
}

// Client asks the hosts of one source. It may be used by any number of goroutines.
type Client struct {
	options   Options
	transport *http.Transport // not an http.Client: its errors quote what servers send
}

// New returns a client.
func New(options Options) *Client {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Idle <= 0 {
		options.Idle = idleTimeout
	}
	doorman := &guard{private: options.Private, trusted: slices.Clone(options.Trusted), resolver: options.Resolver}
	transport := &http.Transport{
		DialContext:            doorman.dial,
		TLSClientConfig:        &tls.Config{RootCAs: options.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        90 * time.Second,
		// Ranges and digests are about the bytes as they lie on the server.
		DisableCompression: true,
		ReadBufferSize:     64 << 10,
		// HTTP/2 would put all ranges of a host on one connection.
		Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(true)
	if options.Proxy != nil {
		doorman.trusted = append(doorman.trusted, strings.ToLower(hostPort(options.Proxy)))
		transport.Proxy = http.ProxyURL(options.Proxy)
	}
	return &Client{options: options, transport: transport}
}

// Close closes the connections that wait for another request.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Request is what is asked.
type Request struct {
	// Method is GET when empty.
	Method string
	// URL is asked first.
	URL *url.URL
	// Header is sent to every host of a chain of redirects. No credentials.
	Header http.Header
	// Token is a bearer token, sent to the origin of URL and to nobody else.
	Token string
	// Follow decides about a redirect whether to go on; nil follows all. The
	// answer that is not followed is the result.
	Follow func(answer *http.Response, to *url.URL) (bool, error)
}

// Response is the last answer of a chain of redirects.
type Response struct {
	*http.Response
	// URL was asked last.
	URL *url.URL
}

// Do sends a request until there is an answer that a repetition would not change:
// any status but those that ask for one. The caller judges the status and closes
// the body. The errors are *source.Error, or that of the context.
func (c *Client) Do(ctx context.Context, request Request) (*Response, error) {
	if request.Method == "" {
		request.Method = http.MethodGet
	}
	if err := c.allowed(request.URL); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		answer, err := c.once(ctx, request)
		if err == nil && !repeats(answer.StatusCode) {
			return answer, nil
		}
		var wait time.Duration
		var failed error
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			var final *source.Error
			if errors.As(err, &final) && !final.Temporary {
				return nil, err
			}
			failed = err
		} else {
			wait = retryAfter(answer.Header.Get("Retry-After"), c.options.Now())
			failed = unavailable(answer)
			drain(answer.Body)
		}
		if attempt >= c.options.Retry.Tries() {
			return nil, failed
		}
		if c.options.Notice != nil {
			c.options.Notice(failed.Error())
		}
		if err := c.options.Retry.Wait(ctx, attempt, wait); err != nil {
			return nil, err
		}
	}
}

// repeats tells the statuses that ask for a repetition (contract/models.md C.3).
func repeats(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func unavailable(answer *Response) error {
	var cause error
	if answer.StatusCode == http.StatusTooManyRequests {
		cause = source.ErrRateLimited
	}
	return source.Interrupted(cause, "asking %s: it answers %d %s", Name(answer.URL), answer.StatusCode, http.StatusText(answer.StatusCode))
}

// once follows one chain of redirects.
func (c *Client) once(ctx context.Context, request Request) (*Response, error) {
	at := request.URL
	for hop := 0; ; hop++ {
		answer, err := c.send(ctx, request, at)
		if err != nil {
			return nil, err
		}
		if !isRedirect(answer.StatusCode) {
			return &Response{Response: answer, URL: at}, nil
		}
		to, err := c.target(at, answer)
		follow := true
		if err == nil && request.Follow != nil {
			follow, err = request.Follow(answer, to)
		}
		if err != nil || follow {
			drain(answer.Body)
		}
		switch {
		case err != nil:
			return nil, err
		case !follow:
			return &Response{Response: answer, URL: at}, nil
		case hop >= maxRedirects:
			return nil, source.Fail(conditions.ModelReasonPublicationFailed, nil, "asking %s: more than %d redirects", Name(request.URL), maxRedirects)
		}
		at = to
	}
}

func (c *Client) send(ctx context.Context, request Request, at *url.URL) (*http.Response, error) {
	bounded, cancel := context.WithCancel(ctx)
	asked, err := http.NewRequestWithContext(bounded, request.Method, at.String(), nil)
	if err != nil {
		cancel()
		return nil, source.Fail(conditions.ModelReasonUnsupportedSource, nil, "asking %s: it is no URL", Name(at))
	}
	for name, values := range request.Header {
		asked.Header[name] = slices.Clone(values)
	}
	asked.Header.Set("User-Agent", userAgent)
	asked.Header.Set("Accept-Encoding", "identity")
	if request.Token != "" && sameOrigin(request.URL, at) {
		asked.Header.Set("Authorization", "Bearer "+request.Token)
	}
	answer, err := c.transport.RoundTrip(asked)
	if err != nil {
		cancel()
		return nil, failure(at, err)
	}
	answer.Body = &body{ReadCloser: answer.Body, name: Name(at), idle: c.options.Idle, cancel: cancel}
	if encoding := answer.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		_ = answer.Body.Close()
		return nil, source.Broken(nil, "asking %s: it sends another encoding than asked for", Name(at))
	}
	return answer, nil
}

// failure makes an error of the transport one for people.
func failure(at *url.URL, err error) error {
	var blocked *source.Error
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &blocked):
		return source.Fail(blocked.Reason, blocked, "asking %s", Name(at))
	case errors.As(err, &untrusted):
		return source.Fail(conditions.ModelReasonPublicationFailed, untrusted, "asking %s", Name(at))
	}
	return source.Interrupted(err, "asking %s", Name(at))
}

// drain reads what little is left, so that the connection can serve again.
func drain(rest io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, rest, 64<<10)
	_ = rest.Close()
}
