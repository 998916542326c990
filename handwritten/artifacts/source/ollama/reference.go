package ollama

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// Reference names a model of the registry.
type Reference struct {
	// Namespace is "library" for the models of Ollama itself.
	Namespace string
	// Name and Tag are "qwen3" and "8b" of "qwen3:8b".
	Name, Tag string
	// Layer, when not empty, is the digest of the model layer that the tag must
	// still name, such as the one in the Revision of an earlier Snapshot:
	// "sha256:" and 64 hex digits.
	Layer string
}

// String is what people call the model: "ollama.com/library/qwen3:8b".
func (r Reference) String() string {
	return "ollama.com/" + r.Namespace + "/" + r.Name + ":" + r.Tag
}

// library is the namespace of the models of Ollama itself, latest the tag that is
// meant when none is given.
const (
	library = "library"
	latest  = "latest"
)

// maxReference bounds a URL (contract/rulings.md 1, bounds).
const maxReference = 2048

// word is a namespace, name or tag.
var word = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,79}$`)

var hosts = []string{"ollama.com", "www.ollama.com"}

// Handles tells whether a text is a URL of the registry.
func Handles(text string) bool {
	if strings.HasPrefix(text, "ollama://") {
		return true
	}
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && slices.Contains(hosts, strings.ToLower(u.Hostname()))
}

// Parse reads a reference:
//
//	https://ollama.com/library/name[:tag]
//	ollama://[namespace/]name[:tag]
//	[namespace/]name[:tag]
//
// The last two may end in @ and the digest of the model layer that is meant.
// www.ollama.com is the same host; query and fragment are ignored
// (contract/models.md J.1, 4).
func Parse(text string) (Reference, error) {
	refuse := func(rule string) (Reference, error) {
		shown, _, _ := strings.Cut(text, "?")
		if u, err := url.Parse(shown); err == nil && u.User != nil {
			u.User = nil
			shown = u.String()
		}
		return Reference{}, source.Fail(conditions.ModelReasonUnsupportedSource, nil, "Ollama reference %.200q: %s", shown, rule)
	}
	if len(text) > maxReference {
		return refuse("it is too long")
	}
	rest, short := strings.CutPrefix(text, "ollama://")
	if !short && strings.Contains(text, "://") {
		u, err := url.Parse(text)
		switch {
		case err != nil:
			return refuse("it is no URL")
		case u.Scheme != "https":
			return refuse("only https is supported")
		case u.User != nil || u.Port() != "" && u.Port() != "443" || !slices.Contains(hosts, strings.ToLower(u.Hostname())):
			return refuse("the host is not that of Ollama")
		}
		rest = strings.TrimSuffix(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
		if !strings.HasPrefix(rest, library+"/") {
			return refuse("only library/name and library/name:tag are supported")
		}
	}
	reference := Reference{Namespace: library, Tag: latest}
	if namespace, below, found := strings.Cut(rest, "/"); found {
		reference.Namespace, rest = namespace, below
	}
	if before, layer, pinned := strings.Cut(rest, "@"); pinned {
		if !digestPattern.MatchString(layer) {
			return refuse("behind @ stands no digest of a layer")
		}
		rest, reference.Layer = before, layer
	}
	name, tag, tagged := strings.Cut(rest, ":")
	reference.Name = name
	if tagged {
		reference.Tag = tag
	}
	for _, value := range []string{reference.Namespace, reference.Name, reference.Tag} {
		if !word.MatchString(value) {
			return refuse("namespace, name and tag have 1 to 80 letters, digits and . _ -, and nothing may follow")
		}
	}
	return reference, nil
}
