package gotypes

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// Generate writes generated/apis for spec/crds and generated/external for the
// third-party CRDs of spec/external. Nothing is written unless types can be made
// of all of both. Whether the CRDs are sound is the check step's to say.
func Generate(ctx context.Context, ws *workspace.Workspace) error {
	own, err := ws.Definitions("crds")
	if err != nil {
		return err
	}
	foreign, err := ws.Definitions("external")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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
