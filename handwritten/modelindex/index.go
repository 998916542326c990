package modelindex

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"magicstick.dev/operator/handwritten/kube"
)

// provider is the name under which clients know LiteLLM.
const provider = "litellm"

// Entry is one model that can be used now.
type Entry struct {
	// ContextWindow in tokens; 0 when nobody says.
	ContextWindow int64 `json:"contextWindow,omitempty"`
	// ID is what clients ask LiteLLM for.
	ID string `json:"id"`
	// LiteLLM says where LiteLLM sends requests.
	LiteLLM EntryRoute `json:"litellm"`
	// Managed tells that the appliance put it into LiteLLM.
	Managed bool `json:"managed"`
	// MaxOutputTokens of one answer; 0 when nobody says.
	MaxOutputTokens int64 `json:"maxOutputTokens,omitempty"`
	// ModelRef is the ID with the provider's name, as agents write it.
	ModelRef string `json:"modelRef"`
	// Name for people.
	Name string `json:"name"`
	// Provider is litellm.
	Provider string `json:"provider"`
	// Source is where the model runs.
	Source Source `json:"source"`
	// Type is chat, embedding, or what LiteLLM calls it.
	Type string `json:"type"`
}

// EntryRoute is the way behind LiteLLM.
type EntryRoute struct {
	// APIBase without user names, passwords and queries; may be empty.
	APIBase string `json:"apiBase,omitempty"`
	// Model with LiteLLM's name of the provider.
	Model string `json:"model"`
}

// Index is what can be used now.
type Index struct {
	// Models sorted by type and ID, each ID once.
	Models []Entry
	// DefaultChat and DefaultEmbedding are IDs, or empty.
	DefaultChat, DefaultEmbedding string
}

// IndexOf makes the index of everything that LiteLLM has.
func IndexOf(deployments []Deployment, settings Settings) Index {
	byID := map[string]Entry{}
	for _, deployment := range deployments {
		if deployment.Name == "" {
			continue
		}
		entry := entryOf(deployment)
		// Several deployments may share a name; LiteLLM spreads requests over them.
		if other, found := byID[entry.ID]; !found || preferEntry(entry, other) {
			byID[entry.ID] = entry
		}
	}
	entries := make([]Entry, 0, len(byID))
	for _, entry := range byID {
		entries = append(entries, entry)
	}
	return indexOfEntries(entries, settings)
}

// preferEntry makes the choice the same in every pass, whatever the order.
func preferEntry(a, b Entry) bool {
	if a.Managed != b.Managed {
		return a.Managed
	}
	return bytes.Compare(canonical(a), canonical(b)) < 0
}

func indexOfEntries(entries []Entry, settings Settings) Index {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.ID, b.ID)) })
	return Index{
		Models:           entries,
		DefaultChat:      defaultOf(entries, typeChat, settings.DefaultChatModel),
		DefaultEmbedding: defaultOf(entries, typeEmbedding, settings.DefaultEmbeddingModel),
	}
}

func entryOf(deployment Deployment) Entry {
	info := deployment.Info
	return Entry{
		ID: deployment.Name, Name: cmp.Or(text(info["team_public_model_name"]), deployment.Name),
		Type: entryType(deployment), Provider: provider, ModelRef: provider + "/" + deployment.Name,
		Source:  Source(cmp.Or(text(info[infoSource]), text(info["source"]), provider)),
		Managed: deployment.Managed(),
		LiteLLM: EntryRoute{Model: text(deployment.Params["model"]), APIBase: kube.Sanitize(text(deployment.Params["api_base"]))},
		ContextWindow: firstPositive(info, "max_input_tokens", "contextWindow", "context_window",
			"context_length", "max_context_length", "max_tokens"),
		MaxOutputTokens: firstPositive(info, "max_output_tokens", "maxOutputTokens", "max_completion_tokens"),
	}
}

