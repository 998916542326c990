package gotypes

import (
	"bytes"
	"fmt"
	"go/format"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// printer writes one Go file.
type printer struct {
	body bytes.Buffer
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(&p.body, format, args...) }

// comment prints doc lines, then markers in the same group.
func (p *printer) comment(indent string, doc, markers []string) {
	for _, line := range doc {
		p.printf("%s%s\n", indent, strings.TrimRight("// "+line, " "))
	}
	if len(doc) > 0 && len(markers) > 0 {
		p.printf("%s//\n", indent)
	}
	for _, marker := range markers {
		p.printf("%s// +%s\n", indent, marker)
	}
}

// file adds package clause and imports and formats the whole.
func (p *printer) file(header, packageName, packageDoc string) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString(header)
	out.WriteString(packageDoc)
	fmt.Fprintf(&out, "package %s\n\n", packageName)
	var aliases []string
	for alias := range importPaths {
		if bytes.Contains(p.body.Bytes(), []byte(alias+".")) && usesPackage(p.body.String(), alias) {
			aliases = append(aliases, alias)
		}
	}
	slices.SortFunc(aliases, func(a, b string) int { return strings.Compare(importPaths[a], importPaths[b]) })
	if len(aliases) > 0 {
		out.WriteString("import (\n")
		for _, alias := range aliases {
			if strings.HasSuffix(importPaths[alias], "/"+alias) {
				fmt.Fprintf(&out, "\t%q\n", importPaths[alias])
			} else {
				fmt.Fprintf(&out, "\t%s %q\n", alias, importPaths[alias])
			}
		}
		out.WriteString(")\n\n")
	}
	out.Write(p.body.Bytes())
	formatted, err := format.Source(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("formatting generated Go: %w", err)
	}
	return formatted, nil
}

// usesPackage looks for the alias in code, not in comments.
func usesPackage(body, alias string) bool {
	for _, line := range strings.Split(body, "\n") {
		if code := strings.TrimSpace(line); !strings.HasPrefix(code, "//") && strings.Contains(code, alias+".") {
			return true
		}
	}
	return false
}

// kindMarkers are the markers of the root type: names, scope, columns,
// subresources, and what the code generators want.
func kindMarkers(crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion, hasStatus bool) []string {
	spec := crd.Spec
	var m markers
	m.flag("genclient")
	if spec.Scope == apiextensionsv1.ClusterScoped {
		m.flag("genclient:nonNamespaced")
	}
	subresources := version.Subresources
	if hasStatus && (subresources == nil || subresources.Status == nil) {
		m.flag("genclient:noStatus")
	}
	m.add("k8s:deepcopy-gen:interfaces", "k8s.io/apimachinery/pkg/runtime.Object")
	m.flag("kubebuilder:object:root=true")
	if subresources != nil && subresources.Status != nil {
		m.flag("kubebuilder:subresource:status")
	}
	if subresources != nil && subresources.Scale != nil {
		scale := subresources.Scale
		argument := "specpath=" + quote(scale.SpecReplicasPath) + ",statuspath=" + quote(scale.StatusReplicasPath)
		if scale.LabelSelectorPath != nil {
			argument += ",selectorpath=" + quote(*scale.LabelSelectorPath)
		}
		m.flag("kubebuilder:subresource:scale:" + argument)
	}
	resource := "path=" + quote(spec.Names.Plural)
	if spec.Names.Singular != "" {
		resource += ",singular=" + quote(spec.Names.Singular)
	}
	if len(spec.Names.ShortNames) > 0 {
		resource += ",shortName=" + quoteList(spec.Names.ShortNames)
	}
	if len(spec.Names.Categories) > 0 {
		resource += ",categories=" + quoteList(spec.Names.Categories)
	}
	m.flag("kubebuilder:resource:" + resource + ",scope=" + string(spec.Scope))
	if version.Storage {
		m.flag("kubebuilder:storageversion")
	}
	if !version.Served {
		m.flag("kubebuilder:unservedversion")
	}
	if version.Deprecated {
		warning := ""
		if version.DeprecationWarning != nil {
			warning = ":warning=" + quote(*version.DeprecationWarning)
		}
		m.flag("kubebuilder:deprecatedversion" + warning)
	}
	for _, column := range version.AdditionalPrinterColumns {
		argument := "name=" + quote(column.Name) + ",type=" + quote(column.Type) + ",JSONPath=" + quote(column.JSONPath)
		if column.Description != "" {
			argument += ",description=" + quote(column.Description)
		}
		if column.Format != "" {
			argument += ",format=" + quote(column.Format)
		}
		if column.Priority != 0 {
			argument += fmt.Sprintf(",priority=%d", column.Priority)
		}
		m.flag("kubebuilder:printcolumn:" + argument)
	}
	for _, selectable := range version.SelectableFields {
		m.flag("kubebuilder:selectablefield:JSONPath=" + quote(selectable.JSONPath))
	}
	if len(crd.Labels) > 0 {
		var labels []string
		for _, key := range sortedKeys(crd.Labels) {
			labels = append(labels, key+"="+crd.Labels[key])
		}
		m.flag("kubebuilder:metadata:labels=" + quoteList(labels))
	}
	return m.lines
}

