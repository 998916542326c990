package fetch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// Remote is a file on a server. Its methods may be used at the same time; what one
// learns - where a redirect leads, which entity tag the content has - the others use.
type Remote struct {
	// Client asks.
	Client *Client
	// Path names the file in errors.
	Path string
	// URL is where the file is asked for first.
	URL *url.URL
	// Size is what the source promised, in bytes.
	Size int64
	// Token gives a bearer token for the origin of URL; nil for none.
	Token func(ctx context.Context) (string, error)
	// Check, when not nil, judges the head of every answer of URL's own origin,
	// redirects included, before it is used.
	Check func(answer *http.Response) error
	// Explain makes an error of a status other than 200, 206 and 416 of URL's own
	// origin; a plain one when nil.
	Explain func(answer *http.Response) error
	// Renew, when not nil, is called when URL's own origin answers 401; when it
	// succeeds, the request is sent once more.
	Renew func(ctx context.Context, answer *http.Response) error

	mutex    sync.Mutex
	location *url.URL          // where the last redirect led; nil when unknown
	direct   bool              // the content lies at URL itself
	tags     map[string]string // strong entity tags by host
	gate     chan struct{}     // held by the one who finds out where the content lies
}

// Open reads length bytes from offset, or to the end when length is negative.
func (r *Remote) Open(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
	if offset < 0 || offset > r.Size {
		return nil, source.Fail(conditions.ModelReasonPublicationFailed, nil, "opening %s: byte %d is outside of its %d bytes", r.Path, offset, r.Size)
	}
	if length < 0 || length > r.Size-offset {
		length = r.Size - offset
	}
	if length == 0 {
		return http.NoBody, nil
	}
	renewed := false
	for {
		location, leave, err := r.place(ctx)
		if err != nil {
			return nil, err
		}
		body, again, err := r.try(ctx, location, offset, length, &renewed)
		leave()
		if !again {
			return body, err
		}
	}
}

// try asks once; again says that something was learned that makes another try worth it.
func (r *Remote) try(ctx context.Context, location *url.URL, offset, length int64, renewed *bool) (opened io.ReadCloser, again bool, err error) {
	at := location
	if at == nil {
		at = r.URL
	}
	answer, err := r.ask(ctx, at, offset, length)
	if err != nil {
		return nil, false, err
	}
	switch {
	case location != nil && gone(answer.StatusCode):
		// Signed addresses expire; the source gives a new one.
		drain(answer.Body)
		r.forget(location)
		return nil, true, nil
	case answer.StatusCode == http.StatusUnauthorized && r.Renew != nil && !*renewed && sameOrigin(answer.URL, r.URL):
		drain(answer.Body)
		*renewed = true
		err := r.Renew(ctx, answer.Response)
		return nil, err == nil, err
	}
	body, err := r.judge(answer, offset, length)
	if err != nil {
		drain(answer.Body)
		return nil, false, err
	}
	return body, false, nil
}

// gone tells the statuses with which storage refuses an address that has expired.
func gone(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// place is where the content lies. Who gets nil has to ask at URL and then to call
// leave; when nobody knows yet, the others wait until one has found out.
func (r *Remote) place(ctx context.Context) (location *url.URL, leave func(), err error) {
	location, direct, gate := r.known()
	if location != nil || direct {
		return location, func() {}, nil
	}
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case gate <- struct{}{}:
	}
	if location, direct, _ = r.known(); location != nil || direct {
		<-gate
		return location, func() {}, nil
	}
	return nil, func() { <-gate }, nil
}

func (r *Remote) known() (location *url.URL, direct bool, gate chan struct{}) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.gate == nil {
		r.gate = make(chan struct{}, 1)
	}
	return r.location, r.direct, r.gate
}

func (r *Remote) forget(location *url.URL) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.location == location {
		r.location = nil
	}
}

// tag is the strong entity tag that the content has on a host, "" when unknown.
func (r *Remote) tag(host string) string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.tags[host]
}

// ask sends the request for a range, with the source's own credentials only where
// they belong.
func (r *Remote) ask(ctx context.Context, at *url.URL, offset, length int64) (*Response, error) {
	request := Request{URL: at, Header: http.Header{"Accept": {"*/*"}, "Range": {rangeOf(offset, length)}}, Follow: r.follow}
	if tag := r.tag(at.Host); tag != "" {
		request.Header.Set("If-Range", tag)
	}
	if r.Token != nil && sameOrigin(at, r.URL) {
		token, err := r.Token(ctx)
		if err != nil {
			return nil, err
		}
		request.Token = token
	}
	return r.Client.Do(ctx, request)
}

