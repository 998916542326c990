package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"

	"magicstick.dev/operator/tools/specgen/catalogs"
	"magicstick.dev/operator/tools/specgen/check"
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

// steps are the parts of the generator. The first two are its gate: check judges
// the CRDs, types finds out whether Go can say them. All others begin after both,
// so that a fault of a CRD is told once, by the step that explains it best. The
// slow ones, which find no fault in a spec, begin after those that can. What check
// prints goes to out.
func steps(out io.Writer) []pipeline.Step {
	gate := []string{"types"}
	list := []pipeline.Step{
		{Name: "check", Generate: check.Step(out)},
		{Name: "types", After: []string{"check"}, Generate: gotypes.Generate},
		{Name: "conditions", After: gate, Generate: conditions.Generate},
		{Name: "catalogs", After: gate, Generate: catalogs.Generate},
		{Name: "http", After: gate, Generate: httpapi.Generate},
		{Name: "examples", After: gate, Generate: examples.Generate},
		// The pages are made of the tables and catalogs, whose own steps judge them.
		{Name: "docs", After: []string{"conditions", "catalogs"}, Generate: docs.Generate},
	}
	var quick []string
	for _, step := range list {
		quick = append(quick, step.Name)
	}
	return append(list,
		pipeline.Step{Name: "clients", After: quick, Generate: codegen.Generate},
		pipeline.Step{Name: "flux", After: quick, Generate: external.Flux},
		pipeline.Step{Name: "gateway", After: quick, Generate: external.Gateway},
		pipeline.Step{Name: "kubeai", After: quick, Generate: external.KubeAI},
		pipeline.Step{Name: "way back", After: quick, Generate: wayBack},
		pipeline.Step{Name: "crds", After: gate, Generate: codegen.CRDs},
		pipeline.Step{Name: "validation", After: gate, Generate: validation.Generate},
	)
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
