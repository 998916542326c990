package external

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"magicstick.dev/operator/tools/specgen/workspace"
)

func TestFlux(t *testing.T) {
	ws, err := workspace.New("../../..")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ws.Close()) })
	require.NoError(t, Flux(t.Context(), ws))

	kinds := map[string]string{
		"helm.toolkit.fluxcd.io/helmrelease":        "v2",
		"kustomize.toolkit.fluxcd.io/kustomization": "v1",
		"source.toolkit.fluxcd.io/bucket":           "v1",
		"source.toolkit.fluxcd.io/externalartifact": "v1",
		"source.toolkit.fluxcd.io/gitrepository":    "v1",
		"source.toolkit.fluxcd.io/helmchart":        "v1",
		"source.toolkit.fluxcd.io/helmrepository":   "v1",
		"source.toolkit.fluxcd.io/ocirepository":    "v1",
	}
	files, err := filepath.Glob(filepath.Join(ws.GeneratedDir(), "external/crds/*/*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, len(kinds))
	for name, version := range kinds {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(ws.GeneratedDir(), "external/crds", name+".yaml"))
			require.NoError(t, err)
			var definition apiextensionsv1.CustomResourceDefinition
			require.NoError(t, yaml.UnmarshalStrict(data, &definition))
			require.Len(t, definition.Spec.Versions, 1)
			require.Equal(t, version, definition.Spec.Versions[0].Name)
			require.True(t, definition.Spec.Versions[0].Storage)
			require.NotEmpty(t, definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties)
			require.Empty(t, definition.Status.Conditions)
		})
	}
	t.Run("apply configurations know the kinds and their shared fields", func(t *testing.T) {
		source, err := os.ReadFile(filepath.Join(ws.GeneratedDir(), "external/flux/kustomize/applyconfiguration/api/v1/kustomizationspec.go"))
		require.NoError(t, err)
		require.Contains(t, string(source), "[]meta.NamespacedObjectKindReferenceApplyConfiguration")
		require.Contains(t, string(source), "[]kustomize.PatchApplyConfiguration")
	})
	t.Run("everything compiles", func(t *testing.T) {
		build := exec.CommandContext(t.Context(), "go", "build", "./generated/...")
		build.Dir = ws.ModuleDir
		out, err := build.CombinedOutput()
		require.NoError(t, err, strings.TrimSpace(string(out)))
	})
}
