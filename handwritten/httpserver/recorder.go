package httpserver

import (
	"cmp"
	"net/http"
	"slices"

	"magicstick.dev/operator/generated/httpapi"
)

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(data []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(data)
}

// Unwrap gives http.ResponseController the writer below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// discard takes an answer that nobody will see.
type discard struct{ header http.Header }

func (d discard) Header() http.Header            { return d.header }
func (d discard) Write(data []byte) (int, error) { return len(data), nil }
func (d discard) WriteHeader(int)                {}

// sortFields orders findings by field, then rule: maps have no order of their own.
func sortFields(fields []httpapi.FieldError) {
	slices.SortStableFunc(fields, func(a, b httpapi.FieldError) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Rule, b.Rule))
	})
}
