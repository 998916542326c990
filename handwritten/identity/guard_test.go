package identity_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/httpapi"
	"magicstick.dev/operator/handwritten/identity"
	"magicstick.dev/operator/handwritten/identity/identitytest"
)

// directory is a fixed set of instances.
type directory map[string]identity.Instance

func (d directory) Lookup(namespace, name string) identity.Instance {
	if instance, found := d[namespace+"/"+name]; found {
		return instance
	}
	return identity.Instance{Lookup: identity.LookupAbsent}
}

func instances() directory {
	open := func(change func(*identity.Instance)) identity.Instance {
		i := identity.Instance{Lookup: identity.LookupFound, Enabled: true, Authentication: "sso", Role: httpapi.RoleUser}
		change(&i)
		return i
	}
	return directory{
		"ai-system/everyone":  open(func(*identity.Instance) {}),
		"ai-system/viewers":   open(func(i *identity.Instance) { i.Role = httpapi.RoleViewer }),
		"ai-system/admins":    open(func(i *identity.Instance) { i.Role = httpapi.RoleAdmin }),
		"ai-system/for-ada":   open(func(i *identity.Instance) { i.Sharing, i.Users = "selected", []string{ada} }),
		"ai-system/for-group": open(func(i *identity.Instance) { i.Sharing, i.Groups = "selected", []string{builders} }),
		"ai-system/nobody":    open(func(i *identity.Instance) { i.Sharing = "selected" }),
		"ai-system/off":       open(func(i *identity.Instance) { i.Enabled = false }),
		"ai-system/leaving":   open(func(i *identity.Instance) { i.Deleting = true }),
		"ai-system/open":      open(func(i *identity.Instance) { i.Authentication = "none" }),
		"ai-system/open-off":  open(func(i *identity.Instance) { i.Authentication, i.Enabled = "none", false }),
		"ai-system/unsynced":  {},
	}
}

// door is a guard behind a real HTTP server.
type door struct {
	address  string
	issuer   *identitytest.Issuer
	registry *prometheus.Registry
	logged   *lockedBuffer
}

