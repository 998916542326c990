package main

import (
	"magicstick.dev/operator/tools/specgen/codegen"
	"magicstick.dev/operator/tools/specgen/pipeline"
)

// steps are the parts of the generator. A step that names no other reads the
// spec only.
func steps() []pipeline.Step {
	return []pipeline.Step{
		{Name: "clients", Generate: codegen.Generate},
	}
}
