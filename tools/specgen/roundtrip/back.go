package roundtrip

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscrd "sigs.k8s.io/controller-tools/pkg/crd"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/loader"
	toolsmarkers "sigs.k8s.io/controller-tools/pkg/markers"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/gotypes"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// typesDir is where the types are laid out inside the staging module.
const typesDir = "roundtrip"

// Compare makes types of the definitions, turns them back into CRDs and compares.
// The results are in the order of the definitions.
func Compare(ctx context.Context, repo string, definitions []*crd.Definition) ([]Result, error) {
	results := make([]Result, len(definitions))
	var sound []*crd.Definition
	for i, d := range definitions {
		results[i] = Result{Name: d.Name(), Verdict: Same}
		if _, err := gotypes.Emit([]*crd.Definition{d}, byGroup); err != nil {
			results[i].Verdict, results[i].Detail = Refused, err.Error()
			continue
		}
		sound = append(sound, d)
	}
	if len(sound) == 0 {
		return results, nil
	}
	files, err := gotypes.Emit(sound, byGroup)
	if err != nil {
		return nil, fmt.Errorf("making Go types of all CRDs together: %w", err)
	}
	back, faults, err := readBack(ctx, repo, files, sound)
	if err != nil {
		return nil, err
	}
	for i, d := range definitions {
		r := &results[i]
		if r.Verdict != Same {
			continue
		}
		if fault := faults[d]; fault != "" {
			r.Verdict, r.Detail = Refused, fault
			continue
		}
		r.Nodes = countNodes(d.CRD)
		if difference := compare(d.CRD, back[d]); difference != "" {
			r.Verdict, r.Detail = Differs, difference
		}
	}
	return results, nil
}

// byGroup lays packages out by the full group, so that groups with the same first
// label stay apart.
func byGroup(group, version string) string {
	if group == "" {
		group = "no-group"
	}
	return path.Join(typesDir, group, version)
}

// readBack runs controller-tools over the files. faults holds what it had to say
// about the package of a definition.
func readBack(ctx context.Context, repo string, files map[string][]byte, definitions []*crd.Definition) (back map[*crd.Definition]*apiextensionsv1.CustomResourceDefinition, faults map[*crd.Definition]string, err error) {
	ws, err := workspace.New(repo)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if closing := ws.Close(); err == nil {
			err = closing
		}
	}()
	patterns := map[string]bool{}
	for name, data := range files {
		if err := ws.Write(name, data); err != nil {
			return nil, nil, err
		}
		// Import paths, not folders: folders would be loaded one by one.
		patterns[workspace.Module+"/generated/"+path.Dir(name)] = true
	}
	return parse(ctx, ws.ModuleDir, patterns, definitions)
}

func parse(ctx context.Context, dir string, patterns map[string]bool, definitions []*crd.Definition) (map[*crd.Definition]*apiextensionsv1.CustomResourceDefinition, map[*crd.Definition]string, error) {
	var roots []string
	for pattern := range patterns {
		roots = append(roots, pattern)
	}
	loaded, err := loader.LoadRootsWithConfig(&packages.Config{Context: ctx, Dir: dir, Env: os.Environ()}, roots...)
	if err != nil {
		return nil, nil, fmt.Errorf("loading the generated types: %w", err)
	}
	registry := &toolsmarkers.Registry{}
	if err := register(registry); err != nil {
		return nil, nil, err
	}
	parser := &toolscrd.Parser{
		Collector: &toolsmarkers.Collector{Registry: registry},
		Checker:   &loader.TypeChecker{NodeFilters: []loader.NodeFilter{apiReference}},
		// The corpus has numbers; whether a float belongs into an API is the lint's
		// question, not the round trip's.
		AllowDangerousTypes: true,
	}
	toolscrd.AddKnownTypes(parser)
	byDir := map[string]*loader.Package{}
	for _, root := range loaded {
		parser.NeedPackage(root)
		if len(root.GoFiles) > 0 {
			relative, err := filepath.Rel(filepath.Join(dir, "generated"), filepath.Dir(root.GoFiles[0]))
			if err == nil {
				byDir[filepath.ToSlash(relative)] = root
			}
		}
	}
	back := map[*crd.Definition]*apiextensionsv1.CustomResourceDefinition{}
	faults := map[*crd.Definition]string{}
	for _, d := range definitions {
		kind := schema.GroupKind{Group: d.CRD.Spec.Group, Kind: gotypes.KindName(d.CRD.Spec.Names.Kind)}
		parser.NeedCRDFor(kind, nil)
		if made, ok := parser.CustomResourceDefinitions[kind]; ok {
			for i := range made.Spec.Versions {
				restore(made.Spec.Versions[i].Schema.OpenAPIV3Schema)
			}
			back[d] = &made
		}
		for _, version := range d.CRD.Spec.Versions {
			root := byDir[byGroup(d.CRD.Spec.Group, version.Name)]
			if root == nil {
				faults[d] = "the generated package of version " + version.Name + " was not loaded"
				continue
			}
			for _, fault := range root.Errors {
				// Type errors come from pruned function bodies of dependencies.
				if fault.Kind != packages.TypeError && faults[d] == "" {
					faults[d] = strings.ReplaceAll(fault.Error(), dir+"/", "")
				}
			}
		}
		if back[d] == nil && faults[d] == "" {
			faults[d] = "controller-tools made no CRD of the types"
		}
	}
	return back, faults, nil
}

