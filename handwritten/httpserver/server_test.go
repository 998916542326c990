package httpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/httpapi"
	"magicstick.dev/operator/generated/httpapi/admin"
	"magicstick.dev/operator/handwritten/httpserver"
)

const (
	revision = `"6f0c2a5e-5a4e-4c0e-9d0e-0b4a1a7f3c11.3"`
	secret   = "hunter2-must-never-be-repeated"
	origin   = "https://magicstick.local"
)

// tokens are the callers of the tests, by access token.
type tokens map[string]httpapi.Role

func (t tokens) Authenticate(_ context.Context, token string) (httpserver.Caller, error) {
	if token == "offline" {
		return httpserver.Caller{}, errors.New("dial tcp 10.0.0.1:443: connection refused")
	}
	role, found := t[token]
	if !found {
		return httpserver.Caller{}, httpserver.ErrUnauthenticated
	}
	return httpserver.Caller{Subject: "subject-of-" + token, Username: token, Role: role}, nil
}

// appliance implements the admin API with just enough behaviour to see what
// reaches an operation and what comes back.
type appliance struct {
	mu     sync.Mutex
	calls  []string
	change *admin.ModuleChange
	fail   error
	panics bool
}

func (a *appliance) called(name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, name)
	if a.panics {
		panic("token " + secret)
	}
	return a.fail
}

func (a *appliance) GetSession(ctx context.Context, _ admin.GetSessionRequestObject) (admin.GetSessionResponseObject, error) {
	if err := a.called("getSession"); err != nil {
		return nil, err
	}
	caller, _ := httpserver.CallerFrom(ctx)
	return admin.GetSession200JSONResponse{Subject: caller.Subject, Username: caller.Username, Roles: []admin.SessionRoles{}, IdentityManagementMode: "keycloak"}, nil
}

func (a *appliance) GetAppliance(context.Context, admin.GetApplianceRequestObject) (admin.GetApplianceResponseObject, error) {
	if err := a.called("getAppliance"); err != nil {
		return nil, err
	}
	return admin.GetAppliance200JSONResponse{Body: appliancev1alpha1.Appliance{}, Headers: admin.GetAppliance200ResponseHeaders{ETag: revision}}, nil
}

func (a *appliance) GetStatus(context.Context, admin.GetStatusRequestObject) (admin.GetStatusResponseObject, error) {
	return nil, a.called("getStatus")
}

func (a *appliance) ListEvents(context.Context, admin.ListEventsRequestObject) (admin.ListEventsResponseObject, error) {
	return nil, a.called("listEvents")
}

func (a *appliance) ListModules(_ context.Context, request admin.ListModulesRequestObject) (admin.ListModulesResponseObject, error) {
	if err := a.called("listModules"); err != nil {
		return nil, err
	}
	current := httpserver.WeakRevision("42")
	if httpserver.NotModified(request.Params.IfNoneMatch, current) {
		return admin.ListModules304Response{Headers: admin.NotModifiedResponseHeaders{ETag: current}}, nil
	}
	modules := []admin.Module{{Name: "basis"}, {Name: "gpu"}, {Name: "kubeai"}, {Name: "litellm"}}
	page, err := httpserver.Paginate(modules, func(m admin.Module) string { return m.Name }, request.Params.Limit, request.Params.Continue)
	if err != nil {
		return nil, err
	}
	return admin.ListModules200JSONResponse{
		Body:    admin.ModuleList{Groups: map[string]admin.ModuleGroup{}, Items: page.Items, Continue: page.Continue, RemainingItemCount: page.Remaining},
		Headers: admin.ListModules200ResponseHeaders{ETag: current},
	}, nil
}

func (a *appliance) GetModule(_ context.Context, request admin.GetModuleRequestObject) (admin.GetModuleResponseObject, error) {
	if err := a.called("getModule " + request.Name); err != nil {
		return nil, err
	}
	return admin.GetModule200JSONResponse{Body: admin.Module{Name: request.Name}, Headers: admin.GetModule200ResponseHeaders{ETag: revision}}, nil
}

func (a *appliance) GetModuleCredentials(context.Context, admin.GetModuleCredentialsRequestObject) (admin.GetModuleCredentialsResponseObject, error) {
	return nil, a.called("getModuleCredentials")
}

