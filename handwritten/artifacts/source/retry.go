package source

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"
)

// Retry says how often something is tried and how long the pauses are
// (contract/models.md C.3). The zero value is the contract's: 8 attempts, pauses
// that grow from 500 ms to 30 s with full jitter.
type Retry struct {
	// Attempts is how often something is tried in all; 8 when 0.
	Attempts int
	// First and Longest are the upper bounds of the first and of any pause; 500 ms
	// and 30 s when 0.
	First, Longest time.Duration
	// Pause waits, or returns the error of an ended context; a timer when nil.
	Pause func(ctx context.Context, pause time.Duration) error
	// Jitter returns a duration in [0, limit); random when nil.
	Jitter func(limit time.Duration) time.Duration
}

// Tries is how often something is tried in all, at least once.
func (r Retry) Tries() int {
	if r.Attempts > 0 {
		return r.Attempts
	}
	return 8
}

// Wait pauses after the failure of an attempt, counted from 1, for at least that long.
func (r Retry) Wait(ctx context.Context, attempt int, atLeast time.Duration) error {
	limit, longest := r.First, r.Longest
	if limit <= 0 {
		limit = 500 * time.Millisecond
	}
	if longest <= 0 {
		longest = 30 * time.Second
	}
	for i := 1; i < attempt && limit < longest; i++ {
		limit *= 2
	}
	jitter, pause := r.Jitter, r.Pause
	if jitter == nil {
		jitter = randomBelow
	}
	if pause == nil {
		pause = sleep
	}
	return pause(ctx, max(atLeast, jitter(min(limit, longest))))
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// randomBelow never fails: crypto/rand ends the process before it would.
func randomBelow(limit time.Duration) time.Duration {
	var bits [8]byte
	_, _ = rand.Read(bits[:])
	return time.Duration(binary.LittleEndian.Uint64(bits[:]) % uint64(max(limit, 1))) //nolint:gosec // below limit, which is an int64
}
