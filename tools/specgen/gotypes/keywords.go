package gotypes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// KeywordsMarker is the one marker of our own. Its argument is a JSON object with
// schema keywords that replace those which controller-tools derives for the node:
// keywords for which no standard marker exists (anyOf, oneOf, allOf, not), or which
// the standard marker refuses on the node (a pattern on an array). A null removes a
// keyword that the Go type brings along. The object may be preceded by the way from
// the marked field or type to a node below it: "items ", "values ", "items.values ".
const KeywordsMarker = "specgen:keywords"

const validation = "kubebuilder:validation:"

// own is a set of keywords for KeywordsMarker on one node.
type own struct {
	way      []string
	keywords map[string]any
}

func (o own) marker() (string, error) {
	data, err := json.Marshal(o.keywords)
	if err != nil {
		return "", err
	}
	way := strings.Join(o.way, ".")
	if way != "" {
		way += " "
	}
	return KeywordsMarker + "=" + way + markerJSON(data), nil
}

// markerJSON makes JSON safe inside a comment: gofmt turns two apostrophes or two
// backticks in a doc comment into typographic quotes.
func markerJSON(data []byte) string {
	return strings.NewReplacer("'", `\u0027`, "`", `\u0060`, "\u2028", `\u2028`, "\u2029", `\u2029`).Replace(string(data))
}

// quote makes a marker argument that is parsed back to exactly text.
func quote(text string) string {
	return strings.NewReplacer("'", `\u0027`, "`", `\u0060`).Replace(strconv.QuoteToASCII(text))
}

// bare leaves a plain word unquoted: the Kubernetes generators read some markers
// without unquoting.
func bare(text string) string {
	for _, r := range text {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return quote(text)
		}
	}
	return text
}

// markers are what one node asks of the place where it is declared.
type markers struct {
	// lines are standard markers without the leading plus sign.
	lines []string
	// own holds the keywords of KeywordsMarker for this node, by keyword.
	own map[string]any
}

func (m *markers) add(name, argument string) { m.lines = append(m.lines, name+"="+argument) }

func (m *markers) flag(name string) { m.lines = append(m.lines, name) }

func (m *markers) keyword(name string, value any) {
	if m.own == nil {
		m.own = map[string]any{}
	}
	m.own[name] = value
}

// bounds adds the validation keywords of a node whose Go type leads controller-tools
// to schemaType ("" for an unknown one). Type, format, enum of a named type, and
// what the Go type itself expresses are the caller's.
func (m *markers) bounds(s *apiextensionsv1.JSONSchemaProps, schemaType string) {
	number := func(name, keyword string, value *float64) {
		if value == nil {
			return
		}
		integral := *value == math.Trunc(*value)
		if schemaType != "number" && (schemaType != "integer" || !integral) {
			m.keyword(keyword, *value)
			return
		}
		m.add(validation+name, strconv.FormatFloat(*value, 'f', -1, 64))
	}
	number("Maximum", "maximum", s.Maximum)
	number("Minimum", "minimum", s.Minimum)
	if multiple := s.MultipleOf; multiple != nil && *multiple < 0 {
		m.keyword("multipleOf", *multiple)
	} else {
		number("MultipleOf", "multipleOf", multiple)
	}
	flag := func(name, keyword string, value bool, types ...string) {
		switch {
		case !value:
		case slices.Contains(types, schemaType):
			m.add(validation+name, "true")
		default:
			m.keyword(keyword, true)
		}
	}
	flag("ExclusiveMaximum", "exclusiveMaximum", s.ExclusiveMaximum, "integer", "number")
	flag("ExclusiveMinimum", "exclusiveMinimum", s.ExclusiveMinimum, "integer", "number")
	flag("UniqueItems", "uniqueItems", s.UniqueItems, "array")
	count := func(name, keyword string, value *int64, kind string) {
		switch {
		case value == nil:
		case schemaType == kind, kind == "string" && s.XIntOrString:
			m.add(validation+name, strconv.FormatInt(*value, 10))
		default:
			m.keyword(keyword, *value)
		}
	}
	count("MaxLength", "maxLength", s.MaxLength, "string")
	count("MinLength", "minLength", s.MinLength, "string")
	count("MaxItems", "maxItems", s.MaxItems, "array")
	count("MinItems", "minItems", s.MinItems, "array")
	count("MaxProperties", "maxProperties", s.MaxProperties, "object")
	count("MinProperties", "minProperties", s.MinProperties, "object")
	if s.Pattern != "" {
		if schemaType == "string" || s.XIntOrString {
			m.add(validation+"Pattern", quote(s.Pattern))
		} else {
			m.keyword("pattern", s.Pattern)
		}
	}
}