func (a *appliance) EnableModule(_ context.Context, request admin.EnableModuleRequestObject) (admin.EnableModuleResponseObject, error) {
	if err := a.called("enableModule " + request.Name); err != nil {
		return nil, err
	}
	if err := httpserver.CheckRevision(request.Params.IfMatch, revision, "the module"); err != nil {
		return nil, err
	}
	a.change = request.Body
	return admin.EnableModule200JSONResponse{ChangedModuleJSONResponse: admin.ChangedModuleJSONResponse{
		Body: admin.Module{Name: request.Name, Enabled: true}, Headers: admin.ChangedModuleResponseHeaders{ETag: revision},
	}}, nil
}

func (a *appliance) DisableModule(context.Context, admin.DisableModuleRequestObject) (admin.DisableModuleResponseObject, error) {
	return nil, a.called("disableModule")
}

// world is a running server and what it wrote to its log.
type world struct {
	*appliance
	url string
	log *bytes.Buffer
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{appliance: &appliance{}, log: &bytes.Buffer{}}
	handler, err := httpserver.New(httpserver.Options{
		Document:       admin.DocumentJSON,
		Routes:         admin.Routes(),
		Register:       func(mux *http.ServeMux, hooks httpapi.Hooks) { admin.Register(mux, w.appliance, hooks) },
		Authenticator:  tokens{"user": httpapi.RoleUser, "viewer": httpapi.RoleViewer, "operator": httpapi.RoleOperator, "admin": httpapi.RoleAdmin},
		AllowedOrigins: []string{origin},
		Log:            slog.New(slog.NewTextHandler(&locked{buffer: w.log}, nil)),
	})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

type locked struct {
	mu     sync.Mutex
	buffer *bytes.Buffer
}

func (l *locked) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(data)
}

// client is the generated client with the token of a caller.
func (w *world) client(t *testing.T, token string) *admin.ClientWithResponses {
	t.Helper()
	client, err := admin.NewClientWithResponses(w.url, admin.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	}))
	require.NoError(t, err)
	return client
}

// TestGeneratedClient: the generated client and server understand each other.
func TestGeneratedClient(t *testing.T) {
	w := start(t)
	viewer, operator := w.client(t, "viewer"), w.client(t, "operator")

	session, err := viewer.GetSessionWithResponse(t.Context())
	require.NoError(t, err)
	require.NotNil(t, session.JSON200, "%s", session.Body)
	assert.Equal(t, "subject-of-viewer", session.JSON200.Subject)

	limit := int32(3)
	list, err := viewer.ListModulesWithResponse(t.Context(), &admin.ListModulesParams{Limit: &limit})
	require.NoError(t, err)
	require.NotNil(t, list.JSON200, "%s", list.Body)
	assert.Len(t, list.JSON200.Items, 3)
	assert.EqualValues(t, 1, *list.JSON200.RemainingItemCount)
	rest, err := viewer.ListModulesWithResponse(t.Context(), &admin.ListModulesParams{Limit: &limit, Continue: list.JSON200.Continue})
	require.NoError(t, err)
	require.NotNil(t, rest.JSON200)
	assert.Equal(t, "litellm", rest.JSON200.Items[0].Name)
	assert.Nil(t, rest.JSON200.Continue)

	etag := list.HTTPResponse.Header.Get("ETag")
	same, err := viewer.ListModulesWithResponse(t.Context(), &admin.ListModulesParams{IfNoneMatch: &etag})
	require.NoError(t, err)
	assert.Equal(t, http.StatusNotModified, same.StatusCode())
	assert.Empty(t, same.Body)

	module, err := viewer.GetModuleWithResponse(t.Context(), "litellm")
	require.NoError(t, err)
	require.NotNil(t, module.JSON200)
	changed, err := operator.EnableModuleWithResponse(t.Context(), "litellm",
		&admin.EnableModuleParams{IfMatch: module.HTTPResponse.Header.Get("ETag"), XMagicStickCSRF: "dashboard"},
		admin.EnableModuleJSONRequestBody{Parameters: map[string]string{"postgresStorage": "5Gi"}})
	require.NoError(t, err)
	require.NotNil(t, changed.JSON200, "%s", changed.Body)
	assert.True(t, changed.JSON200.Enabled)
	require.NotNil(t, w.change)
	assert.Equal(t, map[string]string{"postgresStorage": "5Gi"}, w.change.Parameters)

	stale, err := operator.EnableModuleWithResponse(t.Context(), "litellm",
		&admin.EnableModuleParams{IfMatch: `"6f0c2a5e-5a4e-4c0e-9d0e-0b4a1a7f3c11.2"`, XMagicStickCSRF: "dashboard"}, admin.EnableModuleJSONRequestBody{})
	require.NoError(t, err)
	require.NotNil(t, stale.ApplicationProblemJSON412, "%s", stale.Body)
	assert.Equal(t, "https://magicstick.dev/problems/stale-revision", stale.ApplicationProblemJSON412.Type)
}

