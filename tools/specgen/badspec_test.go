package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	modelFile  = "spec/crds/ai.deckhouse.io/model.yaml"
	schemaPath = "spec.versions[0].schema.openAPIV3Schema"
	sourcePath = schemaPath + ".properties[spec].properties[source]"
)

// specOfModel is a repository whose spec is that of one kind: what a bad CRD is
// answered with does not depend on the others, and a small spec is quick to read.
func specOfModel(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum", modelFile, "spec/conditions/ai.deckhouse.io/model.yaml"} {
		data, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
	return root
}

// badSpec is one fault and the one error that it is answered with.
type badSpec struct {
	name             string
	old, replacement string
	// at is the JSON path, empty when the whole file is meant.
	at     string
	reason string
}

// badSpecs break the CRD of Model in one place each.
var badSpecs = []badSpec{
	{"an unknown keyword", "minLength: 1\n", "minLenght: 1\n", sourcePath + ".properties[url].minLenght", "is not a keyword of a CRD schema"},
	{"an unknown key of the CRD", "  scope: Namespaced\n", "  scope: Namespaced\n  scpoe: Cluster\n", "spec.scpoe", "unknown field"},
	{"an unknown key of a column", "          jsonPath: .status.phase\n", "          jsonPath: .status.phase\n          width: 3\n", "spec.versions[0].additionalPrinterColumns[0].width", "unknown field"},
	{"a key twice", "                    url:\n", "                    url:\n                      type: integer\n", sourcePath + ".properties[url].type", "key is given twice, first in line"},
	{"a property twice", "                    upload:\n", "                    url: {type: string}\n                    upload:\n", sourcePath + ".properties[url]", "key is given twice, first in line"},
	{"a field without description", "                          description: Name of the Secret in the namespace of the Model.\n", "", sourcePath + ".properties[authSecretRef].properties[name].description", "is missing"},
	{"a string without bound", "                      maxLength: 2048\n                      pattern: ^https", "                      pattern: ^https", sourcePath + ".properties[url]", "is a string without bound; set maxLength"},
	{"a rule that does not compile", "rule: '!has(self.authSecretRef) || has(self.url)'", "rule: '!has(self.nowhere)'", sourcePath + ".x-kubernetes-validations[0].rule", "undefined field 'nowhere'"},
	{"a rule that is too dear", "rule: '!has(self.authSecretRef) || has(self.url)'",
		`rule: "!has(self.url) || self.url.split('/').all(a, self.url.split('/').all(b, self.url.split('/').all(c, a != b || c.contains(b))))"`,
		sourcePath + ".x-kubernetes-validations[0].rule", "cost exceeds budget by factor of"},
	{"a rule without message", "                      message: authSecretRef can only be set together with url\n", "", sourcePath + ".x-kubernetes-validations[0].message", "is missing"},
	{"a reference", "                      minLength: 1\n", "                      $ref: '#/definitions/url'\n", sourcePath + ".properties[url].$ref", "holds no references"},
	{"a group that climbs", "  group: ai.deckhouse.io\n", "  group: ../../etc\n", "spec.group", `"../../etc" would lead out of the folder`},
	{"a kind that climbs", "    kind: Model\n", "    kind: ../Model\n", "spec.names.kind", `"../Model" would lead out of the folder`},
	{"a kind that belongs elsewhere", "    kind: Model\n", "    kind: Pattern\n", "spec.names.kind", "belongs into the file ai.deckhouse.io/pattern.yaml"},
	{"keys that differ by case", "                    upload:\n", "                    URL: {type: string, description: Same., maxLength: 3}\n                    upload:\n", sourcePath + ".properties[url]", "encoding/json of Go matches keys without regard to case"},
	{"keys with one Go name", "                    upload:\n", "                    auth-secretRef: {type: string, description: Same., maxLength: 3}\n                    upload:\n", sourcePath + ".properties[authSecretRef]", "both need the Go field name AuthSecretRef"},
	{"an enum value twice", "                      minLength: 1\n                      maxLength: 2048\n", "                      enum: [a, a]\n", sourcePath + ".properties[url].enum[1]", `is "a", as is enum[0]`},
	{"an array without items", "                    upload:\n", "                    files: {type: array, description: Files., maxItems: 3}\n                    upload:\n", sourcePath + ".properties[files].items", "must be specified"},
	{"a default of another type", "                      minLength: 1\n                      maxLength: 2048\n", "                      default: 7\n                      maxLength: 2048\n", sourcePath + ".properties[url].default", "must be of type string"},
	{"broken YAML", "apiVersion:", "\t:", "", "is not valid YAML"},
	{"no text", "apiVersion:", "\x00", "", "is not text in UTF-8"},
}

