package identity_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/httpapi"
	"magicstick.dev/operator/handwritten/identity"
	"magicstick.dev/operator/handwritten/identity/identitytest"
)

// epoch is the time of all tests that need one.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func newMetrics(t testing.TB) *identity.Metrics {
	t.Helper()
	metrics, err := identity.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	return metrics
}

func rules() identity.TokenRules {
	return identity.TokenRules{Issuer: identitytest.IssuerURL, ClientID: identitytest.ClientID, GroupsClaim: "group_ids"}
}

// verifier has the realm's keys already.
func verifier(t testing.TB, issuer *identitytest.Issuer, rules identity.TokenRules, now func() time.Time) *identity.Verifier {
	t.Helper()
	keys, err := identity.NewKeys(issuer.KeysURL(), silent(), newMetrics(t), now)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go keys.Run(ctx)
	require.Eventually(t, keys.Available, 10*time.Second, time.Millisecond)
	v, err := identity.NewVerifier(rules, keys, now)
	require.NoError(t, err)
	return v
}

func fixed() time.Time { return epoch }

func TestVerify_reads_a_token_of_the_realm(t *testing.T) {
	issuer := identitytest.New(t)
	v := verifier(t, issuer, rules(), fixed)
	token := issuer.Token(t, identitytest.Claims(epoch, ada, []string{"offline_access", "magicstick-user", "magicstick-operator"}, []string{builders, painters}, nil))
	person, state := v.Verify(t.Context(), token)
	require.Equal(t, identity.TokenValid, state)
	assert.Equal(t, identity.Person{ID: ada, Groups: []string{builders, painters}, Role: httpapi.RoleOperator}, person)
}

func TestVerify_judges_claims(t *testing.T) {
	issuer := identitytest.New(t)
	strict := rules()
	strict.Audience = "magicstick"
	lenient, withAudience := verifier(t, issuer, rules(), fixed), verifier(t, issuer, strict, fixed)
	at := func(offset time.Duration) int64 { return epoch.Add(offset).Unix() }
	for name, test := range map[string]struct {
		changes map[string]any
		want    identity.TokenState
		strict  bool
	}{
		"as it should be":                    {nil, identity.TokenValid, false},
		"expired":                            {map[string]any{"exp": at(-time.Minute)}, identity.TokenExpired, false},
		"expired, clocks apart":              {map[string]any{"exp": at(-29 * time.Second)}, identity.TokenValid, false},
		"expired, just beyond the skew":      {map[string]any{"exp": at(-30 * time.Second)}, identity.TokenExpired, false},
		"never expires":                      {map[string]any{"exp": nil}, identity.TokenMalformed, false},
		"expiry is zero":                     {map[string]any{"exp": 0}, identity.TokenExpired, false},
		"expiry is negative":                 {map[string]any{"exp": -1}, identity.TokenExpired, false},
		"expiry is text":                     {map[string]any{"exp": "tomorrow"}, identity.TokenMalformed, false},
		"expiry is a number in text":         {map[string]any{"exp": fmt.Sprint(at(time.Hour))}, identity.TokenMalformed, false},
		"expiry is a list":                   {map[string]any{"exp": []int64{at(time.Hour)}}, identity.TokenMalformed, false},
		"not yet valid":                      {map[string]any{"nbf": at(time.Minute)}, identity.TokenNotYetValid, false},
		"not yet valid, clocks apart":        {map[string]any{"nbf": at(30 * time.Second)}, identity.TokenValid, false},
		"issued in the future":               {map[string]any{"iat": at(time.Minute)}, identity.TokenNotYetValid, false},
		"other issuer":                       {map[string]any{"iss": "https://id.evil.local/realms/magicstick"}, identity.TokenIssuer, false},
		"issuer with a slash more":           {map[string]any{"iss": identitytest.IssuerURL + "/"}, identity.TokenIssuer, false},
		"other realm of the same Keycloak":   {map[string]any{"iss": "https://id.magicstick.local/realms/master"}, identity.TokenIssuer, false},
		"no issuer":                          {map[string]any{"iss": nil}, identity.TokenIssuer, false},
		"issuer is a list":                   {map[string]any{"iss": []string{identitytest.IssuerURL}}, identity.TokenMalformed, false},
		"other client":                       {map[string]any{"azp": "someone-else"}, identity.TokenClient, false},
		"no client":                          {map[string]any{"azp": nil}, identity.TokenClient, false},
		"client only as audience":            {map[string]any{"azp": nil, "aud": identitytest.ClientID}, identity.TokenClient, false},
		"client is a list":                   {map[string]any{"azp": []string{identitytest.ClientID}}, identity.TokenMalformed, false},
		"other audience":                     {map[string]any{"aud": "account"}, identity.TokenAudience, true},
		"no audience":                        {map[string]any{"aud": nil}, identity.TokenAudience, true},
		"audience among several":             {map[string]any{"aud": []string{"account", "magicstick"}}, identity.TokenValid, true},
		"audience as part of a name":         {map[string]any{"aud": "magicstick-2"}, identity.TokenAudience, true},
		"right audience, other client":       {map[string]any{"aud": "magicstick", "azp": "someone-else"}, identity.TokenClient, true},
		"ID token":                           {map[string]any{"typ": "ID", "aud": identitytest.ClientID}, identity.TokenType, false},
		"refresh token":                      {map[string]any{"typ": "Refresh"}, identity.TokenType, false},
		"no type":                            {map[string]any{"typ": nil}, identity.TokenType, false},
		"no subject":                         {map[string]any{"sub": nil}, identity.TokenMalformed, false},
		"empty subject":                      {map[string]any{"sub": ""}, identity.TokenMalformed, false},
		"subject with a space":               {map[string]any{"sub": "a b"}, identity.TokenMalformed, false},
		"subject is a number":                {map[string]any{"sub": 5}, identity.TokenMalformed, false},
		"groups are no list":                 {map[string]any{"group_ids": builders}, identity.TokenMalformed, false},
		"groups are numbers":                 {map[string]any{"group_ids": []int{1}}, identity.TokenMalformed, false},
		"groups are null":                    {map[string]any{"group_ids": json.RawMessage("null")}, identity.TokenValid, false},
		"roles are no list":                  {map[string]any{"realm_access": map[string]any{"roles": "magicstick-admin"}}, identity.TokenMalformed, false},
		"no roles":                           {map[string]any{"realm_access": nil}, identity.TokenValid, false},
		"distributed claims are not fetched": {map[string]any{"_claim_names": map[string]string{"group_ids": "src"}, "_claim_sources": map[string]any{"src": map[string]string{"endpoint": issuer.KeysURL()}}}, identity.TokenValid, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := lenient
			if test.strict {
				v = withAudience
			}
			person, state := v.Verify(t.Context(), issuer.Token(t, identitytest.Claims(epoch, ada, []string{"magicstick-user"}, []string{builders}, test.changes)))
			assert.Equal(t, test.want.String(), state.String())
			if state != identity.TokenValid {
				assert.Zero(t, person)
			}
		})
	}
	assert.Equal(t, 2, issuer.Requests(), "one fetch for each of the two verifiers, none for any token")
}

