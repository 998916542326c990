package catalogs

import (
	"bytes"
	"fmt"
	"go/format"
	"slices"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// typeSet collects the declarations of all catalogs, which share one package.
type typeSet struct {
	// declared maps every package-level name to the place that declared it.
	declared map[string]string
}

func newTypeSet() *typeSet { return &typeSet{declared: map[string]string{}} }

// writer renders one catalog.
type writer struct {
	types *typeSet
	root  *Schema
	name  string
	out   bytes.Buffer
	// later holds enumerations found inside structs.
	later bytes.Buffer
}

// render makes the Go file of one catalog.
func (t *typeSet) render(name string, root *Schema) ([]byte, error) {
	w := &writer{types: t, root: root, name: name}
	if err := fileTemplate.Execute(&w.out, map[string]string{
		"Header": workspace.Header,
		"Type":   root.Title,
		"Name":   name,
		"Title":  catalogTitle(root.Title),
		"Var":    strings.ToLower(root.Title[:1]) + root.Title[1:],
	}); err != nil {
		return nil, err
	}
	for _, declared := range []string{"Parse" + root.Title, "Shipped" + root.Title + "JSON", root.Title + "SchemaJSON"} {
		if err := w.declare(declared, root.Path); err != nil {
			return nil, err
		}
	}
	if err := w.structType(root.Title, root); err != nil {
		return nil, err
	}
	for _, definition := range root.Definitions {
		var err error
		switch {
		case definition.Schema.Properties != nil:
			err = w.structType(definition.Name, definition.Schema)
		case len(definition.Schema.Enum) > 0:
			err = w.enumType(definition.Name, definition.Schema)
		}
		if err != nil {
			return nil, err
		}
	}
	w.out.Write(w.later.Bytes())
	source, err := format.Source(w.out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("formatting the types of the %s catalog: %w", name, err)
	}
	return source, nil
}

var fileTemplate = template.Must(template.New("catalog").Parse(`{{.Header}}package catalogs

import (
	_ "embed"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed {{.Name}}.json
var shipped{{.Type}} string

//go:embed {{.Name}}.schema.json
var {{.Var}}Schema string

var compiled{{.Type}} = sync.OnceValues(func() (*jsonschema.Schema, error) {
	return compileSchema([]byte({{.Var}}Schema))
})

// Shipped{{.Type}}JSON returns the {{.Title}} that the product ships, as compact
// JSON with sorted keys and a final line break.
func Shipped{{.Type}}JSON() []byte { return []byte(shipped{{.Type}}) }

// {{.Type}}SchemaJSON returns the JSON Schema (draft 2020-12) of the {{.Title}}.
func {{.Type}}SchemaJSON() []byte { return []byte({{.Var}}Schema) }

// Parse{{.Type}} reads a {{.Title}} and checks it against its schema. Unknown and
// repeated keys are errors; a breach of the schema is an *InvalidError, which
// names path, rule and value.
func Parse{{.Type}}(data []byte) (*{{.Type}}, error) {
	schema, err := compiled{{.Type}}()
	if err != nil {
		return nil, err
	}
	catalog := new({{.Type}})
	if err := parse("{{.Title}}", schema, data, catalog); err != nil {
		return nil, err
	}
	return catalog, nil
}
`))

// catalogTitle turns ModuleCatalog into "module catalog".
func catalogTitle(typeName string) string {
	return strings.ToLower(strings.Join(words(typeName), " "))
}

func (w *writer) declare(name, place string) error {
	if first, taken := w.types.declared[name]; taken {
		return fmt.Errorf("%s: the Go name %s is already taken by %s", orRoot(place), name, first)
	}
	if !isExported(name) {
		return fmt.Errorf("%s: %q is no exported Go name", orRoot(place), name)
	}
	w.types.declared[name] = w.name + " " + orRoot(place)
	return nil
}

func (w *writer) structType(name string, schema *Schema) error {
	if err := w.declare(name, schema.Path); err != nil {
		return err
	}
	fmt.Fprintf(&w.out, "\n%stype %s struct {\n", comment("", name+": "+schema.Description), name)
	taken := map[string]string{}
	for _, property := range schema.Properties {
		field := property.Schema.GoName
		if field == "" {
			field = goName(property.Name)
		}
		if other, twice := taken[field]; twice {
			return fmt.Errorf("%s: has the Go name %s of %s; set x-go-name", property.Schema.Path, field, other)
		}
		taken[field] = property.Name
		if !isExported(field) {
			return fmt.Errorf("%s: %q gives no exported Go name; set x-go-name", property.Schema.Path, property.Name)
		}
		goType, tag, err := w.field(name+field, property, slices.Contains(schema.Required, property.Name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&w.out, "%s\t%s %s `json:\"%s\"`\n", comment("\t", w.fieldDoc(property.Schema)), field, goType, tag)
	}
	w.out.WriteString("}\n")
	return nil
}

// fieldDoc is the description with the default, which a Go type cannot show.
func (w *writer) fieldDoc(schema *Schema) string {
	doc := schema.Description
	if doc == "" && schema.Ref != "" {
		doc = w.root.Definition(schema.Ref).Description
	}
	if schema.Default != nil {
		doc += " Default: " + *schema.Default + "."
	}
	return doc
}

// field gives the Go type and JSON tag of a property. Optional values whose
// zero is a value of its own become pointers, unless zero is the default.
func (w *writer) field(path string, property Property, required bool) (goType, tag string, err error) {
	goType, err = w.goType(path, property.Schema)
	if err != nil || required {
		return goType, property.Name, err
	}
	target := property.Schema
	for target.Ref != "" {
		target = w.root.Definition(target.Ref)
	}
	switch target.Type {
	case "object", "array":
		if target.Properties != nil {
			goType = "*" + goType
		}
	default:
		zeroDefault := property.Schema.Default != nil && slices.Contains([]string{"", "0", "false"}, *property.Schema.Default)
		if target.zeroIsValid() && !zeroDefault {
			goType = "*" + goType
		}
	}
	return goType, property.Name + ",omitempty", nil
}

func (w *writer) goType(path string, schema *Schema) (string, error) {
	if schema.Ref != "" {
		target := w.root.Definition(schema.Ref)
		if target.Properties != nil || len(target.Enum) > 0 {
			return schema.Ref, nil
		}
		return w.goType(schema.Ref, target)
	}
	switch schema.Type {
	case "string":
		if len(schema.Enum) == 0 {
			return "string", nil
		}
		// Enumerations are declared after the structs that use them.
		structs := w.out
		w.out = bytes.Buffer{}
		err := w.enumType(path, schema)
		w.later.Write(w.out.Bytes())
		w.out = structs
		return path, err
	case "integer":
		return "int64", nil
	case "number":
		return "float64", nil
	case "boolean":
		return "bool", nil
	case "array":
		item, err := w.goType(path+"Item", schema.Items)
		return "[]" + item, err
	}
	if schema.Properties != nil {
		return "", fmt.Errorf("%s: an object with properties needs a name; move it to $defs", schema.Path)
	}
	value, err := w.goType(path+"Value", schema.Values)
	return "map[string]" + value, err
}

func (w *writer) enumType(name string, schema *Schema) error {
	if schema.Type != "string" {
		return fmt.Errorf("%s.enum: only strings can be enumerated", schema.Path)
	}
	if err := w.declare(name, schema.Path); err != nil {
		return err
	}
	doc := schema.Description
	if doc == "" {
		doc = "one of the constants below."
	}
	fmt.Fprintf(&w.out, "\n%stype %s string\n\n// Values of %s.\nconst (\n", comment("", name+": "+doc), name, name)
	for _, value := range schema.Enum {
		constant := name + goName(value)
		if err := w.declare(constant, schema.Path+".enum"); err != nil {
			return err
		}
		fmt.Fprintf(&w.out, "\t// %s is the value %q.\n\t%s %s = %q\n", constant, value, constant, name, value)
	}
	w.out.WriteString(")\n")
	return nil
}

// initialisms are written in capitals in Go names.
var initialisms = []string{
	"URL", "UID", "ID", "API", "CPU", "GPU", "RAM", "VRAM", "KV", "CA", "CRD", "PCI", "HTTP", "HTTPS", "TLS", "JSON", "YAML",
	"OCI", "LLM", "IP", "DNS", "SSO", "OS", "DRA",
}

// goName turns a key or an enumeration value into the tail of a Go name.
func goName(key string) string {
	var name strings.Builder
	for _, word := range words(key) {
		upper := strings.ToUpper(word)
		singular := strings.TrimSuffix(upper, "S")
		switch {
		case slices.Contains(initialisms, upper):
			name.WriteString(upper)
		case singular != upper && slices.Contains(initialisms, singular):
			name.WriteString(singular + "s")
		default:
			first, size := utf8.DecodeRuneInString(word)
			name.WriteRune(unicode.ToUpper(first))
			name.WriteString(word[size:])
		}
	}
	return name.String()
}

// words splits a key at every character that a Go name cannot have and at every
// step from a small letter to a capital.
func words(key string) []string {
	var split []string
	start := -1
	previous := rune(0)
	for i, r := range key {
		letter := unicode.IsLetter(r) || unicode.IsDigit(r)
		if start >= 0 && (!letter || unicode.IsUpper(r) && unicode.IsLower(previous)) {
			split = append(split, key[start:i])
			start = -1
		}
		if letter && start < 0 {
			start = i
		}
		previous = r
	}
	if start >= 0 {
		split = append(split, key[start:])
	}
	return split
}

func isExported(name string) bool {
	first, _ := utf8.DecodeRuneInString(name)
	if !unicode.IsUpper(first) {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// comment wraps text at 100 columns as a Go comment.
func comment(indent, text string) string {
	var out strings.Builder
	line := indent + "//"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > 100 && line != indent+"//" {
			out.WriteString(line + "\n")
			line = indent + "//"
		}
		line += " " + word
	}
	return out.String() + line + "\n"
}
