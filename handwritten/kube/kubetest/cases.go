package kubetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// Cases runs a test for every folder of testdata that has an in.yaml, under the
// folder's name.
func Cases(t *testing.T, run func(t *testing.T, dir string)) {
	t.Helper()
	cases, err := filepath.Glob("testdata/*/in.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, file := range cases {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) { run(t, dir) })
	}
}

// Read reads the in.yaml of a case; a field that in does not have is an error.
func Read(t *testing.T, dir string, in any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "in.yaml")) // #nosec G304 -- a path of the test's own
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(raw, in))
}
