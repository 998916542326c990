package estimates

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Reference names a model repository on Hugging Face.
type Reference struct {
	// Owner is the person or organisation, Name the model.
	Owner, Name string
}

// sourceReference is the Source of problems with a reference.
const sourceReference = "reference"

// maxReference bounds a reference, in bytes (contract/rulings.md 1, URLs).
const maxReference = 2048

var (
	// referencePart is what owner and name look like (contract/appliance.md E.5).
	referencePart = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	// referenceViews are the pages below a model that people copy the address of.
	referenceViews = []string{"resolve", "blob", "tree"}
	// referenceHosts serve models.
	referenceHosts = []string{"huggingface.co", "www.huggingface.co"}
	// notOwners are first segments of Hugging Face addresses that lead to something else than models.
	notOwners = []string{"api", "collections", "datasets", "docs", "models", "organizations", "papers", "spaces"}
)

const referenceForms = "must be hf://owner/model, https://huggingface.co/owner/model or owner/model"

// ParseReference reads the three ways in which people name a model repository
// (contract/appliance.md E.5): hf://owner/model, an https address of
// huggingface.co with or without a view (resolve, blob, tree) behind the model,
// and owner/model. Query and fragment of an address are dropped. The error is a
// *Problem.
func ParseReference(text string) (Reference, error) {
	refuse := func(rule string) (Reference, error) {
		// The query may hold a token: it is not repeated.
		withoutQuery, _, _ := strings.Cut(text, "?")
		return Reference{}, &Problem{Source: sourceReference, Field: "url", Rule: rule, Value: shown(withoutQuery)}
	}
	if len(text) > maxReference {
		return refuse("may not be longer than 2048 bytes")
	}
	rest := strings.TrimSpace(text)
	scheme, behind, hasScheme := strings.Cut(rest, "://")
	switch {
	case !hasScheme:
	case strings.EqualFold(scheme, "hf"):
		rest = behind
	case strings.EqualFold(scheme, "https"):
		address, err := url.Parse(rest)
		if err != nil || address.User != nil || !slices.Contains(referenceHosts, strings.ToLower(address.Host)) {
			return refuse("must be an address of huggingface.co without credentials or port")
		}
		rest = strings.TrimSuffix(strings.TrimPrefix(address.EscapedPath(), "/"), "/")
		if parts := strings.Split(rest, "/"); len(parts) > 2 && slices.Contains(referenceViews, parts[2]) {
			rest = parts[0] + "/" + parts[1]
		}
	default:
		return refuse(referenceForms)
	}
	owner, name, _ := strings.Cut(rest, "/")
	if !referencePart.MatchString(owner) || !referencePart.MatchString(name) || slices.Contains(notOwners, strings.ToLower(owner)) {
		return refuse(referenceForms)
	}
	return Reference{Owner: owner, Name: name}, nil
}

// Repo is owner/model, the repo of an Estimate.
func (r Reference) Repo() string { return r.Owner + "/" + r.Name }

// HF is the form that activations store (contract/appliance.md B.4).
func (r Reference) HF() string { return "hf://" + r.Repo() }

// SourceURL is the page of the model, the sourceUrl of an Estimate.
func (r Reference) SourceURL() string { return "https://huggingface.co/" + r.Repo() }
