package main

import (
	"magicstick.dev/operator/tools/specgen/catalogs"
	"magicstick.dev/operator/tools/specgen/codegen"
	"magicstick.dev/operator/tools/specgen/examples"
	"magicstick.dev/operator/tools/specgen/external"
	"magicstick.dev/operator/tools/specgen/httpapi"
	"magicstick.dev/operator/tools/specgen/pipeline"
)

// steps are the parts of the generator. A step that names no other reads the
// spec only.
func steps() []pipeline.Step {
	return []pipeline.Step{
		{Name: "crds", Generate: codegen.CRDs},
		{Name: "catalogs", Generate: catalogs.Generate},
		{Name: "http", Generate: httpapi.Generate},
		{Name: "examples", Generate: examples.Generate},
		{Name: "flux", Generate: external.Flux},
	}
}
