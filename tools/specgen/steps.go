package main

import (
	"magicstick.dev/operator/tools/specgen/catalogs"
	"magicstick.dev/operator/tools/specgen/codegen"
	"magicstick.dev/operator/tools/specgen/conditions"
	"magicstick.dev/operator/tools/specgen/examples"
	"magicstick.dev/operator/tools/specgen/external"
	"magicstick.dev/operator/tools/specgen/gotypes"
	"magicstick.dev/operator/tools/specgen/httpapi"
	"magicstick.dev/operator/tools/specgen/pipeline"
	"magicstick.dev/operator/tools/specgen/validation"
)

// steps are the parts of the generator. A step that names no other reads the
// spec only.
func steps() []pipeline.Step {
	return []pipeline.Step{
		{Name: "types", Generate: gotypes.Generate},
		{Name: "clients", After: []string{"types"}, Generate: codegen.Generate},
		{Name: "flux", Generate: external.Flux},
		{Name: "http", Generate: httpapi.Generate},
		{Name: "crds", Generate: codegen.CRDs},
		{Name: "validation", Generate: validation.Generate},
		{Name: "catalogs", Generate: catalogs.Generate},
		{Name: "conditions", Generate: conditions.Generate},
		{Name: "examples", Generate: examples.Generate},
	}
}
