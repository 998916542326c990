package docs

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/workspace"
)

func TestGenerateFromSpec(t *testing.T) {
	repo, err := filepath.Abs("../../..")
	require.NoError(t, err)
	ws, err := workspace.New(repo)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.Close() })
	require.NoError(t, Generate(context.Background(), ws))
	if dir := os.Getenv("DUMP"); dir != "" {
		require.NoError(t, os.CopyFS(dir, os.DirFS(ws.GeneratedDir())))
	}
}
