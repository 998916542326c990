package conditions

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/workspace"
)

func repository(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	require.NoError(t, err)
	return dir
}

func TestGenerateFromSpec(t *testing.T) {
	ws, err := workspace.New(repository(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.Close() })
	require.NoError(t, Generate(context.Background(), ws))
	if dir := os.Getenv("DUMP"); dir != "" {
		require.NoError(t, os.CopyFS(dir, os.DirFS(ws.GeneratedDir())))
	}
}
