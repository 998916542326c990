package gotypes

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Import paths of the packages that types refer to, by alias.
const (
	metaPackage       = "metav1"
	extensionsPackage = "apiextensionsv1"
	runtimePackage    = "runtime"
	resourcePackage   = "resource"
	intstrPackage     = "intstr"
)

var importPaths = map[string]string{
	metaPackage:       "k8s.io/apimachinery/pkg/apis/meta/v1",
	extensionsPackage: "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
	runtimePackage:    "k8s.io/apimachinery/pkg/runtime",
	resourcePackage:   "k8s.io/apimachinery/pkg/api/resource",
	intstrPackage:     "k8s.io/apimachinery/pkg/util/intstr",
}

// IsImportAlias tells whether generated types import a package by this name.
func IsImportAlias(name string) bool { return importPaths[name] != "" }

// Types of others that a node can become.
const (
	jsonType         = "apiextensionsv1.JSON"
	rawExtensionType = "runtime.RawExtension"
	intOrStringType  = "intstr.IntOrString"
	quantityType     = "resource.Quantity"
	timeType         = "metav1.Time"
	durationType     = "metav1.Duration"
	objectMetaType   = "metav1.ObjectMeta"
	conditionType    = "metav1.Condition"
)

// form is what matters about a Go type for pointers and tags.
type form int

const (
	scalarForm form = iota
	structForm
	sliceForm
	mapForm
	// jsonForm types hold any value and encode null themselves.
	jsonForm
)

// expr is a Go type expression for a node and what it asks of its place.
type expr struct {
	text string
	form form
	// zeroInvalid is true when the schema refuses the zero value of the Go type, so
	// that absent and zero need not be told apart.
	zeroInvalid bool
	// special is true for types of other packages.
	special bool
	markers markers
	// below are keywords of nodes under this one that have no declaration of their own.
	below []own
	// named is the type declaration made for exactly this node, which can carry the
	// node's markers; nil for shared and unnamed types.
	named *typeDecl
}

// expr makes the Go type of a node. name is the name of a type declared for it.
func (e *emitter) expr(n *node, name string) (expr, error) {
	s := n.schema
	x, err := e.base(n, name)
	if err != nil {
		return expr{}, err
	}
	if x.form == structForm && !x.special {
		return x, nil // the struct carries its own rules
	}
	x.markers.logic(s)
	if s.XIntOrString && isIntOrString(s.AnyOf) {
		delete(x.markers.own, "anyOf")
	}
	return x, nil
}

// base makes the Go type and all markers but those of logic and place.
func (e *emitter) base(n *node, name string) (expr, error) {
	s := n.schema
	switch {
	case s.XIntOrString:
		return e.intOrString(n), nil
	case s.Type == "":
		return e.anything(n)
	case s.Type == "object":
		return e.object(n, name)
	case s.Type == "array":
		return e.array(n, name)
	default:
		return e.scalar(n, name)
	}
}

// isIntOrString tells whether anyOf is the pattern that intstr.IntOrString brings.
func isIntOrString(anyOf []apiextensionsv1.JSONSchemaProps) bool {
	data, err := json.Marshal(anyOf)
	return err == nil && string(data) == `[{"type":"integer"},{"type":"string"}]`
}

// quantityPattern is the pattern that controller-tools gives resource.Quantity.
const quantityPattern = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

func (e *emitter) intOrString(n *node) expr {
	s := *n.schema
	x := expr{text: intOrStringType, special: true}
	if isIntOrString(s.AnyOf) && s.Pattern == quantityPattern && (n.position == propertyPosition || !n.wrapped()) {
		x.text = quantityType
		s.Pattern = ""
	}
	if !isIntOrString(s.AnyOf) && len(s.AnyOf) == 0 {
		x.markers.keyword("anyOf", nil)
	}
	x.markers.bounds(&s, "")
	x.markers.topology(&s, "", "mapType")
	x.markers.enum(&s)
	x.markers.format(&s, "")
	if len(x.markers.lines) > 0 {
		x.markers.flag(validation + "XIntOrString")
	}
	return x
}

// anything is a node without type that preserves unknown fields: any JSON value.
func (e *emitter) anything(n *node) (expr, error) {
	s := n.schema
	x := expr{text: jsonType, form: jsonForm, special: true}
	x.markers.bounds(s, "")
	x.markers.topology(s, "", "mapType")
	x.markers.enum(s)
	x.markers.format(s, "")
	// A value that may be a string or a list has no Go structure to take items from.
	if s.Items != nil {
		x.markers.keyword("items", s.Items)
	}
	if s.Properties != nil {
		x.markers.keyword("properties", s.Properties)
	}
	if s.AdditionalProperties != nil {
		x.markers.keyword("additionalProperties", s.AdditionalProperties)
	}
	if len(s.Required) > 0 {
		x.markers.keyword("required", s.Required)
	}
	return x, nil
}

