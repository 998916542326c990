package fetch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// maxRetryAfter is the longest pause that a server may ask for (contract/models.md C.3).
const maxRetryAfter = 5 * time.Minute

// body ends reads that take too long, and names the server in its errors.
type body struct {
	io.ReadCloser
	name   string
	idle   time.Duration
	timer  *time.Timer
	cancel context.CancelFunc
}

// Read reads what comes within the idle time.
func (b *body) Read(p []byte) (int, error) {
	if b.timer == nil {
		b.timer = time.AfterFunc(b.idle, b.cancel)
	} else {
		b.timer.Reset(b.idle)
	}
	n, err := b.ReadCloser.Read(p)
	if !b.timer.Stop() && !errors.Is(err, io.EOF) { // the request has been ended
		return n, source.Interrupted(nil, "reading from %s: nothing came for %s", b.name, b.idle)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		err = source.Interrupted(err, "reading from %s", b.name)
	}
	return n, err
}

// Close ends the request.
func (b *body) Close() error {
	if b.timer != nil {
		b.timer.Stop()
	}
	b.cancel()
	return b.ReadCloser.Close()
}

// ReadAll asks and reads the whole answer, at most limit bytes, and asks again
// when the connection breaks. accept judges the answer before its body is read.
func (c *Client) ReadAll(ctx context.Context, request Request, limit int64, accept func(*Response) error) ([]byte, *Response, error) {
	for attempt := 1; ; attempt++ {
		answer, err := c.Do(ctx, request)
		if err != nil {
			return nil, nil, err
		}
		data, err := readAnswer(answer, limit, accept)
		if err == nil || !source.Temporary(err) || attempt >= c.options.Retry.Tries() {
			return data, answer, err
		}
		if err := c.options.Retry.Wait(ctx, attempt, 0); err != nil {
			return nil, nil, err
		}
	}
}

func readAnswer(answer *Response, limit int64, accept func(*Response) error) ([]byte, error) {
	defer answer.Body.Close()
	if err := accept(answer); err != nil {
		return nil, err
	}
	tooLarge := source.Fail(conditions.ModelReasonUnsupportedSource, source.ErrTooLarge,
		"reading %s: the answer is larger than %d bytes", Name(answer.URL), limit)
	if answer.ContentLength > limit {
		return nil, tooLarge
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, tooLarge
	}
	return data, err
}

// retryAfter is how long a server asks to wait: seconds or a date (RFC 9110,
// section 10.2.3), at most maxRetryAfter; 0 for anything else.
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseUint(value, 10, 63); err == nil {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(date.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
