package source

import (
	"errors"
	"fmt"

	"magicstick.dev/operator/generated/conditions"
)

// What went wrong, for errors.Is where a caller has to choose.
var (
	// ErrChanged says that the content of a file is no longer the one that was pinned.
	ErrChanged = errors.New("the content changed at the source")
	// ErrDigest says that received bytes are not those that the source promised.
	ErrDigest = errors.New("the bytes are not those that the source promised")
	// ErrNoRanges says that the source ignores ranges: it can only be read from the start.
	ErrNoRanges = errors.New("the source ignores ranges")
	// ErrGated says that the terms of a repository have to be accepted first.
	ErrGated = errors.New("the repository is gated")
	// ErrDenied says that the source wants other credentials, or some.
	ErrDenied = errors.New("access is denied")
	// ErrNotFound says that the repository, revision, tag or file does not exist.
	ErrNotFound = errors.New("it does not exist")
	// ErrRateLimited says that the source wants fewer requests.
	ErrRateLimited = errors.New("the source limits the rate of requests")
	// ErrBlocked says that an address must not be connected to.
	ErrBlocked = errors.New("the address is not allowed")
	// ErrTooLarge says that a limit of this package was passed.
	ErrTooLarge = errors.New("a limit is exceeded")
)

// Error is a failure of a source. Its text holds no credentials and no query of
// a URL, and may stand in a status.
type Error struct {
	// Reason is that of the condition ArtifactResolved, such as
	// AuthenticationFailed (contract/models.md B.5).
	Reason string
	// Message says what was being done and what is wrong.
	Message string
	// Temporary says that the same may succeed later; what could be repeated at
	// once has been repeated.
	Temporary bool
	// Cause is what errors.Is and errors.As see; its text follows Message. May be nil.
	Cause error
}

// Error is the message and its cause.
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.Cause.Error()
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Fail returns a final error with that reason and cause, which may be nil.
func Fail(reason string, cause error, format string, arguments ...any) *Error {
	return &Error{Reason: reason, Cause: cause, Message: fmt.Sprintf(format, arguments...)}
}

// Broken returns the error for bytes that are not those that were promised.
func Broken(cause error, format string, arguments ...any) *Error {
	return Fail(conditions.ModelReasonIntegrityCheckFailed, cause, format, arguments...)
}

// Interrupted returns a temporary error.
func Interrupted(cause error, format string, arguments ...any) *Error {
	failed := Fail(conditions.ModelReasonPublicationFailed, cause, format, arguments...)
	failed.Temporary = true
	return failed
}

// Reason is the reason of the condition for any error of reading a source;
// PublicationFailed when it has no word of its own.
func Reason(err error) string {
	var failed *Error
	if errors.As(err, &failed) {
		return failed.Reason
	}
	return conditions.ModelReasonPublicationFailed
}

// Temporary tells whether the same may succeed later.
func Temporary(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Temporary
}