func (m *markers) format(s *apiextensionsv1.JSONSchemaProps, implied string) {
	if s.Format != implied {
		m.add(validation+"Format", quote(s.Format))
	}
}

func (e *emitter) object(n *node, name string) (expr, error) {
	s := n.schema
	switch {
	case len(s.Properties) > 0:
		return e.structure(n, name)
	case s.AdditionalProperties != nil:
		return e.mapping(n, name)
	case s.XEmbeddedResource || preserves(s) && n.position == valuePosition:
		x := expr{text: rawExtensionType, form: jsonForm, special: true}
		x.objectMarkers(n)
		if s.XEmbeddedResource {
			x.markers.flag(validation + "XEmbeddedResource")
		}
		return x, nil
	case preserves(s):
		x := expr{text: jsonType, form: jsonForm, special: true}
		x.markers.add(validation+"Type", "object")
		x.objectMarkers(n)
		return x, nil
	default:
		return e.structure(n, name)
	}
}

// objectMarkers adds the bounds of an object that is not a struct of ours.
func (x *expr) objectMarkers(n *node) {
	s := n.schema
	before := len(x.markers.lines)
	x.markers.bounds(s, "object")
	x.markers.topology(s, "object", "mapType")
	if x.special && before == 0 && len(x.markers.lines) > 0 {
		// The type comes from another package; the bounds want to know it is an object.
		x.markers.add(validation+"Type", "object")
	}
	x.markers.enum(s)
	x.markers.format(s, "")
	if len(s.Required) > 0 {
		x.markers.keyword("required", s.Required)
	}
}

// mapping is an object with additionalProperties.
func (e *emitter) mapping(n *node, name string) (expr, error) {
	s := n.schema
	x := expr{form: mapForm}
	if n.values == nil { // additionalProperties: true
		x.text = "map[string]" + jsonType
		x.markers.keyword("additionalProperties", true)
	} else {
		value, err := e.element(n.values, name+"Value", &x)
		if err != nil {
			return expr{}, err
		}
		x.text = "map[string]" + value
	}
	x.objectMarkers(n)
	if preserves(s) {
		x.markers.flag("kubebuilder:pruning:PreserveUnknownFields")
	}
	return x, nil
}

func (e *emitter) array(n *node, name string) (expr, error) {
	s := n.schema
	x := expr{form: sliceForm}
	switch {
	case n.items == nil: // preserve-unknown; check refuses it otherwise
		x.text = "[]" + jsonType
		x.markers.keyword("items", nil)
	case isCondition(n.items):
		x.text = "[]" + conditionType
	default:
		item, err := e.element(n.items, name+"Item", &x)
		if err != nil {
			return expr{}, err
		}
		x.text = "[]" + item
	}
	x.markers.bounds(s, "array")
	x.markers.topology(s, "array", "mapType")
	x.markers.enum(s)
	x.markers.format(s, "")
	if preserves(s) {
		x.markers.flag("kubebuilder:pruning:PreserveUnknownFields")
	}
	return x, nil
}

// scalar is a string, number or boolean.
func (e *emitter) scalar(n *node, name string) (expr, error) {
	s := n.schema
	x := expr{zeroInvalid: zeroInvalid(s)}
	format := ""
	switch s.Type {
	case "string":
		x.text = "string"
		switch {
		case len(s.Enum) > 0 || n.position != propertyPosition && n.wrapped():
		case s.Format == "date-time":
			x.text, x.special, format = timeType, true, "date-time"
		case s.Format == "duration":
			x.text, x.special = durationType, true
		}
	case "integer":
		x.text, format = "int64", "int64"
		if s.Format == "int32" {
			x.text, format = "int32", "int32"
		}
	case "number":
		x.text = "float64"
	case "boolean":
		x.text = "bool"
	}
	if decl := e.enumType(n, name, x.text, format); decl != nil {
		x.text, x.named = decl.name, decl
		format = s.Format // on the type
	} else {
		x.markers.enum(s)
	}
	x.markers.format(s, format)
	x.markers.bounds(s, s.Type)
	x.markers.topology(s, s.Type, "mapType")
	if x.special && len(x.markers.lines) > 0 {
		x.markers.add(validation+"Type", "string")
	}
	if preserves(s) {
		x.markers.flag("kubebuilder:pruning:PreserveUnknownFields")
	}
	return x, nil
}

// wrapped tells whether the node, as an item or map value, needs markers that only a
// type declaration can carry: a type of another package cannot be used for it then.
func (n *node) wrapped() bool {
	s := n.schema
	if s.Nullable || s.Default != nil || s.Title != "" || s.Example != nil || s.ExternalDocs != nil {
		return true
	}
	pattern := s.Pattern
	if s.XIntOrString && pattern == quantityPattern {
		pattern = ""
	}
	return n.position == valuePosition &&
		(s.MaxLength != nil || s.MinLength != nil || pattern != "" || len(s.XValidations) > 0 || len(s.Enum) > 0 || s.XIntOrString && s.Format != "")
}

