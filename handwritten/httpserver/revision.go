package httpserver

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"magicstick.dev/operator/generated/httpapi"
)

// AbsentRevision is the ETag of an object that can be named but does not exist yet.
const AbsentRevision = `"absent.0"`

const (
	defaultLimit = 100
	maxLimit     = 500
)

// Revision is the strong ETag of an object: its UID and the generation of its
// editable state. A nil object has AbsentRevision.
func Revision(object metav1.Object) string {
	if object == nil || object.GetUID() == "" {
		return AbsentRevision
	}
	return fmt.Sprintf(`"%s.%d"`, object.GetUID(), object.GetGeneration())
}

// CheckRevision compares If-Match of a change with the current revision; what
// names the object in words ("the module").
func CheckRevision(ifMatch, current, what string) error {
	if ifMatch != current {
		return Stale(what + " has changed since it was read")
	}
	return nil
}

// WeakRevision is the ETag of a list or summary, made from the resource versions
// of everything that it was built from, in a fixed order.
func WeakRevision(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return `W/"` + hex.EncodeToString(sum.Sum(nil)[:8]) + `"`
}

// NotModified reports whether If-None-Match lists the current weak ETag, so that
// the answer is 304. The comparison is weak (RFC 9110, 8.8.3.2).
func NotModified(ifNoneMatch *string, current string) bool {
	if ifNoneMatch == nil {
		return false
	}
	current = strings.TrimPrefix(current, "W/")
	for tag := range strings.SplitSeq(*ifNoneMatch, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == current {
			return true
		}
	}
	return false
}

// Page is one page of a list.
type Page[T any] struct {
	// Items of this page.
	Items []T
	// Continue asks for the next page; nil on the last one.
	Continue *string
	// Remaining is the number of items after this page; nil on the last one.
	Remaining *int64
}

// Paginate cuts the page out of items that the parameters limit and continue of a
// list ask for. key gives the sort key of an item; items are in ascending
// order of their keys, and keys are unique. A page continues after the last key of the page
// before, whether that item still exists or not, so an item is neither repeated nor
// skipped when others come and go.
func Paginate[T any](items []T, key func(T) string, limit *int32, token *string) (Page[T], error) {
	size := defaultLimit
	if limit != nil {
		size = int(*limit)
	}
	if size < 1 || size > maxLimit {
		return Page[T]{}, Invalid(httpapi.FieldError{Field: "query.limit", Rule: "maximum", Message: fmt.Sprintf("must be between 1 and %d", maxLimit)})
	}
	start := 0
	if token != nil {
		last, err := base64.RawURLEncoding.DecodeString(*token)
		if err != nil || len(last) == 0 {
			return Page[T]{}, Invalid(httpapi.FieldError{Field: "query.continue", Rule: "format", Message: "must be a token of an earlier page"})
		}
		start = sort.Search(len(items), func(i int) bool { return key(items[i]) > string(last) })
	}
	end := min(start+size, len(items))
	page := Page[T]{Items: items[start:end:end]}
	if end < len(items) {
		next := base64.RawURLEncoding.EncodeToString([]byte(key(items[end-1])))
		remaining := int64(len(items) - end)
		page.Continue, page.Remaining = &next, &remaining
	}
	return page, nil
}
