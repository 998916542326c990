package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/verify"
)

// copyOfRepo is a repository with our spec and nothing generated yet.
func copyOfRepo(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "spec"), os.DirFS("../../spec")))
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, name), data, 0o600))
	}
	return root
}

// tree reads every file below generated/.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	dir := os.DirFS(root)
	require.NoError(t, fs.WalkDir(dir, "generated", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dir, name)
		files[name] = string(data)
		return err
	}))
	return files
}

// TestGenerateAndVerify walks the life of a generated tree: made, left alone,
// damaged, found out, repaired with the same bytes.
func TestGenerateAndVerify(t *testing.T) {
	root := copyOfRepo(t)
	ctx := t.Context()
	require.NoError(t, generate(ctx, root, &bytes.Buffer{}))
	first := tree(t, root)
	require.Contains(t, first, "generated/apis/ai/v1alpha1/types_model.go")
	require.Contains(t, first, "generated/clientset/clientset.go")

	start := time.Now()
	var out bytes.Buffer
	require.NoError(t, generate(ctx, root, &out))
	require.Contains(t, out.String(), "up to date")
	require.Less(t, time.Since(start), 5*time.Second)

	damage := func(name, content string) {
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	damage("generated/clientset/clientset.go", first["generated/clientset/clientset.go"]+"\n// edited\n")
	damage("generated/apis/ai/v1alpha1/extra.go", "package v1alpha1\n")
	require.NoError(t, os.Remove(filepath.Join(root, "generated/docs/model.md")))
	damage("handwritten/mine/mine.go", "package mine\n")
	damaged := tree(t, root)

	err := verifyTree(ctx, root, &bytes.Buffer{})
	var findings *verify.Error
	require.ErrorAs(t, err, &findings)
	require.Len(t, findings.Findings, 3)
	require.ErrorContains(t, err, "generated/clientset/clientset.go differs")
	require.ErrorContains(t, err, "generated/apis/ai/v1alpha1/extra.go is not generated")
	require.ErrorContains(t, err, "generated/docs/model.md is missing")
	require.Equal(t, damaged, tree(t, root), "verify changes nothing")

	out.Reset()
	require.NoError(t, generate(ctx, root, &out), "the stamp must notice the damage")
	require.Contains(t, out.String(), "1 new, 1 changed, 1 removed")
	require.Equal(t, first, tree(t, root), "two runs give the same bytes")
	require.FileExists(t, filepath.Join(root, "handwritten/mine/mine.go"))
}

// TestBadSpec breaks the spec in ways that only the pipeline as a whole can
// answer for: one error with file and reason, and nothing written.
func TestBadSpec(t *testing.T) {
	const model = "spec/crds/ai.deckhouse.io/model.yaml"
	for name, c := range map[string]struct{ file, old, replacement, want string }{
		"an unknown schema keyword":    {model, "minLength: 1\n", "minLenght: 1\n", "minLenght"},
		"a rule that does not compile": {model, "rule: '!has(self.authSecretRef) || has(self.url)'", "rule: '!has(self.nowhere)'", "nowhere"},
		"a condition file of no kind":  {"spec/conditions/ai.deckhouse.io/model.yaml", "kind: Model", "kind: Modell", "Modell"},
		"broken YAML":                  {model, "apiVersion:", "\t:", "model.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			root := copyOfRepo(t)
			file := filepath.Join(root, c.file)
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			broken := strings.Replace(string(data), c.old, c.replacement, 1)
			require.NotEqual(t, string(data), broken, "the fixture no longer fits")
			require.NoError(t, os.WriteFile(file, []byte(broken), 0o600))
			staging := t.TempDir()
			t.Setenv("TMPDIR", staging)

			err = generate(t.Context(), root, &bytes.Buffer{})
			require.ErrorContains(t, err, filepath.Base(c.file))
			require.ErrorContains(t, err, c.want)
			require.NoDirExists(t, filepath.Join(root, "generated"))
			require.NoFileExists(t, filepath.Join(root, stampFile))
			left, err := filepath.Glob(filepath.Join(staging, "specgen-*"))
			require.NoError(t, err)
			require.Empty(t, left, "the staging module was left behind")
			require.Error(t, verifyTree(t.Context(), root, &bytes.Buffer{}), "verify fails on a spec error too")
		})
	}
}

func TestCommands(t *testing.T) {
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := command()
		root.SetArgs(args)
		root.SetOut(&out)
		return out.String(), root.ExecuteContext(context.Background())
	}
	for name, args := range map[string][]string{
		"generate takes no argument": {"generate", "extra"},
		"roundtrip needs a path":     {"roundtrip"},
		"a missing path is an error": {"roundtrip", filepath.Join(t.TempDir(), "absent.yaml")},
		"no repository":              {"generate", "--repo", filepath.Join(t.TempDir(), "absent")},
		"an unknown command":         {"degenerate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(args...)
			require.Error(t, err)
		})
	}
	t.Run("roundtrip prints a line per CRD and a count", func(t *testing.T) {
		var out bytes.Buffer
		root := command()
		root.SetArgs([]string{"roundtrip", "--repo", "../..", "../../spec/crds/ai.deckhouse.io/model.yaml"})
		root.SetOut(&out)
		require.NoError(t, root.ExecuteContext(t.Context()))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 2)
		require.True(t, strings.HasPrefix(lines[0], "models.ai.deckhouse.io same"), lines[0])
		require.True(t, strings.HasPrefix(lines[1], "1 CRDs: 1 same"), lines[1])
	})
	t.Run("cost names each rule's CRD", func(t *testing.T) {
		var out bytes.Buffer
		root := command()
		root.SetArgs([]string{"cost", "--repo", "../.."})
		root.SetOut(&out)
		require.NoError(t, root.ExecuteContext(t.Context()))
		require.Contains(t, out.String(), "modelactivations.appliance.magicstick.dev")
	})
}