// TestVerify_judges_time_anew: a token that was fine a moment ago and is known by
// now still expires to the second.
func TestVerify_judges_time_anew(t *testing.T) {
	issuer, clock := identitytest.New(t), &clock{}
	v := verifier(t, issuer, rules(), clock.now)
	token := issuer.Token(t, identitytest.Claims(epoch, ada, []string{"magicstick-user"}, nil, nil))
	for _, step := range []struct {
		at   time.Duration
		want string
	}{
		{0, "Valid"}, {5 * time.Minute, "Valid"}, {5*time.Minute + identity.ClockSkew - time.Second, "Valid"},
		{5*time.Minute + identity.ClockSkew, "Expired"}, {0, "Valid"}, {-identity.ClockSkew, "Valid"}, {-identity.ClockSkew - time.Second, "NotYetValid"},
	} {
		clock.offset.Store(int64(step.at))
		_, state := v.Verify(t.Context(), token)
		assert.Equal(t, step.want, state.String(), "%s after it was issued", step.at)
	}
	assert.Equal(t, 1, issuer.Requests())
}

func TestVerify_reads_roles_and_groups_only_where_they_belong(t *testing.T) {
	issuer := identitytest.New(t)
	v := verifier(t, issuer, rules(), fixed)
	person, state := v.Verify(t.Context(), issuer.Token(t, identitytest.Claims(epoch, ada, nil, nil, map[string]any{
		"roles": []string{"magicstick-admin"}, "resource_access": map[string]any{identitytest.ClientID: map[string]any{"roles": []string{"magicstick-admin"}}},
		"groups": []string{"/builders", builders},
	})))
	require.Equal(t, identity.TokenValid, state)
	assert.Equal(t, identity.Person{ID: ada}, person)

	other := rules()
	other.GroupsClaim = "https://magicstick.dev/groups"
	v = verifier(t, issuer, other, fixed)
	person, state = v.Verify(t.Context(), issuer.Token(t, identitytest.Claims(epoch, ada, nil, []string{painters}, map[string]any{
		"https://magicstick.dev/groups": []string{builders, "/by/path", "with space", strings.Repeat("x", 161), ""},
	})))
	require.Equal(t, identity.TokenValid, state)
	assert.Equal(t, []string{builders}, person.Groups, "names and paths are no IDs")
}

