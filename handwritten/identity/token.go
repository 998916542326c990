package identity

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"magicstick.dev/operator/generated/httpapi"
)

const (
	// MaxToken bounds an access token in bytes. Browsers keep about 4 KiB in a
	// cookie, Envoy splits nothing, so a token that came through a session is
	// smaller than that.
	MaxToken = 16 << 10
	// ClockSkew is how far the clocks of the realm and of this process may be apart.
	ClockSkew = 30 * time.Second
	// maxGroups bounds the groups that are read from a token.
	maxGroups = 1000
)

// TokenState is what became of an access token.
type TokenState int

// The states of a token. The zero value is not valid.
const (
	// TokenMissing: the request carries none.
	TokenMissing TokenState = iota
	// TokenValid: signed by the realm, for us, and current.
	TokenValid
	// TokenOversize: longer than MaxToken.
	TokenOversize
	// TokenMalformed: not one compact JWS, or claims that cannot be read.
	TokenMalformed
	// TokenAlgorithm: unsigned, or signed in a way that is not accepted.
	TokenAlgorithm
	// TokenKeysUnavailable: the realm's keys could not be fetched.
	TokenKeysUnavailable
	// TokenUnknownKey: the realm has no such key, or has it no longer.
	TokenUnknownKey
	// TokenSignature: the signature does not fit.
	TokenSignature
	// TokenIssuer: another issuer.
	TokenIssuer
	// TokenClient: issued to another client (azp).
	TokenClient
	// TokenAudience: for another audience.
	TokenAudience
	// TokenType: no access token, for example an ID token.
	TokenType
	// TokenExpired: its time is over.
	TokenExpired
	// TokenNotYetValid: its time has not come.
	TokenNotYetValid
)

var tokenStateNames = map[TokenState]string{
	TokenMissing: "Missing", TokenValid: "Valid", TokenOversize: "Oversize", TokenMalformed: "Malformed",
	TokenAlgorithm: "Algorithm", TokenKeysUnavailable: "KeysUnavailable", TokenUnknownKey: "UnknownKey",
	TokenSignature: "Signature", TokenIssuer: "Issuer", TokenClient: "Client", TokenAudience: "Audience",
	TokenType: "Type", TokenExpired: "Expired", TokenNotYetValid: "NotYetValid",
}

// String is the name of the state without "Token".
func (s TokenState) String() string { return tokenStateNames[s] }

// algorithms are the signatures that a realm may use: asymmetric ones only, so
// that nothing public can serve as a signing key.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// TokenRules say which tokens are accepted (contract/appliance.md F.2).
type TokenRules struct {
	// Issuer is the realm's public URL, compared exactly with iss.
	Issuer string
	// ClientID is the client that tokens are issued to, compared exactly with azp.
	ClientID string
	// Audience, when set, must be among aud; the client then needs an audience
	// mapper. When it is empty, aud may be absent, or must name the client or
	// accountClient: see forUs.
	Audience string
	// GroupsClaim names the claim that holds the IDs of the person's groups, a
	// list of strings. A token without the claim has no groups.
	GroupsClaim string
}

// accountClient is in the audience of nearly every token of Keycloak, because
// people have roles of that client by default. It says nothing about the purpose
// of a token.
const accountClient = "account"

// forUs reports whether a token that the client obtained (azp, which is checked
// on its own) is meant for the applications behind the gateway.
//
// Keycloak never puts the client itself into aud. It names there the clients of
// which the person has a role, usually accountClient, and what audience mappers
// add; with neither there is no aud at all. A token whose aud names others only
// was made for those others, and is refused.
func (r TokenRules) forUs(audience []string) bool {
	if r.Audience != "" {
		return slices.Contains(audience, r.Audience)
	}
	return len(audience) == 0 || slices.Contains(audience, r.ClientID) || slices.Contains(audience, accountClient)
}

var claimPattern = regexp.MustCompile(`^[A-Za-z0-9_.:/-]{1,128}$`)

// Validate names every rule that cannot work.
func (r TokenRules) Validate() error {
	var problems []error
	issuer, err := url.Parse(r.Issuer)
	if err != nil || issuer.Scheme != "https" && issuer.Scheme != "http" || issuer.Host == "" || issuer.User != nil || issuer.RawQuery != "" || issuer.Fragment != "" {
		problems = append(problems, fmt.Errorf("issuer %q: want the URL of the realm, for example https://id.magicstick.local/realms/magicstick", r.Issuer))
	}
	if r.ClientID == "" {
		problems = append(problems, errors.New("client ID: missing; want the client that the gateway signs people in with"))
	}
	if !claimPattern.MatchString(r.GroupsClaim) {
		problems = append(problems, fmt.Errorf("groups claim %q: want the name of a claim, for example group_ids", r.GroupsClaim))
	}
	return errors.Join(problems...)
}

// Person is who a valid token speaks for. It must not be changed.
type Person struct {
	// ID is the stable Keycloak ID (sub).
	ID string
	// Groups are the stable Keycloak IDs of the person's groups.
	Groups []string
	// Role is the highest realm role; zero for none.
	Role httpapi.Role
}

// Verifier checks access tokens offline, against keys that Keys keeps.
type Verifier struct {
	rules TokenRules
	keys  *Keys
	oidc  *oidc.IDTokenVerifier
	now   func() time.Time
	memo  memo
}

