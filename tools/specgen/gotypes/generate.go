package gotypes

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// Generate writes generated/apis for spec/crds and generated/external for the
// third-party CRDs of spec/external. Nothing is written unless all of both is
// sound: the project's own CRDs must pass the API server's checks and the lint.
func Generate(ctx context.Context, ws *workspace.Workspace) error {
	own, err := crd.LoadDir(filepath.Join(ws.SpecDir, "crds"))
	if err != nil {
		return err
	}
	foreign, err := crd.LoadDir(filepath.Join(ws.SpecDir, "external"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(crd.Check(ctx, own), crd.Lint(own), crd.Check(ctx, foreign)); err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, part := range []struct {
		root        string
		definitions []*crd.Definition
	}{{"apis", own}, {"external", foreign}} {
		emitted, err := Emit(part.definitions, ByShortGroup)
		if err != nil {
			return err
		}
		for name, data := range emitted {
			files[path.Join(part.root, name)] = data
		}
	}
	for _, name := range sortedKeys(files) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := ws.Write(name, files[name]); err != nil {
			return err
		}
	}
	return nil
}