func segment(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// forgeries are tokens that a person could make without the realm.
func forgeries(t testing.TB, issuer *identitytest.Issuer, now time.Time) map[string]struct {
	token string
	want  identity.TokenState
} {
	t.Helper()
	key := issuer.SigningKey()
	claims := identitytest.Claims(now, ada, []string{"magicstick-admin"}, []string{builders}, nil)
	valid := issuer.Token(t, claims)
	parts := strings.Split(valid, ".")
	stranger := identitytest.NewKey(t, jose.RS256)
	stranger.ID = key.ID
	unnamed := key
	unnamed.ID = ""
	foreign := identitytest.NewKey(t, jose.RS256)
	foreign.ID = "somebody-elses"
	der, err := x509.MarshalPKIXPublicKey(key.Private.Public())
	require.NoError(t, err)
	hmacWith := func(secret []byte) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: secret, KeyID: key.ID}}, nil)
		require.NoError(t, err)
		payload, err := json.Marshal(claims)
		require.NoError(t, err)
		signed, err := signer.Sign(payload)
		require.NoError(t, err)
		token, err := signed.CompactSerialize()
		require.NoError(t, err)
		return token
	}
	other := key
	other.Algorithm = jose.PS256
	admin := claims
	admin["sub"] = bob
	type forgery = struct {
		token string
		want  identity.TokenState
	}
	full, err := jose.ParseSignedCompact(valid, []jose.SignatureAlgorithm{jose.RS256})
	require.NoError(t, err)
	return map[string]forgery{
		"unsigned":                          {segment(map[string]string{"alg": "none", "typ": "JWT", "kid": key.ID}) + "." + parts[1] + ".", identity.TokenAlgorithm},
		"unsigned in capitals":              {segment(map[string]string{"alg": "NONE", "kid": key.ID}) + "." + parts[1] + ".", identity.TokenAlgorithm},
		"unsigned with an old signature":    {segment(map[string]string{"alg": "none", "kid": key.ID}) + "." + parts[1] + "." + parts[2], identity.TokenAlgorithm},
		"no algorithm":                      {segment(map[string]string{"kid": key.ID}) + "." + parts[1] + "." + parts[2], identity.TokenAlgorithm},
		"signature cut off":                 {parts[0] + "." + parts[1] + ".", identity.TokenSignature},
		"HMAC with the public key in PEM":   {hmacWith(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), identity.TokenAlgorithm},
		"HMAC with the public key in DER":   {hmacWith(der), identity.TokenAlgorithm},
		"another key under the same ID":     {identitytest.Sign(t, stranger, claims), identity.TokenSignature},
		"another key under its own ID":      {identitytest.Sign(t, foreign, claims), identity.TokenUnknownKey},
		"no key ID":                         {identitytest.Sign(t, unnamed, claims), identity.TokenMalformed},
		"another algorithm than the key's":  {identitytest.Sign(t, other, claims), identity.TokenAlgorithm},
		"claims exchanged":                  {parts[0] + "." + segment(admin) + "." + parts[2], identity.TokenSignature},
		"signature changed":                 {parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2])), identity.TokenSignature},
		"key brought along":                 {withOwnKey(t, stranger, claims), identity.TokenSignature},
		"key URL brought along":             {segment(map[string]string{"alg": "RS256", "kid": "x", "jku": "http://evil.example/keys"}) + "." + parts[1] + "." + parts[2], identity.TokenUnknownKey},
		"critical header":                   {segment(map[string]any{"alg": "RS256", "kid": key.ID, "crit": []string{"exp"}, "exp": 1}) + "." + parts[1] + "." + parts[2], identity.TokenSignature},
		"JSON form":                         {full.FullSerialize(), identity.TokenMalformed},
		"encrypted form":                    {strings.Join([]string{parts[0], "a", "b", "c", "d"}, "."), identity.TokenMalformed},
		"empty":                             {"", identity.TokenMissing},
		"dots":                              {"..", identity.TokenMalformed},
		"text":                              {"opaque-session", identity.TokenMalformed},
		"header is no JSON":                 {"AAAA." + parts[1] + "." + parts[2], identity.TokenMalformed},
		"claims are no object, same header": {parts[0] + "." + segment([]int{1}) + "." + parts[2], identity.TokenSignature},
		"spaces around":                     {" " + valid, identity.TokenMalformed},
		"padding":                           {valid + "==", identity.TokenMalformed},
		"two in one":                        {valid + "," + valid, identity.TokenMalformed},
		"oversize":                          {valid + strings.Repeat("A", identity.MaxToken), identity.TokenOversize},
	}
}

