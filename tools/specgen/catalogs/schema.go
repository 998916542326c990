package catalogs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// Schema is the part of a JSON Schema node from which Go types and
// documentation are made. Properties and definitions keep the order of the file.
type Schema struct {
	// Path is the node's place in its file, for example $defs.Module.properties.path.
	Path string
	// Title names the Go type of the root.
	Title string
	// Description explains the node.
	Description string
	// GoName overrides the Go name of the property (keyword x-go-name).
	GoName string
	// Ref is the name of a definition, empty when the node stands for itself.
	Ref string
	// Type is object, array, string, integer, number or boolean.
	Type string
	// Enum holds the allowed strings.
	Enum []string
	// Default is the default as text, nil when there is none.
	Default *string
	// Properties of an object with fixed keys.
	Properties []Property
	// Required keys.
	Required []string
	// Values is the schema of an object's values under free keys.
	Values *Schema
	// Keys is the schema of those keys.
	Keys *Schema
	// Items is the schema of an array's items.
	Items *Schema
	// Definitions are the root's named schemas.
	Definitions []Property
	// Limits holds the bounds as text by keyword: minimum, maxLength, pattern, ...
	Limits map[string]string
}

// Property is a named schema.
type Property struct {
	// Name is the JSON key.
	Name string
	// Schema is its value's schema.
	Schema *Schema
}

// limitKeywords are the keywords without influence on types that documentation shows.
var limitKeywords = []string{
	"minimum", "maximum", "minLength", "maxLength", "pattern",
	"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
}

// ignoredKeywords constrain values in ways that neither types nor documentation repeat.
var ignoredKeywords = []string{"$schema", "$id", "dependentRequired", "if", "then", "else"}

// LoadSchema reads the schema of one catalog.
func LoadSchema(ws *workspace.Workspace, name string) (*Schema, error) {
	file := specFolder + "/" + name + schemaSuffix
	text, err := os.ReadFile(filepath.Join(ws.SpecDir, filepath.FromSlash(file)))
	if err != nil {
		return nil, fmt.Errorf("reading spec/%s: %w", file, err)
	}
	schema, err := parseSchema(text)
	if err != nil {
		return nil, fmt.Errorf("reading spec/%s: %w", file, err)
	}
	return schema, nil
}

func singleDocument(text []byte) error {
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	var first, second yamlv3.Node
	if err := decoder.Decode(&first); err != nil {
		return fmt.Errorf("want one YAML document: %w", err)
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return errors.New("want one YAML document, found several")
	}
	return nil
}

