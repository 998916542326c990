package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const manifest = `apiVersion: appliance.magicstick.dev/v1alpha1
kind: ModuleActivation
metadata: {name: litellm, namespace: ai-system}
spec: {module: litellm}
`

// execute runs the command line and returns what it wrote and its exit code.
func execute(t *testing.T, input string, args ...string) (string, int, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(input))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	var coded interface{ ExitCode() int }
	switch {
	case err == nil:
		return out.String(), 0, nil
	case errors.As(err, &coded):
		return out.String(), coded.ExitCode(), err
	default:
		return out.String(), 1, err
	}
}

func TestValidateExitCodes(t *testing.T) {
	good, bad := filepath.Join(t.TempDir(), "good.yaml"), filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(good, []byte(manifest), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte(strings.Replace(manifest, "module:", "modul:", 1)), 0o600))
	for name, c := range map[string]struct {
		input string
		args  []string
		code  int
		want  string
	}{
		"valid":          {"", []string{"-f", good}, 0, "1 object in 1 file: valid"},
		"several":        {"", []string{"-f", good, good, "-f", good}, 0, "3 objects in 3 files: valid"},
		"invalid":        {"", []string{"-f", good, "-f", bad}, 1, bad + ":4:8: ModuleActivation/litellm: spec.modul: is not a known field [UnknownField]"},
		"invalid_json":   {"", []string{"-f", bad, "-o", "json"}, 1, `"valid": false`},
		"standard_input": {manifest, []string{"-f", "-"}, 0, "1 object in 1 file: valid"},
		"missing_file":   {"", []string{"-f", "missing.yaml"}, 2, ""},
		"no_file":        {"", nil, 2, ""},
		"unknown_flag":   {"", []string{"--filname", good}, 2, ""},
		"unknown_format": {"", []string{"-f", good, "-o", "xml"}, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, code, err := execute(t, c.input, append([]string{"validate"}, c.args...)...)
			assert.Equal(t, c.code, code, "%s %v", out, err)
			assert.Contains(t, out, c.want)
			if code == 2 {
				assert.NotEmpty(t, err.Error(), "the person does not learn why")
			}
		})
	}
}

func TestVersionCommand(t *testing.T) {
	out, code, err := execute(t, "", "version")
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.True(t, strings.HasPrefix(out, "magicstick "), out)
	out, _, err = execute(t, "", "version", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"go": "go1.`)
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		out, _, err := execute(t, "", "completion", shell)
		require.NoError(t, err, shell)
		assert.Contains(t, out, "magicstick", shell)
	}
	out, _, err := execute(t, "", "__complete", "validate", "-o", "")
	require.NoError(t, err)
	assert.Contains(t, out, "text\njson\n")
}
