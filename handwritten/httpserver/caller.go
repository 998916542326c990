package httpserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"magicstick.dev/operator/generated/httpapi"
)

const (
	// RequestIDHeader names the request in both directions.
	RequestIDHeader = "X-Request-Id"
	// CSRFHeader shows that a change was made by a program of ours.
	CSRFHeader = "X-MagicStick-CSRF"
	// CSRFValue is the one value of CSRFHeader.
	CSRFValue = "dashboard"
)

// ErrUnauthenticated is what an Authenticator returns for a token that is not
// accepted; every other error means that it could not find out.
var ErrUnauthenticated = errors.New("the access token is not accepted")

// Caller is who sends a request.
type Caller struct {
	// Subject is the stable identifier at the identity provider.
	Subject string
	// Username is the name that the person signs in with.
	Username string
	// Role is the highest role of the caller.
	Role httpapi.Role
}

// Authenticator finds out who sent a request.
type Authenticator interface {
	// Authenticate checks an access token. It returns ErrUnauthenticated, possibly
	// wrapped, when the token is not accepted.
	Authenticate(ctx context.Context, token string) (Caller, error)
}

type contextKey int

const (
	requestIDKey contextKey = iota
	callerKey
)

// RequestID is the identifier of the request that ctx belongs to.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey).(string)
	return id
}

// CallerFrom is who sent the request that ctx belongs to; false for routes that
// need no session.
func CallerFrom(ctx context.Context) (Caller, bool) {
	caller, found := ctx.Value(callerKey).(Caller)
	return caller, found
}

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// requestID accepts the identifier of the request or makes one.
func requestID(r *http.Request) string {
	if given := r.Header.Values(RequestIDHeader); len(given) == 1 && requestIDPattern.MatchString(given[0]) {
		return given[0]
	}
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails, see crypto/rand
	return hex.EncodeToString(random[:])
}

// authenticate finds the caller and checks the role that a route requires.
func (s *server) authenticate(r *http.Request, required httpapi.Role) (Caller, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return Caller{}, &Error{kind: kindUnauth, detail: "the request has no bearer token"}
	}
	caller, err := s.authenticator.Authenticate(r.Context(), token)
	switch {
	case errors.Is(err, ErrUnauthenticated):
		return Caller{}, &Error{kind: kindUnauth, detail: "the access token is not accepted", cause: err}
	case err != nil:
		return Caller{}, Unavailable("the identity provider does not answer", err)
	case !caller.Role.Includes(required):
		return Caller{}, Forbidden("this operation needs the role " + required.String())
	}
	return caller, nil
}

// sameSite refuses a change that a foreign web page may have caused.
func (s *server) sameSite(r *http.Request) error {
	if r.Header.Get(CSRFHeader) != CSRFValue {
		return Forbidden("the header " + CSRFHeader + " is missing")
	}
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	switch {
	case site != "" && site != "same-origin":
		return Forbidden("the request comes from another site")
	case site != "" && origin == "":
		return Forbidden("the request does not say where it comes from")
	case origin != "" && !s.origins[strings.ToLower(origin)]:
		return Forbidden("the request comes from another origin")
	}
	return nil
}
