package publish

import (
	"context"
	"errors"

	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/transfer"
)

// Exit codes of "magicstick publish".
const (
	// ExitFailed is for everything that has no code of its own.
	ExitFailed = 1
	// ExitUsage is for a source, reference, flag or glob that cannot be right.
	ExitUsage = 2
	// ExitSource is for a source that is not there, not allowed, or stopped answering.
	ExitSource = 3
	// ExitRegistry is for a registry that is not there, denies access, is full or read-only.
	ExitRegistry = 4
	// ExitIntegrity is for bytes that are not those that were promised, on either side.
	ExitIntegrity = 5
	// ExitInterrupted is for a signal; the next run goes on where this one stopped.
	ExitInterrupted = 130
)

// ExitCode sorts an error of Publish.
func ExitCode(err error) int {
	var failed *source.Error
	switch {
	case err == nil:
		return 0
	case errors.Is(err, transfer.ErrIntegrity), errors.Is(err, transfer.ErrRegistryBytes), errors.Is(err, source.ErrDigest):
		return ExitIntegrity
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, transfer.ErrSource), errors.As(err, &failed):
		return ExitSource
	case errors.Is(err, transfer.ErrDenied), errors.Is(err, transfer.ErrReadOnly), errors.Is(err, transfer.ErrFull), errors.Is(err, transfer.ErrUnavailable):
		return ExitRegistry
	}
	return ExitFailed
}
