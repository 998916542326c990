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

func TestGateway(t *testing.T) {
	ws, err := workspace.New("../../..")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ws.Close()) })
	require.NoError(t, Gateway(t.Context(), ws))

	files, err := filepath.Glob(filepath.Join(ws.GeneratedDir(), "external/gateway/crds/*/*.yaml"))
	require.NoError(t, err)
	kinds := map[string]string{
		"gateway.envoyproxy.io/securitypolicy":     "v1alpha1",
		"gateway.networking.k8s.io/gateway":        "v1",
		"gateway.networking.k8s.io/gatewayclass":   "v1",
		"gateway.networking.k8s.io/httproute":      "v1",
		"gateway.networking.k8s.io/referencegrant": "v1beta1",
	}
	require.Len(t, files, len(kinds))
	for name, version := range kinds {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(ws.GeneratedDir(), "external/gateway/crds", name+".yaml"))
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(string(data), "# "), "the file says that it is generated")
			var definition apiextensionsv1.CustomResourceDefinition
			require.NoError(t, yaml.Unmarshal(data, &definition))
			var served []string
			for _, candidate := range definition.Spec.Versions {
				if candidate.Served {
					served = append(served, candidate.Name)
				}
			}
			require.Contains(t, served, version)
		})
	}
	folder := filepath.Join(ws.GeneratedDir(), "external/envoy/applyconfiguration/api/v1alpha1")
	t.Run("references are those of Gateway API", func(t *testing.T) {
		source, err := os.ReadFile(filepath.Join(folder, "oidc.go"))
		require.NoError(t, err)
		require.Contains(t, string(source), gatewayApply)
	})
	t.Run("kinds that nobody writes are left out", func(t *testing.T) {
		require.FileExists(t, filepath.Join(folder, "securitypolicy.go"))
		require.NoFileExists(t, filepath.Join(folder, "envoyproxy.go"))
	})
	t.Run("everything compiles", func(t *testing.T) {
		build := exec.CommandContext(t.Context(), "go", "build", "./generated/external/...")
		build.Dir = ws.ModuleDir
		out, err := build.CombinedOutput()
		require.NoError(t, err, strings.TrimSpace(string(out)))
	})
}

func TestKeepReachable(t *testing.T) {
	dir := t.TempDir()
	for name, source := range map[string]string{
		"root.go":   "package p\n\ntype Root struct{ Child *Child }\n",
		"child.go":  "package p\n\ntype Child struct{ Back *Root }\n",
		"orphan.go": "package p\n\ntype Orphan struct{ Child *Child }\n\ntype Second struct{}\n",
		"doc.go":    "// Package p is a test.\npackage p\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600))
	}
	require.NoError(t, keepReachable(dir, "Root"))
	left, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{filepath.Join(dir, "root.go"), filepath.Join(dir, "child.go"), filepath.Join(dir, "doc.go")}, left)
	require.ErrorContains(t, keepReachable(dir, "Nobody"), "no such type")
}
