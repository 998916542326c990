package huggingfacestandin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func (h *Hub) whoami(w http.ResponseWriter, r *http.Request) {
	h.mutex.Lock()
	person, known := h.tokens[bearer(r)]
	h.mutex.Unlock()
	if !known {
		refuse(w, http.StatusUnauthorized, "", "Invalid user token.")
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"type": "user", "id": "65000000000000000000000a", "name": person, "fullname": person, "email": person + "@example.org",
		"emailVerified": true, "isPro": false, "canPay": false, "periodEnd": nil, "avatarUrl": "", "orgs": []any{},
		"auth": map[string]any{"type": "access_token", "accessToken": map[string]any{"displayName": "stand-in", "role": "read", "createdAt": "2026-01-01T00:00:00.000Z"}},
	})
}

// api answers /api/models/<owner>/<repo>/...
func (h *Hub) api(w http.ResponseWriter, r *http.Request, name string, rest []string, fault standin.Fault) {
	verb, revision := "revision", "main"
	if len(rest) > 0 {
		verb = rest[0]
	}
	if len(rest) > 1 {
		revision = rest[1]
	}
	found := h.find(w, r, name, revision, false)
	if found == nil {
		return
	}
	var answer any
	switch {
	case verb == "revision" && len(rest) <= 2:
		answer = found.info()
	case verb == "tree":
		page, next, refused := found.tree(path.Join(rest[min(2, len(rest)):]...), r, h.PageSize)
		if refused {
			refuse(w, http.StatusNotFound, "EntryNotFound", "the folder does not exist")
			return
		}
		if next != "" {
			w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next"`, h.URL(), r.URL.EscapedPath(), next))
		}
		answer = page
	case verb == "paths-info" && r.Method == http.MethodPost:
		answer = found.pathsInfo(r)
	default:
		refuse(w, http.StatusNotFound, "", "Not found")
		return
	}
	data, err := json.Marshal(answer)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "", "Internal Error")
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	standin.Serve(w, r, standin.Bytes(data), standin.GitBlob(standin.Bytes(data)), fault)
}

func (r *repository) info() map[string]any {
	owner, _, _ := strings.Cut(r.Name, "/")
	siblings := make([]map[string]string, 0, len(r.paths))
	for _, name := range r.paths {
		siblings = append(siblings, map[string]string{"rfilename": name})
	}
	results := make([]map[string]any, 0, len(r.TaskTypes))
	for _, task := range r.TaskTypes {
		results = append(results, map[string]any{"task": map[string]string{"type": task}})
	}
	var gated any = false
	if r.Gated {
		gated = "auto"
	}
	info := map[string]any{
		"_id": "65000000000000000000000b", "id": r.Name, "modelId": r.Name, "author": owner, "private": r.Private, "gated": gated, "disabled": false,
		"downloads": 0, "likes": 0, "lastModified": "2026-01-01T00:00:00.000Z", "createdAt": "2026-01-01T00:00:00.000Z", "tags": []string{},
		"pipeline_tag": r.PipelineTag, "siblings": siblings,
		"cardData": map[string]any{"license": r.License, "model-index": []any{map[string]any{"name": r.Name, "results": results}}},
	}
	if !r.NoSHA {
		info["sha"] = r.Commit
	}
	return info
}

// entry is what the tree says about a path.
func (r *repository) entry(name string) map[string]any {
	known := r.facts[name]
	listed := map[string]any{"type": "file", "oid": known.blob, "size": known.content.Size(), "path": name}
	if known.lfs {
		listed["lfs"] = map[string]any{"oid": known.sha256, "size": known.content.Size(), "pointerSize": len(known.pointer)}
	}
	return listed
}

// tree lists a folder, all below it when the query says recursive, one page of it.
func (r *repository) tree(folder string, request *http.Request, size int) (page []any, next string, refused bool) {
	query := request.URL.Query()
	recursive := query.Get("recursive") == "true" || query.Get("recursive") == "1"
	var entries []any
	var folders []string
	for _, name := range r.paths {
		below, inside := strings.CutPrefix(name, folder+"/")
		if folder == "" {
			below, inside = name, true
		}
		if !inside {
			continue
		}
		for parent := path.Dir(below); parent != "." && parent != "/"; parent = path.Dir(parent) {
			if full := path.Join(folder, parent); !slices.Contains(folders, full) && (recursive || !strings.Contains(parent, "/")) {
				folders = append(folders, full)
				entries = append(entries, map[string]any{"type": "directory", "oid": r.Commit, "size": 0, "path": full})
			}
		}
		if recursive || !strings.Contains(below, "/") {
			entries = append(entries, r.entry(name))
		}
	}
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && limit > 0 {
		size = min(size, limit)
	}
	cursor, _ := base64.URLEncoding.DecodeString(query.Get("cursor"))
	first, _ := strconv.Atoi(string(cursor))
	first = min(max(first, 0), len(entries))
	last := min(first+size, len(entries))
	if last < len(entries) {
		query.Set("cursor", base64.URLEncoding.EncodeToString([]byte(strconv.Itoa(last))))
		next = query.Encode()
	}
	return slices.Clone(entries[first:last]), next, len(entries) == 0 && folder != ""
}

func (r *repository) pathsInfo(request *http.Request) []any {
	var asked struct {
		Paths  []string `json:"paths"`
		Expand bool     `json:"expand"`
	}
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<20))
	if err != nil || json.Unmarshal(body, &asked) != nil {
		return []any{}
	}
	answer := []any{}
	for _, name := range asked.Paths {
		if _, known := r.facts[name]; !known {
			continue
		}
		listed := r.entry(name)
		if asked.Expand {
			listed["lastCommit"] = map[string]string{"id": r.Commit, "title": "Add the files", "date": "2026-01-01T00:00:00.000Z"}
		}
		answer = append(answer, listed)
	}
	return answer
}