func newDoor(t testing.TB) *door {
	t.Helper()
	d := &door{issuer: identitytest.New(t), registry: prometheus.NewRegistry(), logged: &lockedBuffer{}}
	metrics, err := identity.NewMetrics(d.registry)
	require.NoError(t, err)
	server := httptest.NewServer(&identity.Guard{
		Instances: instances(), Tokens: verifier(t, d.issuer, rules(), time.Now), Metrics: metrics,
		Logger: slog.New(slog.NewTextHandler(d.logged, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	t.Cleanup(server.Close)
	d.address = server.Listener.Addr().String()
	return d
}

// ask sends a request as Envoy does - the caller's method, the prefix in front of
// the caller's path, no body - and gives the answer's status. It checks that the
// answer says nothing.
func (d *door) ask(t testing.TB, method, target string, authorization ...string) int {
	t.Helper()
	connection, err := net.Dial("tcp", d.address)
	require.NoError(t, err)
	defer connection.Close()
	require.NoError(t, connection.SetDeadline(time.Now().Add(20*time.Second)))
	request := method + " " + target + " HTTP/1.1\r\nHost: demo.openclaw.magicstick.local\r\nContent-Length: 0\r\n"
	for _, value := range authorization {
		request += "Authorization: " + value + "\r\n"
	}
	_, err = io.WriteString(connection, request+"\r\n")
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: method})
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusForbidden {
		assert.Empty(t, body)
		assert.Equal(t, "0", response.Header.Get("Content-Length"))
		response.Header.Del("Date")
		response.Header.Del("Content-Length")
		assert.Equal(t, http.Header{"Cache-Control": {"no-store"}}, response.Header, "allowed or denied, the answer is the same")
	}
	return response.StatusCode
}

func (d *door) bearer(t testing.TB, user string, roles, groups []string, changes map[string]any) string {
	t.Helper()
	return "Bearer " + d.issuer.Token(t, identitytest.Claims(time.Now(), user, roles, groups, changes))
}

func TestGuard_answers_200_or_403(t *testing.T) {
	d := newDoor(t)
	user, admin := []string{"magicstick-user"}, []string{"magicstick-user", "magicstick-admin"}
	for name, test := range map[string]struct {
		instance, mode string
		authorization  string
		want           int
	}{
		"role suffices":                    {"everyone", "sso", d.bearer(t, ada, user, nil, nil), 200},
		"higher role inherits":             {"viewers", "sso", d.bearer(t, ada, admin, nil, nil), 200},
		"role too low":                     {"viewers", "sso", d.bearer(t, ada, user, nil, nil), 403},
		"no role at all":                   {"everyone", "sso", d.bearer(t, ada, nil, nil, nil), 403},
		"admin needed":                     {"admins", "sso", d.bearer(t, ada, []string{"magicstick-operator"}, nil, nil), 403},
		"selected user":                    {"for-ada", "sso", d.bearer(t, ada, user, nil, nil), 200},
		"another user":                     {"for-ada", "sso", d.bearer(t, bob, user, nil, nil), 403},
		"an admin is not selected either":  {"for-ada", "sso", d.bearer(t, bob, admin, []string{builders}, nil), 403},
		"selected group":                   {"for-group", "sso", d.bearer(t, bob, user, []string{painters, builders}, nil), 200},
		"another group":                    {"for-group", "sso", d.bearer(t, bob, user, []string{painters}, nil), 403},
		"group by name":                    {"for-group", "sso", d.bearer(t, bob, user, nil, map[string]any{"groups": []string{builders}}), 403},
		"empty selection":                  {"nobody", "sso", d.bearer(t, ada, admin, []string{builders}, nil), 403},
		"switched off":                     {"off", "sso", d.bearer(t, ada, admin, nil, nil), 403},
		"being deleted":                    {"leaving", "sso", d.bearer(t, ada, admin, nil, nil), 403},
		"unknown":                          {"ghost", "sso", d.bearer(t, ada, admin, nil, nil), 403},
		"cache not synced":                 {"unsynced", "sso", d.bearer(t, ada, admin, nil, nil), 403},
		"open":                             {"open", "none", "", 200},
		"open, with any token":             {"open", "none", "Bearer nonsense", 200},
		"open, but the policy asks to":     {"open", "sso", d.bearer(t, ada, admin, nil, nil), 403},
		"open by policy only":              {"everyone", "none", d.bearer(t, ada, admin, nil, nil), 403},
		"open and off":                     {"open-off", "none", "", 403},
		"open and unknown":                 {"ghost", "none", "", 403},
		"no token":                         {"everyone", "sso", "", 403},
		"expired":                          {"everyone", "sso", d.bearer(t, ada, admin, nil, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), 403},
		"other issuer":                     {"everyone", "sso", d.bearer(t, ada, admin, nil, map[string]any{"iss": "https://id.evil.local/realms/magicstick"}), 403},
		"other client":                     {"everyone", "sso", d.bearer(t, ada, admin, nil, map[string]any{"azp": "other"}), 403},
		"basic":                            {"everyone", "sso", "Basic YWRhOmFkYQ==", 403},
		"ID token":                         {"everyone", "sso", d.bearer(t, ada, admin, nil, map[string]any{"typ": "ID"}), 403},
		"another person's name as subject": {"for-ada", "sso", d.bearer(t, bob, user, nil, map[string]any{"preferred_username": ada, "email": ada}), 403},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if test.authorization != "" {
				headers = []string{test.authorization}
			}
			target := "/guard/ai-system/" + test.instance + "/" + test.mode
			assert.Equal(t, test.want, d.ask(t, "GET", target+"/some/page?q=1", headers...))
			assert.Equal(t, test.want, d.ask(t, "GET", target, headers...), "as pathOverride")
		})
	}
}

func TestGuard_refuses_forged_tokens(t *testing.T) {
	d := newDoor(t)
	for name, forgery := range forgeries(t, d.issuer, time.Now()) {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, 403, d.ask(t, "GET", "/guard/ai-system/everyone/sso/", "Bearer "+forgery.token))
		})
	}
	valid := d.bearer(t, ada, []string{"magicstick-user"}, nil, nil)
	assert.Equal(t, 403, d.ask(t, "GET", "/guard/ai-system/everyone/sso/", valid, valid), "two headers")
	assert.Equal(t, 200, d.ask(t, "GET", "/guard/ai-system/everyone/sso/", valid))
}

func TestGuard_method_of_the_caller_does_not_matter(t *testing.T) {
	d := newDoor(t)
	token := d.bearer(t, ada, []string{"magicstick-user"}, nil, nil)
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "QUERY"} {
		t.Run(method, func(t *testing.T) {
			assert.Equal(t, 200, d.ask(t, method, "/guard/ai-system/everyone/sso/x", token))
			assert.Equal(t, 403, d.ask(t, method, "/guard/ai-system/everyone/sso/x"))
			assert.Equal(t, 403, d.ask(t, method, "/guard/ai-system/ghost/none/x"))
		})
	}
}

