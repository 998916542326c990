package huggingfacestandin

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

// LFSBytes is the size from which on a file is kept as a large one, unless
// Repository.LFSBytes says otherwise: 10 MiB, as the Hub advises.
const LFSBytes = 10 << 20

// Repository is a model repository at one commit.
type Repository struct {
	// Name is "owner/repo".
	Name string
	// Commit is the commit of main, 40 hex digits.
	Commit string
	// Refs are further branches and tags of the same commit.
	Refs []string
	// Files by path.
	Files map[string]standin.Content
	// LFSBytes is the size in bytes from which on a file is a large one.
	LFSBytes int64
	// Private repositories do not exist for those without a token.
	Private bool
	// Gated repositories show their list, and their files to Tokens only.
	Gated bool
	// Tokens may read a private or gated repository.
	Tokens []string
	// PipelineTag, License and TaskTypes are facts of the model card.
	PipelineTag, License string
	// TaskTypes are those of the model index.
	TaskTypes []string
	// NoSHA leaves the commit out of the info.
	NoSHA bool
}

// Hub is the stand-in: the site, and the host of large files.
type Hub struct {
	// Site and CDN have switches for faults and records of requests.
	Site, CDN *standin.Server
	// PageSize is how many entries one page of a tree has; 1000 at first.
	PageSize int

	mutex        sync.Mutex
	repositories map[string]*repository
	tokens       map[string]string // name of the person by token
	epoch        int               // signatures of an older one have expired
}

// repository is one that is prepared for serving.
type repository struct {
	Repository
	paths []string // sorted
	facts map[string]file
}

type file struct {
	content standin.Content
	lfs     bool
	sha256  string
	blob    string // git object id of the content or of the pointer
	pointer string // what git holds instead of a large file
}

// Start starts the two servers; Close it.
func Start() (*Hub, error) {
	h := &Hub{PageSize: 1000, repositories: map[string]*repository{}, tokens: map[string]string{}}
	var err error
	if h.Site, err = standin.Start(h.serveSite); err != nil {
		return nil, err
	}
	if h.CDN, err = standin.Start(h.serveCDN); err != nil {
		h.Site.Close()
		return nil, err
	}
	return h, nil
}

// Close ends both servers.
func (h *Hub) Close() {
	h.Site.Close()
	h.CDN.Close()
}

// URL is the root of the site.
func (h *Hub) URL() *url.URL { return h.Site.URL() }

// Addresses are those of both servers.
func (h *Hub) Addresses() []netip.AddrPort {
	return []netip.AddrPort{h.Site.Address(), h.CDN.Address()}
}

// Hosts are host:port of both servers.
func (h *Hub) Hosts() []string {
	return []string{h.Site.Address().String(), h.CDN.Address().String()}
}

// AddToken makes a token of a person.
func (h *Hub) AddToken(token, person string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.tokens[token] = person
}

// Add adds a repository, or puts it in the place of the one of that name.
func (h *Hub) Add(added Repository) {
	if added.LFSBytes == 0 {
		added.LFSBytes = LFSBytes
	}
	made := &repository{Repository: added, facts: map[string]file{}}
	for name, content := range added.Files {
		facts := file{content: content, lfs: content.Size() >= added.LFSBytes}
		if facts.lfs {
			facts.sha256 = standin.SHA256(content)
			facts.pointer = fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", facts.sha256, content.Size())
			facts.blob = standin.GitBlob(standin.Bytes([]byte(facts.pointer)))
		} else {
			facts.blob = standin.GitBlob(content)
		}
		made.facts[name] = facts
		made.paths = append(made.paths, name)
	}
	slices.Sort(made.paths)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.repositories[added.Name] = made
}

// Expire makes all addresses of large files that were given out so far invalid.
func (h *Hub) Expire() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.epoch++
}

func (h *Hub) serveSite(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	for i, escaped := range parts {
		parts[i], _ = url.PathUnescape(escaped)
	}
	fault := h.Site.Faults.Strike(r)
	if fault.Kind == standin.Status || fault.Kind == standin.Redirect {
		standin.Serve(w, r, nil, "", fault)
		return
	}
	w.Header().Set("X-Request-Id", "Root=1-stand-in")
	switch {
	case path.Join(parts...) == "api/whoami-v2":
		h.whoami(w, r)
	case len(parts) >= 4 && parts[0] == "api" && parts[1] == "models":
		h.api(w, r, parts[2]+"/"+parts[3], parts[4:], fault)
	case len(parts) >= 5 && parts[2] == "resolve":
		h.resolve(w, r, parts[0]+"/"+parts[1], parts[3], strings.Join(parts[4:], "/"), fault)
	default:
		refuse(w, http.StatusNotFound, "RepoNotFound", "Sorry, we can't find the page you are looking for.")
	}
}

// refuse answers as the Hub does: the code in a header, the text in both.
func refuse(w http.ResponseWriter, status int, code, text string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", text)
	writeJSON(w, status, map[string]string{"error": text})
}

func bearer(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

// find looks a repository and a revision up for whoever asks; it has answered when
// it returns nil.
func (h *Hub) find(w http.ResponseWriter, r *http.Request, name, revision string, files bool) *repository {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	token := bearer(r)
	if _, known := h.tokens[token]; token != "" && !known {
		refuse(w, http.StatusUnauthorized, "", "Invalid credentials in Authorization header")
		return nil
	}
	found := h.repositories[name]
	member := found != nil && slices.Contains(found.Tokens, token)
	switch {
	case found == nil && token != "":
		refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
	case found == nil, found.Private && !member:
		refuse(w, http.StatusUnauthorized, "RepoNotFound", "Repository not found")
	case files && found.Gated && token == "":
		refuse(w, http.StatusUnauthorized, "GatedRepo", "Access to model "+name+" is restricted. You must have access to it and be authenticated to access it. Please log in.")
	case files && found.Gated && !member:
		refuse(w, http.StatusForbidden, "GatedRepo", "Access to model "+name+" is restricted and you are not in the authorized list.")
	case revision != "main" && revision != "HEAD" && revision != found.Commit && !slices.Contains(found.Refs, revision):
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
	default:
		return found
	}
	return nil
}
