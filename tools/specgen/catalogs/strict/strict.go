// Package strict parses JSON documents against a JSON Schema and reports every
// violation with the place, the rule and the value.
//
// The generator checks the shipped catalogs with this package and copies this
// very file into generated/catalogs, so that both judge alike.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	kjson "sigs.k8s.io/json"
)

// MaxBytes is the largest catalog that is read, in bytes: what fits into a
// ConfigMap (https://kubernetes.io/docs/concepts/configuration/configmap/).
const MaxBytes = 1 << 20

// maxReported bounds the violations that an error spells out.
const maxReported = 10

// Violation is one breach of a catalog's schema.
type Violation struct {
	// Path names the value, for example modules.gpu.requires[0]; empty for the whole document.
	Path string
	// Rule is what the value breaks, in words.
	Rule string
	// Value is the refused value as JSON, cut to 80 characters.
	Value string
}

func (v Violation) String() string {
	path := v.Path
	if path == "" {
		path = "(document)"
	}
	if v.Value == "" {
		return path + ": " + v.Rule
	}
	return path + ": " + v.Rule + ", got " + v.Value
}

// InvalidError reports a catalog that breaks its schema.
type InvalidError struct {
	// Catalog names the catalog, for example "module catalog".
	Catalog string
	// Violations holds every breach, sorted by path.
	Violations []Violation
}

func (e *InvalidError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "checking the %s: ", e.Catalog)
	for i, violation := range e.Violations {
		if i == maxReported {
			fmt.Fprintf(&text, "; and %d more", len(e.Violations)-i)
			break
		}
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(violation.String())
	}
	return text.String()
}

// compileSchema prepares a JSON Schema document for parse.
func compileSchema(document []byte) (*jsonschema.Schema, error) {
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	const location = "catalog.schema.json"
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	if err := compiler.AddResource(location, schema); err != nil {
		return nil, fmt.Errorf("reading the schema: %w", err)
	}
	compiled, err := compiler.Compile(location)
	if err != nil {
		return nil, fmt.Errorf("compiling the schema: %w", err)
	}
	return compiled, nil
}

// parse decodes data into into (a pointer to a struct, or nil to check only)
// after checking it against schema. Repeated and unknown keys, a second
// document and anything larger than MaxBytes are refused.
func parse(catalog string, schema *jsonschema.Schema, data []byte, into any) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("reading the %s: %d bytes, more than the limit of %d", catalog, len(data), MaxBytes)
	}
	if !utf8.Valid(data) {
		return fmt.Errorf("reading the %s: not valid UTF-8", catalog)
	}
	var document any
	repeated, err := kjson.UnmarshalStrict(data, &document)
	if err != nil {
		return fmt.Errorf("reading the %s: %w", catalog, syntaxError(data, err))
	}
	if len(repeated) > 0 {
		return fmt.Errorf("reading the %s: %w", catalog, errors.Join(repeated...))
	}
	if err := schema.Validate(document); err != nil {
		var invalid *jsonschema.ValidationError
		if !errors.As(err, &invalid) {
			return fmt.Errorf("checking the %s: %w", catalog, err)
		}
		violations := collect(invalid, document, nil)
		slices.SortFunc(violations, func(a, b Violation) int {
			return strings.Compare(a.Path+"\x00"+a.Rule+"\x00"+a.Value, b.Path+"\x00"+b.Rule+"\x00"+b.Value)
		})
		return &InvalidError{Catalog: catalog, Violations: slices.Compact(violations)}
	}
	if into == nil {
		return nil
	}
	unknown, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		return fmt.Errorf("reading the %s: %w", catalog, err)
	}
	if len(unknown) > 0 {
		return fmt.Errorf("reading the %s: %w", catalog, errors.Join(unknown...))
	}
	return nil
}

// syntaxError adds the line to errors that only know the byte offset.
func syntaxError(data []byte, err error) error {
	var syntax *json.SyntaxError
	// The decoder of sigs.k8s.io/json reports its errors with encoding/json's text but its own
	// type, so the position comes from a second look with encoding/json.
	if json.Unmarshal(data, new(any)) == nil || !errors.As(json.Unmarshal(data, new(any)), &syntax) {
		return err
	}
	offset := min(int(syntax.Offset), len(data))
	return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:offset], []byte("\n")), syntax)
}

// collect turns the tree of a validation error into one violation per leaf.
func collect(failure *jsonschema.ValidationError, document any, into []Violation) []Violation {
	path, value := locate(document, failure.InstanceLocation)
	switch rule := failure.ErrorKind.(type) {
	case *kind.PropertyNames:
		for _, cause := range failure.Causes {
			into = append(into, Violation{Path: path, Rule: "key " + ruleText(cause), Value: show(rule.Property)})
		}
		return into
	case *kind.AdditionalProperties:
		for _, name := range rule.Properties {
			_, unknown := locate(document, append(slices.Clone(failure.InstanceLocation), name))
			into = append(into, Violation{Path: join(path, name), Rule: "unknown field", Value: show(unknown)})
		}
		return into
	case *kind.Required:
		for _, name := range rule.Missing {
			into = append(into, Violation{Path: join(path, name), Rule: "required"})
		}
		return into
	case *kind.DependentRequired:
		for _, name := range rule.Missing {
			into = append(into, Violation{Path: join(path, name), Rule: "required together with " + rule.Prop})
		}
		return into
	}
	if len(failure.Causes) == 0 {
		return append(into, Violation{Path: path, Rule: ruleText(failure), Value: show(value)})
	}
	for _, cause := range failure.Causes {
		into = collect(cause, document, into)
	}
	return into
}

var english = message.NewPrinter(language.English)

// ruleText says which rule is broken, without the value.
func ruleText(failure *jsonschema.ValidationError) string {
	switch rule := failure.ErrorKind.(type) {
	case *kind.Type:
		return "must be of type " + strings.Join(rule.Want, " or ")
	case *kind.Enum:
		words := make([]string, len(rule.Want))
		for i, want := range rule.Want {
			words[i] = fmt.Sprint(want)
		}
		return "must be one of " + strings.Join(words, ", ")
	case *kind.Pattern:
		return "must match the pattern " + rule.Want
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", rule.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", rule.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", rule.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", rule.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d entries", rule.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d entries", rule.Want)
	case *kind.UniqueItems:
		return "must not repeat an item"
	case *kind.Minimum:
		return "must be at least " + rule.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + rule.Want.RatString()
	case *kind.FalseSchema:
		return "not allowed here"
	default:
		return failure.ErrorKind.LocalizedString(english)
	}
}

// locate follows a JSON Pointer, given as its tokens, and names the place in
// the notation of Kubernetes field paths.
func locate(document any, tokens []string) (string, any) {
	path, value := "", document
	for _, token := range tokens {
		switch node := value.(type) {
		case map[string]any:
			path, value = join(path, token), node[token]
		case []any:
			index, err := strconv.Atoi(token)
			if err != nil || index < 0 || index >= len(node) {
				return path, nil
			}
			path, value = fmt.Sprintf("%s[%d]", path, index), node[index]
		default:
			return path, nil
		}
	}
	return path, value
}

// join appends a key to a path; keys that would be ambiguous are quoted.
func join(path, key string) string {
	if key == "" || strings.ContainsAny(key, ".[]\" \t\r\n") {
		return path + "[" + strconv.Quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// show renders a value for a message.
func show(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprintf("%T", value)
	}
	shown := strings.TrimSuffix(text.String(), "\n")
	const limit = 80
	if len(shown) <= limit {
		return shown
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(shown[cut]) {
		cut--
	}
	return shown[:cut] + "..."
}
