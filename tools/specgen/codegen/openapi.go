package codegen

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Schema is one version of a CRD with the Go type that it describes.
type Schema struct {
	// Definition is the CRD.
	Definition *apiextensionsv1.CustomResourceDefinition
	// Version is one of its versions.
	Version string
	// Package is the import path of the Go type, which has the kind's name.
	Package string
}

// WriteOpenAPI writes the schemas of the kinds as the API server publishes
// them, under the names that applyconfiguration-gen derives from the Go types.
// Without this file an apply configuration does not know the keys of a list
// map, and Extract would give back whole lists that others own parts of.
func WriteOpenAPI(file string, schemas []Schema) error {
	document := &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "specgen", Version: "v1"}},
		Paths:       &spec.Paths{Paths: map[string]spec.PathItem{}},
		Definitions: spec.Definitions{},
	}}
	for _, schema := range schemas {
		names := schema.Definition.Spec.Names
		built, err := builder.BuildOpenAPIV2(schema.Definition, schema.Version, builder.Options{V2: true})
		if err != nil {
			return fmt.Errorf("building the OpenAPI schema of %s, version %s: %w", schema.Definition.Name, schema.Version, err)
		}
		published := util.ToRESTFriendlyName(schema.Definition.Spec.Group + "/" + schema.Version + "." + names.Kind)
		definition, found := built.Definitions[published]
		if !found {
			return fmt.Errorf("building the OpenAPI schema of %s, version %s: no definition %q", schema.Definition.Name, schema.Version, published)
		}
		delete(built.Definitions, published)
		maps.Copy(document.Definitions, built.Definitions)
		document.Definitions[util.ToRESTFriendlyName(schema.Package+"."+names.Kind)] = definition
	}
	data, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("encoding the OpenAPI schemas: %w", err)
	}
	return os.WriteFile(file, data, 0o600)
}