// zeroInvalid tells whether the schema refuses the Go zero value of a scalar.
func zeroInvalid(s *apiextensionsv1.JSONSchemaProps) bool {
	listed := func(zero string) bool {
		for _, value := range s.Enum {
			if strings.TrimSpace(string(value.Raw)) == zero {
				return true
			}
		}
		return len(s.Enum) == 0
	}
	switch s.Type {
	case "string":
		if s.MinLength != nil && *s.MinLength > 0 || !listed(`""`) {
			return true
		}
		if s.Pattern != "" {
			pattern, err := regexp.Compile(s.Pattern)
			return err == nil && !pattern.MatchString("")
		}
		return false
	case "integer", "number":
		return s.Minimum != nil && (*s.Minimum > 0 || *s.Minimum == 0 && s.ExclusiveMinimum) ||
			s.Maximum != nil && (*s.Maximum < 0 || *s.Maximum == 0 && s.ExclusiveMaximum) || !listed("0")
	case "boolean":
		return !listed("false")
	}
	return false
}

// element makes the Go type of items or map values. Markers that a list's field can
// carry for its items stay there; everything else gets a named type.
func (e *emitter) element(n *node, name string, parent *expr) (string, error) {
	x, err := e.expr(n, name)
	if err != nil {
		return "", err
	}
	if x.form == structForm && !x.special {
		for _, line := range x.markers.lines {
			parent.markers.flag(itemsMarker(line))
		}
		if n.schema.Nullable {
			return "*" + x.text, nil
		}
		return x.text, nil
	}
	step := "items"
	if n.position == valuePosition {
		step = "values"
	}
	var place markers
	place.place(n.schema)
	lift := func(below []own) {
		for _, o := range below {
			parent.below = append(parent.below, own{way: append([]string{step}, o.way...), keywords: o.keywords})
		}
	}
	keywords := x.markers.own
	for keyword, value := range place.own {
		if keywords == nil {
			keywords = map[string]any{}
		}
		keywords[keyword] = value
	}
	switch {
	case x.named != nil:
		x.named.markers = append(x.named.markers, append(x.markers.lines, place.lines...)...)
		x.named.doc = n.schema.Description
		lift(append(x.below, keywordSet(keywords)...))
	case len(place.lines) == 0 && (n.schema.Description == "" || x.special) && (len(x.markers.lines) == 0 ||
		n.position == itemPosition && allItems(x.markers.lines)):
		for _, line := range x.markers.lines {
			parent.markers.flag(itemsMarker(line))
		}
		if n.schema.Description != "" && x.special {
			if keywords == nil {
				keywords = map[string]any{}
			}
			keywords["description"] = n.schema.Description
		}
		lift(append(x.below, keywordSet(keywords)...))
	default:
		if x.form == jsonForm && hasMarker(x.markers.lines, validation+"Type") && n.schema.Description != "" {
			// controller-tools does not read the doc of a type that it takes as opaque.
			if keywords == nil {
				keywords = map[string]any{}
			}
			keywords["description"] = n.schema.Description
		}
		decl := e.declare(n, name)
		decl.doc = n.schema.Description
		decl.underlying = x.text
		decl.markers = append(x.markers.lines, place.lines...)
		for _, o := range append(x.below, keywordSet(keywords)...) {
			if err := decl.addOwn(n, o); err != nil {
				return "", err
			}
		}
		switch {
		case x.special && x.form == jsonForm:
			// A declared type with codec methods is taken as opaque: it must say all.
			decl.wraps = x.text
			if !hasMarker(decl.markers, "kubebuilder:pruning:PreserveUnknownFields") {
				decl.markers = append(decl.markers, "kubebuilder:pruning:PreserveUnknownFields")
			}
		case x.text == intOrStringType:
			decl.wraps = x.text
		case x.form == scalarForm:
			// An alias keeps []string and map[string]string what they are for Go code.
			// controller-tools takes the format of an aliased integer from Go, though.
			decl.alias = !hasMarker(decl.markers, validation+"Format") || n.schema.Type == "string"
		}
		x.text = decl.name
	}
	if n.schema.Nullable && x.form != sliceForm && x.form != mapForm && x.form != jsonForm {
		return "*" + x.text, nil
	}
	return x.text, nil
}

func hasMarker(lines []string, name string) bool {
	return slices.ContainsFunc(lines, func(line string) bool { return line == name || strings.HasPrefix(line, name+"=") })
}

func keywordSet(keywords map[string]any) []own {
	if len(keywords) == 0 {
		return nil
	}
	return []own{{keywords: keywords}}
}

// allItems tells whether every marker exists in an items variant.
func allItems(lines []string) bool {
	for _, line := range lines {
		if !strings.HasPrefix(line, validation) || strings.HasPrefix(line, validation+"items:") {
			return false
		}
	}
	return true
}

func itemsMarker(line string) string {
	return validation + "items:" + strings.TrimPrefix(line, validation)
}
