package crd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxDepth bounds the nesting of a file, far above any real schema and far below
// what would exhaust the stack of a recursive generator.
const maxDepth = 200

// scan walks the YAML tree for what is lost in the conversion to JSON: repeated
// keys, anchors, further documents. It returns the line of every JSON path.
func scan(name string, data []byte) (map[string]int, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &Error{File: name, Reason: "is empty"}
		}
		return nil, &Error{File: name, Reason: "is not valid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	for {
		var next yaml.Node
		err := decoder.Decode(&next)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &Error{File: name, Reason: "is not valid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
		}
		if len(next.Content) == 1 && next.Content[0].Tag == "!!null" {
			continue // nothing but a closing "---"
		}
		return nil, &Error{File: name, Line: next.Line, Reason: "holds several documents; one file defines one CRD"}
	}
	s := &scanner{file: name, lines: map[string]int{}}
	if len(document.Content) == 1 {
		s.node(document.Content[0], nil, 0)
	}
	if len(s.faults) > 0 {
		return nil, errors.Join(s.faults...)
	}
	return s.lines, nil
}

type scanner struct {
	file   string
	lines  map[string]int
	faults []error
}

func (s *scanner) fault(n *yaml.Node, at *field.Path, format string, args ...any) {
	s.faults = append(s.faults, &Error{File: s.file, Line: n.Line, Path: pathString(at), Reason: fmt.Sprintf(format, args...)})
}

func (s *scanner) node(n *yaml.Node, at *field.Path, depth int) {
	if depth > maxDepth {
		s.fault(n, at, "is nested deeper than %d levels", maxDepth)
		return
	}
	if at != nil {
		s.lines[at.String()] = n.Line
	}
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		s.fault(n, at, "uses a YAML anchor or alias; write the value out")
		return
	}
	s.ambiguous(n, at)
	switch n.Kind {
	case yaml.MappingNode:
		seen := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
				s.fault(key, at, "has a key that is not a plain string")
				continue
			}
			child := childPath(at, key.Value)
			s.ambiguous(key, child)
			if first, ok := seen[key.Value]; ok {
				s.fault(key, child, "key is given twice, first in line %d", first)
				continue
			}
			seen[key.Value] = key.Line
			s.node(value, child, depth+1)
			s.lines[child.String()] = key.Line
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			s.node(item, at.Index(i), depth+1)
		}
	}
}

// ambiguous refuses the plain words that YAML 1.1, and so kubectl, reads as booleans
// and YAML 1.2 as strings: a property called on would silently be called true.
func (s *scanner) ambiguous(n *yaml.Node, at *field.Path) {
	if n.Kind != yaml.ScalarNode || n.Style != 0 {
		return
	}
	switch strings.ToLower(n.Value) {
	case "yes", "no", "on", "off", "y", "n":
		s.fault(n, at, "the plain word %s is a boolean for some YAML readers; put it in quotes", n.Value)
	}
}

// childPath writes a step as the API server does: keys of the maps inside a schema
// in brackets, everything else with a dot.
func childPath(at *field.Path, key string) *field.Path {
	if at == nil {
		return field.NewPath(key)
	}
	text := at.String()
	for _, container := range []string{"properties", "patternProperties", "definitions", "dependencies", "labels", "annotations"} {
		// The container is a keyword of a schema; a property that is itself called
		// "properties" ends in a bracket and so does not match.
		if strings.HasSuffix(text, "."+container) {
			return at.Key(key)
		}
	}
	return at.Child(key)
}

func pathString(at *field.Path) string {
	if at == nil {
		return ""
	}
	return at.String()
}

// valueKind is what a schema keyword must hold.
type valueKind int

const (
	stringValue valueKind = iota
	boolValue
	numberValue
	countValue
	anyValue
	listValue
	stringsValue
	schemaValue
	schemaListValue
	schemaMapValue
	schemaOrBoolValue
	rulesValue
	docsValue
	// refused keywords exist in JSONSchemaProps, but the API server takes none of
	// them in a CRD.
	refused
)

// keywords are all keys of apiextensions/v1 JSONSchemaProps.
var keywords = map[string]valueKind{
	"description": stringValue, "type": stringValue, "format": stringValue, "title": stringValue, "pattern": stringValue,
	"default": anyValue, "example": anyValue, "externalDocs": docsValue, "enum": listValue, "required": stringsValue,
	"maximum": numberValue, "minimum": numberValue, "multipleOf": numberValue,
	"exclusiveMaximum": boolValue, "exclusiveMinimum": boolValue, "uniqueItems": boolValue, "nullable": boolValue,
	"maxLength": countValue, "minLength": countValue, "maxItems": countValue, "minItems": countValue,
	"maxProperties": countValue, "minProperties": countValue,
	"items": schemaValue, "not": schemaValue, "allOf": schemaListValue, "oneOf": schemaListValue, "anyOf": schemaListValue,
	"properties": schemaMapValue, "additionalProperties": schemaOrBoolValue,
	"x-kubernetes-preserve-unknown-fields": boolValue, "x-kubernetes-embedded-resource": boolValue,
	"x-kubernetes-int-or-string": boolValue, "x-kubernetes-list-map-keys": stringsValue,
	"x-kubernetes-list-type": stringValue, "x-kubernetes-map-type": stringValue, "x-kubernetes-validations": rulesValue,
	"$ref": refused, "$schema": refused, "id": refused, "definitions": refused, "dependencies": refused,
	"patternProperties": refused, "additionalItems": refused,
}