// NewVerifier checks tokens by the rules against the keys.
func NewVerifier(rules TokenRules, keys *Keys, now func() time.Time) (*Verifier, error) {
	if err := rules.Validate(); err != nil {
		return nil, fmt.Errorf("checking the rules for tokens: %w", err)
	}
	return &Verifier{
		rules: rules,
		keys:  keys,
		now:   now,
		oidc: oidc.NewVerifier(rules.Issuer, keys, &oidc.Config{
			SupportedSigningAlgs: algorithms,
			// Whom the token was issued to stands in azp; aud is checked below.
			SkipClientIDCheck: true,
			// go-oidc grants five minutes for nbf and nothing for exp; both are
			// checked below with ClockSkew.
			SkipExpiryCheck: true,
		}),
	}, nil
}

// BearerToken takes the token out of a request's headers. Several Authorization
// headers are no token: who reads which of them is not ours to guess.
func BearerToken(header http.Header) (string, TokenState) {
	values := header.Values("Authorization")
	switch len(values) {
	case 0:
		return "", TokenMissing
	case 1:
	default:
		return "", TokenMalformed
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", TokenMissing
	}
	if len(token) > MaxToken {
		return "", TokenOversize
	}
	return token, TokenValid
}

// claims are the parts of an access token that count, beside those that go-oidc reads.
type claims struct {
	AuthorizedParty string   `json:"azp"`
	Type            string   `json:"typ"`
	Expiry          *float64 `json:"exp"`
	NotBefore       *float64 `json:"nbf"`
	IssuedAt        *float64 `json:"iat"`
	RealmAccess     struct {
		Roles []string `json:"roles"`
	} `json:"realm_access"`
}

// times are the claims that are judged again at every check, in seconds since 1970.
type times struct {
	expiry, notBefore, issuedAt *float64
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,160}$`)

// Verify checks a token and says who it speaks for. The Person is empty unless
// the state is TokenValid.
func (v *Verifier) Verify(ctx context.Context, raw string) (Person, TokenState) {
	if raw == "" {
		return Person{}, TokenMissing
	}
	if len(raw) > MaxToken {
		return Person{}, TokenOversize
	}
	// go-oidc also takes the JSON forms of a JWS, which no gateway sends.
	if !isCompact(raw) {
		return Person{}, TokenMalformed
	}
	digest, keys := sha256.Sum256([]byte(raw)), v.keys.usable()
	found, known := v.memo.recall(keys, digest)
	if !known {
		var state TokenState
		if found, state = v.examine(ctx, raw); state != TokenValid {
			return Person{}, state
		}
		// Keys that changed in between did not necessarily sign this token.
		if keys != nil && keys == v.keys.usable() {
			v.memo.remember(keys, digest, found)
		}
	}
	if state := v.judgeTime(found.times); state != TokenValid {
		return Person{}, state
	}
	return found.person, TokenValid
}

// examine checks everything but the time.
func (v *Verifier) examine(ctx context.Context, raw string) (verified, TokenState) {
	signature := &signatureCheck{}
	token, err := v.oidc.Verify(context.WithValue(ctx, signatureCheckKey, signature), raw)
	switch {
	// go-oidc never got as far as the keys.
	case signature.state == TokenMissing:
		return verified{}, unparsed(raw)
	case signature.state != TokenValid:
		return verified{}, signature.state
	case err != nil:
		return verified{}, signature.issuerState(v.rules.Issuer)
	}
	var found claims
	if err := token.Claims(&found); err != nil {
		return verified{}, TokenMalformed
	}
	switch {
	case found.AuthorizedParty != v.rules.ClientID:
		return verified{}, TokenClient
	case !v.rules.forUs(token.Audience):
		return verified{}, TokenAudience
	// Keycloak says Bearer for access tokens and ID for ID tokens.
	case !strings.EqualFold(found.Type, "Bearer"):
		return verified{}, TokenType
	case !idPattern.MatchString(token.Subject):
		return verified{}, TokenMalformed
	}
	groups, understood := v.groups(token)
	if !understood {
		return verified{}, TokenMalformed
	}
	return verified{
		person: Person{ID: token.Subject, Groups: groups, Role: HighestRole(found.RealmAccess.Roles)},
		times:  times{expiry: found.Expiry, notBefore: found.NotBefore, issuedAt: found.IssuedAt},
	}, TokenValid
}

func (v *Verifier) judgeTime(claimed times) TokenState {
	now := float64(v.now().UnixMilli()) / 1000
	skew := ClockSkew.Seconds()
	switch {
	case claimed.expiry == nil:
		return TokenMalformed
	case now >= *claimed.expiry+skew:
		return TokenExpired
	case claimed.notBefore != nil && now < *claimed.notBefore-skew, claimed.issuedAt != nil && now < *claimed.issuedAt-skew:
		return TokenNotYetValid
	}
	return TokenValid
}

// groups reads the claim with the group IDs. An ID that no allow-list can hold
// is left out; a claim of another form makes the token unreadable.
func (v *Verifier) groups(token *oidc.IDToken) ([]string, bool) {
	var all map[string]json.RawMessage
	if err := token.Claims(&all); err != nil {
		return nil, false
	}
	value, present := all[v.rules.GroupsClaim]
	if !present {
		return nil, true
	}
	var listed []string
	if err := json.Unmarshal(value, &listed); err != nil || len(listed) > maxGroups {
		return nil, false
	}
	return slices.DeleteFunc(listed, func(id string) bool { return !idPattern.MatchString(id) }), true
}

// isCompact reports whether raw has the form of a compact JWS.
func isCompact(raw string) bool {
	dots := 0
	for i := range len(raw) {
		switch c := raw[i]; {
		case c == '.':
			dots++
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return dots == 2
}