// withOwnKey signs with a key that the header itself brings along.
func withOwnKey(t testing.TB, key identitytest.Key, claims map[string]any) string {
	t.Helper()
	public := jose.JSONWebKey{Key: key.Private.Public(), KeyID: key.ID}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: key.Algorithm, Key: key.Private},
		(&jose.SignerOptions{}).WithHeader("kid", key.ID).WithHeader("jwk", public))
	require.NoError(t, err)
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	signed, err := signer.Sign(payload)
	require.NoError(t, err)
	token, err := signed.CompactSerialize()
	require.NoError(t, err)
	header, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(header)
	require.NoError(t, err)
	require.Contains(t, string(text), `"jwk":{`)
	return token
}

func TestVerify_refuses_forgeries(t *testing.T) {
	issuer := identitytest.New(t)
	v := verifier(t, issuer, rules(), fixed)
	for name, forgery := range forgeries(t, issuer, epoch) {
		t.Run(name, func(t *testing.T) {
			person, state := v.Verify(t.Context(), forgery.token)
			assert.Equal(t, forgery.want.String(), state.String())
			assert.Zero(t, person)
		})
	}
}

func TestBearerToken(t *testing.T) {
	for name, test := range map[string]struct {
		values []string
		token  string
		want   identity.TokenState
	}{
		"one":                      {[]string{"Bearer a.b.c"}, "a.b.c", identity.TokenValid},
		"scheme in another case":   {[]string{"bearer a.b.c"}, "a.b.c", identity.TokenValid},
		"none":                     {nil, "", identity.TokenMissing},
		"empty":                    {[]string{""}, "", identity.TokenMissing},
		"scheme only":              {[]string{"Bearer"}, "", identity.TokenMissing},
		"scheme and space":         {[]string{"Bearer "}, "", identity.TokenMissing},
		"another scheme":           {[]string{"Basic YTpi"}, "", identity.TokenMissing},
		"token without a scheme":   {[]string{"a.b.c"}, "", identity.TokenMissing},
		"two headers":              {[]string{"Bearer a.b.c", "Bearer d.e.f"}, "", identity.TokenMalformed},
		"the same twice":           {[]string{"Bearer a.b.c", "Bearer a.b.c"}, "", identity.TokenMalformed},
		"basic and bearer":         {[]string{"Basic YTpi", "Bearer a.b.c"}, "", identity.TokenMalformed},
		"oversize":                 {[]string{"Bearer " + strings.Repeat("a", identity.MaxToken+1)}, "", identity.TokenOversize},
		"several joined by commas": {[]string{"Bearer a.b.c, Bearer d.e.f"}, "a.b.c, Bearer d.e.f", identity.TokenValid}, // refused by Verify: not compact
	} {
		t.Run(name, func(t *testing.T) {
			token, state := identity.BearerToken(http.Header{"Authorization": test.values})
			assert.Equal(t, test.want.String(), state.String())
			assert.Equal(t, test.token, token)
		})
	}
}

func TestTokenRules_name_what_is_wrong(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*identity.TokenRules)
		want   string
	}{
		"no issuer":          {func(r *identity.TokenRules) { r.Issuer = "" }, "issuer"},
		"issuer without URL": {func(r *identity.TokenRules) { r.Issuer = "magicstick" }, "issuer"},
		"issuer with query":  {func(r *identity.TokenRules) { r.Issuer += "?a" }, "issuer"},
		"issuer by file":     {func(r *identity.TokenRules) { r.Issuer = "file:///etc/passwd" }, "issuer"},
		"no client":          {func(r *identity.TokenRules) { r.ClientID = "" }, "client ID"},
		"no claim":           {func(r *identity.TokenRules) { r.GroupsClaim = "" }, "groups claim"},
		"claim with a space": {func(r *identity.TokenRules) { r.GroupsClaim = "a b" }, "groups claim"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rules()
			test.change(&r)
			assert.ErrorContains(t, r.Validate(), test.want)
		})
	}
	assert.NoError(t, rules().Validate())
}

// FuzzVerify: nothing that the realm did not sign is ever valid.
func FuzzVerify(f *testing.F) {
	issuer := identitytest.New(f)
	v := verifier(f, issuer, rules(), fixed)
	valid := issuer.Token(f, identitytest.Claims(epoch, ada, []string{"magicstick-user"}, nil, nil))
	f.Add(valid)
	for _, forgery := range forgeries(f, issuer, epoch) {
		f.Add(forgery.token)
	}
	// Two spellings of a signature differ in bits that base64 leaves unused.
	body := valid[:strings.LastIndexByte(valid, '.')]
	f.Fuzz(func(t *testing.T, token string) {
		person, state := v.Verify(t.Context(), token)
		if state == identity.TokenValid && !strings.HasPrefix(token, body+".") {
			t.Fatalf("accepted %q", token)
		}
		if (state == identity.TokenValid) != (person.ID != "") {
			t.Fatalf("state %s with person %+v", state, person)
		}
	})
}
