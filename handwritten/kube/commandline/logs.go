package commandline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// orderly is a log handler that takes the end of leader election after a signal
// for what it is. controller-runtime gives the Lease back in its stop sequence
// and then reports, as an error, that it is no longer the leader; nothing was
// lost. A Lease that is lost at any other time ends the process with that error.
// Nor is it an error that a request under way was cut by our own end.
type orderly struct{ slog.Handler }

const (
	stopping  = "error received after stop sequence was engaged"
	leaseLost = "leader election lost"
)

func (h orderly) Handle(ctx context.Context, record slog.Record) error {
	switch {
	case record.Level < slog.LevelError:
	case record.Message == stopping && hasError(record, func(err error) bool { return err.Error() == leaseLost }):
		record = slog.NewRecord(record.Time, slog.LevelInfo, "gave the Lease back", record.PC)
	case hasError(record, func(err error) bool { return errors.Is(err, context.Canceled) }):
		record.Level = slog.LevelDebug
	}
	if !h.Enabled(ctx, record.Level) {
		return nil
	}
	if err := h.Handler.Handle(ctx, record); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	return nil
}

func hasError(record slog.Record, matches func(error) bool) bool {
	found := false
	record.Attrs(func(attribute slog.Attr) bool {
		err, isError := attribute.Value.Any().(error)
		found = isError && matches(err)
		return !found
	})
	return found
}

func (h orderly) WithAttrs(attributes []slog.Attr) slog.Handler {
	return orderly{h.Handler.WithAttrs(attributes)}
}

func (h orderly) WithGroup(name string) slog.Handler { return orderly{h.Handler.WithGroup(name)} }
