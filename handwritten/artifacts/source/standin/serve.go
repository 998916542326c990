package standin

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Serve answers a GET or HEAD for content under a strong entity tag, given without
// quotes: ranges, If-Range, and what the fault says.
func Serve(w http.ResponseWriter, r *http.Request, content Content, tag string, fault Fault) {
	if fault.answers(w) {
		return
	}
	header := w.Header()
	switch fault.Kind {
	case Truncate:
		content = &shorter{Content: content, size: min(fault.At, content.Size())}
	case WrongByte:
		content = &flipped{Content: content, at: fault.At}
	case Changed:
		if start(r.Header.Get("Range")) >= fault.At {
			content, tag = &flipped{Content: content, at: fault.At}, "changed-"+tag
		}
	case NoRanges:
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	case Encoded:
		header.Set("Content-Encoding", "gzip")
	case Shifted:
		shifted(w, r, content, tag)
		return
	case Reset, Cut, Hold, Slow:
		w = &breaking{ResponseWriter: w, request: r, fault: fault, left: fault.At}
	}
	header.Set("ETag", `"`+tag+`"`)
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/octet-stream")
	}
	if fault.Kind == NoLength {
		withoutLength(w, r, content)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(content, 0, content.Size()))
}

// withoutLength closes the connection behind the body instead of telling its size.
func withoutLength(w http.ResponseWriter, r *http.Request, content Content) {
	w.Header().Set("Transfer-Encoding", "identity")
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, io.NewSectionReader(content, 0, content.Size()))
	}
}

func shifted(w http.ResponseWriter, r *http.Request, content Content, tag string) {
	from := min(start(r.Header.Get("Range"))+1, content.Size()-1)
	w.Header().Set("ETag", `"`+tag+`"`)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, content.Size()-1, content.Size()))
	w.Header().Set("Content-Length", strconv.FormatInt(content.Size()-from, 10))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = io.Copy(w, io.NewSectionReader(content, from, content.Size()-from))
}

// start is where a range begins, 0 without one.
func start(value string) int64 {
	first, _, _ := strings.Cut(strings.TrimPrefix(value, "bytes="), "-")
	offset, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return 0
	}
	return offset
}

// shorter is the beginning of content.
type shorter struct {
	Content
	size int64
}

func (s *shorter) Size() int64 { return s.size }

// flipped is content with one byte changed.
type flipped struct {
	Content
	at int64
}

func (f *flipped) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.Content.ReadAt(p, offset)
	if f.at >= offset && f.at < offset+int64(n) {
		p[f.at-offset] ^= 0xff
	}
	return n, err
}
