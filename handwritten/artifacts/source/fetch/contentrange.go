package fetch

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// contentRange is a Content-Range of bytes (RFC 9110, section 14.4).
type contentRange struct {
	first, last int64 // inclusive; -1 when the range was not satisfied
	total       int64 // -1 when unknown
}

// parseContentRange reads "bytes 0-9/100", "bytes 0-9/*" and "bytes */100".
func parseContentRange(value string) (contentRange, bool) {
	none := contentRange{first: -1, last: -1, total: -1}
	unit, rest, found := strings.Cut(strings.TrimSpace(value), " ")
	if !found || !strings.EqualFold(unit, "bytes") {
		return none, false
	}
	span, total, found := strings.Cut(rest, "/")
	if !found {
		return none, false
	}
	parsed, known := none, false
	if total != "*" {
		if parsed.total, known = digits(total); !known {
			return none, false
		}
	}
	if span == "*" {
		return parsed, known
	}
	first, last, found := strings.Cut(span, "-")
	if !found {
		return none, false
	}
	var ok1, ok2 bool
	parsed.first, ok1 = digits(first)
	parsed.last, ok2 = digits(last)
	if !ok1 || !ok2 || parsed.last < parsed.first || parsed.last == math.MaxInt64 || known && parsed.last >= parsed.total {
		return none, false
	}
	return parsed, true
}

// digits reads a number of digits only: no sign, no space.
func digits(text string) (int64, bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	value, err := strconv.ParseInt(text, 10, 64)
	return value, err == nil
}

// rangeOf is the Range header for length bytes from offset, or to the end when
// length is negative.
func rangeOf(offset, length int64) string {
	if length < 0 || length > math.MaxInt64-offset {
		return fmt.Sprintf("bytes=%d-", offset)
	}
	return fmt.Sprintf("bytes=%d-%d", offset, offset+length-1)
}
