package gotypes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// typeDecl is one type declaration.
type typeDecl struct {
	name string
	// short is the path of the node that the type was made for.
	short string
	// doc is the description that controller-tools reads back. When it is empty the
	// printed comment stands apart, so that it does not leak into the schema.
	doc     string
	markers []string
	// underlying is the type expression of everything but structs.
	underlying string
	alias      bool
	// wraps is the type of another package whose JSON methods the type borrows.
	wraps  string
	fields []fieldDecl
	values []enumValue
	// extra keeps unknown keys, nulls explicit nulls of the named properties.
	extra bool
	nulls []string
	known []string
	// kind is set for the root type.
	kind bool
}

type fieldDecl struct {
	name, text, tag, doc string
	markers              []string
	embedded             bool
}

type enumValue struct {
	name, literal, shown string
}

// emitter makes the declarations of one version of one CRD.
type emitter struct {
	kind  string
	decls []*typeDecl
	taken map[string]bool
	// exact and loose find a struct that was already declared, see shared.
	exact, loose map[string]*typeDecl
}

func newEmitter(kind string) *emitter {
	return &emitter{kind: kind, taken: map[string]bool{}, exact: map[string]*typeDecl{}, loose: map[string]*typeDecl{}}
}

// declare adds a type under name, or the name with a number when the kind already
// has such a type (fooBar.baz beside foo.barBaz).
func (e *emitter) declare(n *node, name string) *typeDecl {
	unique := name
	for i := 2; e.taken[unique]; i++ {
		unique = name + strconv.Itoa(i)
	}
	e.taken[unique] = true
	decl := &typeDecl{name: unique, short: n.short}
	e.decls = append(e.decls, decl)
	return decl
}

// titled puts the type's name before the description of a property that it is made
// for, as Go wants it. The field carries the description as it is. A type for items
// or map values cannot have the name there, because controller-tools reads their
// description from the type.
func (d *typeDecl) titled(description string) string {
	if description == "" || strings.HasPrefix(description, d.name+" ") {
		return description
	}
	return d.name + ": " + description
}

// addOwn puts a keyword set on the declaration.
func (d *typeDecl) addOwn(n *node, o own) error {
	line, err := o.marker()
	if err != nil {
		return n.errorf("cannot be encoded: %v", err)
	}
	d.markers = append(d.markers, line)
	return nil
}

// shared finds a declared struct of equal shape. A struct used for items carries
// their description and defaults itself, so those must be equal too; a field has
// its own, and only a field without description must not inherit the type's.
func (e *emitter) shared(n *node) (*typeDecl, string, error) {
	key := n.shape
	if n.position == propertyPosition {
		if n.schema.Description != "" {
			if decl := e.loose[n.shape]; decl != nil {
				return decl, "", nil
			}
			return nil, "", nil
		}
		key += "{}"
	} else {
		place, err := n.place()
		if err != nil {
			return nil, "", err
		}
		key += place
		if n.position == valuePosition && hasCodec(n) {
			key += "value"
		}
	}
	return e.exact[key], key, nil
}

func plainPlace(s *apiextensionsv1.JSONSchemaProps) bool {
	return !s.Nullable && s.Default == nil && s.Example == nil && s.Title == ""
}

// hasCodec tells whether the struct needs JSON methods of its own.
func hasCodec(n *node) bool {
	if preserves(n.schema) || n.schema.XEmbeddedResource {
		return true
	}
	return slices.ContainsFunc(n.properties, func(p property) bool { return !p.required && p.node.schema.Nullable })
}

