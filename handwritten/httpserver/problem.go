package httpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"magicstick.dev/operator/generated/httpapi"
)

// problemBase is the start of every problem type; the table is in spec/http/README.md.
const problemBase = "https://magicstick.dev/problems/"

const (
	// maxFields bounds errors[] of one problem.
	maxFields = 64
	// retryAfter is sent when a service behind us does not answer.
	retryAfter = 5 * time.Second
)

// Kind is one row of the table of problems in spec/http/README.md.
type Kind struct {
	status int
	slug   string
	title  string
}

// The kinds of problems. An operation reaches them through the constructors.
var (
	kindInvalid     = Kind{http.StatusBadRequest, "invalid-request", "The request is not valid"}
	kindUnauth      = Kind{http.StatusUnauthorized, "unauthenticated", "A valid access token is required"}
	kindForbidden   = Kind{http.StatusForbidden, "forbidden", "The request is not allowed"}
	kindNotFound    = Kind{http.StatusNotFound, "not-found", "There is no such route or object"}
	kindMethod      = Kind{http.StatusMethodNotAllowed, "method-not-allowed", "The method is not supported here"}
	kindConflict    = Kind{http.StatusConflict, "conflict", "The state of the system forbids the request"}
	kindStale       = Kind{http.StatusPreconditionFailed, "stale-revision", "The object has changed since it was read"}
	kindTooLarge    = Kind{http.StatusRequestEntityTooLarge, "body-too-large", "The body is too large"}
	kindMedia       = Kind{http.StatusUnsupportedMediaType, "unsupported-media-type", "The media type of the body is not supported"}
	kindNoRevision  = Kind{http.StatusPreconditionRequired, "revision-required", "The change must name the revision that it is based on"}
	kindTooMany     = Kind{http.StatusTooManyRequests, "too-many-requests", "Too many requests"}
	kindInternal    = Kind{http.StatusInternalServerError, "internal", "The server failed"}
	kindUnavailable = Kind{http.StatusServiceUnavailable, "unavailable", "A service that the request needs is not available"}
)

// Error is a problem to answer with. An operation returns it instead of an
// answer. Its message, unlike the answer, includes the cause and is for logs.
type Error struct {
	kind   Kind
	detail string
	fields []httpapi.FieldError
	retry  time.Duration
	cause  error
}

// Error is the message for the log.
func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %v", e.detail, e.cause)
	}
	return e.detail
}

// Unwrap is the cause; it never reaches the caller of the API.
func (e *Error) Unwrap() error { return e.cause }

// Status is the status code of the answer.
func (e *Error) Status() int { return e.kind.status }

// Fields are the refused fields.
func (e *Error) Fields() []httpapi.FieldError { return e.fields }

// Invalid refuses the request because of fields (400). The detail counts them.
func Invalid(fields ...httpapi.FieldError) *Error {
	detail := "1 field was refused"
	if len(fields) != 1 {
		detail = fmt.Sprintf("%d fields were refused", len(fields))
	}
	return Refused(detail, fields...)
}

// Refused refuses the request with a detail of its own (400).
func Refused(detail string, fields ...httpapi.FieldError) *Error {
	return &Error{kind: kindInvalid, detail: detail, fields: fields}
}

// Forbidden answers that the caller may not do this (403).
func Forbidden(detail string) *Error { return &Error{kind: kindForbidden, detail: detail} }

// NotFound answers that an object does not exist (404).
func NotFound(detail string) *Error { return &Error{kind: kindNotFound, detail: detail} }

// Conflict answers that the state of the system forbids a valid request (409).
func Conflict(detail string) *Error { return &Error{kind: kindConflict, detail: detail} }

// Stale answers that the object has changed since it was read (412).
func Stale(detail string) *Error { return &Error{kind: kindStale, detail: detail} }

// TooMany asks the caller to wait (429).
func TooMany(detail string, wait time.Duration) *Error {
	return &Error{kind: kindTooMany, detail: detail, retry: max(wait, time.Second)}
}

// Unavailable answers that something behind us cannot be reached (503). The cause
// goes to the log only.
func Unavailable(detail string, cause error) *Error {
	return &Error{kind: kindUnavailable, detail: detail, retry: retryAfter, cause: cause}
}

// Internal answers that the server failed (500). The cause goes to the log only.
func Internal(cause error) *Error {
	return &Error{
		kind:   kindInternal,
		detail: "the request could not be completed; the server's log has the cause under this request ID",
		cause:  cause,
	}
}

// asError turns any error into the problem to answer with.
func asError(err error) *Error {
	var problem *Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &problem):
		return problem
	case errors.As(err, &tooLarge):
		return bodyTooLarge(tooLarge.Limit)
	case errors.Is(err, context.DeadlineExceeded):
		return Unavailable("the answer took too long", err)
	default:
		return Internal(err)
	}
}

func bodyTooLarge(limit int64) *Error {
	return &Error{kind: kindTooLarge, detail: fmt.Sprintf("the body may have at most %d bytes", limit)}
}

// write sends err as a problem document and logs what only the log may say.
func write(log *slog.Logger, w http.ResponseWriter, r *http.Request, err error) {
	problem := asError(err)
	id := RequestID(r.Context())
	if problem.kind.status >= http.StatusInternalServerError {
		log.ErrorContext(r.Context(), "answering with a problem", "requestId", id, "status", problem.kind.status, "error", err)
	}
	fields := problem.fields
	if len(fields) > maxFields {
		fields = fields[:maxFields]
	}
	body, marshalErr := json.Marshal(httpapi.Problem{
		Type:      problemBase + problem.kind.slug,
		Title:     problem.kind.title,
		Status:    int32(problem.kind.status), //nolint:gosec // an HTTP status fits
		Detail:    clip(problem.detail, 4096),
		Instance:  clip(r.URL.EscapedPath(), 2048),
		RequestID: id,
		Errors:    fields,
	})
	if marshalErr != nil {
		// Strings and integers always marshal; a change that breaks this must be seen.
		log.ErrorContext(r.Context(), "writing a problem", "requestId", id, "error", marshalErr)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Del("ETag")
	if problem.kind.status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="magicstick"`)
	}
	if problem.retry > 0 {
		header.Set("Retry-After", strconv.Itoa(int(problem.retry.Round(time.Second)/time.Second)))
	}
	w.WriteHeader(problem.kind.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(append(body, '\n')) // the client is gone when this fails
	}
}

// clip cuts text to at most n bytes without splitting a character.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	return text[:n]
}
