package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"magicstick.dev/operator/generated/httpapi"
)

// Options say what a server serves.
type Options struct {
	// Document is the bundled OpenAPI document as JSON, generated/httpapi/<name>.DocumentJSON.
	Document []byte
	// Routes is the generated table of routes, generated/httpapi/<name>.Routes().
	Routes []httpapi.Route
	// Register adds the operations to the mux, usually a call of generated/httpapi/<name>.Register.
	Register func(mux *http.ServeMux, hooks httpapi.Hooks)
	// Authenticator finds the caller. It is required unless every route has the role none.
	Authenticator Authenticator
	// AllowedOrigins are the origins of our own pages, such as
	// https://magicstick.local. Requests without the header Origin need none.
	AllowedOrigins []string
	// Log gets one line per request and the causes of problems; slog.Default() when nil.
	Log *slog.Logger
}

// server is the handler that New returns.
type server struct {
	mux           *http.ServeMux
	routes        map[string]*checked
	authenticator Authenticator
	origins       map[string]bool
	log           *slog.Logger
}

// checked is a route with what the document says about it.
type checked struct {
	httpapi.Route
	document *routers.Route
	segments []string
	query    map[string]bool
	match    bool // takes If-Match
	body     bool
}

// New makes the handler of one API. It fails when the document and the table of
// routes do not belong together.
func New(options Options) (http.Handler, error) {
	document, err := openapi3.NewLoader().LoadFromData(options.Document)
	if err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document: %w", err)
	}
	s := &server{
		mux: http.NewServeMux(), routes: map[string]*checked{}, authenticator: options.Authenticator,
		origins: map[string]bool{}, log: options.Log,
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	for _, origin := range options.AllowedOrigins {
		s.origins[strings.ToLower(strings.TrimSuffix(origin, "/"))] = true
	}
	for _, route := range options.Routes {
		item := document.Paths.Value(route.Path)
		if item == nil || item.GetOperation(route.Method) == nil {
			return nil, fmt.Errorf("preparing the route %q: the OpenAPI document has no such operation", route.Pattern())
		}
		if !route.Role.Includes(httpapi.RoleNone) {
			return nil, fmt.Errorf("preparing the route %q: it has no role", route.Pattern())
		}
		if route.Role != httpapi.RoleNone && s.authenticator == nil {
			return nil, fmt.Errorf("preparing the route %q: it needs the role %s, but there is no authenticator", route.Pattern(), route.Role)
		}
		s.routes[route.Pattern()] = newChecked(document, item, route)
	}
	options.Register(s.mux, httpapi.Hooks{
		Refused: func(w http.ResponseWriter, r *http.Request, err error) { write(s.log, w, r, unreadable(err)) },
		Failed:  func(w http.ResponseWriter, r *http.Request, err error) { write(s.log, w, r, err) },
	})
	return s, nil
}

func newChecked(document *openapi3.T, item *openapi3.PathItem, route httpapi.Route) *checked {
	operation := item.GetOperation(route.Method)
	c := &checked{
		Route:    route,
		document: &routers.Route{Spec: document, Path: route.Path, PathItem: item, Method: route.Method, Operation: operation},
		segments: strings.Split(route.Path, "/"),
		query:    map[string]bool{},
		body:     operation.RequestBody != nil,
	}
	for _, list := range []openapi3.Parameters{item.Parameters, operation.Parameters} {
		for _, parameter := range list {
			switch {
			case parameter.Value.In == openapi3.ParameterInQuery:
				c.query[parameter.Value.Name] = true
			case parameter.Value.In == openapi3.ParameterInHeader && strings.EqualFold(parameter.Value.Name, "If-Match"):
				c.match = true
			}
		}
	}
	return c
}

// unreadable is the problem for what the generated code could not bind. The
// document was checked before, so this is the last line of defence.
func unreadable(err error) error {
	var tooLarge *http.MaxBytesError
	var parameter httpapi.ParameterError
	switch {
	case errors.As(err, &tooLarge):
		return err
	case errors.As(err, &parameter):
		return Invalid(httpapi.FieldError{Field: parameter.Parameter(), Rule: "format", Message: "cannot be read"})
	default:
		return Invalid(httpapi.FieldError{Rule: "json", Message: "cannot be read"})
	}
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	id := requestID(r)
	r = r.WithContext(context.WithValue(r.Context(), requestIDKey, id))
	header := w.Header()
	header.Set(RequestIDHeader, id)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	answer := &recorder{ResponseWriter: w}
	operation, subject := "", ""
	defer func() {
		if failure := recover(); failure != nil {
			if failure == http.ErrAbortHandler { //nolint:errorlint // documented as this very value
				panic(failure)
			}
			s.log.ErrorContext(r.Context(), "an operation panicked", "requestId", id, "operation", operation, "panic", fmt.Sprint(failure))
			if answer.status == 0 {
				write(s.log, answer, r, Internal(errors.New("the operation panicked")))
			}
		}
		s.log.InfoContext(r.Context(), "served", "requestId", id, "method", r.Method, "path", r.URL.Path,
			"operation", operation, "status", answer.status, "subject", subject, "duration", time.Since(start))
	}()

	route, err := s.route(answer, r)
	if err == nil {
		operation = route.ID
		var caller Caller
		if r, caller, err = s.admit(answer, r, route); err == nil {
			subject = caller.Subject
			if s.mux.ServeHTTP(answer, r); answer.status == 0 {
				write(s.log, answer, r, Internal(errors.New("the operation gave no answer")))
			}
			return
		}
	}
	write(s.log, answer, r, err)
}

