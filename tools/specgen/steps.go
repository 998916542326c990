package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"magicstick.dev/operator/tools/specgen/catalogs"
	"magicstick.dev/operator/tools/specgen/codegen"
	"magicstick.dev/operator/tools/specgen/conditions"
	"magicstick.dev/operator/tools/specgen/docs"
	"magicstick.dev/operator/tools/specgen/examples"
	"magicstick.dev/operator/tools/specgen/external"
	"magicstick.dev/operator/tools/specgen/gotypes"
	"magicstick.dev/operator/tools/specgen/httpapi"
	"magicstick.dev/operator/tools/specgen/pipeline"
	"magicstick.dev/operator/tools/specgen/roundtrip"
	"magicstick.dev/operator/tools/specgen/validation"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// steps are the parts of the generator. A step that names no other reads the
// spec only.
func steps() []pipeline.Step {
	return []pipeline.Step{
		{Name: "types", Generate: gotypes.Generate},
		{Name: "clients", After: []string{"types"}, Generate: codegen.Generate},
		// Flux and the gateway need no types; they wait so that a bad spec fails at once.
		{Name: "flux", After: []string{"types"}, Generate: external.Flux},
		{Name: "gateway", After: []string{"types"}, Generate: external.Gateway},
		{Name: "way back", After: []string{"types"}, Generate: wayBack},
		{Name: "http", Generate: httpapi.Generate},
		{Name: "crds", Generate: codegen.CRDs},
		{Name: "validation", Generate: validation.Generate},
		{Name: "catalogs", Generate: catalogs.Generate},
		{Name: "conditions", Generate: conditions.Generate},
		{Name: "examples", Generate: examples.Generate},
		{Name: "docs", Generate: docs.Generate},
	}
}

// wayBack writes nothing. It proves that the types of this run give back the
// schemas that they were made from, so that no unfaithful type is ever checked in.
func wayBack(ctx context.Context, ws *workspace.Workspace) error {
	var table bytes.Buffer
	if err := roundtrip.Run(ctx, ws.RepoDir, []string{filepath.Join(ws.SpecDir, "crds"), filepath.Join(ws.SpecDir, "external")}, &table); err != nil {
		return fmt.Errorf("turning the types back into CRDs: %w\n%s", err, &table)
	}
	return nil
}
