package huggingface

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/fetch"
)

// site is where the Hub stands; content is where it keeps large files.
const (
	site       = "https://huggingface.co"
	mainBranch = "main"
)

var content = []string{"huggingface.co", ".huggingface.co", ".hf.co"}

// Options say which Hub is asked, and as whom.
type Options struct {
	// Endpoint is https://huggingface.co when nil; the root of a mirror otherwise.
	Endpoint *url.URL
	// Token is the bearer token of a person, "" for none. It is sent to the
	// Endpoint only.
	Token string
	// Fetch says how; its Hosts are added to those of the Hub, or to the Endpoint.
	Fetch fetch.Options
}

// Hub reads repositories. It may be used by any number of goroutines.
type Hub struct {
	endpoint *url.URL
	token    string
	client   *fetch.Client
}

// New returns a Hub; Close it.
func New(options Options) *Hub {
	h := &Hub{endpoint: options.Endpoint, token: strings.TrimSpace(options.Token)}
	known := content
	if h.endpoint == nil {
		h.endpoint, _ = url.Parse(site) // a constant
	} else {
		known = []string{strings.ToLower(h.endpoint.Host)}
	}
	options.Fetch.Hosts = append(append([]string{}, known...), options.Fetch.Hosts...)
	h.client = fetch.New(options.Fetch)
	return h
}

// Close closes the connections that wait for another request.
func (h *Hub) Close() { h.client.Close() }

// Resolve pins a repository to the commit that its revision names now, and lists
// its files at that commit. Nothing after this call asks for the revision again.
func (h *Hub) Resolve(ctx context.Context, reference Reference) (source.Snapshot, error) {
	if strings.ContainsFunc(h.token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return source.Snapshot{}, source.Fail(conditions.ModelReasonAuthenticationFailed, source.ErrDenied,
			"asking for %s: the token has characters that no token has", reference.Repository())
	}
	facts, err := h.info(ctx, reference)
	if err != nil {
		return source.Snapshot{}, err
	}
	pinned, err := facts.pin(reference)
	if err != nil {
		return source.Snapshot{}, err
	}
	files, err := h.list(ctx, reference, pinned)
	if err != nil {
		return source.Snapshot{}, err
	}
	return source.Snapshot{
		Kind: source.KindHuggingFace, Origin: reference.Repository(), Revision: pinned,
		Files: files, Wanted: reference.File, Declared: facts.declared(),
	}, nil
}

// at is a URL below the endpoint; the parts are escaped one by one.
func (h *Hub) at(parts ...string) *url.URL {
	escaped := make([]string, 0, len(parts))
	for _, part := range parts {
		escaped = append(escaped, url.PathEscape(part))
	}
	return h.endpoint.JoinPath(escaped...)
}

// get reads an answer of the API.
func (h *Hub) get(ctx context.Context, at *url.URL, limit int64, reference Reference) ([]byte, http.Header, error) {
	request := fetch.Request{URL: at, Token: h.token, Header: http.Header{"Accept": {"application/json"}}}
	data, answer, err := h.client.ReadAll(ctx, request, limit, func(answer *fetch.Response) error {
		if answer.StatusCode == http.StatusOK {
			return nil
		}
		return h.explain(answer.Response, reference, "")
	})
	if err != nil {
		return nil, nil, err
	}
	return data, answer.Header, nil
}

// info asks about a repository at a revision.
func (h *Hub) info(ctx context.Context, reference Reference) (info, error) {
	revision := reference.Revision
	if revision == "" {
		revision = mainBranch
	}
	data, _, err := h.get(ctx, h.at("api", "models", reference.Owner, reference.Name, "revision", revision), source.MaxListBytes, reference)
	if err != nil {
		return info{}, err
	}
	facts, err := parseInfo(data)
	if err != nil {
		return info{}, source.Fail(conditions.ModelReasonPublicationFailed, nil, "asking about %s: %v", reference.Repository(), err)
	}
	return facts, nil
}

// pin is the commit that everything is read at. A name that may move is never
// taken for one (contract/models.md C.3, step Pin).
func (i info) pin(reference Reference) (string, error) {
	wanted := commit.MatchString(reference.Revision)
	switch {
	case i.SHA == "" && wanted:
		return reference.Revision, nil
	case !commit.MatchString(i.SHA):
		return "", source.Fail(conditions.ModelReasonPublicationFailed, nil,
			"pinning %s: the Hub names no commit; give the 40 hex digits of one as revision", reference.Repository())
	case wanted && i.SHA != reference.Revision:
		return "", source.Broken(source.ErrChanged, "pinning %s: asked for commit %s, the Hub answers for %s", reference.Repository(), reference.Revision, i.SHA)
	}
	return i.SHA, nil
}