// TestGuard_refuses_paths_in_any_spelling sends targets byte by byte, since HTTP
// clients would clean them.
func TestGuard_refuses_paths_in_any_spelling(t *testing.T) {
	d := newDoor(t)
	admin := d.bearer(t, ada, []string{"magicstick-admin"}, nil, nil)
	for _, target := range []string{
		"/", "/guard", "/guard/", "/guard/ai-system/open", "/guard/ai-system/open/", "/healthz", "/metrics",
		"//guard/ai-system/open/none", "/guard//ai-system/open/none", "/./guard/ai-system/open/none", "/x/../guard/ai-system/open/none",
		"/guard/ai-system/everyone/../open/none", "/guard/ai-system/everyone/sso/../../open/none",
		"/guard/ai-system%2Fopen/none", "/guard/ai-system/open%2Fnone", "/guard/ai-system%2fopen%2fnone", "/guard%2Fai-system/open/none",
		"/guard/ai-system/everyone/sso/..%2F..%2Fopen/none", "/guard/ai-system/everyone/sso/%2e%2e/open",
		"/guard/ai-system/OPEN/none", "/guard/ai-system/open/NONE", "/guard/ai-system/open/none;x", "/guard/ai-system/open/none%20",
		"/guard/ai-system/open/none*", "http://guard/guard/ai-system/open/none",
	} {
		t.Run(target, func(t *testing.T) { assert.Equal(t, 403, d.ask(t, "GET", target, admin)) })
	}
	assert.Equal(t, 200, d.ask(t, "GET", "/guard/ai-system/open/none", admin))
}

func TestGuard_malformed_HTTP_never_gets_200(t *testing.T) {
	d := newDoor(t)
	token := d.bearer(t, ada, []string{"magicstick-admin"}, nil, nil)
	for name, test := range map[string]struct{ target, header string }{
		"bad escape":          {"/guard/ai-system/everyone/sso/%zz", token},
		"zero byte in header": {"/guard/ai-system/everyone/sso/", token + "\x00"},
		"two hosts":           {"/guard/ai-system/everyone/sso/", token + "\r\nHost: other"},
		"huge header":         {"/guard/ai-system/everyone/sso/", token + "\r\nX: " + strings.Repeat("x", 2<<20)},
		"two lengths":         {"/guard/ai-system/everyone/sso/", token + "\r\nContent-Length: 5"},
	} {
		t.Run(name, func(t *testing.T) {
			connection, err := net.Dial("tcp", d.address)
			require.NoError(t, err)
			defer connection.Close()
			require.NoError(t, connection.SetDeadline(time.Now().Add(20*time.Second)))
			_, _ = fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: demo\r\nContent-Length: 0\r\nAuthorization: %s\r\n\r\n", test.target, test.header)
			if response, err := http.ReadResponse(bufio.NewReader(connection), nil); err == nil {
				defer response.Body.Close()
				assert.GreaterOrEqual(t, response.StatusCode, 400)
				assert.Less(t, response.StatusCode, 500)
			}
		})
	}
}

func TestGuard_logs_and_counts_without_naming_people(t *testing.T) {
	d := newDoor(t)
	token := d.bearer(t, bob, []string{"magicstick-user"}, []string{painters}, nil)
	d.ask(t, "GET", "/guard/ai-system/for-ada/sso/private?session=4711", token)
	d.ask(t, "GET", "/guard/ai-system/everyone/sso/", token)
	d.ask(t, "GET", "/guard/ai-system/everyone/sso/", "Bearer secret-of-mine")
	d.ask(t, "GET", "/nonsense/4711", token)
	logged := d.logged.String()
	assert.Contains(t, logged, "instance=for-ada reason=NotSelected")
	assert.Contains(t, logged, "reason=TokenMalformed")
	assert.Contains(t, logged, "reason=PathNotUnderstood")
	for _, secret := range []string{strings.TrimPrefix(token, "Bearer "), "secret-of-mine", bob, painters, "4711", "someone"} {
		assert.NotContains(t, logged, secret)
	}
	assert.NoError(t, testutil.GatherAndCompare(d.registry, strings.NewReader(`
# HELP magicstick_guard_decisions_total Requests that the gateway asked about, by outcome (allow, deny) and reason.
# TYPE magicstick_guard_decisions_total counter
magicstick_guard_decisions_total{outcome="allow",reason="Role"} 1
magicstick_guard_decisions_total{outcome="deny",reason="NotSelected"} 1
magicstick_guard_decisions_total{outcome="deny",reason="PathNotUnderstood"} 1
magicstick_guard_decisions_total{outcome="deny",reason="TokenMalformed"} 1
`), "magicstick_guard_decisions_total"))
	count, err := testutil.GatherAndCount(d.registry, "magicstick_guard_decision_seconds", "magicstick_guard_keys_fetched_timestamp_seconds")
	require.NoError(t, err)
	assert.Equal(t, 2, count)
}

