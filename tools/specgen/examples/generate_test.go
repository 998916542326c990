package examples

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// newWorkspace makes a repository with the given example files of one kind.
func newWorkspace(t *testing.T, files map[string]string) *workspace.Workspace {
	t.Helper()
	repository := t.TempDir()
	for name, content := range files {
		path := filepath.Join(repository, "spec", "examples", "widget", "valid", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	for name, content := range map[string]string{"go.mod": "module m\n", "go.sum": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(repository, name), []byte(content), 0o600))
	}
	ws, err := workspace.New(repository)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ws.Close()) })
	return ws
}

func TestGenerate_copies_the_seed_examples_only(t *testing.T) {
	seed := "# subresource: status\nkind: Widget\n"
	ws := newWorkspace(t, map[string]string{"seed-a.yaml": seed, "minimal.yaml": "kind: Widget\n"})
	require.NoError(t, Generate(t.Context(), ws))
	files, err := ws.Files()
	require.NoError(t, err)
	assert.Equal(t, []string{"examples/examples.go", "examples/widget/seed-a.yaml"}, files)
	data, err := os.ReadFile(filepath.Join(ws.GeneratedDir(), "examples", "widget", "seed-a.yaml"))
	require.NoError(t, err)
	assert.Equal(t, seed, string(data))
}

func TestGenerate_refuses(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		words string
	}{
		"no examples":   {nil, "there is no examples/<kind>/valid/seed-*.yaml"},
		"two documents": {map[string]string{"seed-a.yaml": "kind: A\n---\nkind: B\n"}, "seed-a.yaml: it has 2 documents"},
		"an empty file": {map[string]string{"seed-a.yaml": "# nothing\n"}, "seed-a.yaml: it has 0 documents"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, Generate(t.Context(), newWorkspace(t, test.files)), test.words)
		})
	}
}