// topology adds list and map types. mapMarker is mapType for Go maps and structType
// for structs.
func (m *markers) topology(s *apiextensionsv1.JSONSchemaProps, schemaType, mapMarker string) {
	if s.XListType != nil {
		if schemaType == "array" && slices.Contains([]string{"map", "set", "atomic"}, *s.XListType) {
			m.add("listType", *s.XListType)
		} else {
			m.keyword("x-kubernetes-list-type", *s.XListType)
		}
	}
	if len(s.XListMapKeys) > 0 {
		if schemaType == "array" && s.XListType != nil && *s.XListType == "map" {
			for _, key := range s.XListMapKeys {
				m.add("listMapKey", bare(key))
			}
		} else {
			m.keyword("x-kubernetes-list-map-keys", s.XListMapKeys)
		}
	}
	if s.XMapType != nil {
		if (schemaType == "object" || mapMarker == "structType") && (*s.XMapType == "atomic" || *s.XMapType == "granular") {
			m.add(mapMarker, *s.XMapType)
		} else {
			m.keyword("x-kubernetes-map-type", *s.XMapType)
		}
	}
}

// logic adds what exists for every node: CEL rules, junctors, external docs.
func (m *markers) logic(s *apiextensionsv1.JSONSchemaProps) {
	for _, rule := range s.XValidations {
		argument := "rule=" + quote(rule.Rule)
		for _, part := range []struct{ name, value string }{
			{"message", rule.Message}, {"messageExpression", rule.MessageExpression}, {"fieldPath", rule.FieldPath},
		} {
			if part.value != "" {
				argument += "," + part.name + "=" + quote(part.value)
			}
		}
		if rule.Reason != nil {
			argument += ",reason=" + quote(string(*rule.Reason))
		}
		if rule.OptionalOldSelf != nil {
			argument += fmt.Sprintf(",optionalOldSelf=%t", *rule.OptionalOldSelf)
		}
		m.lines = append(m.lines, validation+"XValidation:"+argument)
	}
	if len(s.AllOf) > 0 {
		m.keyword("allOf", s.AllOf)
	}
	if len(s.OneOf) > 0 {
		m.keyword("oneOf", s.OneOf)
	}
	if len(s.AnyOf) > 0 {
		m.keyword("anyOf", s.AnyOf)
	}
	if s.Not != nil {
		m.keyword("not", s.Not)
	}
	if docs := s.ExternalDocs; docs != nil {
		if _, err := url.ParseRequestURI(docs.URL); err == nil {
			argument := "url=" + quote(docs.URL)
			if docs.Description != "" {
				argument += ",description=" + quote(docs.Description)
			}
			m.flag("kubebuilder:externalDocs:" + argument)
		} else {
			m.keyword("externalDocs", docs)
		}
	}
}

// enum adds an enum that is not a named type's. Scalars go to the standard marker; it
// has no notation for null, lists and objects.
func (m *markers) enum(s *apiextensionsv1.JSONSchemaProps) {
	if len(s.Enum) == 0 {
		return
	}
	if argument, ok := enumArgument(s.Enum); ok {
		m.add(validation+"Enum", argument)
		return
	}
	m.keyword("enum", s.Enum)
}

// enumArgument writes a list of scalars.
func enumArgument(values []apiextensionsv1.JSON) (string, bool) {
	var parts []string
	for _, value := range values {
		text, ok := scalarArgument(value.Raw)
		if !ok {
			return "", false
		}
		parts = append(parts, text)
	}
	return "{" + strings.Join(parts, ",") + "}", true
}

// scalarArgument writes a JSON scalar in the syntax of markers; false for what that
// syntax cannot hold, or not exactly.
func scalarArgument(raw []byte) (string, bool) {
	switch v := decode(raw).(type) {
	case string:
		return quote(v), true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return strconv.FormatInt(n, 10), true
		}
		if f, err := v.Float64(); err == nil && f != math.Trunc(f) {
			return strconv.FormatFloat(f, 'f', -1, 64), true
		}
	}
	return "", false
}

// decode reads one JSON value and keeps numbers as they are written; nil for null and
// for what is no JSON.
func decode(raw []byte) any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return nil
	}
	return value
}

// place adds what belongs to the use of a node: nullable, default, example, title.
func (m *markers) place(s *apiextensionsv1.JSONSchemaProps) {
	if s.Nullable {
		m.flag("nullable")
	}
	if s.Default != nil {
		if exactInFloat(s.Default.Raw) {
			m.add("default", markerJSON(compact(s.Default.Raw)))
		} else {
			m.keyword("default", json.RawMessage(s.Default.Raw))
		}
	}
	if s.Title != "" {
		m.add("kubebuilder:title", quote(s.Title))
	}
	if s.Example != nil {
		if argument, ok := scalarArgument(s.Example.Raw); ok {
			m.add("kubebuilder:example", argument)
		} else {
			m.keyword("example", json.RawMessage(s.Example.Raw))
		}
	}
}

// exactInFloat tells whether the default marker keeps the value: it decodes JSON
// numbers to float64 and takes null for "no default".
func exactInFloat(raw []byte) bool {
	value := decode(raw)
	return value != nil && exact(value)
}

func exact(value any) bool {
	switch v := value.(type) {
	case json.Number:
		f, err := v.Float64()
		return err == nil && math.Abs(f) < 1<<53
	case []any:
		return !slices.ContainsFunc(v, func(item any) bool { return !exact(item) })
	case map[string]any:
		for _, item := range v {
			if !exact(item) {
				return false
			}
		}
	}
	return true
}

// compact re-encodes a JSON value on one line with sorted keys.
func compact(raw []byte) []byte {
	value := decode(raw)
	data, err := json.Marshal(value)
	if err != nil || value == nil {
		return raw
	}
	return data
}
