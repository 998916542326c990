// Package external emits what the product needs of other projects' kinds: the
// CRDs and apply configurations of Flux, made from Flux's own Go modules, and
// the types of KubeAI, for which no Go module can be used, made from the part
// of its CRD that spec/external holds.
package external

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/tools/go/packages"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-tools/pkg/crd"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
	"sigs.k8s.io/yaml"

	"magicstick.dev/operator/tools/specgen/codegen"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// fluxAPI is one of Flux's API modules.
type fluxAPI struct {
	// folder is the name below generated/external/flux.
	folder string
	// kinds is the package with the kinds; shared are those of Flux's shared
	// modules that its fields reach.
	kinds  string
	shared []string
}

var fluxAPIs = []fluxAPI{
	{folder: "helm", kinds: "github.com/fluxcd/helm-controller/api/v2", shared: []string{fluxMeta, fluxKustomize}},
	{folder: "kustomize", kinds: "github.com/fluxcd/kustomize-controller/api/v1", shared: []string{fluxMeta, fluxKustomize}},
	{folder: "source", kinds: "github.com/fluxcd/source-controller/api/v1", shared: []string{fluxMeta}},
}

const (
	fluxMeta      = "github.com/fluxcd/pkg/apis/meta"
	fluxKustomize = "github.com/fluxcd/pkg/apis/kustomize"
)

// Flux writes generated/external/crds and generated/external/flux.
func Flux(ctx context.Context, ws *workspace.Workspace) error {
	crds, packageOf, err := fluxCRDs(ws.ModuleDir)
	if err != nil {
		return err
	}
	doc := `Package crds carries the CustomResourceDefinitions of Flux's kustomize, helm and
source controllers, made from the API modules that go.mod names. Tests and
"magicstick dev" install them.`
	if err := codegen.WriteCRDPackage(ctx, ws, "external/crds", doc, crds); err != nil {
		return err
	}
	importPaths := []string{fluxMeta, fluxKustomize}
	for _, api := range fluxAPIs {
		importPaths = append(importPaths, api.kinds)
	}
	universe, err := codegen.Load(ws.ModuleDir, importPaths...)
	if err != nil {
		return err
	}
	for _, api := range fluxAPIs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fluxApplyConfigurations(ws, universe, api, crds, packageOf); err != nil {
			return err
		}
	}
	return nil
}

func fluxApplyConfigurations(ws *workspace.Workspace, universe *codegen.Universe, api fluxAPI, crds []workspace.CRD, packageOf map[string]string) error {
	universe = universe.Only(append([]string{api.kinds}, api.shared...)...)
	var schemas []codegen.Schema
	for _, definition := range crds {
		if packageOf[definition.Definition.Name] == api.kinds {
			schemas = append(schemas, codegen.Schema{Definition: definition.Definition,
				Version: definition.Definition.Spec.Versions[0].Name, Package: api.kinds})
		}
	}
	openAPI := filepath.Join(ws.ModuleDir, "openapi-"+api.folder+".json")
	if err := codegen.WriteOpenAPI(openAPI, schemas); err != nil {
		return err
	}
	defer func() { _ = os.Remove(openAPI) }()
	name := "external/flux/" + api.folder + "/applyconfiguration"
	out := codegen.Output{Dir: filepath.Join(ws.GeneratedDir(), filepath.FromSlash(name)), Package: workspace.Module + "/generated/" + name}
	if err := universe.ApplyConfigurations(out, openAPI, nil); err != nil {
		return fmt.Errorf("generating the apply configurations of %s: %w", api.kinds, err)
	}
	// utils.go serves fake clientsets, which are not made here, and needs a
	// SchemeGroupVersion in every package, which Flux's do not have.
	if err := os.Remove(filepath.Join(out.Dir, "utils.go")); err != nil {
		return fmt.Errorf("generating the apply configurations of %s: %w", api.kinds, err)
	}
	return codegen.NameGenerator(out.Dir)
}

// fluxCRDs makes the CRDs of every kind of Flux's API packages, as Flux's own
// build does with the same library. It also returns the Go package of each CRD
// by the CRD's name.
func fluxCRDs(moduleDir string) ([]workspace.CRD, map[string]string, error) {
	paths := make([]string, 0, len(fluxAPIs))
	for _, api := range fluxAPIs {
		paths = append(paths, api.kinds)
	}
	config := &packages.Config{Dir: moduleDir, Env: append(os.Environ(), codegen.LoadFlags)}
	roots, err := loader.LoadRootsWithConfig(config, paths...)
	if err != nil {
		return nil, nil, fmt.Errorf("loading the API packages of Flux: %w", err)
	}
	registry := &markers.Registry{}
	if err := crdmarkers.Register(registry); err != nil {
		return nil, nil, fmt.Errorf("making the CRDs of Flux: %w", err)
	}
	parser := &crd.Parser{Collector: &markers.Collector{Registry: registry}, Checker: &loader.TypeChecker{}}
	crd.AddKnownTypes(parser)
	for _, root := range roots {
		parser.NeedPackage(root)
	}
	packageOf := map[string]string{}
	var crds []workspace.CRD
	for _, kind := range crd.FindKubeKinds(parser, crd.FindMetav1(roots)) {
		parser.NeedCRDFor(kind, nil)
		definition := parser.CustomResourceDefinitions[kind]
		crd.FixTopLevelMetadata(definition)
		for version, pkg := range parser.GroupVersions {
			if pkg.Group == kind.Group {
				packageOf[definition.Name] = version.PkgPath
			}
		}
		data, err := encodeCRD(definition)
		if err != nil {
			return nil, nil, fmt.Errorf("making the CRD %s: %w", definition.Name, err)
		}
		crds = append(crds, workspace.CRD{File: definition.Name, YAML: data, Definition: &definition})
	}
	if loader.PrintErrors(roots, packages.TypeError) {
		return nil, nil, errors.New("making the CRDs of Flux: see the messages above")
	}
	sort.Slice(crds, func(i, j int) bool {
		return crds[i].Group()+"/"+crds[i].Kind() < crds[j].Group()+"/"+crds[j].Kind()
	})
	return crds, packageOf, nil
}

// encodeCRD writes a definition without its empty status block.
func encodeCRD(definition apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	data, err := yaml.Marshal(definition)
	if err != nil {
		return nil, err
	}
	text, _, _ := bytes.Cut(data, []byte("\nstatus:\n"))
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	kept := lines[:0]
	for _, line := range lines {
		if line != "  creationTimestamp: null" {
			kept = append(kept, line)
		}
	}
	return []byte(strings.ReplaceAll(workspace.Header, "//", "#") + strings.Join(kept, "\n") + "\n"), nil
}