func parseSchema(text []byte) (*Schema, error) {
	if err := singleDocument(text); err != nil {
		return nil, err
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	root, err := parseNode(document.Content[0], "")
	if err != nil {
		return nil, err
	}
	if root.Title == "" {
		return nil, errors.New("title: required, it names the Go type")
	}
	if root.Type != "object" || len(root.Properties) == 0 {
		return nil, errors.New("type: the root must be an object with properties")
	}
	return root, checkReferences(root, root)
}

func parseNode(node *yamlv3.Node, path string) (*Schema, error) {
	if node.Kind != yamlv3.MappingNode {
		return nil, fmt.Errorf("%s: must be a mapping (line %d)", orRoot(path), node.Line)
	}
	schema := &Schema{Path: path, Limits: map[string]string{}}
	closed := false
	for i := 0; i < len(node.Content); i += 2 {
		keyword, value := node.Content[i].Value, node.Content[i+1]
		if err := schema.keyword(keyword, value, &closed); err != nil {
			return nil, err
		}
	}
	switch {
	case schema.Ref != "" && schema.Type != "":
		return nil, fmt.Errorf("%s: type beside $ref", orRoot(path))
	case schema.Ref == "" && schema.Type == "":
		return nil, fmt.Errorf("%s: neither type nor $ref", orRoot(path))
	case schema.Type == "object" && schema.Properties == nil && schema.Values == nil:
		return nil, fmt.Errorf("%s: an object needs properties or additionalProperties with a schema", orRoot(path))
	case schema.Properties != nil && !closed:
		return nil, fmt.Errorf("%s.additionalProperties: must be false beside properties", orRoot(path))
	case schema.Properties != nil && schema.Values != nil:
		return nil, fmt.Errorf("%s: properties beside a schema for additionalProperties", orRoot(path))
	case schema.Type == "array" && schema.Items == nil:
		return nil, fmt.Errorf("%s.items: required for an array", orRoot(path))
	}
	return schema, nil
}

// keyword reads one keyword of a node; closed is set by additionalProperties: false.
func (s *Schema) keyword(keyword string, value *yamlv3.Node, closed *bool) (err error) {
	at := func(name string) string { return strings.TrimPrefix(s.Path+"."+name, ".") }
	switch keyword {
	case "title":
		s.Title = value.Value
	case "description":
		s.Description = strings.TrimSpace(value.Value)
	case "x-go-name":
		s.GoName = value.Value
	case "type":
		types := []string{"object", "array", "string", "integer", "number", "boolean"}
		if !slices.Contains(types, value.Value) {
			return fmt.Errorf("%s: %q, must be one of %s", at("type"), value.Value, strings.Join(types, ", "))
		}
		s.Type = value.Value
	case "$ref":
		name, local := strings.CutPrefix(value.Value, "#/$defs/")
		if !local || name == "" {
			return fmt.Errorf("%s: %q, must point to #/$defs/<name> of the same file", at("$ref"), value.Value)
		}
		s.Ref = name
	case "enum":
		if err := value.Decode(&s.Enum); err != nil || len(s.Enum) == 0 {
			return fmt.Errorf("%s: must be a list of strings", at("enum"))
		}
	case "default":
		s.Default = &value.Value
	case "required":
		if err := value.Decode(&s.Required); err != nil {
			return fmt.Errorf("%s: must be a list of keys", at("required"))
		}
	case "properties":
		s.Properties, err = parseProperties(value, at("properties"))
		return err
	case "$defs":
		s.Definitions, err = parseProperties(value, at("$defs"))
		return err
	case "additionalProperties":
		if value.Kind == yamlv3.ScalarNode {
			*closed = value.Value == "false"
			if !*closed {
				return fmt.Errorf("%s: %q, must be false or a schema", at(keyword), value.Value)
			}
			return nil
		}
		s.Values, err = parseNode(value, at(keyword))
		return err
	case "propertyNames":
		// Keys are strings; a bare pattern or enum is enough here.
		s.Keys = &Schema{Path: at(keyword), Type: "string", Limits: map[string]string{}}
		for i := 0; i < len(value.Content); i += 2 {
			ignored := false
			if err := s.Keys.keyword(value.Content[i].Value, value.Content[i+1], &ignored); err != nil {
				return err
			}
		}
	case "items":
		s.Items, err = parseNode(value, at(keyword))
		return err
	default:
		switch {
		case slices.Contains(limitKeywords, keyword):
			s.Limits[keyword] = value.Value
		case !slices.Contains(ignoredKeywords, keyword):
			return fmt.Errorf("%s: keyword not understood", at(keyword))
		}
	}
	return nil
}

func parseProperties(node *yamlv3.Node, path string) ([]Property, error) {
	if node.Kind != yamlv3.MappingNode {
		return nil, fmt.Errorf("%s: must be a mapping (line %d)", path, node.Line)
	}
	properties := []Property{}
	for i := 0; i < len(node.Content); i += 2 {
		name := node.Content[i].Value
		schema, err := parseNode(node.Content[i+1], path+"."+name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(properties, func(p Property) bool { return p.Name == name }) {
			return nil, fmt.Errorf("%s.%s: defined twice", path, name)
		}
		properties = append(properties, Property{Name: name, Schema: schema})
	}
	return properties, nil
}

// Definition finds a named schema of the root.
func (s *Schema) Definition(name string) *Schema {
	for _, definition := range s.Definitions {
		if definition.Name == name {
			return definition.Schema
		}
	}
	return nil
}

// checkReferences finds references to nothing, references in a circle, required
// keys without property, and fields without description.
func checkReferences(root, node *Schema) error {
	if node.Ref != "" {
		for seen := map[string]bool{}; node.Ref != ""; {
			if seen[node.Ref] {
				return fmt.Errorf("%s.$ref: %q refers to itself", orRoot(node.Path), node.Ref)
			}
			seen[node.Ref] = true
			target := root.Definition(node.Ref)
			if target == nil {
				return fmt.Errorf("%s.$ref: no definition %q under $defs", orRoot(node.Path), node.Ref)
			}
			node = target
		}
		return nil
	}
	for _, name := range node.Required {
		if !slices.ContainsFunc(node.Properties, func(p Property) bool { return p.Name == name }) {
			return fmt.Errorf("%s.required: %q is not a property", orRoot(node.Path), name)
		}
	}
	children := slices.Concat(node.Properties, node.Definitions)
	for _, child := range children {
		// A reference may leave the description to what it refers to.
		if child.Schema.Description == "" && child.Schema.Ref == "" {
			return fmt.Errorf("%s.description: required", child.Schema.Path)
		}
	}
	for _, inner := range []*Schema{node.Values, node.Keys, node.Items} {
		if inner != nil {
			children = append(children, Property{Schema: inner})
		}
	}
	for _, child := range children {
		if err := checkReferences(root, child.Schema); err != nil {
			return err
		}
	}
	return nil
}

// zeroIsValid tells whether the zero value of a scalar passes the node's bounds.
func (s *Schema) zeroIsValid() bool {
	switch s.Type {
	case "string":
		if len(s.Enum) > 0 {
			return slices.Contains(s.Enum, "")
		}
		// No pattern of the catalogs matches the empty string.
		return s.Limits["pattern"] == "" && (s.Limits["minLength"] == "" || s.Limits["minLength"] == "0")
	case "integer", "number":
		if lowest, err := strconv.ParseFloat(s.Limits["minimum"], 64); err == nil && lowest > 0 {
			return false
		}
	}
	return true
}

func orRoot(path string) string {
	if path == "" {
		return "(root)"
	}
	return path
}
