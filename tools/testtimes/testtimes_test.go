package testtimes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSummary(t *testing.T) {
	command := exec.Command("awk", "-f", "summary.awk")
	command.Stdin = strings.NewReader(`?   	magicstick.dev/operator/cmd/admin	[no test files]
ok  	magicstick.dev/operator/cmd/magicstick	0.500s
ok  	magicstick.dev/operator/handwritten/controlplane	12.345s
ok  	magicstick.dev/operator/handwritten/controlplane/controlplanetest	(cached)
--- FAIL: TestX (0.00s)
FAIL
FAIL	magicstick.dev/operator/handwritten/modules	3.000s
FAIL	magicstick.dev/operator/handwritten/operator [build failed]
ok  	magicstick.dev/operator/tools/specgen/crd	1.000s	coverage: 80.0% of statements
ok  	magicstick.dev/operator/tools/specgen/verify	2.000s
FAIL
`)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	var lines []string
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	assert.Equal(t, []string{
		"==> control plane 12.3 s in 2 packages (1 cached)",
		"==> generator 3.0 s in 2 packages",
		"==> controllers and guard 3.0 s in 2 packages",
		"==> commands and magicstick dev 0.5 s in 1 packages",
		"==> slowest packages",
		"==> handwritten/controlplane 12.3 s",
		"==> handwritten/modules 3.0 s",
		"==> tools/specgen/verify 2.0 s",
		"==> tools/specgen/crd 1.0 s",
		"==> cmd/magicstick 0.5 s",
	}, lines)
}

// CI reads the lines of `go test` and its exit status.
func TestRun_passes_on_output_and_status(t *testing.T) {
	for name, test := range map[string]struct {
		body   string
		status int
		words  string
	}{
		"passing": {"", 0, "ok  \tmagicstick.dev/operator/sample\t"},
		"failing": {`t.Fatal("the reason")`, 1, "the reason"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":         "module magicstick.dev/operator/sample\n\ngo 1.26\n",
				"sample_test.go": "package sample\n\nimport \"testing\"\n\nfunc TestSample(t *testing.T) { " + test.body + " }\n",
			} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			script, err := filepath.Abs("run")
			require.NoError(t, err)
			command := exec.Command(script, "./...")
			command.Dir = dir
			command.Env = append(os.Environ(), "GOWORK=off")
			out, _ := command.CombinedOutput()
			assert.Equal(t, test.status, command.ProcessState.ExitCode(), "%s", out)
			assert.Contains(t, string(out), test.words)
			assert.Contains(t, string(out), "==> other ")
		})
	}
}
