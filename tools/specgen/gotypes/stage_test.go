package gotypes_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

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

// documents splits a YAML stream; documents of comments alone are left out.
func documents(data []byte) [][]byte {
	var out [][]byte
	for part := range bytes.SplitSeq(append([]byte("\n"), data...), []byte("\n---")) {
		if object, err := yaml.YAMLToJSON(part); err == nil && string(object) != "null" {
			out = append(out, part)
		}
	}
	return out
}
