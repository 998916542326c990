package identity

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// keysInterval is how often the keys are fetched without being asked. A key
	// that the realm dropped is refused after this at the latest.
	keysInterval = 5 * time.Minute
	// keysMaxAge is how long keys serve when the realm does not answer.
	keysMaxAge = time.Hour
	// keysPause is the least time between two fetches, whoever asks for them.
	keysPause = 10 * time.Second
	// keysPatience is how long a check waits for the fetch of a key it does not know.
	keysPatience = 2 * time.Second
	// keysTimeout bounds one fetch.
	keysTimeout = 5 * time.Second
	// keysMaxBytes bounds the document; Keycloak's is about 3 KiB.
	keysMaxBytes = 256 << 10
	// keysMaxCount bounds the keys in it.
	keysMaxCount = 64
	// keysMaxWaiting bounds the checks that wait at the same time.
	keysMaxWaiting = 256
	// rsaMinBytes is 2048 bits (RFC 7518, section 3.3).
	rsaMinBytes = 256
)

// Keys holds the realm's public signing keys. They are fetched in the
// background; a check looks them up and waits only for a key that nobody has
// seen yet, and then together with all others. Forged key IDs cannot cause more
// than one fetch per keysPause.
type Keys struct {
	url     string
	client  *http.Client
	logger  *slog.Logger
	metrics *Metrics
	now     func() time.Time

	current atomic.Pointer[keySet]
	waiting atomic.Int64

	mutex    sync.Mutex
	inflight chan struct{} // closed when the fetch under way is done; nil without one
	tried    time.Time     // when the last fetch began
}

// keySet never changes; a fetch replaces it as a whole, so old keys are gone at once.
type keySet struct {
	byID    map[string][]jose.JSONWebKey
	fetched time.Time
}

// NewKeys returns keys that will be fetched from the URL of a JSON Web Key Set;
// call Run. metrics may be shared with a Guard.
func NewKeys(address string, logger *slog.Logger, metrics *Metrics, now func() time.Time) (*Keys, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("URL of the realm's keys: it is no URL")
	}
	if parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Host == "" || parsed.User != nil {
		return nil, fmt.Errorf("URL of the realm's keys %q: want http(s)://host/path without a user", parsed.Redacted())
	}
	transport := &http.Transport{
		// The realm stands in the same cluster; a proxy must not supply its keys.
		Proxy:                 nil,
		DisableKeepAlives:     true,
		ResponseHeaderTimeout: keysTimeout,
		TLSHandshakeTimeout:   keysTimeout,
	}
	return &Keys{
		url: address, logger: logger, metrics: metrics, now: now,
		client: &http.Client{
			Transport: transport,
			Timeout:   keysTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("it answers with a redirect, which is not followed")
			},
		},
	}, nil
}

// Run fetches the keys until ctx ends: at once, every keysInterval, and after a
// failure with growing pauses from a second to half a minute.
func (k *Keys) Run(ctx context.Context) {
	retry := time.Second
	for {
		wait := keysInterval
		if err := k.fetch(ctx); err != nil && ctx.Err() == nil {
			k.logger.Warn("fetching the realm's keys failed", "error", err, "retryAfter", retry)
			wait = retry
			retry = min(2*retry, 30*time.Second)
		} else {
			retry = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Available reports whether there are keys that are not too old.
func (k *Keys) Available() bool { return k.usable() != nil }

// usable is the present set of keys, nil when there is none or it is too old.
func (k *Keys) usable() *keySet {
	set := k.current.Load()
	if set == nil || k.now().Sub(set.fetched) >= keysMaxAge {
		return nil
	}
	return set
}

// find returns the keys of that ID. available is false when there are no keys at all.
func (k *Keys) find(id string) (keys []jose.JSONWebKey, available bool) {
	set := k.usable()
	if set == nil {
		return nil, false
	}
	return set.byID[id], true
}

// await starts a fetch, or joins the one under way, and waits for it a little.
// It returns at once when a fetch was tried lately or too many wait already.
func (k *Keys) await(ctx context.Context) {
	if k.waiting.Add(1) > keysMaxWaiting {
		k.waiting.Add(-1)
		return
	}
	defer k.waiting.Add(-1)
	k.mutex.Lock()
	done := k.inflight
	if done == nil {
		if !k.tried.IsZero() && k.now().Sub(k.tried) < keysPause {
			k.mutex.Unlock()
			return
		}
		done = k.begin()
	}
	k.mutex.Unlock()
	timer := time.NewTimer(keysPatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// begin starts a fetch that no single request can cancel. The mutex is held.
func (k *Keys) begin() chan struct{} {
	done := make(chan struct{})
	k.inflight, k.tried = done, k.now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), keysTimeout)
		defer cancel()
		if err := k.replace(ctx); err != nil {
			k.logger.Warn("fetching the realm's keys for an unknown key failed", "error", err)
		}
		k.finish(done)
	}()
	return done
}

func (k *Keys) finish(done chan struct{}) {
	k.mutex.Lock()
	k.inflight = nil
	k.mutex.Unlock()
	close(done)
}

// fetch is the background's own fetch; it joins one that is under way.
func (k *Keys) fetch(ctx context.Context) error {
	k.mutex.Lock()
	if done := k.inflight; done != nil {
		k.mutex.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
		}
		if !k.Available() {
			return errors.New("another fetch failed just now")
		}
		return nil
	}
	done := make(chan struct{})
	k.inflight, k.tried = done, k.now()
	k.mutex.Unlock()
	defer k.finish(done)
	return k.replace(ctx)
}

// replace downloads the document and puts it in place of what is there. On any
// error the keys stay as they are.
func (k *Keys) replace(ctx context.Context) (err error) {
	defer func() { k.metrics.keysFetched(err, k.now()) }()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return fmt.Errorf("asking for the keys: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := k.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("reading %s: it answers %s", k.url, response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, keysMaxBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading %s: %w", k.url, err)
	case len(body) > keysMaxBytes:
		return fmt.Errorf("reading %s: more than %d bytes", k.url, keysMaxBytes)
	}
	byID, err := parseKeys(body)
	if err != nil {
		return fmt.Errorf("reading %s: %w", k.url, err)
	}
	k.current.Store(&keySet{byID: byID, fetched: k.now()})
	return nil
}

