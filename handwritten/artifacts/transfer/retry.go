package transfer

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// maxRetryAfter bounds what a server may ask us to wait.
const maxRetryAfter = 2 * time.Minute

// Retry says for how long and how often something that failed is tried again. The zero
// value is the default.
type Retry struct {
	// For is how long without any progress is given up on; 5 minutes when 0.
	For time.Duration
	// First and Longest are the upper bounds of the first and of any pause; 250 ms and 20 s when 0.
	First, Longest time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Jitter returns a number in [0, 1); random when nil.
	Jitter func() float64
}

// patience counts the failures since the last progress.
type patience struct {
	retry Retry
	since time.Time
	tries int
}

func (r Retry) begin() *patience {
	if r.For <= 0 {
		r.For = 5 * time.Minute
	}
	if r.First <= 0 {
		r.First = 250 * time.Millisecond
	}
	if r.Longest <= 0 {
		r.Longest = 20 * time.Second
	}
	if r.Now == nil {
		r.Now = time.Now
	}
	if r.Jitter == nil {
		r.Jitter = randomFraction
	}
	return &patience{retry: r, since: r.Now()}
}

// progress forgets earlier failures.
func (p *patience) progress() { p.tries, p.since = 0, p.retry.Now() }

// wait pauses before the next try. It returns an error when the context ended or
// the failure lasts too long.
func (p *patience) wait(ctx context.Context, failure error) error {
	if p.tries == 0 {
		// The time of a long request before its failure does not count.
		p.since = p.retry.Now()
	}
	if p.retry.Now().Sub(p.since) > p.retry.For {
		return fmt.Errorf("%w: given up after %d tries in %s: %w", ErrUnavailable, p.tries, p.retry.For, failure)
	}
	limit := p.retry.First << min(p.tries, 16)
	limit = min(limit, p.retry.Longest)
	p.tries++
	pause := limit/2 + time.Duration(p.retry.Jitter()*float64(limit/2))
	var answer *registryError
	if errors.As(failure, &answer) {
		pause = max(pause, answer.after)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// again calls do until it succeeds, fails for good, or fails for too long.
func (r Retry) again(ctx context.Context, do func(context.Context) error) error {
	patience := r.begin()
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !temporary(err) {
			return err
		}
		if err := patience.wait(ctx, err); err != nil {
			return err
		}
	}
}

// randomFraction never fails: crypto/rand ends the process before it would.
func randomFraction() float64 {
	var bits [8]byte
	_, _ = rand.Read(bits[:])
	return float64(binary.LittleEndian.Uint64(bits[:])>>11) / (1 << 53)
}

// untrusted tells failures that no waiting heals: a certificate that is not
// trusted, a name that does not exist.
func untrusted(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var name *net.DNSError
	return errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &name) && name.IsNotFound
}
