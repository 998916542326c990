package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"oras.land/oras-go/v2/registry/remote/errcode"
)

// What went wrong, for errors.Is where a caller has to choose.
var (
	// ErrDenied says that the registry wants other credentials, or some.
	ErrDenied = errors.New("the registry denies access")
	// ErrReadOnly says that the registry accepts no uploads.
	ErrReadOnly = errors.New("the registry accepts no uploads")
	// ErrFull says that the registry has no space left.
	ErrFull = errors.New("the registry has no space left")
	// ErrUnavailable says that the registry could not be reached, or failed, for longer than Retry.For.
	ErrUnavailable = errors.New("the registry is not available")
	// ErrIntegrity says that bytes are not those that the source promised.
	ErrIntegrity = errors.New("the bytes are not those that the source promised")
	// ErrRegistryBytes says that the registry holds other bytes than were sent.
	ErrRegistryBytes = errors.New("the registry holds other bytes than were sent")
	// ErrSource says that the source could not be read.
	ErrSource = errors.New("the source cannot be read")
	// ErrPlanChanged says that the checkpoint belongs to other blobs (contract/models.md C.11).
	ErrPlanChanged = errors.New("the checkpoint belongs to other files")
)

// errorBody is how much of an error answer is read, in bytes.
const errorBody = 8 << 10

// registryError is an answer that is not the expected one. Its text has no URL,
// because the query of an upload's URL is a capability.
type registryError struct {
	doing  string
	status int
	code   string
	text   string
	after  time.Duration
	kind   error
}

func (e *registryError) Error() string {
	text := fmt.Sprintf("%s: the registry answered %d %s", e.doing, e.status, http.StatusText(e.status))
	if e.code != "" {
		text += " (" + e.code + ")"
	}
	if e.kind != nil {
		text += ": " + e.kind.Error()
	} else if e.text != "" {
		text += ": " + e.text
	}
	return text
}

func (e *registryError) Unwrap() error { return e.kind }

// answerError makes the error for an unexpected answer and closes its body.
func answerError(doing string, response *http.Response) *registryError {
	defer func() { _ = response.Body.Close() }()
	failed := &registryError{doing: doing, status: response.StatusCode, after: retryAfter(response.Header, time.Now())}
	body, _ := io.ReadAll(io.LimitReader(response.Body, errorBody))
	var answer struct {
		Errors errcode.Errors `json:"errors"`
	}
	if json.Unmarshal(body, &answer) == nil && len(answer.Errors) > 0 {
		failed.code, failed.text = printable(answer.Errors[0].Code), printable(answer.Errors[0].Message)
	}
	failed.kind = kindOf(response.StatusCode, string(body))
	return failed
}

// kindOf sorts an answer by its status and text.
func kindOf(status int, text string) error {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ErrDenied
	case status == http.StatusInsufficientStorage, strings.Contains(text, "no space left on device"), strings.Contains(text, "quota exceeded"):
		return ErrFull
	}
	return nil
}

// printable bounds foreign text and leaves out what a terminal would obey.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	return text[:min(len(text), 200)]
}

// retryAfter reads the header of that name: seconds or a date. 0 when there is none.
func retryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// registryFailure gives any error of a request to the registry words and a kind.
func registryFailure(doing string, err error) error {
	if err == nil {
		return nil
	}
	var known *registryError
	if errors.As(err, &known) {
		return err
	}
	var answer *errcode.ErrorResponse
	if errors.As(err, &answer) {
		failed := &registryError{doing: doing, status: answer.StatusCode}
		if len(answer.Errors) > 0 {
			failed.code, failed.text = printable(answer.Errors[0].Code), printable(answer.Errors[0].Message)
		}
		failed.kind = kindOf(answer.StatusCode, answer.Error())
		return failed
	}
	var transport *url.Error
	if errors.As(err, &transport) {
		err = transport.Err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// temporary tells whether the same request may succeed later. A
// failed connection may, and so may what is neither an answer nor a verdict.
func temporary(err error) bool {
	for _, final := range []error{ErrDenied, ErrReadOnly, ErrFull, ErrIntegrity, ErrRegistryBytes, ErrSource, ErrPlanChanged, context.Canceled} {
		if errors.Is(err, final) {
			return false
		}
	}
	var answer *registryError
	if errors.As(err, &answer) {
		switch answer.status {
		case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
			return true
		}
		return answer.status >= http.StatusInternalServerError && answer.status != http.StatusNotImplemented
	}
	return !untrusted(err)
}

// statusOf is the status of the answer that an error stands for, 0 when there was none.
func statusOf(err error) int {
	var answer *registryError
	if errors.As(err, &answer) {
		return answer.status
	}
	return 0
}
