package external

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"magicstick.dev/operator/tools/specgen/codegen"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// KubeAI writes generated/external/kubeai/crds, KubeAI's CRD as far as
// spec/external has it.
func KubeAI(ctx context.Context, ws *workspace.Workspace) error {
	all, err := ws.CRDsBelow("external")
	if err != nil {
		return err
	}
	header := []byte(strings.ReplaceAll(workspace.Header, "//", "#"))
	var crds []workspace.CRD
	for _, crd := range all {
		if crd.Group() == "kubeai.org" {
			crd.YAML = append(bytes.Clone(header), crd.YAML...)
			crds = append(crds, crd)
		}
	}
	if len(crds) == 0 {
		return fmt.Errorf("generating external/kubeai/crds: spec/external has no kind of kubeai.org")
	}
	doc := `Package crds carries the part of KubeAI's CustomResourceDefinition that the
product writes and reads, as spec/external has it. A cluster with KubeAI has the
whole of it, which this must not replace. Tests and "magicstick dev" install it.`
	return codegen.WriteCRDPackage(ctx, ws, "external/kubeai/crds", doc, crds)
}