// structure makes the struct of an object with properties, or the empty struct of
// an object that can have no content at all.
func (e *emitter) structure(n *node, name string) (expr, error) {
	s := n.schema
	x := expr{form: structForm}
	codec := hasCodec(n)
	var typeLevel markers
	if codec {
		// controller-tools takes a type with JSON methods for opaque before it has
		// looked at the fields, and refuses bounds there; they stay with the place.
		var bounds markers
		bounds.bounds(s, "object")
		switch {
		case n.position == propertyPosition || n.position == itemPosition:
			x.markers = bounds
			if len(bounds.lines) > 0 {
				x.markers.add(validation+"Type", "object")
			}
		default:
			for keyword, value := range map[string]*int64{"maxProperties": s.MaxProperties, "minProperties": s.MinProperties} {
				if value != nil {
					typeLevel.keyword(keyword, *value)
				}
			}
		}
		for keyword, value := range bounds.own {
			typeLevel.keyword(keyword, value)
		}
		x.markers.own = nil
	} else {
		typeLevel.bounds(s, "object")
	}
	decl, key, err := e.shared(n)
	if err != nil {
		return expr{}, err
	}
	if decl != nil && n.position != rootPosition {
		x.text = decl.name
		return x, nil
	}
	decl = e.declare(n, name)
	x.text = decl.name
	decl.doc = s.Description
	if n.position == propertyPosition {
		decl.doc = decl.titled(s.Description)
	}
	decl.extra = preserves(s) || s.XEmbeddedResource
	typeLevel.topology(s, "object", "structType")
	typeLevel.logic(s)
	typeLevel.enum(s)
	typeLevel.format(s, "")
	if preserves(s) {
		typeLevel.flag("kubebuilder:pruning:PreserveUnknownFields")
	}
	if s.XEmbeddedResource {
		typeLevel.flag(validation + "XEmbeddedResource")
	}
	if n.position == itemPosition || n.position == valuePosition {
		typeLevel.place(s)
	}
	if err := e.fields(n, decl, &typeLevel); err != nil {
		return expr{}, err
	}
	decl.markers = append(decl.markers, typeLevel.lines...)
	for _, o := range keywordSet(typeLevel.own) {
		if err := decl.addOwn(n, o); err != nil {
			return expr{}, err
		}
	}
	if key != "" {
		e.exact[key] = decl
	}
	if e.loose[n.shape] == nil && (n.position == propertyPosition || plainPlace(s)) && !(n.position == valuePosition && codec) {
		e.loose[n.shape] = decl
	}
	return x, nil
}

// fields adds a field for every property.
func (e *emitter) fields(n *node, decl *typeDecl, typeLevel *markers) error {
	s := n.schema
	used := map[string]bool{}
	names := map[string]bool{}
	if n.position == rootPosition {
		if err := e.rootFields(n, decl, typeLevel); err != nil {
			return err
		}
		decl.known = append(decl.known, "apiVersion", "kind", "metadata")
	}
	for _, p := range n.properties {
		names[p.name] = true
		if n.position == rootPosition && (p.name == "apiVersion" || p.name == "kind" || p.name == "metadata") {
			continue
		}
		if err := checkTagName(p.name); err != nil {
			return p.node.errorf("%v", err)
		}
		name := goName(p.name)
		if reservedFields[name] || n.position == rootPosition && reservedRootFields[name] {
			name += "Field"
		}
		base := name
		for i := 2; used[name]; i++ {
			name = base + strconv.Itoa(i)
		}
		used[name] = true
		f, err := e.field(n, p, decl, name)
		if err != nil {
			return err
		}
		decl.known = append(decl.known, p.name)
		decl.fields = append(decl.fields, f)
	}
	for _, name := range s.Required {
		implied := n.position == rootPosition && name == "metadata"
		if !names[name] && !implied || n.position == rootPosition && (name == "apiVersion" || name == "kind") {
			// No field can say it: the name is not declared, or it is TypeMeta's.
			typeLevel.keyword("required", s.Required)
		}
	}
	return nil
}