func quoteList(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = quote(value)
	}
	return "{" + strings.Join(quoted, ",") + "}"
}

// decl prints one type declaration with its constants.
func (p *printer) decl(e *emitter, d *typeDecl) {
	doc := commentLines(d.doc)
	where := d.short
	if where == "" {
		where = "the object"
	}
	if len(doc) == 0 {
		// Apart from the declaration: a doc comment would become the description of
		// every field of this type that has none.
		p.printf("// %s is the type of %s.\n\n", d.name, sanitizeLine(where))
	}
	p.comment("", doc, d.markers)
	switch {
	case d.underlying == "":
		p.structDecl(d)
	case d.alias:
		p.printf("type %s = %s\n\n", d.name, d.underlying)
	default:
		p.printf("type %s %s\n\n", d.name, d.underlying)
	}
	if len(d.values) > 0 {
		p.printf("// Values of %s.\nconst (\n", d.name)
		for _, value := range d.values {
			p.printf("\t// %s is the value %s of %s.\n", value.name, sanitizeLine(value.literal), sanitizeLine(where))
			p.printf("\t%s %s = %s\n", value.name, d.name, value.literal)
		}
		p.printf(")\n\n")
	}
	if d.wraps != "" {
		p.wrapper(d)
	}
	if d.extra || len(d.nulls) > 0 {
		p.codec(d)
	}
}

// sanitizeLine makes text safe for one comment line.
func sanitizeLine(text string) string {
	return strings.Join(strings.Fields(sanitize(text)), " ")
}

func (p *printer) structDecl(d *typeDecl) {
	p.printf("type %s struct {\n", d.name)
	for i, f := range d.fields {
		if i > 0 && (len(f.doc) > 0 || len(f.markers) > 0) {
			p.printf("\n")
		}
		p.comment("\t", commentLines(f.doc), f.markers)
		name := f.name
		if f.embedded {
			name = ""
		}
		p.printf("\t%s %s `json:%q`\n", name, f.text, f.tag)
	}
	if d.extra {
		p.printf("\n\t// Extra holds the keys that the schema does not declare but preserves, with their values as they are.\n")
		p.printf("\tExtra map[string]apiextensionsv1.JSON `json:\"-\"`\n")
	}
	if len(d.nulls) > 0 {
		p.printf("\n\t// Nulls names the nullable properties that are given as null; a nil field that is not named is absent.\n")
		p.printf("\tNulls []string `json:\"-\"`\n")
	}
	p.printf("}\n\n")
}

