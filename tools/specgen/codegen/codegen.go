// Package codegen turns the generated API types into everything that an
// integrator calls: deep copies, scheme registration, clientset with fakes,
// listers, informers and apply configurations.
//
// The generators are those of k8s.io/code-generator. They run in this process
// over one parsed universe, which takes a few seconds instead of a few seconds
// for each of the six.
package codegen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	_ "embed" // the sources of generated packages that no generator makes

	"magicstick.dev/operator/tools/specgen/workspace"
)

// Generate writes generated/{clientset,listers,informers,applyconfiguration}
// and the zz_generated files of generated/apis. The types must have been
// written before.
func Generate(ctx context.Context, ws *workspace.Workspace) error {
	crds, err := ws.CRDs()
	if err != nil {
		return err
	}
	groups, plurals, err := groupsOf(crds)
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		return fmt.Errorf("generating the clients: spec/crds has no CRD")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	importPaths := make([]string, 0, len(groups))
	for _, group := range groups {
		importPaths = append(importPaths, group.Package)
	}
	foreign, err := foreignPackages(ws)
	if err != nil {
		return err
	}
	all, err := Load(ws.ModuleDir, append(slices.Clone(importPaths), foreign...)...)
	if err != nil {
		return err
	}
	universe := all.Only(importPaths...)
	root := Output{Dir: ws.GeneratedDir(), Package: workspace.Module + "/generated"}
	clientset, listers, informers := root.Sub("clientset"), root.Sub("listers"), root.Sub("informers")
	applyConfigurations := root.Sub("applyconfiguration")

	openAPI := filepath.Join(ws.ModuleDir, "openapi.json")
	if err := WriteOpenAPI(openAPI, schemasOf(crds)); err != nil {
		return err
	}
	defer func() { _ = os.Remove(openAPI) }()

	for _, step := range []func() error{
		all.Deepcopy,
		all.Register,
		func() error { return universe.ApplyConfigurations(applyConfigurations, openAPI, nil) },
		func() error { return universe.Clientset(clientset, applyConfigurations.Package, groups, plurals) },
		func() error { return universe.Listers(listers, plurals) },
		func() error { return universe.Informers(informers, clientset.Package, listers.Package, plurals) },
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	written := []Output{clientset, listers, informers, applyConfigurations, root.Sub("apis")}
	for _, importPath := range foreign {
		written = append(written, root.Sub(strings.TrimPrefix(importPath, root.Package+"/")))
	}
	for _, out := range written {
		if err := NameGenerator(out.Dir); err != nil {
			return err
		}
	}
	return writeClientsetDoc(ws)
}

// foreignPackages lists the packages with the types of spec/external, which get
// deep copies and registration but no clients.
func foreignPackages(ws *workspace.Workspace) ([]string, error) {
	crds, err := ws.CRDsBelow("external")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var importPaths []string
	for _, crd := range crds {
		for _, version := range crd.Definition.Spec.Versions {
			importPath := path.Join(workspace.Module, "generated/external", crd.GroupFolder(), version.Name)
			if !slices.Contains(importPaths, importPath) {
				importPaths = append(importPaths, importPath)
			}
		}
	}
	return importPaths, nil
}

// packageOf is the import path of a kind's Go types.
func packageOf(crd workspace.CRD, version string) string {
	return path.Join(workspace.Module, "generated/apis", crd.GroupFolder(), version)
}

func schemasOf(crds []workspace.CRD) []Schema {
	var schemas []Schema
	for _, crd := range crds {
		for _, version := range crd.Definition.Spec.Versions {
			schemas = append(schemas, Schema{Definition: crd.Definition, Version: version.Name, Package: packageOf(crd, version.Name)})
		}
	}
	return schemas
}

// groupsOf lists the API groups of the CRDs and the plural of each kind. The
// generators know plurals by kind alone, so two groups that give one kind
// different plurals are refused rather than mixed up.
func groupsOf(crds []workspace.CRD) ([]Group, Plurals, error) {
	plurals := Plurals{}
	byPackage := map[string]Group{}
	groupOfFolder := map[string]string{}
	for _, crd := range crds {
		if other, taken := groupOfFolder[crd.GroupFolder()]; taken && other != crd.Group() {
			return nil, nil, fmt.Errorf("generating the clients: spec/%s: spec.group %q and group %q share the folder %q",
				crd.File, crd.Group(), other, crd.GroupFolder())
		}
		groupOfFolder[crd.GroupFolder()] = crd.Group()
		names := crd.Definition.Spec.Names
		if plural, known := plurals[names.Kind]; known && plural != names.Plural {
			return nil, nil, fmt.Errorf("generating the clients: spec/%s: spec.names.plural: kind %s has plural %q here and %q in another group",
				crd.File, names.Kind, names.Plural, plural)
		}
		plurals[names.Kind] = names.Plural
		for _, version := range crd.Definition.Spec.Versions {
			group := Group{Folder: crd.GroupFolder(), Version: version.Name, Package: packageOf(crd, version.Name)}
			byPackage[group.Package] = group
		}
	}
	groups := make([]Group, 0, len(byPackage))
	for _, group := range byPackage {
		groups = append(groups, group)
	}
	sort.Slice(groups, func(i, j int) bool { return groups[i].Package < groups[j].Package })
	return groups, plurals, nil
}

// NameGenerator rewrites the "Code generated" line of every Go file below dir.
// gengo puts the name of the running program there, which differs between
// "go run", a built binary and a test.
func NameGenerator(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("naming the generator: %w", err)
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".go" {
			return err
		}
		source, err := root.ReadFile(file)
		if err != nil {
			return err
		}
		lines := strings.SplitAfterN(string(source), "\n", 12)
		for i, line := range lines {
			if strings.HasPrefix(line, "// Code generated by ") && strings.HasSuffix(strings.TrimSpace(line), "DO NOT EDIT.") {
				lines[i] = strings.TrimSuffix(workspace.Header, "\n")
			}
			// The old form of build constraints is of no use since Go 1.17.
			if strings.HasPrefix(line, "// +build ") {
				lines[i] = ""
			}
		}
		return root.WriteFile(file, []byte(strings.Join(lines, "")), 0o600)
	})
}

//go:embed example_test.go.tmpl
var exampleSource string

// clientsetDoc is the package comment that client-gen does not write.
const clientsetDoc = workspace.Header + `// Package clientset holds the typed clients of both API groups.
//
// It needs nothing but apimachinery and client-go, so a program that talks to
// an appliance imports this package, the types below generated/apis and the
// apply configurations below generated/applyconfiguration. The example of this
// package is such a program.
package clientset
`

func writeClientsetDoc(ws *workspace.Workspace) error {
	if err := ws.Write("clientset/doc.go", []byte(clientsetDoc)); err != nil {
		return err
	}
	return ws.Write("clientset/example_test.go", []byte(workspace.Header+exampleSource))
}
