package gotypes

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// position tells how a node is reached, because markers go to different places:
// on the field for a property, on a named type for items and map values.
type position int

const (
	rootPosition position = iota
	propertyPosition
	itemPosition
	valuePosition
)

// node is one schema node with its children in a stable order.
type node struct {
	schema *apiextensionsv1.JSONSchemaProps
	path   *field.Path
	// short is the path as people say it: spec.source.url, items as [], map values as {}.
	short      string
	position   position
	properties []property
	items      *node
	values     *node
	// shape identifies everything about the node but what belongs to the place
	// where it is used (description, default, nullable, example, title): equal
	// shapes make equal Go types.
	shape string
}

type property struct {
	name     string
	required bool
	node     *node
}

// newNode builds the tree and refuses what cannot be turned into a Go type. The
// API server would refuse most of it too; the check is here because foreign CRDs
// come without its verdict.
func newNode(schema *apiextensionsv1.JSONSchemaProps, path *field.Path, short string, at position) (*node, error) {
	n := &node{schema: schema, path: path, short: short, position: at}
	for _, forbidden := range []struct {
		keyword string
		used    bool
	}{
		{"$ref", schema.Ref != nil}, {"id", schema.ID != ""}, {"$schema", schema.Schema != ""},
		{"definitions", len(schema.Definitions) > 0}, {"dependencies", len(schema.Dependencies) > 0},
		{"patternProperties", len(schema.PatternProperties) > 0}, {"additionalItems", schema.AdditionalItems != nil},
	} {
		if forbidden.used {
			return nil, n.errorf("%s is not allowed in a CRD schema", forbidden.keyword)
		}
	}
	required := map[string]bool{}
	for _, name := range schema.Required {
		required[name] = true
	}
	for _, name := range sortedKeys(schema.Properties) {
		sub := schema.Properties[name]
		child, err := newNode(&sub, path.Child("properties").Key(name), strings.TrimPrefix(short+"."+name, "."), propertyPosition)
		if err != nil {
			return nil, err
		}
		n.properties = append(n.properties, property{name: name, required: required[name], node: child})
	}
	if schema.Items != nil {
		if schema.Items.Schema == nil {
			return nil, n.errorf("items is a list of schemas, a CRD needs one schema for all items")
		}
		child, err := newNode(schema.Items.Schema, path.Child("items"), short+"[]", itemPosition)
		if err != nil {
			return nil, err
		}
		n.items = child
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		child, err := newNode(schema.AdditionalProperties.Schema, path.Child("additionalProperties"), short+"{}", valuePosition)
		if err != nil {
			return nil, err
		}
		n.values = child
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	shape, err := n.digest()
	if err != nil {
		return nil, err
	}
	n.shape = shape
	return n, nil
}

// errorf is an error of this node; it starts with the JSON path.
func (n *node) errorf(format string, args ...any) error {
	return &NodeError{Path: n.path.String(), Reason: fmt.Sprintf(format, args...)}
}

// NodeError is a schema node that cannot be expressed as a Go type.
type NodeError struct {
	// Path is the JSON path of the node inside the CRD.
	Path string
	// Reason says what cannot be expressed.
	Reason string
}

// Error implements error.
func (e *NodeError) Error() string { return e.Path + ": " + e.Reason }

// check refuses ambiguous nodes: those from which no Go type follows, and those
// whose content would be lost.
func (n *node) check() error {
	s := n.schema
	switch s.Type {
	case "", "object", "array", "string", "integer", "number", "boolean":
	default:
		return n.errorf("type %q is unknown; types are object, array, string, integer, number, boolean", s.Type)
	}
	if s.Type == "" && !s.XIntOrString && !preserves(s) {
		return n.errorf("has no type; set type, x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields")
	}
	if s.XIntOrString && s.Type != "" {
		return n.errorf("has type %q beside x-kubernetes-int-or-string; an int-or-string has no type", s.Type)
	}
	if s.XIntOrString && (preserves(s) || s.XEmbeddedResource) {
		return n.errorf("is an int-or-string and an object at once")
	}
	if s.XPreserveUnknownFields != nil && !*s.XPreserveUnknownFields {
		return n.errorf("x-kubernetes-preserve-unknown-fields is false; it is true or absent")
	}
	if s.XEmbeddedResource && s.Type != "object" {
		return n.errorf("x-kubernetes-embedded-resource needs type object, not %q", s.Type)
	}
	if s.AdditionalProperties != nil {
		if s.AdditionalProperties.Schema == nil && !s.AdditionalProperties.Allows {
			return n.errorf("additionalProperties: false is not allowed in a CRD; unknown fields are pruned anyway")
		}
		if len(s.Properties) > 0 {
			return n.errorf("has both properties and additionalProperties; one excludes the other")
		}
		if n.position == rootPosition {
			return n.errorf("additionalProperties is not allowed at the root")
		}
	}
	if s.Type == "array" && s.Items == nil && !preserves(s) {
		return n.errorf("is an array without items; say what it holds")
	}
	if s.Type != "array" && s.Type != "" && s.Items != nil {
		return n.errorf("has items beside type %q", s.Type)
	}
	if s.Type != "object" && s.Type != "" && (s.Properties != nil || s.AdditionalProperties != nil) {
		return n.errorf("has properties beside type %q", s.Type)
	}
	if n.position == rootPosition && s.Type != "object" {
		return n.errorf("the root has type %q, not object", s.Type)
	}
	return nil
}

func preserves(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
}

// own is a copy of the node's keywords without its children.
func (n *node) own() apiextensionsv1.JSONSchemaProps {
	s := *n.schema
	s.Properties, s.Items = nil, nil
	if n.values != nil {
		s.AdditionalProperties = nil
	}
	return s
}

// digest hashes the node from the children's hashes, so that a tree of any size is
// hashed in one pass.
func (n *node) digest() (string, error) {
	hash := sha256.New()
	write := func(parts ...string) {
		for _, part := range parts {
			fmt.Fprintf(hash, "%d:%s", len(part), part)
		}
	}
	s := n.own()
	s.Required = append([]string(nil), s.Required...)
	sort.Strings(s.Required)
	s.Description, s.Title, s.Default, s.Example, s.Nullable = "", "", nil, nil, false
	data, err := json.Marshal(s)
	if err != nil {
		return "", n.errorf("cannot be encoded: %v", err)
	}
	write(string(data))
	child := func(name string, c *node) error {
		place, err := c.place()
		if err != nil {
			return err
		}
		write(name, place, c.shape)
		return nil
	}
	for _, p := range n.properties {
		if err := child("property "+p.name, p.node); err != nil {
			return "", err
		}
	}
	if n.schema.Properties != nil {
		write("has properties")
	}
	if n.items != nil {
		if err := child("items", n.items); err != nil {
			return "", err
		}
	}
	if n.values != nil {
		if err := child("values", n.values); err != nil {
			return "", err
		}
	}
	return string(hash.Sum(nil)), nil
}

// place encodes what shape leaves out.
func (n *node) place() (string, error) {
	s := n.schema
	data, err := json.Marshal(apiextensionsv1.JSONSchemaProps{
		Description: s.Description, Title: s.Title, Default: s.Default, Example: s.Example, Nullable: s.Nullable,
	})
	if err != nil {
		return "", n.errorf("cannot be encoded: %v", err)
	}
	return string(data), nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