// wrapper prints the JSON methods of a type that stands for one of another package.
func (p *printer) wrapper(d *typeDecl) {
	p.printf("// MarshalJSON encodes the value as %s does.\n", d.wraps)
	p.printf("func (in %s) MarshalJSON() ([]byte, error) { return (*%s)(&in).MarshalJSON() }\n\n", d.name, d.wraps)
	p.printf("// UnmarshalJSON decodes the value as %s does.\n", d.wraps)
	p.printf("func (in *%s) UnmarshalJSON(data []byte) error { return (*%s)(in).UnmarshalJSON(data) }\n\n", d.name, d.wraps)
}

// codec prints the JSON methods of a struct that keeps more than its fields.
func (p *printer) codec(d *typeDecl) {
	known := make([]string, len(d.known))
	for i, name := range d.known {
		known[i] = fmt.Sprintf("%q", name)
	}
	nulls := make([]string, len(d.nulls))
	for i, name := range d.nulls {
		nulls[i] = fmt.Sprintf("%q", name)
	}
	extraOut, nullsOut, extraIn, nullsIn := "nil", "nil", "nil", "nil"
	if d.extra {
		extraOut, extraIn = "in.Extra", "&in.Extra"
	}
	if len(d.nulls) > 0 {
		nullsOut, nullsIn = "in.Nulls", "&in.Nulls"
	}
	p.printf("// MarshalJSON encodes the fields and what is kept beside them.\n")
	p.printf("func (in %s) MarshalJSON() ([]byte, error) {\n\ttype plain %s\n", d.name, d.name)
	p.printf("\treturn encodeKept((*plain)(&in), %s, %s)\n}\n\n", extraOut, nullsOut)
	p.printf("// UnmarshalJSON decodes the fields and keeps what has none.\n")
	p.printf("func (in *%s) UnmarshalJSON(data []byte) error {\n\ttype plain %s\n", d.name, d.name)
	p.printf("\treturn decodeKept(data, (*plain)(in), []string{%s}, %s, []string{%s}, %s)\n}\n\n",
		strings.Join(known, ", "), extraIn, strings.Join(nulls, ", "), nullsIn)
}

// keptSource is the body shared by all codecs of a package.
const keptSource = `package %s

import (
	"encoding/json"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// decodeKept decodes fields into plain, a type without JSON methods, and keeps
// beside it unknown keys (when extra is not nil) and explicit nulls of nullable
// properties (when nulls is not nil).
func decodeKept(data []byte, plain any, known []string, extra *map[string]apiextensionsv1.JSON, nullable []string, nulls *[]string) error {
	// Keys are case-sensitive, as everywhere in the Kubernetes API.
	if err := utiljson.Unmarshal(data, plain); err != nil {
		return err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return err
	}
	if extra != nil {
		*extra = nil
	}
	if nulls != nil {
		*nulls = nil
	}
	for key, value := range keys {
		switch {
		case slices.Contains(known, key):
			if nulls != nil && string(value) == "null" && slices.Contains(nullable, key) {
				*nulls = append(*nulls, key)
			}
		case extra != nil:
			if *extra == nil {
				*extra = map[string]apiextensionsv1.JSON{}
			}
			kept := apiextensionsv1.JSON{}
			if string(value) != "null" {
				kept.Raw = value
			}
			(*extra)[key] = kept
		}
	}
	if nulls != nil {
		slices.Sort(*nulls)
	}
	return nil
}

// encodeKept encodes plain and adds what was kept; a field that is set wins.
func encodeKept(plain any, extra map[string]apiextensionsv1.JSON, nulls []string) ([]byte, error) {
	data, err := json.Marshal(plain)
	if err != nil || len(extra) == 0 && len(nulls) == 0 {
		return data, err
	}
	keys := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, err
	}
	for key, value := range extra {
		if _, set := keys[key]; set {
			continue
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		keys[key] = raw
	}
	for _, key := range nulls {
		if _, set := keys[key]; !set {
			keys[key] = json.RawMessage("null")
		}
	}
	return json.Marshal(keys)
}
`
