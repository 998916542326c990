package gotypes

import (
	"errors"
	"fmt"
	"go/format"
	"path"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// Layout gives the folder of a group's version, relative to the output root, with
// forward slashes.
type Layout func(group, version string) string

// ByShortGroup is the layout of generated/apis: the first DNS label of the group.
func ByShortGroup(group, version string) string {
	label, _, _ := strings.Cut(group, ".")
	return path.Join(label, version)
}

// Emit makes the Go types of all versions of all definitions and returns the files
// by name, as laid out. The order of the definitions does not matter. Errors name
// the file and the JSON path.
func Emit(definitions []*crd.Definition, layout Layout) (map[string][]byte, error) {
	definitions = slices.Clone(definitions)
	slices.SortStableFunc(definitions, func(a, b *crd.Definition) int { return strings.Compare(a.CRD.Name, b.CRD.Name) })
	packages := map[string]*goPackage{}
	for _, d := range definitions {
		for i := range d.CRD.Spec.Versions {
			version := &d.CRD.Spec.Versions[i]
			dir := layout(d.CRD.Spec.Group, version.Name)
			p := packages[dir]
			if p == nil {
				p = &goPackage{dir: dir, group: d.CRD.Spec.Group, version: version.Name, owners: map[string]string{}, files: map[string][]byte{}}
				packages[dir] = p
			}
			if p.group != d.CRD.Spec.Group || p.version != version.Name {
				return nil, d.Errorf("spec.group", "%q and %q would both be written to %s", p.group, d.CRD.Spec.Group, dir)
			}
			if err := p.add(d, i); err != nil {
				return nil, err
			}
		}
	}
	files := map[string][]byte{}
	for _, dir := range sortedKeys(packages) {
		if err := packages[dir].finish(files); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// goPackage collects the kinds of one group and version.
type goPackage struct {
	dir, group, version string
	// owners maps every declared name to the kind that declared it.
	owners map[string]string
	files  map[string][]byte
	codec  bool
}

// name is the package clause: the last folder, which is the API version.
func (p *goPackage) name() string { return path.Base(p.dir) }

// What becomes a folder, a package clause, a type name or an unquoted marker must be
// plain. An API server asks for more, but published CRDs hold placeholders.
var (
	plainGroup   = regexp.MustCompile(`^(\w[-\w]*(\.\w[-\w]*)*)?$`)
	plainVersion = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	plainKind    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
)

// checkNames refuses names that cannot be written to Go as they are.
func checkNames(d *crd.Definition, index int) error {
	spec := d.CRD.Spec
	switch {
	case !plainGroup.MatchString(spec.Group):
		return d.Errorf("spec.group", "%q is not words joined by dots", spec.Group)
	case !plainVersion.MatchString(spec.Versions[index].Name):
		return d.Errorf(fmt.Sprintf("spec.versions[%d].name", index), "%q is not a lower-case word, as a Go package needs", spec.Versions[index].Name)
	case !plainKind.MatchString(spec.Names.Kind):
		return d.Errorf("spec.names.kind", "%q is not a word of ASCII letters and digits", spec.Names.Kind)
	case spec.Scope != apiextensionsv1.ClusterScoped && spec.Scope != apiextensionsv1.NamespaceScoped:
		return d.Errorf("spec.scope", "%q is neither Cluster nor Namespaced", spec.Scope)
	}
	return nil
}

// add emits one version of one CRD.
func (p *goPackage) add(d *crd.Definition, index int) error {
	if err := checkNames(d, index); err != nil {
		return err
	}
	object, version := d.CRD, &d.CRD.Spec.Versions[index]
	at := field.NewPath("spec", "versions").Index(index).Child("schema", "openAPIV3Schema")
	fail := func(err error) error {
		var node *NodeError
		if errors.As(err, &node) {
			return d.Errorf(node.Path, "%s", node.Reason)
		}
		return d.Errorf(at.String(), "%v", err)
	}
	root, err := newNode(version.Schema.OpenAPIV3Schema, at, "", rootPosition)
	if err != nil {
		return fail(err)
	}
	kind := KindName(object.Spec.Names.Kind)
	e := newEmitter(kind)
	e.taken[kind+"List"] = true
	if _, err := e.structure(root, kind); err != nil {
		return fail(err)
	}
	e.nameConstants()
	decl := e.decls[0]
	decl.kind = true
	hasStatus := slices.ContainsFunc(decl.fields, func(f fieldDecl) bool { return f.name == "Status" })
	decl.markers = append(kindMarkers(object, version, hasStatus), decl.markers...)
	if err := p.claim(d, e, at.String()); err != nil {
		return err
	}
	var out printer
	for i, decl := range e.decls {
		out.decl(e, decl)
		p.codec = p.codec || decl.extra || len(decl.nulls) > 0
		if i == 0 {
			out.list(kind)
		}
	}
	data, err := out.file(workspace.Header, p.name(), "")
	if err != nil {
		return fail(err)
	}
	name := "types_" + strings.ToLower(kind) + ".go"
	if _, taken := p.files[name]; taken {
		return d.Errorf("spec.names.kind", "two kinds of %s/%s differ only in the case of letters: %s", p.group, p.version, kind)
	}
	p.files[name] = data
	return nil
}

// KindName is the Go type of a kind: the kind itself, with a capital first letter.
func KindName(kind string) string {
	name := goName(kind)
	if strings.EqualFold(name, kind) {
		// No word is an initialism, or only its capitals differ: the kind's own
		// spelling is what people type.
		return strings.ToUpper(kind[:1]) + kind[1:]
	}
	return name
}

// claim registers the names of a kind; two kinds that need one name are an error,
// because renaming either would make its names depend on the other's presence.
func (p *goPackage) claim(d *crd.Definition, e *emitter, at string) error {
	for _, name := range sortedKeys(e.taken) {
		if other, taken := p.owners[name]; taken {
			return d.Errorf(at, "needs the Go name %s, which kind %s of %s/%s has too", name, other, p.group, p.version)
		}
		p.owners[name] = e.kind
	}
	return nil
}

// list prints the list type of a kind.
func (p *printer) list(kind string) {
	p.printf("// %sList is a list of %s objects.\n//\n", kind, kind)
	p.printf("// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object\n// +kubebuilder:object:root=true\n")
	p.printf("type %sList struct {\n\tmetav1.TypeMeta `json:\",inline\"`\n\tmetav1.ListMeta `json:\"metadata,omitempty\"`\n\n", kind)
	p.printf("\t// Items are the objects.\n\tItems []%s `json:\"items\"`\n}\n\n", kind)
}

// finish adds doc.go and the shared codec.
func (p *goPackage) finish(files map[string][]byte) error {
	doc := fmt.Sprintf(`%s// Package %s holds the API types of %s/%s.
//
// +k8s:deepcopy-gen=package
// +kubebuilder:object:generate=true
// +groupName=%s
// +versionName=%s
package %s
`, workspace.Header, p.name(), p.group, p.version, p.group, p.version, p.name())
	p.files["doc.go"] = []byte(doc)
	if p.codec {
		data, err := format.Source([]byte(workspace.Header + fmt.Sprintf(keptSource, p.name())))
		if err != nil {
			return fmt.Errorf("formatting the codec of %s: %w", p.dir, err)
		}
		p.files["kept.go"] = data
	}
	for name, data := range p.files {
		files[path.Join(p.dir, name)] = data
	}
	return nil
}
