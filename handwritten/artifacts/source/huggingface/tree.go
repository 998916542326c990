package huggingface

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/fetch"
)

// maxPages bounds the pages of a list; the Hub sends up to 1000 entries on one.
const maxPages = 1000

var (
	sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)
	gitHex    = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// entry is a file as the tree API lists it.
type entry struct {
	Type string `json:"type"`
	OID  string `json:"oid"`
	Size *int64 `json:"size"`
	Path string `json:"path"`
	LFS  *struct {
		OID  string `json:"oid"`
		Size *int64 `json:"size"`
	} `json:"lfs"`
}

// list reads all pages of the tree at a commit.
func (h *Hub) list(ctx context.Context, reference Reference, pinned string) ([]source.File, error) {
	at := h.at("api", "models", reference.Owner, reference.Name, "tree", pinned)
	at.RawQuery = "recursive=true&expand=false"
	left := int64(source.MaxListBytes)
	var files []source.File
	for page := 1; ; page++ {
		data, header, err := h.get(ctx, at, left, reference)
		if err != nil {
			return nil, err
		}
		left -= int64(len(data))
		entries, err := parseTree(data)
		if err != nil {
			return nil, source.Fail(conditions.ModelReasonPublicationFailed, nil, "listing %s: %v", reference.Repository(), err)
		}
		for _, listed := range entries {
			files = append(files, h.file(reference, pinned, listed))
		}
		if len(files) > source.MaxFiles {
			break // Arrange says so
		}
		next := nextPage(header)
		if next == "" {
			break
		}
		if page >= maxPages || next == at.RawQuery {
			return nil, source.Fail(conditions.ModelReasonPublicationFailed, source.ErrTooLarge, "listing %s: the list does not end", reference.Repository())
		}
		// Only the query counts: a mirror may name the Hub itself here.
		at.RawQuery = next
	}
	if len(files) == 0 {
		return nil, source.Fail(conditions.ModelReasonUnsupportedFormat, nil, "listing %s: it has no files", reference.Repository())
	}
	return source.Arrange(files)
}

// parseTree reads one page and keeps the files.
func parseTree(data []byte) ([]entry, error) {
	var entries []entry
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, errors.New("the answer is not the JSON of a list of files")
	}
	files := entries[:0]
	for _, listed := range entries {
		if listed.Type != "file" {
			continue
		}
		if listed.LFS != nil {
			listed.LFS.OID = strings.TrimPrefix(listed.LFS.OID, "sha256:")
			if !sha256Hex.MatchString(listed.LFS.OID) {
				return nil, errors.New("a file has an LFS object id that is no SHA-256")
			}
			if listed.LFS.Size != nil {
				if listed.Size != nil && *listed.Size != *listed.LFS.Size {
					return nil, errors.New("a file has two different sizes")
				}
				listed.Size = listed.LFS.Size
			}
		}
		if listed.Size == nil || *listed.Size < 0 {
			return nil, errors.New("a file has no size")
		}
		files = append(files, listed)
	}
	return files, nil
}

// nextPage is the query of the link to the next page, "" when there is none
// (RFC 8288).
func nextPage(header http.Header) string {
	for _, link := range header.Values("Link") {
		for rest := link; ; {
			_, after, found := strings.Cut(rest, "<")
			if !found {
				break
			}
			target, parameters, found := strings.Cut(after, ">")
			if !found {
				break
			}
			own, next, _ := strings.Cut(parameters, ",")
			rest = next
			if !strings.Contains(strings.ReplaceAll(own, " ", ""), `;rel="next"`) {
				continue
			}
			if u, err := url.Parse(target); err == nil {
				return u.RawQuery
			}
		}
	}
	return ""
}

// file makes a listed file one that can be opened.
func (h *Hub) file(reference Reference, pinned string, listed entry) source.File {
	parts := append([]string{reference.Owner, reference.Name, "resolve", pinned}, strings.Split(listed.Path, "/")...)
	made := source.File{Path: listed.Path, Size: *listed.Size}
	switch {
	case listed.LFS != nil:
		made.SHA256 = listed.LFS.OID
	case gitHex.MatchString(listed.OID):
		made.GitBlob = listed.OID
	}
	check := func(answer *http.Response) error { return checkHead(answer.Header, made, pinned) }
	remote := &fetch.Remote{
		Client: h.client, Path: listed.Path, URL: h.at(parts...), Size: made.Size, Check: check,
		Token:   func(context.Context) (string, error) { return h.token, nil },
		Explain: func(answer *http.Response) error { return h.explain(answer, reference, listed.Path) },
	}
	made.Open = remote.Open
	made.Confirm = func(ctx context.Context) error { return h.confirm(ctx, remote, made) }
	return made
}

// checkHead compares what "resolve" says about a file with the list.
func checkHead(header http.Header, file source.File, pinned string) error {
	differs := func(what, got string) error {
		return source.Broken(source.ErrChanged, "opening %s: the Hub now has another %s, %.80q", file.Path, what, got)
	}
	if got := header.Get("X-Repo-Commit"); got != "" && got != pinned {
		return differs("commit", got)
	}
	if got := header.Get("X-Linked-Size"); got != "" && got != strconv.FormatInt(file.Size, 10) {
		return differs("size", got)
	}
	if got := strings.Trim(header.Get("X-Linked-Etag"), `"`); got != "" && file.SHA256 != "" && got != file.SHA256 {
		return differs("digest", got)
	}
	return nil
}

// confirm asks for the head of a file, without going to the host of its content.
func (h *Hub) confirm(ctx context.Context, remote *fetch.Remote, file source.File) error {
	answer, err := h.client.Do(ctx, fetch.Request{
		Method: http.MethodHead, URL: remote.URL, Token: h.token,
		Follow: func(answer *http.Response, to *url.URL) (bool, error) {
			return to.Host == h.endpoint.Host || answer.Header.Get("X-Linked-Size") == "", remote.Check(answer)
		},
	})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode >= 300 && answer.StatusCode < 400: // not followed: it has told its size
		return nil
	case answer.StatusCode != http.StatusOK:
		return remote.Explain(answer.Response)
	case answer.ContentLength < 0:
		return source.Fail(conditions.ModelReasonPublicationFailed, nil, "asking for the size of %s: the Hub does not tell", file.Path)
	case answer.ContentLength != file.Size:
		return source.Broken(source.ErrChanged, "asking for the size of %s: it has %d bytes, listed are %d", file.Path, answer.ContentLength, file.Size)
	}
	return remote.Check(answer.Response)
}