// apiReference follows references to the packages that generated types use, and to
// no other: the types of controller-tools' interest in those packages need nothing
// of the standard library, whose parsing would take most of the time.
func apiReference(node ast.Node) bool {
	selector, ok := node.(*ast.SelectorExpr)
	if !ok {
		return true
	}
	alias, ok := selector.X.(*ast.Ident)
	return ok && gotypes.IsImportAlias(alias.Name)
}

// register defines the standard markers, our own, and the field-only ones that list
// items and map values need on a type.
func register(registry *toolsmarkers.Registry) error {
	if err := crdmarkers.Register(registry); err != nil {
		return fmt.Errorf("registering the CRD markers: %w", err)
	}
	for _, target := range []toolsmarkers.TargetType{toolsmarkers.DescribesField, toolsmarkers.DescribesType} {
		if err := registry.Define(gotypes.KeywordsMarker, target, keywords{}); err != nil {
			return fmt.Errorf("registering the marker %s: %w", gotypes.KeywordsMarker, err)
		}
	}
	if err := registry.Define("nullable", toolsmarkers.DescribesType, crdmarkers.Nullable{}); err != nil {
		return fmt.Errorf("registering the marker nullable for types: %w", err)
	}
	if err := registry.Define("default", toolsmarkers.DescribesType, crdmarkers.KubernetesDefault{}); err != nil {
		return fmt.Errorf("registering the marker default for types: %w", err)
	}
	example, err := toolsmarkers.MakeAnyTypeDefinition("kubebuilder:example", toolsmarkers.DescribesType, crdmarkers.Example{})
	if err == nil {
		err = registry.Register(example)
	}
	if err != nil {
		return fmt.Errorf("registering the marker example for types: %w", err)
	}
	return nil
}

// keptPrefix marks a schema ID that carries keywords through the flattening, which
// would merge or drop them.
const keptPrefix = "specgen-keywords:"

// keywords is the parsed form of gotypes.KeywordsMarker.
type keywords struct {
	Way  string
	JSON string
}

// ParseMarker takes the argument raw: it is JSON, not marker syntax.
func (k *keywords) ParseMarker(_, _, argument string) error {
	way, object := "", argument
	if !strings.HasPrefix(argument, "{") {
		way, object, _ = strings.Cut(argument, " ")
	}
	if !json.Valid([]byte(object)) {
		return fmt.Errorf("the argument of %s is not JSON: %s", gotypes.KeywordsMarker, argument)
	}
	k.Way, k.JSON = way, object
	return nil
}

// ApplyToSchema stores the keywords in the ID of the node that the way leads to.
func (k keywords) ApplyToSchema(_ *crdmarkers.SchemaContext, node *apiextensionsv1.JSONSchemaProps) error {
	if k.Way != "" {
		for step := range strings.SplitSeq(k.Way, ".") {
			switch {
			case step == "items" && node.Items != nil && node.Items.Schema != nil:
				node = node.Items.Schema
			case step == "values" && node.AdditionalProperties != nil && node.AdditionalProperties.Schema != nil:
				node = node.AdditionalProperties.Schema
			default:
				return fmt.Errorf("%s leads to %s, which the type has not", gotypes.KeywordsMarker, k.Way)
			}
		}
	}
	node.ID += keptPrefix + k.JSON
	return nil
}

// restore puts the carried keywords into the finished schema.
func restore(root *apiextensionsv1.JSONSchemaProps) {
	toolscrd.EditSchema(root, restorer{})
}

type restorer struct{}

// Visit implements the schema visitor.
func (r restorer) Visit(node *apiextensionsv1.JSONSchemaProps) toolscrd.SchemaVisitor {
	if node == nil {
		return r
	}
	kept := []string{node.ID}
	node.ID = ""
	// Keywords of a type and of the field that uses it end up in an allOf.
	var rest []apiextensionsv1.JSONSchemaProps
	for _, part := range node.AllOf {
		if strings.HasPrefix(part.ID, keptPrefix) {
			kept = append(kept, part.ID)
			continue
		}
		rest = append(rest, part)
	}
	node.AllOf = rest
	for _, id := range kept {
		for _, object := range strings.Split(id, keptPrefix) {
			if object != "" {
				replaceKeywords(node, object)
			}
		}
	}
	return r
}

// replaceKeywords sets exactly the keywords of object on the node.
func replaceKeywords(node *apiextensionsv1.JSONSchemaProps, object string) {
	var replaced map[string]json.RawMessage
	if json.Unmarshal([]byte(object), &replaced) != nil {
		return
	}
	current, err := json.Marshal(node)
	if err != nil {
		return
	}
	all := map[string]json.RawMessage{}
	if json.Unmarshal(current, &all) != nil {
		return
	}
	for keyword, value := range replaced {
		if string(value) == "null" && keyword != "default" {
			delete(all, keyword)
		} else {
			all[keyword] = value
		}
	}
	merged, err := json.Marshal(all)
	if err != nil {
		return
	}
	var out apiextensionsv1.JSONSchemaProps
	if json.Unmarshal(merged, &out) == nil {
		*node = out
	}
}
