package gotypes_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// stagedSpec is a workspace of the repository whose spec is an empty folder.
func stagedSpec(t *testing.T, root string) *workspace.Workspace {
	t.Helper()
	ws, err := workspace.New(root)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.Close() })
	ws.SpecDir = filepath.Join(t.TempDir(), "spec")
	return ws
}