// TestEveryRouteChecksItsRole walks the table of routes: without a token 401, one
// role below the required one 403, with it the operation is reached.
func TestEveryRouteChecksItsRole(t *testing.T) {
	below := map[httpapi.Role]string{httpapi.RoleViewer: "user", httpapi.RoleOperator: "viewer", httpapi.RoleAdmin: "operator"}
	require.NotEmpty(t, admin.Routes())
	for _, route := range admin.Routes() {
		t.Run(route.ID, func(t *testing.T) {
			w := start(t)
			path := strings.ReplaceAll(route.Path, "{name}", "litellm")
			send := func(token string) int {
				headers := map[string]string{"If-Match": revision, httpserver.CSRFHeader: "dashboard"}
				if token != "" {
					headers["Authorization"] = "Bearer " + token
				}
				return w.send(t, route.Method, path, "", headers).status
			}
			assert.Equal(t, http.StatusUnauthorized, send(""))
			assert.Equal(t, http.StatusUnauthorized, send("unknown"))
			assert.Equal(t, http.StatusForbidden, send(below[route.Role]))
			assert.Empty(t, w.calls, "a refused request reached the operation")
			send(route.Role.String())
			assert.Len(t, w.calls, 1)
		})
	}
}

type answer struct {
	status  int
	header  http.Header
	body    string
	problem httpapi.Problem
}

// send makes a raw request, as a client that was not generated would, and checks
// what holds for every answer.
func (w *world) send(t *testing.T, method, path, body string, headers map[string]string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := (&http.Transport{}).RoundTrip(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	result := answer{status: response.StatusCode, header: response.Header, body: string(data)}
	assert.Equal(t, "no-store", response.Header.Get("Cache-Control"))
	assert.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
	assert.NotEmpty(t, response.Header.Get("X-Request-Id"))
	assert.NotContains(t, result.body, secret)
	if response.StatusCode >= http.StatusBadRequest && method != http.MethodHead {
		require.Equal(t, "application/problem+json", response.Header.Get("Content-Type"), "%s", data)
		decoder := json.NewDecoder(strings.NewReader(result.body))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&result.problem), "%s", data)
		assert.EqualValues(t, response.StatusCode, result.problem.Status)
		assert.Equal(t, response.Header.Get("X-Request-Id"), result.problem.RequestID)
		assert.NotEmpty(t, result.problem.Title)
		assert.True(t, strings.HasPrefix(result.problem.Type, "https://magicstick.dev/problems/"))
	}
	return result
}

