package modelindex

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxExternalModels bounds the entries of ai-external-models.
const maxExternalModels = 1024

// ExternalModel is a model behind a provider's API.
type ExternalModel struct {
	// Name under which clients ask for it.
	Name string
	// Type is chat or embedding.
	Type string
	// Model is LiteLLM's name for provider and model, such as openai/gpt-4o-mini.
	Model string
	// APIBase, APIVersion and CustomLLMProvider may be empty.
	APIBase, APIVersion, CustomLLMProvider string
	// TPM and RPM bound tokens and requests a minute; 0 is no bound.
	TPM, RPM int64
	// ContextWindow and MaxOutputTokens in tokens; 0 when nobody says.
	ContextWindow, MaxOutputTokens int64
	// Key names the Secret of the API key; nil without one.
	Key *KeyRef
	// InlineKey is an API key that stands in the entry itself.
	InlineKey string
	// Activation tells that a ModelActivation asked for it.
	Activation bool
}

// KeyRef names a value in a Secret of the index's namespace.
type KeyRef struct{ Secret, Key string }

// String is for messages.
func (k KeyRef) String() string { return fmt.Sprintf("key %s of Secret %s", k.Key, k.Secret) }

// ExternalList is what ai-external-models says.
type ExternalList struct {
	// Models that are switched on and complete.
	Models []ExternalModel
	// Broken entries, by name.
	Broken []Trouble
	// Problem says why the list, or an entry without a name, cannot be read: then
	// nobody knows which models are meant. It repeats no value that may be a key.
	Problem string
}

// ParseExternalModels reads models.json of ai-external-models: an object with
// models, or the bare list. It leaves out entries with enabled: false.
func ParseExternalModels(document string) ExternalList {
	list := ExternalList{}
	entries, err := externalEntries([]byte(document))
	if err != nil {
		list.Problem = err.Error()
		return list
	}
	if len(entries) > maxExternalModels {
		list.Problem = fmt.Sprintf("reading %s: %d models, at most %d are taken", externalKey, len(entries), maxExternalModels)
		return list
	}
	for i, entry := range entries {
		model, enabled, err := externalModel(entry)
		switch {
		case err != nil && model.Name != "":
			list.Broken = append(list.Broken, Trouble{Name: model.Name, Message: fmt.Sprintf("reading models[%d] of %s: %s", i, externalKey, err)})
		case err != nil:
			list.Problem = fmt.Sprintf("reading models[%d] of %s: %s", i, externalKey, err)
		case enabled:
			list.Models = append(list.Models, model)
		}
	}
	return list
}

func externalEntries(document []byte) ([]map[string]any, error) {
	var entries []map[string]any
	var err error
	switch trimmed := bytes.TrimSpace(document); {
	case len(trimmed) == 0:
		return nil, nil
	case trimmed[0] == '[':
		err = decodeNumbers(trimmed, &entries)
	default:
		object := struct {
			Models []map[string]any `json:"models"`
		}{}
		err = decodeNumbers(trimmed, &object)
		entries = object.Models
	}
	if err != nil {
		// The error of the decoder could repeat a value.
		return nil, fmt.Errorf("reading %s: want an object with the list models, or the list itself", externalKey)
	}
	return entries, nil
}

// fields looks a value up under every spelling that is accepted, in the entry and
// then in its block litellm.
type fields struct {
	entry, nested map[string]any
	problem       error
}

func (f *fields) find(names ...string) (any, bool) {
	for _, place := range []map[string]any{f.entry, f.nested} {
		for _, name := range names {
			if value, found := place[name]; found && value != nil {
				return value, true
			}
		}
	}
	return nil, false
}

func (f *fields) text(names ...string) string {
	value, found := f.find(names...)
	if !found {
		return ""
	}
	text, isText := value.(string)
	if !isText {
		f.fail("%s must be a text", names[0])
	}
	return strings.TrimSpace(text)
}

func (f *fields) tokens(names ...string) int64 {
	value, found := f.find(names...)
	if !found {
		return 0
	}
	number, ok := wholeNumber(value)
	if !ok || number < 1 {
		f.fail("%s must be a whole number of at least 1", names[0])
	}
	return number
}

func (f *fields) fail(format string, args ...any) {
	if f.problem == nil {
		f.problem = fmt.Errorf(format, args...)
	}
}

func externalModel(entry map[string]any) (model ExternalModel, enabled bool, err error) {
	if off, isBool := entry["enabled"].(bool); isBool && !off {
		return model, false, nil
	}
	f := &fields{entry: entry}
	f.nested, _ = entry["litellm"].(map[string]any)
	model = ExternalModel{
		Name:              f.text("name", "id"),
		Model:             f.text("model"),
		APIBase:           f.text("apiBase", "api_base"),
		APIVersion:        f.text("apiVersion", "api_version"),
		CustomLLMProvider: f.text("customLlmProvider", "custom_llm_provider"),
		InlineKey:         f.text("apiKey", "api_key"),
		TPM:               f.tokens("tpm"),
		RPM:               f.tokens("rpm"),
		ContextWindow:     f.tokens("contextWindow", "context_window", "max_input_tokens"),
		MaxOutputTokens:   f.tokens("maxOutputTokens", "max_output_tokens"),
	}
	model.Type = externalType(f.text("type", "modelType", "model_type"), model.Name)
	if ref, found := f.find("apiKeySecretRef", "api_key_secret_ref"); found {
		block, _ := ref.(map[string]any)
		secret := &fields{entry: block}
		key := KeyRef{Secret: secret.text("name"), Key: secret.text("key")}
		if key.Secret == "" || key.Key == "" {
			f.fail("apiKeySecretRef needs name and key")
		}
		model.Key = &key
	}
	switch {
	case f.problem != nil:
	case model.Name == "":
		f.fail("name is missing")
	case model.Model == "":
		f.fail("model is missing: provider and model, such as openai/gpt-4o-mini")
	}
	return model, true, f.problem
}

// externalType trusts what is written; without it the name decides.
func externalType(given, name string) string {
	if given != "" {
		return typeOf([]string{given}, name)
	}
	return typeOf(nil, name)
}

// wholeNumber reads JSON numbers and texts that hold one.
func wholeNumber(value any) (int64, bool) {
	switch value := value.(type) {
	case json.Number:
		return wholeText(value.String())
	case string:
		return wholeText(strings.TrimSpace(value))
	case float64:
		return wholeFloat(value)
	case int64:
		return value, true
	case int:
		return int64(value), true
	}
	return 0, false
}

func wholeText(text string) (int64, bool) {
	if number, err := strconv.ParseInt(text, 10, 64); err == nil {
		return number, true
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, false
	}
	return wholeFloat(number)
}

func wholeFloat(number float64) (int64, bool) {
	if number != math.Trunc(number) || math.Abs(number) > 1<<53 {
		return 0, false
	}
	return int64(number), true
}

// decodeNumbers reads JSON without turning numbers into floats. Text after the
// value is an error.
func decodeNumbers(document []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if decoder.More() {
		return errors.New("there is more than one value")
	}
	return nil
}