// rootFields adds TypeMeta and ObjectMeta.
func (e *emitter) rootFields(n *node, decl *typeDecl, typeLevel *markers) error {
	meta := fieldDecl{text: "metav1.ObjectMeta", embedded: true, tag: "metadata,omitempty,omitzero", markers: []string{"optional"}}
	if slices.Contains(n.schema.Required, "metadata") {
		meta.tag, meta.markers = "metadata", []string{"required"}
	}
	for _, p := range n.properties {
		s := *p.node.schema
		s.Description = ""
		switch p.name {
		case "apiVersion", "kind":
			s.Type = ""
			if data, err := json.Marshal(s); err != nil || string(data) != "{}" {
				return p.node.errorf("has more than type and description; the API server alone decides about it")
			}
		case "metadata":
			meta.doc = p.node.schema.Description
			var m markers
			if len(s.Properties) > 0 {
				m.keyword("properties", s.Properties)
			}
			s.Properties = nil
			m.logic(&s)
			m.bounds(&s, "")
			m.place(&s)
			meta.markers = append(meta.markers, m.lines...)
			for _, o := range keywordSet(m.own) {
				line, err := o.marker()
				if err != nil {
					return p.node.errorf("cannot be encoded: %v", err)
				}
				meta.markers = append(meta.markers, line)
			}
		}
	}
	decl.fields = append(decl.fields, fieldDecl{text: "metav1.TypeMeta", embedded: true, tag: ",inline"}, meta)
	return nil
}

// checkTagName refuses JSON names that encoding/json takes for none in a struct tag.
func checkTagName(name string) error {
	if name == "" {
		return fmt.Errorf("the property name is empty")
	}
	for _, r := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return fmt.Errorf("the property name %q holds %q, which no Go struct tag can", name, r)
		}
	}
	return nil
}

// field makes the field of one property.
func (e *emitter) field(parent *node, p property, decl *typeDecl, name string) (fieldDecl, error) {
	n, s := p.node, p.node.schema
	var x expr
	if parent.schema.XEmbeddedResource && p.name == "metadata" && s.Type == "object" && len(s.Properties) == 0 && s.AdditionalProperties == nil && !preserves(s) {
		x = expr{text: objectMetaType, form: structForm, special: true}
		x.objectMarkers(n)
		x.markers.logic(s)
	} else {
		var err error
		if x, err = e.expr(n, decl.name+name); err != nil {
			return fieldDecl{}, err
		}
	}
	if x.named != nil {
		x.named.doc = x.named.titled(s.Description)
	}
	f := fieldDecl{name: name, text: x.text, doc: s.Description}
	pointer, omit := false, ""
	switch {
	case p.required:
		pointer = s.Nullable && (x.form == scalarForm || x.form == structForm)
	case x.form == sliceForm || x.form == mapForm:
		omit = ",omitzero"
	case parent.position == rootPosition && p.name == "status" && x.form == structForm && !s.Nullable:
		// An absent and an empty status mean the same, and a value is what every
		// controller and every generated client expects.
		omit = ",omitzero"
	case x.form == scalarForm && x.zeroInvalid && !x.special && !s.Nullable:
		omit = ",omitempty"
	default:
		pointer, omit = true, ",omitempty"
	}
	if pointer {
		f.text = "*" + f.text
	}
	f.tag = p.name + omit
	if f.tag == "-" {
		f.tag = "-,"
	}
	if p.required {
		f.markers = append(f.markers, "required")
	} else {
		f.markers = append(f.markers, "optional")
		if s.Nullable {
			decl.nulls = append(decl.nulls, p.name)
		}
	}
	f.markers = append(f.markers, x.markers.lines...)
	place := markers{own: x.markers.own}
	place.place(s)
	f.markers = append(f.markers, place.lines...)
	for _, o := range append(keywordSet(place.own), x.below...) {
		line, err := o.marker()
		if err != nil {
			return fieldDecl{}, n.errorf("cannot be encoded: %v", err)
		}
		f.markers = append(f.markers, line)
	}
	return f, nil
}
