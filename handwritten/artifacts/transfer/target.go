package transfer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
)

const (
	// requestTimeout bounds a request without a large body.
	requestTimeout = time.Minute
	// maxManifest bounds a manifest or config that is read back, in bytes.
	maxManifest = 4 << 20
)

// TargetOptions says how a registry is reached.
type TargetOptions struct {
	// PlainHTTP uses http instead of https.
	PlainHTTP bool
	// CAFile holds PEM certificates that are trusted beside those of the system; "" for none.
	CAFile string
	// Insecure trusts every certificate.
	Insecure bool
	// Username and Password are sent when the registry asks; when empty, those of
	// the docker configuration are used (DOCKER_CONFIG or ~/.docker/config.json).
	Username, Password string
	// UserAgent is sent with every request.
	UserAgent string
}

// Target is a repository of a registry.
type Target struct {
	repository *remote.Repository
	client     *auth.Client
	base       string // URL of the repository: https://host/v2/name
}

// NewTarget connects to nothing yet. The repository is host/name without a tag.
func NewTarget(repository string, options TargetOptions) (*Target, error) {
	fail := func(err error) (*Target, error) {
		return nil, fmt.Errorf("reading the repository %.300q: %w", repository, err)
	}
	if strings.Contains(repository, "://") {
		return fail(errors.New("it has a scheme; write host/name"))
	}
	repo, err := remote.NewRepository(repository)
	if err != nil {
		return fail(err)
	}
	if repo.Reference.Reference != "" {
		return fail(errors.New("it has a tag or digest; write host/name"))
	}
	client, err := newClient(repo.Reference, options)
	if err != nil {
		return nil, err
	}
	repo.Client, repo.PlainHTTP = client, options.PlainHTTP
	// The index of referrers that replaces the missing API must not need the right to delete.
	repo.SkipReferrersGC = true
	scheme := "https"
	if options.PlainHTTP {
		scheme = "http"
	}
	return &Target{repository: repo, client: client, base: scheme + "://" + repo.Reference.Host() + "/v2/" + repo.Reference.Repository}, nil
}

func newClient(reference registry.Reference, options TargetOptions) (*auth.Client, error) {
	transport, err := newTransport(options)
	if err != nil {
		return nil, err
	}
	client := &auth.Client{Client: &http.Client{Transport: transport}, Cache: auth.NewCache()}
	if options.UserAgent != "" {
		client.SetUserAgent(options.UserAgent)
	}
	if local(reference.Host()) {
		// A registry on this machine may send us to a token server on this machine.
		client.BlockedRealmPrefixes = []netip.Prefix{}
	}
	if options.Username != "" || options.Password != "" {
		client.Credential = auth.StaticCredential(reference.Registry, auth.Credential{Username: options.Username, Password: options.Password})
		return client, nil
	}
	store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the docker configuration: %w", err)
	}
	client.Credential = credentials.Credential(store)
	return client, nil
}

// newTransport speaks HTTP/1.1, so that every blob has a connection of its own.
func newTransport(options TargetOptions) (*http.Transport, error) {
	trust := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: options.Insecure} //nolint:gosec // what the person asked for
	if options.CAFile != "" {
		certificates, err := os.ReadFile(options.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the CA certificates: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(certificates) {
			return nil, fmt.Errorf("reading the CA certificates: %s holds no PEM certificate", options.CAFile)
		}
		trust.RootCAs = pool
	}
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 15 * time.Second}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return bulkConn{connection}, nil
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial, TLSClientConfig: trust,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}, TLSHandshakeTimeout: 15 * time.Second,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, WriteBufferSize: 64 << 10,
	}, nil
}

// local tells the name of this machine.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && address.IsLoopback()
}

// Repository is host/name of the target.
func (t *Target) Repository() string {
	return t.repository.Reference.Registry + "/" + t.repository.Reference.Repository
}

// authorize asks for a token that is good for every request to the repository.
func (t *Target) authorize(ctx context.Context) context.Context {
	return auth.AppendRepositoryScope(ctx, t.repository.Reference, auth.ActionPull, auth.ActionPush)
}