// parseKeys reads a JSON Web Key Set and keeps the public keys that sign. One
// key that cannot be read does not spoil the others: realms also list keys of
// kinds that nobody here needs.
func parseKeys(document []byte) (map[string][]jose.JSONWebKey, error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &raw); err != nil {
		return nil, errors.New("it is no JSON Web Key Set")
	}
	if len(raw.Keys) > keysMaxCount {
		return nil, fmt.Errorf("it has %d keys, more than %d", len(raw.Keys), keysMaxCount)
	}
	byID := map[string][]jose.JSONWebKey{}
	for _, one := range raw.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(one); err == nil && signs(key) {
			byID[key.KeyID] = append(byID[key.KeyID], key)
		}
	}
	if len(byID) == 0 {
		return nil, fmt.Errorf("none of its %d keys is a public signing key with an ID", len(raw.Keys))
	}
	return byID, nil
}

// signs reports whether a key may verify tokens: public, named, not meant for
// encryption, and strong enough. Symmetric keys never are.
func signs(key jose.JSONWebKey) bool {
	if key.KeyID == "" || !key.Valid() || !key.IsPublic() || key.Use != "" && key.Use != "sig" {
		return false
	}
	if rsaKey, ok := key.Key.(*rsa.PublicKey); ok {
		return rsaKey.Size() >= rsaMinBytes
	}
	return true
}

// joseAlgorithms are algorithms in the type of go-jose.
var joseAlgorithms = func() []jose.SignatureAlgorithm {
	var accepted []jose.SignatureAlgorithm
	for _, algorithm := range algorithms {
		accepted = append(accepted, jose.SignatureAlgorithm(algorithm))
	}
	return accepted
}()

type contextKey int

const signatureCheckKey contextKey = 0

// signatureCheck carries out of go-oidc, which turns errors into text, what
// became of the signature.
type signatureCheck struct {
	state   TokenState
	payload []byte
}

// issuerState tells a foreign issuer from claims that cannot be read.
func (s *signatureCheck) issuerState(issuer string) TokenState {
	var found struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(s.payload, &found); err == nil && found.Issuer != issuer {
		return TokenIssuer
	}
	return TokenMalformed
}

// unparsed tells why a token did not even reach the keys: only a header that can
// be read is known to name an algorithm that is not accepted.
func unparsed(raw string) TokenState {
	head, _, _ := strings.Cut(raw, ".")
	text, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return TokenMalformed
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return TokenMalformed
	}
	if slices.Contains(algorithms, header.Algorithm) {
		return TokenMalformed
	}
	return TokenAlgorithm
}

// VerifySignature implements oidc.KeySet.
func (k *Keys) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	payload, state := k.verifySignature(ctx, raw)
	if check, ok := ctx.Value(signatureCheckKey).(*signatureCheck); ok {
		check.state, check.payload = state, payload
	}
	if state != TokenValid {
		return nil, fmt.Errorf("checking the signature: %s", state)
	}
	return payload, nil
}

func (k *Keys) verifySignature(ctx context.Context, raw string) ([]byte, TokenState) {
	signed, err := jose.ParseSignedCompact(raw, joseAlgorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, TokenMalformed
	}
	header := signed.Signatures[0].Protected
	if header.KeyID == "" {
		return nil, TokenMalformed
	}
	keys, available := k.find(header.KeyID)
	if len(keys) == 0 {
		k.await(ctx)
		keys, available = k.find(header.KeyID)
	}
	switch {
	case !available:
		return nil, TokenKeysUnavailable
	case len(keys) == 0:
		return nil, TokenUnknownKey
	}
	state := TokenAlgorithm
	for _, key := range keys {
		if key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		state = TokenSignature
		if payload, err := signed.Verify(key.Key); err == nil {
			return payload, TokenValid
		}
	}
	return nil, state
}
