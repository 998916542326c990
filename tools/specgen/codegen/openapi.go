package codegen

import (
	"encoding/json"
	"fmt"
	"os"
	"path"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// writeOpenAPI writes the schemas of the kinds as the API server publishes
// them, under the names that applyconfiguration-gen derives from the Go types.
// Without this file an apply configuration does not know the keys of a list
// map, and Extract would give back whole lists that others own parts of.
func writeOpenAPI(file string, crds []workspace.CRD) error {
	document := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "specgen", Version: "v1"}},
		Paths:       &spec.Paths{Paths: map[string]spec.PathItem{}},
		Definitions: spec.Definitions{},
	}}
	for _, crd := range crds {
		for _, version := range crd.Definition.Spec.Versions {
			built, err := builder.BuildOpenAPIV2(crd.Definition, version.Name, builder.Options{V2: true})
			if err != nil {
				return fmt.Errorf("building the OpenAPI schema of spec/%s, version %s: %w", crd.File, version.Name, err)
			}
			published := util.ToRESTFriendlyName(crd.Group() + "/" + version.Name + "." + crd.Kind())
			definition, found := built.Definitions[published]
			if !found {
				return fmt.Errorf("building the OpenAPI schema of spec/%s, version %s: no definition %q", crd.File, version.Name, published)
			}
			goType := path.Join(workspace.Module, "generated/apis", crd.GroupFolder(), version.Name) + "." + crd.Kind()
			for name, shared := range built.Definitions {
				document.Definitions[name] = shared
			}
			delete(document.Definitions, published)
			document.Definitions[util.ToRESTFriendlyName(goType)] = definition
		}
	}
	data, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("encoding the OpenAPI schemas: %w", err)
	}
	return os.WriteFile(file, data, 0o600)
}
