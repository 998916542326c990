package huggingface

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// Reference names a repository, a revision and maybe one file.
type Reference struct {
	// Owner and Name are "owner" and "repo" of "owner/repo".
	Owner, Name string
	// Revision is a branch, tag or commit; "" for the main branch.
	Revision string
	// File is the path of one file, "" for the whole repository.
	File string
}

// Repository is "owner/repo".
func (r Reference) Repository() string { return r.Owner + "/" + r.Name }

const (
	// maxPart bounds owner and repository name; the Hub's own limit.
	maxPart = 96
	// maxRevision bounds a revision in bytes.
	maxRevision = 255
	// maxReference bounds a URL (contract/rulings.md 1, bounds).
	maxReference = 2048
)

var (
	part = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	// commit is a full commit id; short ones are not unique for ever.
	commit = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// notOwners are first path segments of the Hub that are no owner of models
// (contract/models.md C.2).
var notOwners = []string{"api", "blog", "collections", "datasets", "docs", "join", "login", "models", "organizations",
	"papers", "posts", "pricing", "settings", "spaces", "tasks"}

// hosts of the Hub's site (contract/models.md C.2).
var hosts = []string{"huggingface.co", "www.huggingface.co", "hf.co"}

// Handles tells whether a text is a URL of the Hub.
func Handles(text string) bool {
	if strings.HasPrefix(text, "hf://") {
		return true
	}
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && slices.Contains(hosts, strings.ToLower(u.Hostname()))
}

// Parse reads a reference:
//
//	https://huggingface.co/owner/repo[?revision=rev][&file=path]
//	https://huggingface.co/owner/repo/{tree,blob,resolve}/rev[/path]
//	hf://owner/repo[@rev][/path]
//	owner/repo[@rev]
//
// The hosts www.huggingface.co and hf.co are the same. A revision in the path wins
// over one in the query; one with a slash has to stand in the query, or with %2F
// in the path.
func Parse(text string) (Reference, error) {
	if len(text) > maxReference {
		return Reference{}, refuse(text, "it is longer than %d bytes", maxReference)
	}
	var reference Reference
	var err error
	switch {
	case strings.HasPrefix(text, "hf://"):
		reference, err = parseShort(text, strings.TrimPrefix(text, "hf://"), true)
	case strings.Contains(text, "://"):
		reference, err = parseURL(text)
	default:
		reference, err = parseShort(text, text, false)
	}
	if err != nil {
		return Reference{}, err
	}
	return reference, reference.check(text)
}

// refuse does not repeat the query: somebody may have put a token there.
func refuse(text, rule string, arguments ...any) error {
	shown, _, _ := strings.Cut(text, "?")
	if u, err := url.Parse(shown); err == nil && u.User != nil {
		u.User = nil
		shown = u.String()
	}
	return source.Fail(conditions.ModelReasonUnsupportedSource, nil, "Hugging Face reference %.200q: "+rule, append([]any{shown}, arguments...)...)
}

func parseURL(text string) (Reference, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Reference{}, refuse("", "it is no URL")
	}
	switch {
	case u.Scheme != "https":
		return Reference{}, refuse(text, "only https is supported")
	case u.User != nil:
		return Reference{}, refuse(text, "a URL with a user is not supported; give a token in a Secret")
	case u.Port() != "" && u.Port() != "443", !slices.Contains(hosts, strings.ToLower(u.Hostname())):
		return Reference{}, refuse(text, "the host is not that of the Hub")
	}
	segments := strings.Split(strings.Trim(u.EscapedPath(), "/"), "/")
	for i, segment := range segments {
		if segments[i], err = url.PathUnescape(segment); err != nil {
			return Reference{}, refuse(text, "its path is no URL path")
		}
	}
	if len(segments) < 2 {
		return Reference{}, refuse(text, "it names no repository; it must contain owner/repo")
	}
	query := u.Query()
	reference := Reference{Owner: segments[0], Name: segments[1], Revision: query.Get("revision"), File: query.Get("file")}
	if len(segments) == 2 {
		return reference, nil
	}
	verb := segments[2]
	if verb != "tree" && verb != "blob" && verb != "resolve" {
		return Reference{}, refuse(text, "behind owner/repo only tree, blob and resolve are supported")
	}
	if len(segments) > 3 && segments[3] != "" {
		reference.Revision = segments[3]
	}
	if len(segments) > 4 && verb == "tree" {
		return Reference{}, refuse(text, "a folder of a repository cannot be taken alone; use include")
	}
	if len(segments) > 4 {
		reference.File = strings.Join(segments[4:], "/")
	}
	return reference, nil
}

func parseShort(text, rest string, file bool) (Reference, error) {
	owner, rest, found := strings.Cut(strings.TrimSuffix(rest, "/"), "/")
	if !found {
		return Reference{}, refuse(text, "it names no repository; it must contain owner/repo")
	}
	var reference Reference
	name, revision, pinned := strings.Cut(rest, "@")
	if !pinned || strings.Contains(name, "/") {
		name, reference.File, _ = strings.Cut(rest, "/")
	} else {
		if file {
			revision, reference.File, _ = strings.Cut(revision, "/")
		}
		if revision == "" {
			return Reference{}, refuse(text, "the revision behind @ is empty")
		}
		if revision, found = unescape(revision); !found {
			return Reference{}, refuse(text, "the revision is badly escaped")
		}
		reference.Revision = revision
	}
	if reference.File != "" && !file {
		return Reference{}, refuse(text, "it must be owner/repo or owner/repo@revision")
	}
	reference.Owner, reference.Name = owner, name
	return reference, nil
}

func unescape(text string) (string, bool) {
	plain, err := url.PathUnescape(text)
	return plain, err == nil
}

func (r Reference) check(text string) error {
	if slices.Contains(notOwners, strings.ToLower(r.Owner)) {
		return refuse(text, "%q is no owner of models", r.Owner)
	}
	for _, value := range []string{r.Owner, r.Name} {
		if len(value) > maxPart || !part.MatchString(value) || strings.Contains(value, "..") || strings.Contains(value, "--") {
			return refuse(text, "owner and repository have 1 to %d letters, digits and . _ -, neither -- nor ..", maxPart)
		}
	}
	if r.Revision != "" && !validRevision(r.Revision) {
		return refuse(text, "the revision %.80q is no name of a branch, tag or commit", r.Revision)
	}
	if r.File != "" {
		return source.CheckPath(r.File)
	}
	return nil
}

// validRevision follows the rules for names of git references
// (https://git-scm.com/docs/git-check-ref-format), as far as they matter here.
func validRevision(revision string) bool {
	return len(revision) <= maxRevision && !strings.ContainsAny(revision, " ~^:?*[\\\x7f") && !strings.Contains(revision, "..") &&
		!strings.Contains(revision, "//") && !strings.HasPrefix(revision, "/") && !strings.HasSuffix(revision, "/") && !strings.HasPrefix(revision, "-") &&
		!strings.ContainsFunc(revision, func(r rune) bool { return r < 0x20 })
}
