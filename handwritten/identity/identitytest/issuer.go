// Package identitytest is a realm for tests: it signs access tokens the way
// Keycloak does, publishes its keys over HTTP, rotates them, and fails in every
// way that a realm can fail.
package identitytest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// IssuerURL is the realm's public URL; nothing listens there.
	IssuerURL = "https://id.magicstick.local/realms/magicstick"
	// ClientID is the client that Claims names.
	ClientID = "magicstick-human-gateway-local"
)

// Mode is how the realm answers for its keys.
type Mode int

// The ways to answer.
const (
	// Up answers with the keys.
	Up Mode = iota
	// Down answers 503.
	Down
	// Reset breaks the connection off.
	Reset
	// HTML answers 200 with a page, as a captive portal does.
	HTML
	// Empty answers with a set of no keys.
	Empty
	// Endless never stops sending.
	Endless
	// Redirect points to another address, which has the keys.
	Redirect
	// Hang does not answer until the client goes away.
	Hang
)

// Key is a key pair of the realm.
type Key struct {
	// ID is its kid.
	ID string
	// Algorithm is what it signs with.
	Algorithm jose.SignatureAlgorithm
	// Private signs.
	Private crypto.Signer
}

// Issuer is a realm.
type Issuer struct {
	server *httptest.Server

	mutex     sync.Mutex
	mode      Mode
	published []jose.JSONWebKey
	signing   Key
	requests  int
	made      int
}

// New starts a realm with one RS256 key; it ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	issuer := &Issuer{}
	issuer.server = httptest.NewServer(issuer)
	t.Cleanup(issuer.server.Close)
	issuer.Rotate(t, jose.RS256)
	return issuer
}

// KeysURL is where the keys are.
func (i *Issuer) KeysURL() string { return i.server.URL + "/certs" }

// Requests counts how often the keys were asked for.
func (i *Issuer) Requests() int {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.requests
}

// SetMode changes how the realm answers from now on.
func (i *Issuer) SetMode(mode Mode) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.mode = mode
}

// Rotate makes a new signing key and publishes it; the keys before stay
// published until Drop. It returns the new key.
func (i *Issuer) Rotate(t testing.TB, algorithm jose.SignatureAlgorithm) Key {
	t.Helper()
	key := NewKey(t, algorithm)
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.made++
	key.ID = fmt.Sprintf("key-%d", i.made)
	i.signing = key
	i.published = append(i.published, public(key))
	return key
}

// Drop takes every key but the current one out of the published set.
func (i *Issuer) Drop() {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.published = []jose.JSONWebKey{public(i.signing)}
}

// Publish adds any key to the published set.
func (i *Issuer) Publish(key jose.JSONWebKey) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.published = append(i.published, key)
}

// SigningKey is the current key.
func (i *Issuer) SigningKey() Key {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.signing
}

// Token signs claims with the current key.
func (i *Issuer) Token(t testing.TB, claims map[string]any) string {
	t.Helper()
	return Sign(t, i.SigningKey(), claims)
}

// ServeHTTP implements http.Handler.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mutex.Lock()
	i.requests++
	mode, keys := i.mode, jose.JSONWebKeySet{Keys: i.published}
	i.mutex.Unlock()
	if mode == Redirect && r.URL.Path == "/moved" {
		mode = Up
	}
	switch mode {
	case Down:
		http.Error(w, "down", http.StatusServiceUnavailable)
	case Reset:
		panic(http.ErrAbortHandler)
	case HTML:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>Please sign in</title>")
	case Empty:
		fmt.Fprint(w, `{"keys":[]}`)
	case Redirect:
		http.Redirect(w, r, "/moved", http.StatusFound)
	case Endless:
		for r.Context().Err() == nil {
			if _, err := fmt.Fprint(w, strings.Repeat(" ", 4096)); err != nil {
				return
			}
		}
	case Hang:
		<-r.Context().Done()
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(keys)
	}
}

// NewKey makes a key pair without an ID.
func NewKey(t testing.TB, algorithm jose.SignatureAlgorithm) Key {
	t.Helper()
	key := Key{Algorithm: algorithm}
	var err error
	switch algorithm {
	case jose.ES256:
		key.Private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		key.Private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	default:
		key.Private, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(key Key) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key.Private.Public(), KeyID: key.ID, Algorithm: string(key.Algorithm), Use: "sig"}
}

// Sign makes a token.
func Sign(t testing.TB, key Key, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: key.Algorithm, Key: jose.JSONWebKey{Key: key.Private, KeyID: key.ID}},
		(&jose.SignerOptions{}).WithType("JWT"),
	)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Claims are those of an access token of Keycloak for a person, good for five
// minutes. changes replaces claims; a nil value removes one.
func Claims(now time.Time, user string, roles, groups []string, changes map[string]any) map[string]any {
	claims := map[string]any{
		"iss": IssuerURL, "sub": user, "azp": ClientID, "aud": "account", "typ": "Bearer",
		"exp": now.Add(5 * time.Minute).Unix(), "iat": now.Unix(),
		"realm_access": map[string]any{"roles": roles}, "preferred_username": "someone",
	}
	if groups != nil {
		claims["group_ids"] = groups
	}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}
