// Package check is the gate of the generator: it runs before every other step and
// is the only one that judges the CRDs, so that one fault of the spec is one
// error, whatever else would have stumbled over it.
//
// In: spec/crds and spec/external. Out: nothing but a line about the rules' costs.
package check

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/gotypes"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// Step returns the step, which prints its summary to out. The project's own CRDs
// must pass the API server's checks, the lint and the naming rules of the Go
// types; those of others need the API server's checks alone.
func Step(out io.Writer) func(context.Context, *workspace.Workspace) error {
	return func(ctx context.Context, ws *workspace.Workspace) error {
		own, err := ws.Definitions("crds")
		if err != nil {
			return err
		}
		foreign, err := ws.Definitions("external")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := errors.Join(crd.Verify(ctx, own), gotypes.Ambiguities(own), crd.Check(ctx, foreign)); err != nil {
			return err
		}
		return crd.WriteSummary(own, out)
	}
}