// explain makes an error of a status; file is "" when the repository is meant.
func (h *Hub) explain(answer *http.Response, reference Reference, file string) error {
	what := reference.Repository()
	if file != "" {
		what = fmt.Sprintf("file %s of %s", file, what)
	}
	code := answer.Header.Get("X-Error-Code")
	denied := func(cause error, hint string) error {
		return source.Fail(conditions.ModelReasonAuthenticationFailed, cause, "asking for %s: %s", what, hint)
	}
	missing := func(text string) error {
		return source.Fail(conditions.ModelReasonSourceNotFound, source.ErrNotFound, "asking for %s: %s", what, text)
	}
	switch status := answer.StatusCode; status {
	case http.StatusUnauthorized, http.StatusForbidden:
		switch {
		case code == "GatedRepo":
			return denied(source.ErrGated, "accept its licence on its page of the Hub and give a token of the account that did")
		case h.token == "":
			return denied(source.ErrDenied, "it is private or does not exist; a token is needed to tell")
		}
		return denied(source.ErrDenied, "the token is not valid, may not read it, or it does not exist")
	case http.StatusNotFound, http.StatusGone:
		switch {
		case code == "RevisionNotFound":
			return missing(fmt.Sprintf("revision %.80q", reference.Revision))
		case code == "EntryNotFound":
			return missing("the file is not in this revision")
		}
		return missing("repository, revision or file")
	case http.StatusUnavailableForLegalReasons:
		return denied(source.ErrDenied, "the Hub does not give it out for legal reasons")
	default:
		return source.Fail(conditions.ModelReasonPublicationFailed, nil, "asking for %s: the Hub answers %d %s", what, status, http.StatusText(status))
	}
}

// info is what the API says about a repository; the rest is ignored.
type info struct {
	SHA         string          `json:"sha"`
	PipelineTag json.RawMessage `json:"pipeline_tag"`
	CardData    json.RawMessage `json:"cardData"`
	ModelIndex  json.RawMessage `json:"model-index"`
}

func parseInfo(data []byte) (info, error) {
	var facts info
	if err := json.Unmarshal(data, &facts); err != nil {
		return info{}, errors.New("the answer is not the JSON of a model")
	}
	return facts, nil
}

const (
	// maxFact bounds one text of the model card in bytes, maxTasks their number.
	maxFact  = 128
	maxTasks = 32
)

// declared are the facts of the model card. People write it by hand, so parts with
// an unexpected shape are left out.
func (i info) declared() source.Declared {
	var card struct {
		License    json.RawMessage `json:"license"`
		ModelIndex json.RawMessage `json:"model-index"`
	}
	_ = json.Unmarshal(i.CardData, &card)
	facts := source.Declared{PipelineTag: text(i.PipelineTag), License: text(card.License)}
	for _, index := range []json.RawMessage{card.ModelIndex, i.ModelIndex} {
		if facts.TaskTypes = taskTypes(index); len(facts.TaskTypes) > 0 {
			break
		}
	}
	return facts
}

// text is a string, or the first of a list of strings; "" for anything else.
func text(raw json.RawMessage) string {
	var one string
	if json.Unmarshal(raw, &one) != nil {
		var many []string
		if json.Unmarshal(raw, &many) != nil || len(many) == 0 {
			return ""
		}
		one = many[0]
	}
	if one = strings.TrimSpace(one); len(one) > maxFact {
		return ""
	}
	return one
}

func taskTypes(raw json.RawMessage) []string {
	var index []struct {
		Results []struct {
			Task struct {
				Type json.RawMessage `json:"type"`
			} `json:"task"`
		} `json:"results"`
	}
	if json.Unmarshal(raw, &index) != nil {
		return nil
	}
	var types []string
	seen := map[string]bool{}
	for _, model := range index {
		for _, result := range model.Results {
			if name := text(result.Task.Type); name != "" && !seen[name] && len(types) < maxTasks {
				seen[name] = true
				types = append(types, name)
			}
		}
	}
	return types
}