// TestProblems: every way in which a request can be wrong has its problem.
func TestProblems(t *testing.T) {
	const enable = "/api/v1/modules/litellm/enable"
	good := func(changes ...string) map[string]string {
		headers := map[string]string{
			"Authorization": "Bearer operator", "If-Match": revision, httpserver.CSRFHeader: "dashboard", "Content-Type": "application/json",
		}
		for i := 0; i < len(changes); i += 2 {
			headers[changes[i]] = changes[i+1]
			if changes[i+1] == "" {
				delete(headers, changes[i])
			}
		}
		return headers
	}
	field := func(name, rule string) []httpapi.FieldError { return []httpapi.FieldError{{Field: name, Rule: rule}} }
	long := strings.Repeat("x", 1025)
	for name, c := range map[string]struct {
		method, path, body string
		headers            map[string]string
		status             int
		kind               string
		fields             []httpapi.FieldError
	}{
		"no_token":                {"POST", enable, "{}", good("Authorization", ""), 401, "unauthenticated", nil},
		"basic_token":             {"POST", enable, "{}", good("Authorization", "Basic "+secret), 401, "unauthenticated", nil},
		"refused_token":           {"POST", enable, "{}", good("Authorization", "Bearer "+secret), 401, "unauthenticated", nil},
		"provider_offline":        {"POST", enable, "{}", good("Authorization", "Bearer offline"), 503, "unavailable", nil},
		"role_too_low":            {"POST", enable, "{}", good("Authorization", "Bearer viewer"), 403, "forbidden", nil},
		"role_before_body":        {"POST", enable, "{" + secret, good("Authorization", "Bearer viewer"), 403, "forbidden", nil},
		"no_csrf":                 {"POST", enable, "{}", good(httpserver.CSRFHeader, ""), 403, "forbidden", nil},
		"wrong_csrf":              {"POST", enable, "{}", good(httpserver.CSRFHeader, "yes"), 403, "forbidden", nil},
		"cross_site":              {"POST", enable, "{}", good("Sec-Fetch-Site", "cross-site", "Origin", origin), 403, "forbidden", nil},
		"same_site_no_origin":     {"POST", enable, "{}", good("Sec-Fetch-Site", "same-origin"), 403, "forbidden", nil},
		"foreign_origin":          {"POST", enable, "{}", good("Origin", "https://evil.example"), 403, "forbidden", nil},
		"own_origin":              {"POST", enable, "{}", good("Sec-Fetch-Site", "same-origin", "Origin", origin), 200, "", nil},
		"no_route":                {"GET", "/api/v1/nothing", "", good(), 404, "not-found", nil},
		"trailing_slash":          {"GET", "/api/v1/modules/", "", good(), 404, "not-found", nil},
		"double_slash":            {"GET", "/api/v1//modules", "", good(), 404, "not-found", nil},
		"climbing_path":           {"GET", "/api/v1/x/../modules", "", good(), 404, "not-found", nil},
		"unknown_verb":            {"POST", "/api/v1/modules/litellm/restart", "{}", good(), 404, "not-found", nil},
		"method":                  {"PATCH", "/api/v1/appliance", "{}", good(), 405, "method-not-allowed", nil},
		"no_if_match":             {"POST", enable, "{}", good("If-Match", ""), 428, "revision-required", field("header.If-Match", "required")},
		"if_match_star":           {"POST", enable, "{}", good("If-Match", "*"), 400, "invalid-request", field("header.If-Match", "format")},
		"if_match_list":           {"POST", enable, "{}", good("If-Match", `"a.1", "b.2"`), 400, "invalid-request", field("header.If-Match", "format")},
		"if_match_weak":           {"POST", enable, "{}", good("If-Match", `W/"a.1"`), 400, "invalid-request", field("header.If-Match", "format")},
		"if_match_stale":          {"POST", enable, "{}", good("If-Match", `"a.1"`), 412, "stale-revision", nil},
		"body_too_large":          {"POST", enable, `{"a":"` + strings.Repeat("x", httpserver.MaxBody) + `"}`, good(), 413, "body-too-large", nil},
		"media_type":              {"POST", enable, "{}", good("Content-Type", "text/plain"), 415, "unsupported-media-type", nil},
		"media_type_missing":      {"POST", enable, "{}", good("Content-Type", ""), 415, "unsupported-media-type", nil},
		"charset":                 {"POST", enable, "{}", good("Content-Type", "application/json; charset=latin1"), 415, "unsupported-media-type", nil},
		"charset_utf8":            {"POST", enable, "{}", good("Content-Type", "application/json; charset=UTF-8"), 200, "", nil},
		"compressed":              {"POST", enable, "{}", good("Content-Encoding", "gzip"), 415, "unsupported-media-type", nil},
		"empty_body":              {"POST", enable, "", good("Content-Type", ""), 200, "", nil},
		"not_json":                {"POST", enable, secret, good(), 400, "invalid-request", field("", "json")},
		"half_json":               {"POST", enable, `{"parameters":{"a":"` + secret, good(), 400, "invalid-request", field("", "json")},
		"not_an_object":           {"POST", enable, `["` + secret + `"]`, good(), 400, "invalid-request", field("", "json")},
		"two_values":              {"POST", enable, `{} {"a":1}`, good(), 400, "invalid-request", field("", "json")},
		"not_utf8":                {"POST", enable, "{\"\xff\":1}", good(), 400, "invalid-request", field("", "json")},
		"deep":                    {"POST", enable, `{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, good(), 400, "invalid-request", nil},
		"key_twice":               {"POST", enable, `{"parameters":{"a":"1","a":"` + secret + `"}}`, good(), 400, "invalid-request", field("/parameters/a", "duplicateField")},
		"unknown_key":             {"POST", enable, `{"settings":"` + secret + `"}`, good(), 400, "invalid-request", field("/settings", "unknownField")},
		"wrong_type":              {"POST", enable, `{"parameters":{"token":["` + secret + `"]}}`, good(), 400, "invalid-request", field("/parameters/token", "type")},
		"null":                    {"POST", enable, `{"parameters":{"a/b~c":null}}`, good(), 400, "invalid-request", field("/parameters/a~1b~0c", "type")},
		"too_long":                {"POST", enable, `{"parameters":{"a":"` + secret + long + `"}}`, good(), 400, "invalid-request", field("/parameters/a", "maxLength")},
		"several":                 {"POST", enable, `{"parameters":{"a":1,"b":"` + long + `"},"c":1}`, good(), 400, "invalid-request", []httpapi.FieldError{{Field: "/c", Rule: "unknownField"}, {Field: "/parameters/a", Rule: "type"}, {Field: "/parameters/b", Rule: "maxLength"}}},
		"path_pattern":            {"GET", "/api/v1/modules/" + "a%2Fb", "", good(), 400, "invalid-request", field("path.name", "pattern")},
		"path_too_long":           {"GET", "/api/v1/modules/" + strings.Repeat("a", 64), "", good(), 400, "invalid-request", field("path.name", "maxLength")},
		"query_type":              {"GET", "/api/v1/modules?limit=" + secret, "", good(), 400, "invalid-request", field("query.limit", "type")},
		"query_minimum":           {"GET", "/api/v1/modules?limit=0", "", good(), 400, "invalid-request", field("query.limit", "minimum")},
		"query_maximum":           {"GET", "/api/v1/modules?limit=501", "", good(), 400, "invalid-request", field("query.limit", "maximum")},
		"query_unknown":           {"GET", "/api/v1/modules?limt=5", "", good(), 400, "invalid-request", field("query.limt", "unknownField")},
		"query_twice":             {"GET", "/api/v1/modules?limit=5&limit=6", "", good(), 400, "invalid-request", field("query.limit", "multiple")},
		"query_empty":             {"GET", "/api/v1/modules?limit=", "", good(), 400, "invalid-request", nil},
		"query_broken":            {"GET", "/api/v1/modules?limit=%zz", "", good(), 400, "invalid-request", nil},
		"continue_made_up":        {"GET", "/api/v1/modules?continue=%21" + secret, "", good(), 400, "invalid-request", field("query.continue", "format")},
		"event_kind_pattern":      {"GET", "/api/v1/events?kind=%3C" + secret, "", good(), 400, "invalid-request", field("query.kind", "pattern")},
		"head_needs_a_token_also": {"HEAD", "/api/v1/modules", "", map[string]string{}, 401, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			got := w.send(t, c.method, c.path, c.body, c.headers)
			require.Equal(t, c.status, got.status, "%s", got.body)
			if c.status >= 400 && name != "if_match_stale" && name != "continue_made_up" {
				assert.Empty(t, w.calls, "a refused request reached the operation")
			}
			if c.kind == "" {
				return
			}
			assert.Equal(t, "https://magicstick.dev/problems/"+c.kind, got.problem.Type)
			if c.fields == nil {
				return
			}
			require.Len(t, got.problem.Errors, len(c.fields), "%s", got.body)
			for i, want := range c.fields {
				assert.Equal(t, want.Field, got.problem.Errors[i].Field)
				assert.Equal(t, want.Rule, got.problem.Errors[i].Rule)
				assert.NotEmpty(t, got.problem.Errors[i].Message)
			}
		})
	}
}

func TestAllowedValues(t *testing.T) {
	w := start(t)
	got := w.send(t, "POST", "/api/v1/modules/litellm/enable", `{"settings":{}}`, map[string]string{
		"Authorization": "Bearer operator", "If-Match": revision, httpserver.CSRFHeader: "dashboard", "Content-Type": "application/json",
	})
	require.Len(t, got.problem.Errors, 1)
	assert.Equal(t, []string{"parameters"}, got.problem.Errors[0].Allowed)
	denied := w.send(t, "PATCH", "/api/v1/appliance", "", nil)
	assert.Equal(t, "GET, HEAD", denied.header.Get("Allow"))
	assert.Equal(t, `Bearer realm="magicstick"`, w.send(t, "GET", "/api/v1/modules", "", nil).header.Get("WWW-Authenticate"))
}

func TestRequestID(t *testing.T) {
	w := start(t)
	given := w.send(t, "GET", "/api/v1/session", "", map[string]string{"Authorization": "Bearer viewer", "X-Request-Id": "ticket:4711"})
	assert.Equal(t, "ticket:4711", given.header.Get("X-Request-Id"))
	made := w.send(t, "GET", "/api/v1/session", "", map[string]string{"Authorization": "Bearer viewer", "X-Request-Id": "no spaces"})
	assert.Regexp(t, `^[0-9a-f]{24}$`, made.header.Get("X-Request-Id"))
	assert.Contains(t, w.log.String(), "requestId=ticket:4711")
}

// TestFailures: what goes wrong inside an operation is a problem that says no more than it should.
func TestFailures(t *testing.T) {
	resource := schema.GroupResource{Group: "appliance.magicstick.dev", Resource: "moduleactivations"}
	for name, c := range map[string]struct {
		fail   error
		status int
	}{
		"problem":            {httpserver.Conflict("the module is switched off"), 409},
		"wrapped_problem":    {errors.Join(errors.New(secret), httpserver.NotFound("the module does not exist")), 404},
		"unknown_error":      {errors.New("reading Secret: " + secret), 500},
		"deadline":           {context.DeadlineExceeded, 503},
		"cluster_not_found":  {httpserver.FromCluster(apierrors.NewNotFound(resource, secret), "the module"), 404},
		"cluster_conflict":   {httpserver.FromCluster(apierrors.NewConflict(resource, secret, errors.New(secret)), "the module"), 412},
		"cluster_forbidden":  {httpserver.FromCluster(apierrors.NewForbidden(resource, secret, errors.New(secret)), "the module"), 500},
		"cluster_connection": {httpserver.FromCluster(errors.New("dial tcp: "+secret), "the module"), 503},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.fail = c.fail
			got := w.send(t, "GET", "/api/v1/modules/litellm", "", map[string]string{"Authorization": "Bearer viewer"})
			assert.Equal(t, c.status, got.status, "%s", got.body)
			assert.Equal(t, c.status == 503, got.header.Get("Retry-After") != "")
			if c.status >= 500 {
				assert.Contains(t, w.log.String(), got.problem.RequestID, "the log does not know the request ID of the answer")
			}
		})
	}
	t.Run("panic", func(t *testing.T) {
		w := start(t)
		w.panics = true
		got := w.send(t, "GET", "/api/v1/session", "", map[string]string{"Authorization": "Bearer viewer"})
		assert.Equal(t, 500, got.status)
	})
	t.Run("no_answer", func(t *testing.T) {
		w := start(t)
		got := w.send(t, "GET", "/api/v1/status", "", map[string]string{"Authorization": "Bearer viewer"})
		assert.Equal(t, 500, got.status, "an operation that answers nothing")
	})
}

func TestNewRefusesWhatDoesNotBelongTogether(t *testing.T) {
	register := func(*http.ServeMux, httpapi.Hooks) {}
	for name, c := range map[string]struct {
		options httpserver.Options
		want    string
	}{
		"document": {httpserver.Options{Document: []byte("{"), Register: register}, "reading the OpenAPI document"},
		"route": {httpserver.Options{Document: admin.DocumentJSON, Register: register, Routes: []httpapi.Route{{Method: "GET", Path: "/api/v1/x", Role: httpapi.RoleNone}}},
			`preparing the route "GET /api/v1/x": the OpenAPI document has no such operation`},
		"role":          {httpserver.Options{Document: admin.DocumentJSON, Register: register, Routes: []httpapi.Route{{Method: "GET", Path: "/api/v1/session"}}}, "it has no role"},
		"authenticator": {httpserver.Options{Document: admin.DocumentJSON, Register: register, Routes: admin.Routes()}, "but there is no authenticator"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := httpserver.New(c.options)
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("a_route_outside_the_table_is_denied", func(t *testing.T) {
		handler, err := httpserver.New(httpserver.Options{Document: admin.DocumentJSON, Register: func(mux *http.ServeMux, _ httpapi.Hooks) {
			mux.HandleFunc("GET /api/v1/secret", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, secret) })
		}})
		require.NoError(t, err)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/v1/secret", nil))
		assert.Equal(t, http.StatusForbidden, answer.Code)
		assert.NotContains(t, answer.Body.String(), secret)
	})
}

// BenchmarkRead is the cost of everything around an operation that reads.
func BenchmarkRead(b *testing.B) {
	implementation := &appliance{}
	handler, err := httpserver.New(httpserver.Options{
		Document:      admin.DocumentJSON,
		Routes:        admin.Routes(),
		Register:      func(mux *http.ServeMux, hooks httpapi.Hooks) { admin.Register(mux, implementation, hooks) },
		Authenticator: tokens{"viewer": httpapi.RoleViewer},
		Log:           slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		request := httptest.NewRequest(http.MethodGet, "/api/v1/modules?limit=3", nil)
		request.Header.Set("Authorization", "Bearer viewer")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != http.StatusOK {
			b.Fatal(answer.Body.String())
		}
	}
}