// entryType trusts the appliance's mark, then LiteLLM's mode, then the features,
// then the name. Models for pictures, speech or ranking keep LiteLLM's word, so
// that no client takes them for a chat model.
func entryType(deployment Deployment) string {
	if marked := text(deployment.Info[infoType]); marked != "" {
		return marked
	}
	switch mode := text(deployment.Info["mode"]); mode {
	case "", "completion", "responses":
	default:
		return mode
	}
	var features []string
	list, _ := deployment.Info["features"].([]any)
	for _, feature := range list {
		features = append(features, text(feature))
	}
	return typeOf(features, deployment.Name)
}

func firstPositive(info map[string]any, names ...string) int64 {
	for _, name := range names {
		if number, ok := wholeNumber(info[name]); ok && number > 0 {
			return number
		}
	}
	return 0
}

// defaultOf is the model that was asked for, if it is of the type, else the first
// of the type, else nothing.
func defaultOf(entries []Entry, kind, asked string) string {
	first := ""
	for _, entry := range entries {
		if entry.Type != kind {
			continue
		}
		if entry.ID == asked {
			return asked
		}
		if first == "" {
			first = entry.ID
		}
	}
	return first
}

// Without is the index without managed models that nobody wants any more. It
// reports whether there were any.
func (i Index) Without(desired Desired, settings Settings) (Index, bool) {
	kept := make([]Entry, 0, len(i.Models))
	for _, entry := range i.Models {
		if !entry.Managed || desired.Wants(entry.ID, entry.Source, true) {
			kept = append(kept, entry)
		}
	}
	return indexOfEntries(kept, settings), len(kept) < len(i.Models)
}

// ReadIndex reads the index from its own catalog.json.
func ReadIndex(data map[string]string, settings Settings) (Index, error) {
	if data[KeyCatalog] == "" {
		return Index{}, nil
	}
	var document struct {
		Models []Entry `json:"models"`
	}
	if err := json.Unmarshal([]byte(data[KeyCatalog]), &document); err != nil {
		return Index{}, fmt.Errorf("reading %s of the model index: %w", KeyCatalog, err)
	}
	return indexOfEntries(document.Models, settings), nil
}

// ofType are the models of one type.
func (i Index) ofType(kind string) []Entry {
	found := []Entry{}
	for _, entry := range i.Models {
		if entry.Type == kind {
			found = append(found, entry)
		}
	}
	return found
}

// find looks a model up by its ID.
func (i Index) find(id string) (Entry, bool) {
	for _, entry := range i.Models {
		if entry.ID == id {
			return entry, true
		}
	}
	return Entry{}, false
}

// openCodeRef is how agents write the default chat model.
func (i Index) openCodeRef() string {
	if i.DefaultChat == "" {
		return ""
	}
	return provider + "/" + i.DefaultChat
}

// Hash changes with everything that consumers read: 16 hexadecimal digits.
func (i Index) Hash(settings Settings) string {
	return digest(map[string]any{
		"models": i.Models, "defaultChatModel": i.DefaultChat, "defaultEmbeddingModel": i.DefaultEmbedding,
		"openCode":   []int64{settings.OpenCodeContextTokens, settings.OpenCodeOutputTokens},
		"paperclip":  []int64{settings.PaperclipMaxOutputTokens, settings.PaperclipHeadroomTokens},
		"compaction": i.compaction(), "toolsProfile": toolsProfile,
		"addresses": []string{settings.APIBase()},
	})
}

// encode writes JSON for people: two spaces, sorted keys, a newline at the end.
// tight leaves the spaces out.
func encode(value any, tight bool) string {
	// A detour over maps sorts the keys.
	var sorted any
	if err := decodeNumbers(canonical(value), &sorted); err != nil {
		panic(fmt.Sprintf("encoding a %T: %v", value, err))
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if !tight {
		encoder.SetIndent("", "  ")
	}
	if err := encoder.Encode(sorted); err != nil {
		panic(fmt.Sprintf("encoding a %T: %v", value, err))
	}
	return out.String()
}
