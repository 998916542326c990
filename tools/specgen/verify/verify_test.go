package verify

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// module writes a module of that name with the given files. Its imports need
// not exist: go list reports them all the same.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files["go.mod"] = "module " + workspace.Module + "\n\ngo 1.26\n"
	files["go.sum"] = ""
	for name, content := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return root
}

func source(name, imported string) string {
	return "package " + name + "\n\nimport _ \"" + imported + "\"\n"
}

const ours = workspace.Module + "/"

// TestImports has one bad fixture for each rule, and the same import where it
// is allowed.
func TestImports(t *testing.T) {
	for name, c := range map[string]struct {
		file, imported string
		rule           string // empty: allowed
	}{
		"handwritten imports generated":          {"handwritten/modules/a.go", ours + "generated/apis/ai/v1alpha1", ""},
		"cmd imports handwritten":                {"cmd/operator/a.go", ours + "handwritten/operator", ""},
		"generated imports handwritten":          {"generated/catalogs/a.go", ours + "handwritten/catalogs", "cmd -> handwritten -> generated"},
		"handwritten imports cmd":                {"handwritten/modules/a.go", ours + "cmd/operator", "nothing imports it"},
		"cmd imports another cmd":                {"cmd/admin/a.go", ours + "cmd/operator/flags", "nothing imports it"},
		"handwritten imports tools":              {"handwritten/modules/a.go", ours + "tools/specgen/workspace", "nothing imports tools"},
		"generated imports tools":                {"generated/docs/a.go", ours + "tools/specgen/workspace", "nothing imports tools"},
		"cmd imports tools":                      {"cmd/operator/a.go", ours + "tools/specgen/workspace", "nothing imports tools"},
		"a test imports tools":                   {"handwritten/modules/a_test.go", ours + "tools/specgen/workspace", "nothing imports tools"},
		"tools import tools":                     {"tools/specgen/a.go", ours + "tools/specgen/workspace", ""},
		"the generator imports generated":        {"tools/specgen/docs/a.go", ours + "generated/crds", "could not be rebuilt"},
		"a test of the generator does":           {"tools/specgen/docs/a_test.go", ours + "generated/crds", ""},
		"a room imports another":                 {"handwritten/modules/a.go", ours + "handwritten/appliance", "rooms meet in"},
		"a room imports below another":           {"handwritten/modules/a.go", ours + "handwritten/appliance/seed", "rooms meet in"},
		"a room imports below itself":            {"handwritten/modules/a.go", ours + "handwritten/modules/plan", ""},
		"a room imports kube":                    {"handwritten/modules/a.go", ours + "handwritten/kube", ""},
		"a room imports catalogs":                {"handwritten/modules/a.go", ours + "handwritten/catalogs", ""},
		"kube imports a room":                    {"handwritten/kube/a.go", ours + "handwritten/modules", "rooms meet in"},
		"operator composes":                      {"handwritten/operator/a.go", ours + "handwritten/modules", ""},
		"dev composes":                           {"handwritten/dev/a.go", ours + "handwritten/controlplane", ""},
		"a room imports the control plane":       {"handwritten/modules/a.go", ours + "handwritten/controlplane", "rooms meet in"},
		"a test imports the control plane":       {"handwritten/modules/a_test.go", ours + "handwritten/controlplane/controlplanetest", ""},
		"a generated test imports it":            {"generated/clientset/a_test.go", ours + "handwritten/controlplane/controlplanetest", ""},
		"a generated test imports a room":        {"generated/clientset/a_test.go", ours + "handwritten/modules", "cmd -> handwritten -> generated"},
		"a test imports another room":            {"handwritten/modules/a_test.go", ours + "handwritten/appliance", "rooms meet in"},
		"apis import the standard library":       {"generated/apis/ai/v1alpha1/a.go", "encoding/json", ""},
		"apis import apimachinery":               {"generated/apis/ai/v1alpha1/a.go", "k8s.io/apimachinery/pkg/apis/meta/v1", ""},
		"apis import the JSON type":              {"generated/apis/ai/v1alpha1/a.go", "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", ""},
		"apis import more of apiextensions":      {"generated/apis/ai/v1alpha1/a.go", "k8s.io/apiextensions-apiserver/pkg/apiserver/schema", "integrators' packages need"},
		"apis import controller-runtime":         {"generated/apis/ai/v1alpha1/a.go", "sigs.k8s.io/controller-runtime/pkg/scheme", "integrators' packages need"},
		"clientset imports core types":           {"generated/clientset/a.go", "k8s.io/api/core/v1", "integrators' packages need"},
		"listers import a lookalike":             {"generated/listers/a.go", "k8s.io/client-go-extra/x", "integrators' packages need"},
		"clientset imports apply configurations": {"generated/clientset/a.go", ours + "generated/applyconfiguration/ai/v1alpha1", ""},
		"clientset imports validation":           {"generated/clientset/a.go", ours + "generated/validation", "import one another only"},
		"informers import crds":                  {"generated/informers/a.go", ours + "generated/crds", "import one another only"},
		"apply configurations parse a schema":    {"generated/applyconfiguration/a.go", "sigs.k8s.io/structured-merge-diff/v6/typed", ""},
		"validation imports the API server":      {"generated/validation/a.go", "k8s.io/apiextensions-apiserver/pkg/registry/customresource", ""},
	} {
		t.Run(name, func(t *testing.T) {
			packages, err := List(t.Context(), module(t, map[string]string{c.file: source("a", c.imported)}))
			require.NoError(t, err)
			violations := Imports(packages)
			if c.rule == "" {
				require.Empty(t, violations)
				return
			}
			require.Len(t, violations, 1)
			require.Equal(t, c.imported, violations[0].To)
			require.ErrorContains(t, &Error{Findings: []string{violations[0].String()}}, c.rule)
		})
	}
	t.Run("the external test package counts", func(t *testing.T) {
		packages, err := List(t.Context(), module(t, map[string]string{
			"handwritten/modules/a.go":      "package modules\n",
			"handwritten/modules/a_test.go": source("modules_test", ours+"handwritten/appliance"),
		}))
		require.NoError(t, err)
		violations := Imports(packages)
		require.Len(t, violations, 1)
		require.True(t, violations[0].Test)
	})
	t.Run("a file behind a test tag counts", func(t *testing.T) {
		packages, err := List(t.Context(), module(t, map[string]string{
			"handwritten/modules/a_test.go": "//go:build peers\n\n" + source("modules", ours+"handwritten/appliance"),
		}))
		require.NoError(t, err)
		require.Len(t, Imports(packages), 1)
	})
}