// hasBlob tells whether the registry has a blob of that digest and size.
func (t *Target) hasBlob(ctx context.Context, d digest.Digest, size int64) (bool, error) {
	ctx, cancel := context.WithTimeout(t.authorize(ctx), requestTimeout)
	defer cancel()
	found, err := t.repository.Blobs().Resolve(ctx, d.String())
	if errors.Is(err, errdef.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, registryFailure("asking for blob "+d.String(), err)
	}
	if found.Size != size {
		return false, fmt.Errorf("asking for blob %s: %w: %d bytes instead of %d", d, ErrRegistryBytes, found.Size, size)
	}
	return true, nil
}

// Confirm fails when the registry does not have the blob with that size.
func (t *Target) Confirm(ctx context.Context, retry Retry, d digest.Digest, size int64) error {
	return retry.again(ctx, func(ctx context.Context) error {
		found, err := t.hasBlob(ctx, d, size)
		if err == nil && !found {
			err = fmt.Errorf("asking for blob %s: %w: it is missing", d, ErrRegistryBytes)
		}
		return err
	})
}

// PushBytes sends a small blob unless the registry has it.
func (t *Target) PushBytes(ctx context.Context, retry Retry, descriptor ocispec.Descriptor, content []byte, meter *Meter) error {
	return retry.again(ctx, func(ctx context.Context) error {
		found, err := t.hasBlob(ctx, descriptor.Digest, descriptor.Size)
		if err != nil || found {
			return err
		}
		up, err := t.begin(ctx, nil)
		if err != nil {
			return err
		}
		meter.sent.Add(int64(len(content)))
		return up.finishWith(ctx, descriptor.Digest, bytes.NewReader(content), int64(len(content)))
	})
}

// PushManifest sends a manifest under a tag. Pushed again, it changes nothing.
func (t *Target) PushManifest(ctx context.Context, retry Retry, descriptor ocispec.Descriptor, content []byte, tag string) error {
	doing := fmt.Sprintf("pushing the manifest %q", tag)
	return retry.again(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(t.authorize(ctx), requestTimeout)
		defer cancel()
		return registryFailure(doing, t.repository.Manifests().PushReference(ctx, descriptor, bytes.NewReader(content), tag))
	})
}

// Manifest reads a manifest by tag or digest; nil when there is none. The bytes are
// those of the digest that the registry names for it.
func (t *Target) Manifest(ctx context.Context, retry Retry, reference string) ([]byte, error) {
	var content []byte
	doing := fmt.Sprintf("reading the manifest %q", reference)
	err := retry.again(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(t.authorize(ctx), requestTimeout)
		defer cancel()
		descriptor, body, err := t.repository.Manifests().FetchReference(ctx, reference)
		if errors.Is(err, errdef.ErrNotFound) {
			content = nil
			return nil
		}
		if err != nil {
			return registryFailure(doing, err)
		}
		content, err = verified(doing, descriptor, body)
		return err
	})
	return content, err
}

// Blob reads a small blob, a config.
func (t *Target) Blob(ctx context.Context, retry Retry, descriptor ocispec.Descriptor) ([]byte, error) {
	var content []byte
	doing := "reading blob " + descriptor.Digest.String()
	err := retry.again(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(t.authorize(ctx), requestTimeout)
		defer cancel()
		body, err := t.repository.Blobs().Fetch(ctx, descriptor)
		if err != nil {
			return registryFailure(doing, err)
		}
		content, err = verified(doing, descriptor, body)
		return err
	})
	return content, err
}

// verified reads a body and compares it with its descriptor.
func verified(doing string, descriptor ocispec.Descriptor, body io.ReadCloser) ([]byte, error) {
	defer func() { _ = body.Close() }()
	content, err := io.ReadAll(io.LimitReader(body, maxManifest+1))
	if err != nil {
		return nil, registryFailure(doing, err)
	}
	if len(content) > maxManifest {
		return nil, fmt.Errorf("%s: it has more than %d bytes", doing, maxManifest)
	}
	if got := digest.FromBytes(content); got != descriptor.Digest {
		return nil, fmt.Errorf("%s: %w: %s instead of %s", doing, ErrRegistryBytes, got, descriptor.Digest)
	}
	return content, nil
}
