package codegen

import (
	"context"
	_ "embed" // the source of the emitted package
	"fmt"
	"path"
	"strings"
	"text/template"

	"magicstick.dev/operator/tools/specgen/workspace"
)

//go:embed crds.go.tmpl
var crdPackageSource string

// CRDs writes generated/crds: the product's CRDs, embedded, for programs that
// run without the source tree.
func CRDs(ctx context.Context, ws *workspace.Workspace) error {
	crds, err := ws.CRDs()
	if err != nil {
		return err
	}
	doc := `Package crds carries the CustomResourceDefinitions of the product, byte for
byte as spec/crds has them, for programs that run without the source tree.`
	return WriteCRDPackage(ctx, ws, "crds", doc, crds)
}

// WriteCRDPackage writes a package that embeds the given CRDs into the folder
// below generated/. The CRDs are ordered by group and kind; doc becomes the
// package comment.
func WriteCRDPackage(ctx context.Context, ws *workspace.Workspace, folder, doc string, crds []workspace.CRD) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	source, err := template.New("crds").Parse(crdPackageSource)
	if err != nil {
		return fmt.Errorf("generating %s: %w", folder, err)
	}
	var groups []string
	for _, crd := range crds {
		if len(groups) == 0 || groups[len(groups)-1] != crd.Group() {
			groups = append(groups, crd.Group())
		}
		if err := ws.Write(path.Join(folder, crd.Group(), strings.ToLower(crd.Kind())+".yaml"), crd.YAML); err != nil {
			return err
		}
	}
	var text strings.Builder
	data := map[string]any{"Header": workspace.Header, "Groups": groups, "Doc": "// " + strings.ReplaceAll(doc, "\n", "\n// ")}
	if err := source.Execute(&text, data); err != nil {
		return fmt.Errorf("generating %s: %w", folder, err)
	}
	return ws.Write(path.Join(folder, "crds.go"), []byte(text.String()))
}