// ruleKeys are all keys of one entry of x-kubernetes-validations.
var ruleKeys = map[string]valueKind{
	"rule": stringValue, "message": stringValue, "messageExpression": stringValue, "reason": stringValue,
	"fieldPath": stringValue, "optionalOldSelf": boolValue,
}

// keywordWalk checks every schema node of a decoded CRD. It exists because the
// strict JSON decoder stops being strict below items and additionalProperties.
type keywordWalk struct {
	file   string
	lines  map[string]int
	faults []error
}

func (w *keywordWalk) fault(at *field.Path, format string, args ...any) {
	text := pathString(at)
	w.faults = append(w.faults, &Error{File: w.file, Line: lineOf(w.lines, text), Path: text, Reason: fmt.Sprintf(format, args...)})
}

// schemas walks the schema of every version.
func (w *keywordWalk) schemas(object map[string]any) {
	spec, _ := object["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for i, entry := range versions {
		version, _ := entry.(map[string]any)
		validation, _ := version["schema"].(map[string]any)
		if schema, ok := validation["openAPIV3Schema"]; ok {
			w.schema(schema, field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema"))
		}
	}
}

func (w *keywordWalk) schema(value any, at *field.Path) {
	schema, ok := value.(map[string]any)
	if !ok {
		w.fault(at, "is %s, a schema is a mapping", describe(value))
		return
	}
	for _, key := range sortedKeys(schema) {
		kind, known := keywords[key]
		child := at.Child(key)
		switch {
		case !known:
			w.fault(child, "is not a keyword of a CRD schema")
		case kind == refused && key == "$ref":
			w.fault(child, "refers to %v; a CRD schema holds no references, write the schema out", schema[key])
		case kind == refused:
			w.fault(child, "is not allowed in a CRD schema")
		default:
			w.value(kind, schema[key], child)
		}
	}
}

func (w *keywordWalk) value(kind valueKind, value any, at *field.Path) {
	want := ""
	switch kind {
	case stringValue:
		if _, ok := value.(string); !ok {
			want = "a string"
		}
	case boolValue:
		if _, ok := value.(bool); !ok {
			want = "true or false"
		}
	case numberValue:
		if _, ok := value.(float64); !ok {
			want = "a number"
		}
	case countValue:
		if n, ok := value.(float64); !ok || n != math.Trunc(n) || n < 0 || n > math.MaxInt64/2 {
			want = "a whole number from 0"
		}
	case listValue:
		if _, ok := value.([]any); !ok {
			want = "a list"
		}
	case stringsValue:
		list, ok := value.([]any)
		for _, item := range list {
			_, isString := item.(string)
			ok = ok && isString
		}
		if !ok {
			want = "a list of strings"
		}
	case schemaValue:
		w.schema(value, at)
	case schemaOrBoolValue:
		if _, ok := value.(bool); !ok {
			w.schema(value, at)
		}
	case schemaListValue:
		list, ok := value.([]any)
		if !ok {
			want = "a list of schemas"
		}
		for i, item := range list {
			w.schema(item, at.Index(i))
		}
	case schemaMapValue:
		named, ok := value.(map[string]any)
		if !ok {
			want = "a mapping of schemas"
		}
		for _, name := range sortedKeys(named) {
			w.schema(named[name], at.Key(name))
		}
	case rulesValue:
		rules, ok := value.([]any)
		if !ok {
			want = "a list of rules"
		}
		for i, rule := range rules {
			w.mapping(ruleKeys, rule, at.Index(i), "a rule")
		}
	case docsValue:
		w.mapping(map[string]valueKind{"url": stringValue, "description": stringValue}, value, at, "external documentation")
	}
	if want != "" {
		w.fault(at, "is %s, expected %s", describe(value), want)
	}
}

// mapping checks an object with a fixed set of scalar keys.
func (w *keywordWalk) mapping(keys map[string]valueKind, value any, at *field.Path, what string) {
	object, ok := value.(map[string]any)
	if !ok {
		w.fault(at, "is %s, %s is a mapping", describe(value), what)
		return
	}
	for _, key := range sortedKeys(object) {
		if kind, known := keys[key]; known {
			w.value(kind, object[key], at.Child(key))
		} else {
			w.fault(at.Child(key), "is not a key of %s", what)
		}
	}
}

func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("the string %q", v)
	case bool:
		return fmt.Sprintf("%t", v)
	case float64:
		return fmt.Sprintf("the number %v", v)
	case []any:
		return "a list"
	default:
		return "a mapping"
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
