package httpapi

import (
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/workspace"
)

func TestTmp(t *testing.T) {
	ws, err := workspace.New("../../..")
	require.NoError(t, err)
	require.NoError(t, Generate(t.Context(), ws))
	t.Log(ws.ModuleDir)
}
