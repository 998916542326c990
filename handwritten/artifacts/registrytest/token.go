package registrytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/go-jose/go-jose/v4"
)

// registryLeeway is how long Distribution accepts a token after it expired.
const registryLeeway = 60 * time.Second

// TokenServer gives tokens to the user, as a registry's own token server does
// (https://distribution.github.io/distribution/spec/auth/token/).
type TokenServer struct {
	// Given counts the tokens.
	Given atomic.Int64

	server *httptest.Server
	key    *ecdsa.PrivateKey
	keys   string // the file with the public key
	valid  time.Duration
}

const (
	service = "registrytest"
	issuer  = "registrytest-tokens"
	keyID   = "key"
)

// StartTokens serves tokens that are good for a time. The scratch folder holds
// the public key for the registry.
func StartTokens(scratch string, valid time.Duration) (*TokenServer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("starting the token server: %w", err)
	}
	t := &TokenServer{key: key, valid: valid, keys: filepath.Join(scratch, "jwks.json")}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: keyID, Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		return nil, fmt.Errorf("starting the token server: %w", err)
	}
	if err := os.WriteFile(t.keys, keys, 0o600); err != nil {
		return nil, fmt.Errorf("starting the token server: %w", err)
	}
	t.server = httptest.NewServer(http.HandlerFunc(t.give))
	return t, nil
}

// Stop ends the server.
func (t *TokenServer) Stop() { t.server.Close() }

// access is what a token allows.
type access struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	Actions []string `json:"actions"`
}

func (t *TokenServer) give(w http.ResponseWriter, r *http.Request) {
	name, password, _ := r.BasicAuth()
	if name != Username || password != Password {
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"wrong name or password"}]}`, http.StatusUnauthorized)
		return
	}
	var allowed []access
	for _, scope := range r.URL.Query()["scope"] {
		for one := range strings.FieldsSeq(scope) {
			if parts := strings.Split(one, ":"); len(parts) == 3 {
				allowed = append(allowed, access{parts[0], parts[1], strings.Split(parts[2], ",")})
			}
		}
	}
	token, err := t.sign(allowed)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	t.Given.Add(1)
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "expires_in": int(t.valid.Seconds())})
}

func (t *TokenServer) sign(allowed []access) (string, error) {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: t.key, KeyID: keyID}}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", err
	}
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"iss": issuer, "sub": Username, "aud": service, "jti": fmt.Sprint(now.UnixNano()), "access": allowed,
		"nbf": now.Add(-time.Minute).Unix(), "iat": now.Unix(), "exp": now.Add(t.valid - registryLeeway).Unix(),
	})
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// parameters configure a registry that believes the tokens.
func (t *TokenServer) parameters() configuration.Parameters {
	return configuration.Parameters{"realm": t.server.URL + "/token", "service": service, "issuer": issuer, "jwks": t.keys}
}