// slowTokens lets the instance change while a token waits for its key.
type slowTokens struct{ during func() }

func (s slowTokens) Verify(context.Context, string) (identity.Person, identity.TokenState) {
	s.during()
	return identity.Person{ID: ada, Role: httpapi.RoleAdmin}, identity.TokenValid
}

func TestGuard_what_counts_is_the_instance_at_the_end(t *testing.T) {
	known := instances()
	guard := &identity.Guard{Instances: known, Metrics: newMetrics(t), Logger: silent(), Tokens: slowTokens{func() { delete(known, "ai-system/everyone") }}}
	request := httptest.NewRequest("GET", "/guard/ai-system/everyone/sso", nil)
	request.Header.Set("Authorization", "Bearer a.b.c")
	recorder := httptest.NewRecorder()
	guard.ServeHTTP(recorder, request)
	assert.Equal(t, 403, recorder.Code)
}

// TestGuard_denies_while_the_realm_never_answered: no keys, no entry; open
// instances need none.
func TestGuard_denies_while_the_realm_never_answered(t *testing.T) {
	issuer := identitytest.New(t)
	issuer.SetMode(identitytest.Down)
	keys, err := identity.NewKeys(issuer.KeysURL(), silent(), newMetrics(t), time.Now)
	require.NoError(t, err)
	tokens, err := identity.NewVerifier(rules(), keys, time.Now)
	require.NoError(t, err)
	guard := &identity.Guard{Instances: instances(), Tokens: tokens, Metrics: newMetrics(t), Logger: silent()}
	for target, want := range map[string]int{"/guard/ai-system/everyone/sso": 403, "/guard/ai-system/open/none": 200} {
		request := httptest.NewRequest("GET", target, nil)
		request.Header.Set("Authorization", "Bearer "+issuer.Token(t, identitytest.Claims(time.Now(), ada, []string{"magicstick-admin"}, nil, nil)))
		recorder := httptest.NewRecorder()
		guard.ServeHTTP(recorder, request)
		assert.Equal(t, want, recorder.Code, target)
	}
}

// BenchmarkGuard is one check from memory, HTTP left out.
func BenchmarkGuard(b *testing.B) {
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.ES256} {
		issuer := identitytest.New(b)
		issuer.Rotate(b, algorithm)
		guard := &identity.Guard{Instances: instances(), Tokens: verifier(b, issuer, rules(), time.Now), Metrics: newMetrics(b), Logger: silent()}
		request := httptest.NewRequest("GET", "/guard/ai-system/for-group/sso/a/page", nil)
		request.Header.Set("Authorization", "Bearer "+issuer.Token(b, identitytest.Claims(time.Now().Add(time.Hour), ada, []string{"magicstick-user"}, []string{painters, builders}, map[string]any{"iat": nil})))
		b.Run(string(algorithm), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				recorder := httptest.NewRecorder()
				guard.ServeHTTP(recorder, request)
				if recorder.Code != http.StatusOK {
					b.Fatal(recorder.Code)
				}
			}
		})
	}
	b.Run("not remembered", func(b *testing.B) {
		issuer := identitytest.New(b)
		guard := &identity.Guard{Instances: instances(), Tokens: verifier(b, issuer, rules(), time.Now), Metrics: newMetrics(b), Logger: silent()}
		request := httptest.NewRequest("GET", "/guard/ai-system/for-group/sso/a/page", nil)
		// Refused only after its signature: the whole way, each time.
		request.Header.Set("Authorization", "Bearer "+issuer.Token(b, identitytest.Claims(time.Now(), ada, []string{"magicstick-user"}, []string{builders}, map[string]any{"azp": "other"})))
		b.ReportAllocs()
		for b.Loop() {
			guard.ServeHTTP(httptest.NewRecorder(), request)
		}
	})
	b.Run("open", func(b *testing.B) {
		guard := &identity.Guard{Instances: instances(), Metrics: newMetrics(b), Logger: silent()}
		request := httptest.NewRequest("GET", "/guard/ai-system/open/none/a/page", nil)
		b.ReportAllocs()
		for b.Loop() {
			guard.ServeHTTP(httptest.NewRecorder(), request)
		}
	})
}