// follow checks a redirect of the source.
func (r *Remote) follow(answer *http.Response, to *url.URL) (bool, error) {
	if sameOrigin(answer.Request.URL, r.URL) && r.Check != nil {
		if err := r.Check(answer); err != nil {
			return false, err
		}
	}
	return true, nil
}

// judge hands on exactly length bytes of an answer, or says what is wrong with it.
func (r *Remote) judge(answer *Response, offset, length int64) (io.ReadCloser, error) {
	own := sameOrigin(answer.URL, r.URL)
	switch status := answer.StatusCode; {
	case status == http.StatusOK, status == http.StatusPartialContent:
	case status == http.StatusRequestedRangeNotSatisfiable:
		return nil, source.Broken(source.ErrChanged, "opening %s at byte %d: the source has fewer than the %d bytes that it promised", r.Path, offset, r.Size)
	case own && r.Explain != nil:
		return nil, r.Explain(answer.Response)
	default:
		return nil, source.Interrupted(nil, "opening %s: %s answers %d %s", r.Path, Name(answer.URL), status, http.StatusText(status))
	}
	if own && r.Check != nil {
		if err := r.Check(answer.Response); err != nil {
			return nil, err
		}
	}
	if err := r.learn(answer); err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		if err := r.wholeFile(answer, offset); err != nil {
			return nil, err
		}
		return &exact{ReadCloser: answer.Body, left: length}, nil
	}
	got, valid := parseContentRange(answer.Header.Get("Content-Range"))
	switch {
	case !valid || got.first != offset || got.last >= offset+length:
		return nil, source.Broken(nil, "opening %s: asked for %s, the source sends %.80q", r.Path, rangeOf(offset, length), answer.Header.Get("Content-Range"))
	case got.total >= 0 && got.total != r.Size:
		return nil, source.Broken(source.ErrChanged, "opening %s: it has %d bytes, promised are %d", r.Path, got.total, r.Size)
	}
	return &exact{ReadCloser: answer.Body, left: length}, nil
}

// wholeFile judges an answer that ignores the range.
func (r *Remote) wholeFile(answer *Response, offset int64) error {
	if answer.ContentLength >= 0 && answer.ContentLength != r.Size {
		return source.Broken(source.ErrChanged, "opening %s: it has %d bytes, promised are %d", r.Path, answer.ContentLength, r.Size)
	}
	if offset > 0 {
		return source.Fail(conditions.ModelReasonPublicationFailed, source.ErrNoRanges, "opening %s at byte %d", r.Path, offset)
	}
	return nil
}

// learn remembers where the content lies and which entity tag it has there, and
// refuses another tag than the one that was seen first.
func (r *Remote) learn(answer *Response) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	tag, host := strong(answer.Header.Get("ETag")), answer.URL.Host
	known := r.tags[host]
	if tag != "" && known != "" && tag != known {
		return source.Broken(source.ErrChanged, "opening %s: the entity tag is %.80s, it was %.80s", r.Path, tag, known)
	}
	if r.tags == nil {
		r.tags = map[string]string{}
	}
	if tag != "" {
		r.tags[host] = tag
	}
	if sameOrigin(answer.URL, r.URL) {
		r.direct = true
	} else {
		r.location = answer.URL
	}
	return nil
}

// strong is an entity tag that may stand in If-Range, or "" (RFC 9110, section 13.1.5).
func strong(tag string) string {
	if len(tag) < 2 || len(tag) > 256 || strings.HasPrefix(tag, "W/") || tag[0] != '"' || tag[len(tag)-1] != '"' {
		return ""
	}
	return tag
}

// exact hands on a number of bytes, neither more nor fewer.
type exact struct {
	io.ReadCloser
	left int64
}

// Read hands on what belongs to the range.
func (e *exact) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.ReadCloser.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if errors.Is(err, io.EOF) && e.left > 0 {
		err = source.Interrupted(io.ErrUnexpectedEOF, "reading a range: %d bytes are missing", e.left)
	}
	return n, err
}
