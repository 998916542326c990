package flux_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/dev/flux"
)

// repository makes a folder that looks like the repository, with the given
// shell script in place of both controllers, and goes there.
func repository(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module magicstick.dev/operator\n"), 0o600))
	peers := filepath.Join(dir, ".bin", "peers")
	require.NoError(t, os.MkdirAll(peers, 0o700))
	if script != "" {
		for _, name := range []string{"source-controller", "kustomize-controller"} {
			require.NoError(t, os.WriteFile(filepath.Join(peers, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
		}
	}
	t.Chdir(dir)
	return dir
}

func TestAvailable_says_how_to_build(t *testing.T) {
	repository(t, "")
	require.ErrorContains(t, flux.Available(), "looking for source-controller (run `make peers` to build it)")
	repository(t, "exit 0")
	require.NoError(t, flux.Available())
}

// The real start is tested in tools/peers, where the controllers are built.
func TestStart_that_fails(t *testing.T) {
	for name, test := range map[string]struct {
		message  string
		attempts int
	}{
		"is tried again when its port was taken": {"listen tcp 127.0.0.1:1: bind: address already in use", 5},
		"is final for any other reason":          {"no CRD", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repository(t, `echo "$@" >> "$HOME/../attempts"; echo "`+test.message+`"; exit 1`)
			work := filepath.Join(dir, "work")
			require.NoError(t, os.Mkdir(work, 0o700))
			_, err := flux.Start(t.Context(), flux.Options{Kubeconfig: "unused", Dir: work})
			require.ErrorContains(t, err, "starting source-controller: it ended (exit status 1) before it was ready")
			require.ErrorContains(t, err, test.message)
			attempts, err := os.ReadFile(filepath.Join(dir, "attempts"))
			require.NoError(t, err)
			lines := strings.Split(strings.TrimSpace(string(attempts)), "\n")
			assert.Len(t, lines, test.attempts)
			for i := 1; i < len(lines); i++ {
				assert.NotEqual(t, lines[0], lines[i], "other ports each time")
			}
		})
	}
}