// TestBadSpec: one fault of the spec is one error, with the file as it lies in the
// repository, the line, the path of the node and the reason; nothing is written,
// and the other commands that read the spec fail with it as well.
func TestBadSpec(t *testing.T) {
	for _, c := range badSpecs {
		t.Run(c.name, func(t *testing.T) {
			root := specOfModel(t)
			file := filepath.Join(root, modelFile)
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			broken := strings.Replace(string(data), c.old, c.replacement, 1)
			require.NotEqual(t, string(data), broken, "the fixture no longer fits")
			require.NoError(t, os.WriteFile(file, []byte(broken), 0o600))

			message := refused(t, root)
			place := `CRD file "` + modelFile + `"`
			if c.at != "" {
				place += ", line "
			}
			require.Contains(t, message, place)
			if c.at != "" {
				require.Regexp(t, `line [1-9][0-9]*, `+regexp.QuoteMeta(c.at)+": ", message)
			}
			require.Contains(t, message, c.reason)
			require.Less(t, len(message), 900)
		})
	}
}

// TestBadFolder: faults that are no text in a CRD.
func TestBadFolder(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	require.NoError(t, os.WriteFile(outside, []byte("a: b\n"), 0o600))
	for name, c := range map[string]struct {
		change func(t *testing.T, root string) error
		want   []string
	}{
		"a link that leads out": {
			func(_ *testing.T, root string) error {
				return os.Symlink(outside, filepath.Join(root, "spec/crds/link.yaml"))
			},
			[]string{`CRD file "spec/crds/link.yaml": is a link that leads to no file of its folder`},
		},
		"one kind in two files": {
			func(t *testing.T, root string) error {
				data, err := os.ReadFile(filepath.Join(root, modelFile))
				require.NoError(t, err)
				return os.WriteFile(filepath.Join(root, "spec/crds/other.yaml"), data, 0o600)
			},
			[]string{`CRD file "spec/crds/other.yaml", line 4, metadata.name: "models.ai.deckhouse.io" is already defined in "` + modelFile + `"`},
		},
		"no spec": {
			func(_ *testing.T, root string) error { return os.RemoveAll(filepath.Join(root, "spec")) },
			[]string{"reading the CRDs of spec/crds", "no such file or directory"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := specOfModel(t)
			require.NoError(t, c.change(t, root))
			message := refused(t, root)
			for _, want := range c.want {
				require.Contains(t, message, want)
			}
		})
	}
}

// TestBadTable: what a step after the gate finds is one error as well.
func TestBadTable(t *testing.T) {
	const name = "spec/conditions/ai.deckhouse.io/model.yaml"
	root := copyOfRepo(t)
	file := filepath.Join(root, name)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(data, []byte("kind: Model\n"), []byte("kind: Modell\n"), 1), 0o600))
	message := refused(t, root)
	require.Contains(t, message, name+`: kind: "Modell", must be "Model"`)
}

// refused runs generate and verify, which must both fail and leave no trace, and
// returns what generate says: one line.
func refused(t *testing.T, root string) string {
	t.Helper()
	staging := t.TempDir()
	t.Setenv("TMPDIR", staging)
	err := generate(t.Context(), root, &bytes.Buffer{})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n", "one fault is one error")
	require.NotContains(t, err.Error(), root, "files are named as they lie in the repository")
	require.NotContains(t, err.Error(), staging, "files are named as they lie in the repository")
	require.Error(t, verifyTree(t.Context(), root, &bytes.Buffer{}), "verify fails on a spec error too")
	require.NoDirExists(t, filepath.Join(root, "generated"))
	require.NoFileExists(t, filepath.Join(root, stampFile))
	left, globErr := filepath.Glob(filepath.Join(staging, "specgen-*"))
	require.NoError(t, globErr)
	require.Empty(t, left, "the staging module was left behind")
	return err.Error()
}

// TestExitStatus: the process itself ends with 1 and says the fault on standard
// error.
func TestExitStatus(t *testing.T) {
	if root := os.Getenv("SPECGEN_TEST_REPO"); root != "" {
		os.Args = []string{"specgen", "generate", "--repo", root}
		main()
		return
	}
	root := specOfModel(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, modelFile), []byte("- a list\n"), 0o600))
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExitStatus$")
	process.Env = append(os.Environ(), "SPECGEN_TEST_REPO="+root)
	var stderr bytes.Buffer
	process.Stderr = &stderr
	var exit *exec.ExitError
	require.ErrorAs(t, process.Run(), &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Equal(t, `specgen: check: reading the CRDs of spec/crds: CRD file "`+modelFile+`": is not a YAML mapping`+"\n", stderr.String())
}