// route finds the route of a request: 404 and 405 are problems, too.
func (s *server) route(w http.ResponseWriter, r *http.Request) (*checked, error) {
	if r.URL.Path != path.Clean("/"+r.URL.Path) {
		// ServeMux would redirect; no client of ours makes such a path.
		return nil, NotFound("there is no such route")
	}
	handler, pattern := s.mux.Handler(r)
	if pattern == "" {
		probe := &recorder{ResponseWriter: discard{http.Header{}}}
		handler.ServeHTTP(probe, r)
		if probe.status == http.StatusMethodNotAllowed {
			allow := probe.Header().Get("Allow")
			w.Header().Set("Allow", allow)
			return nil, &Error{kind: kindMethod, detail: "the route supports " + allow}
		}
		return nil, NotFound("there is no such route")
	}
	route, found := s.routes[pattern]
	if !found {
		return nil, &Error{kind: kindForbidden, detail: "the route is not in the table of routes", cause: errors.New("route without a role: " + pattern)}
	}
	return route, nil
}

// admit checks everything that the conventions ask of a request, in their order.
func (s *server) admit(w http.ResponseWriter, r *http.Request, route *checked) (*http.Request, Caller, error) {
	var caller Caller
	if route.Role != httpapi.RoleNone {
		var err error
		if caller, err = s.authenticate(r, route.Role); err != nil {
			return r, caller, err
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey, caller))
	}
	if route.Changes {
		if err := s.sameSite(r); err != nil {
			return r, caller, err
		}
	}
	if route.match {
		if err := checkIfMatch(r); err != nil {
			return r, caller, err
		}
	}
	if route.body {
		if err := readBody(w, r); err != nil {
			return r, caller, err
		}
	}
	return r, caller, route.validate(r)
}

// checkIfMatch wants exactly one strong ETag.
func checkIfMatch(r *http.Request) error {
	values := r.Header.Values("If-Match")
	if len(values) == 0 {
		return &Error{
			kind: kindNoRevision, detail: "send the ETag of the object in If-Match",
			fields: []httpapi.FieldError{{Field: "header.If-Match", Rule: ruleRequired, Message: "is required"}},
		}
	}
	tag := values[0]
	if len(values) > 1 || len(tag) < 3 || tag[0] != '"' || strings.IndexByte(tag[1:], '"') != len(tag)-2 {
		return Invalid(httpapi.FieldError{Field: "header.If-Match", Rule: "format", Message: "must be one ETag as the server sent it"})
	}
	return nil
}

// validate checks parameters and body against the document.
func (c *checked) validate(r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return Refused("the query cannot be read")
	}
	var fields []httpapi.FieldError
	for name, values := range query {
		switch {
		case !c.query[name]:
			fields = append(fields, httpapi.FieldError{Field: clip("query."+name, 1024), Rule: ruleUnknownField, Message: "is not a known parameter"})
		case len(values) > 1:
			fields = append(fields, httpapi.FieldError{Field: "query." + name, Rule: "multiple", Message: "is given more than once"})
		}
	}
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: c.pathValues(r), QueryParams: query, Route: c.document,
		Options: &openapi3filter.Options{
			MultiError: true, SkipSettingDefaults: true, ExcludeRequestBody: !c.body,
			// The caller was authenticated before anything was read.
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		},
	}
	if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
		fields = append(fields, fieldErrors(err)...)
	}
	if len(fields) > 0 {
		sortFields(fields)
		return Invalid(fields...)
	}
	return nil
}

// pathValues reads the {parameters} of the path; the mux has matched it already,
// so both have the same number of segments.
func (c *checked) pathValues(r *http.Request) map[string]string {
	values := map[string]string{}
	parts := strings.Split(r.URL.EscapedPath(), "/")
	for i, segment := range c.segments {
		if name, found := strings.CutPrefix(segment, "{"); found && i < len(parts) {
			value, err := url.PathUnescape(parts[i])
			if err != nil {
				value = parts[i]
			}
			values[strings.TrimSuffix(name, "}")] = value
		}
	}
	return values
}
