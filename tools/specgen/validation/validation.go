// Package validation emits generated/validation: functions that answer in
// process what the API server would answer to an object.
//
// The runtime is the same for every CRD; it is emitted from sources embedded
// here, because generated code imports generated code only. Per API group a
// package with one set of functions per kind is made from the CRDs.
package validation

import (
	"context"
	_ "embed" // the sources of the emitted package
	"fmt"
	"go/format"
	"path"
	"strings"
	"text/template"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"magicstick.dev/operator/tools/specgen/workspace"
)

//go:embed validator.go.tmpl
var validatorSource string

//go:embed normalize.go.tmpl
var normalizeSource string

//go:embed typed.go.tmpl
var typedSource string

//go:embed kind.go.tmpl
var kindSource string

// group is the data of one emitted group package.
type group struct {
	Header, Module                string
	Group, Version, Folder, Alias string
	Kinds                         []kind
}

type kind struct {
	Kind   string
	Status bool
}

// Generate writes generated/validation.
func Generate(ctx context.Context, ws *workspace.Workspace) error {
	crds, err := ws.CRDs()
	if err != nil {
		return err
	}
	for name, source := range map[string]string{
		"validator.go": validatorSource,
		"normalize.go": normalizeSource,
		"typed.go":     typedSource,
	} {
		if err := ws.Write("validation/"+name, []byte(workspace.Header+source)); err != nil {
			return err
		}
	}
	text, err := template.New("kind").Parse(kindSource)
	if err != nil {
		return fmt.Errorf("generating the validation functions: %w", err)
	}
	for _, group := range groupsOf(crds) {
		if err := ctx.Err(); err != nil {
			return err
		}
		var source strings.Builder
		if err := text.Execute(&source, group); err != nil {
			return fmt.Errorf("generating the validation functions of %s: %w", group.Group, err)
		}
		formatted, err := format.Source([]byte(source.String()))
		if err != nil {
			return fmt.Errorf("generating the validation functions of %s: %w", group.Group, err)
		}
		if err := ws.Write(path.Join("validation", group.Folder, group.Version, "validate.go"), formatted); err != nil {
			return err
		}
	}
	return nil
}

// groupsOf keeps the order of the CRDs, which are sorted by group and kind.
func groupsOf(crds []workspace.CRD) []*group {
	var groups []*group
	index := map[string]*group{}
	for _, crd := range crds {
		for _, version := range crd.Definition.Spec.Versions {
			key := crd.Group() + "/" + version.Name
			if index[key] == nil {
				index[key] = &group{
					Header: workspace.Header, Module: workspace.Module,
					Group: crd.Group(), Version: version.Name,
					Folder: crd.GroupFolder(), Alias: crd.GroupFolder() + version.Name,
				}
				groups = append(groups, index[key])
			}
			index[key].Kinds = append(index[key].Kinds, kind{Kind: crd.Kind(), Status: hasStatus(version)})
		}
	}
	return groups
}

func hasStatus(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
	return version.Subresources != nil && version.Subresources.Status != nil
}
