package huggingfacestandin

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

// resolve answers /<owner>/<repo>/resolve/<revision>/<path>.
func (h *Hub) resolve(w http.ResponseWriter, r *http.Request, name, revision, filePath string, fault standin.Fault) {
	found := h.find(w, r, name, revision, true)
	if found == nil {
		return
	}
	asked, known := found.facts[filePath]
	if !known {
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	header := w.Header()
	header.Set("X-Repo-Commit", found.Commit)
	header.Set("Accept-Ranges", "bytes")
	if !asked.lfs {
		standin.Serve(w, r, asked.content, asked.blob, fault)
		return
	}
	header.Set("X-Linked-Size", strconv.FormatInt(asked.content.Size(), 10))
	header.Set("X-Linked-Etag", `"`+asked.sha256+`"`)
	header.Set("ETag", `"`+asked.sha256+`"`)
	location := h.CDN.URL().JoinPath("repos", url.PathEscape(name), asked.sha256)
	h.mutex.Lock()
	location.RawQuery = url.Values{"X-Amz-Expires": {"3600"}, "X-Amz-Signature": {strconv.Itoa(h.epoch)}}.Encode()
	h.mutex.Unlock()
	header.Set("Location", location.String())
	w.WriteHeader(http.StatusFound)
}

// serveCDN serves a large file to whoever has a signed address. Storage like this
// refuses a second way to authenticate, so a token that leaks here is an error.
func (h *Hub) serveCDN(w http.ResponseWriter, r *http.Request) {
	fault := h.CDN.Faults.Strike(r)
	if fault.Kind == standin.Status || fault.Kind == standin.Redirect {
		standin.Serve(w, r, nil, "", fault)
		return
	}
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "InvalidRequest: only one auth mechanism allowed", http.StatusBadRequest)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	h.mutex.Lock()
	valid := r.URL.Query().Get("X-Amz-Signature") == strconv.Itoa(h.epoch)
	var found *repository
	if len(parts) == 3 {
		name, _ := url.PathUnescape(parts[1])
		found = h.repositories[name]
	}
	h.mutex.Unlock()
	if !valid || found == nil {
		http.Error(w, "AccessDenied: Request has expired", http.StatusForbidden)
		return
	}
	for _, known := range found.facts {
		if known.lfs && known.sha256 == parts[2] {
			// The tag of the storage is not the digest of the file.
			standin.Serve(w, r, known.content, "storage-"+known.sha256[:32], fault)
			return
		}
	}
	http.Error(w, "NoSuchKey", http.StatusNotFound)
}