func TestTree(t *testing.T) {
	root := module(t, map[string]string{
		"generated/same.md":          "same",
		"generated/edited.md":        "edited by hand",
		"generated/stale.md":         "stale",
		"handwritten/modules/a.go":   source("modules", ours+"handwritten/appliance"),
		"handwritten/appliance/a.go": "package appliance\n",
	})
	ws, err := workspace.New(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ws.Close()) })
	for name, content := range map[string]string{"same.md": "same", "edited.md": "as generated", "new.md": "new"} {
		require.NoError(t, ws.Write(name, []byte(content)))
	}
	var out bytes.Buffer
	err = Tree(t.Context(), ws, &out)
	var findings *Error
	require.ErrorAs(t, err, &findings)
	require.Len(t, findings.Findings, 4)
	require.ErrorContains(t, err, "generated/edited.md differs from what the spec gives")
	require.ErrorContains(t, err, "generated/new.md is missing")
	require.ErrorContains(t, err, "generated/stale.md is not generated from the spec")
	require.ErrorContains(t, err, "handwritten/modules imports "+ours+"handwritten/appliance")
	require.FileExists(t, filepath.Join(root, "generated/stale.md"), "verify changes nothing")

	require.NoError(t, os.Remove(filepath.Join(root, "handwritten/modules/a.go")))
	_, err = ws.Sync()
	require.NoError(t, err)
	require.NoError(t, Tree(t.Context(), ws, &out))
	require.Contains(t, out.String(), "verified 3 generated files")

	require.NoError(t, os.WriteFile(filepath.Join(root, "handwritten/appliance/a.go"), []byte("package appliance\n\nimport \"\n"), 0o600))
	require.ErrorContains(t, Tree(t.Context(), ws, &out), "handwritten/appliance cannot be read")
}
