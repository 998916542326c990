package transfer

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// The protocol is that of the OCI Distribution Specification 1.1, sections "Pushing a blob in
// chunks" and "Mounting a blob from another repository".
const (
	// finishTimeout bounds the commit of a blob: some registries hash it again or
	// copy it within their storage before they answer.
	finishTimeout = time.Hour
	// stallTimeout is how long the registry may take no byte.
	stallTimeout = 2 * time.Minute
)

// session is one upload of a blob.
type session struct {
	target *Target
	// location is where the next request goes. Its query is a capability.
	location string
	// minChunk is the smallest chunk that the registry takes, 0 when it does not say.
	minChunk int64
}

// mount names a blob that may be taken from another repository of the registry.
type mount struct {
	digest digest.Digest
	from   string
}

// begin starts an upload. With a mount, the registry may have the blob at once;
// the session is nil then.
func (t *Target) begin(ctx context.Context, from *mount) (*session, error) {
	address := t.base + "/blobs/uploads/"
	if from != nil {
		address += "?" + url.Values{"mount": {from.digest.String()}, "from": {from.from}}.Encode()
		ctx = auth.AppendRepositoryScope(ctx, registry.Reference{Registry: t.repository.Reference.Registry, Repository: from.from}, auth.ActionPull)
	}
	const doing = "starting an upload"
	response, cancel, err := t.do(ctx, doing, http.MethodPost, address, nil, 0, nil, requestTimeout)
	defer cancel()
	if err != nil {
		return nil, err
	}
	switch response.StatusCode {
	case http.StatusAccepted:
	case http.StatusCreated:
		if from != nil {
			return nil, drop(response)
		}
		return nil, answerError(doing, response)
	case http.StatusMethodNotAllowed:
		failed := answerError(doing, response)
		failed.kind = ErrReadOnly
		return nil, failed
	default:
		return nil, answerError(doing, response)
	}
	s := &session{target: t, location: address}
	if s.minChunk, err = strconv.ParseInt(response.Header.Get("OCI-Chunk-Min-Length"), 10, 64); err != nil {
		s.minChunk = 0
	}
	if err := s.follow(response); err != nil {
		return nil, err
	}
	return s, drop(response)
}

// patch sends length bytes from offset on. ranged names them in a header. It
// returns how many bytes the registry says it has then, -1 when it does not say.
func (s *session) patch(ctx context.Context, body io.Reader, offset, length int64, ranged bool) (int64, error) {
	const doing = "sending a chunk"
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	if ranged {
		header.Set("Content-Range", fmt.Sprintf("%d-%d", offset, offset+length-1))
	}
	response, cancel, err := s.target.do(ctx, doing, http.MethodPatch, s.location, body, length, header, 0)
	defer cancel()
	if err != nil {
		return 0, err
	}
	// 201 is what some registries answer instead of 202.
	if response.StatusCode != http.StatusAccepted && response.StatusCode != http.StatusCreated && response.StatusCode != http.StatusNoContent {
		return 0, answerError(doing, response)
	}
	if err := s.follow(response); err != nil {
		return 0, err
	}
	return accepted(response.Header), drop(response)
}

// offset asks how many bytes the registry has.
func (s *session) offset(ctx context.Context) (int64, error) {
	const doing = "asking for the state of an upload"
	response, cancel, err := s.target.do(ctx, doing, http.MethodGet, s.location, nil, 0, nil, requestTimeout)
	defer cancel()
	if err != nil {
		return 0, err
	}
	if response.StatusCode != http.StatusNoContent && response.StatusCode != http.StatusOK && response.StatusCode != http.StatusAccepted {
		return 0, answerError(doing, response)
	}
	if err := s.follow(response); err != nil {
		return 0, err
	}
	return max(accepted(response.Header), 0), drop(response)
}

// finish commits the bytes that were sent.
func (s *session) finish(ctx context.Context, d digest.Digest) error {
	return s.finishWith(ctx, d, nil, 0)
}

// finishWith commits the bytes that were sent and length more.
func (s *session) finishWith(ctx context.Context, d digest.Digest, body io.Reader, length int64) error {
	doing := "committing blob " + d.String()
	address, err := url.Parse(s.location)
	if err != nil {
		return fmt.Errorf("%s: the registry named no usable location", doing)
	}
	query := address.Query()
	query.Set("digest", d.String())
	address.RawQuery = query.Encode()
	header := http.Header{}
	if body != nil {
		header.Set("Content-Type", "application/octet-stream")
	}
	response, cancel, err := s.target.do(ctx, doing, http.MethodPut, address.String(), body, length, header, finishTimeout)
	defer cancel()
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusCreated {
		failed := answerError(doing, response)
		if failed.code == "DIGEST_INVALID" {
			failed.kind = ErrRegistryBytes
		}
		return failed
	}
	if named := response.Header.Get("Docker-Content-Digest"); named != "" && named != d.String() {
		return fmt.Errorf("%s: %w: it calls them %.100q", doing, ErrRegistryBytes, named)
	}
	return drop(response)
}

// cancel gives the upload up, so that the registry can forget its bytes. It is a
// courtesy: a registry forgets them anyway after some days.
func (s *session) cancel(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	response, done, err := s.target.do(ctx, "giving an upload up", http.MethodDelete, s.location, nil, 0, nil, 0)
	defer done()
	if err == nil {
		_ = drop(response)
	}
}

// follow takes the location for the next request from an answer.
func (s *session) follow(response *http.Response) error {
	named := response.Header.Get("Location")
	if named == "" {
		return nil
	}
	base, err := url.Parse(s.location)
	if err != nil {
		return fmt.Errorf("reading the location of an upload: the last one is not usable")
	}
	next, err := base.Parse(named)
	if err != nil {
		return fmt.Errorf("reading the location of an upload: the registry named none that is usable")
	}
	if base.Scheme == "https" && next.Scheme == "http" {
		if next.Hostname() != base.Hostname() {
			return fmt.Errorf("reading the location of an upload: the registry leads from https to http")
		}
		// A registry behind a proxy that ends TLS may not know how it is reached.
		next.Scheme, next.Host = "https", base.Host
	}
	s.location = next.String()
	return nil
}

// accepted reads the header Range: how many bytes the registry has, -1 when it
// does not say. "0-0" is said of no byte as well as of one; an upload here never
// stops after its first byte.
func accepted(header http.Header) int64 {
	value := strings.TrimPrefix(header.Get("Range"), "bytes=")
	first, last, found := strings.Cut(value, "-")
	if !found || first != "0" {
		return -1
	}
	end, err := strconv.ParseInt(last, 10, 64)
	switch {
	case err != nil || end < 0 || end == math.MaxInt64:
		return -1
	case end == 0:
		return 0
	}
	return end + 1
}

// do sends one request. The returned function must be called when the answer was
// read. A timeout of 0 leaves it to ctx.
func (t *Target) do(ctx context.Context, doing, method, address string, body io.Reader, length int64, header http.Header, timeout time.Duration) (*http.Response, context.CancelFunc, error) {
	cancel := context.CancelFunc(func() {})
	if timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, timeout)
	}
	request, err := http.NewRequestWithContext(t.authorize(ctx), method, address, body)
	if err != nil {
		return nil, cancel, fmt.Errorf("%s: the registry named no usable location", doing)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	if body != nil {
		request.ContentLength = length
	}
	response, err := t.client.Do(request)
	if err != nil {
		return nil, cancel, registryFailure(doing, err)
	}
	return response, cancel, nil
}

// drop reads the rest of an answer, so that its connection can be used again.
func drop(response *http.Response) error {
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, errorBody))
	return response.Body.Close()
}
