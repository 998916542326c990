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

	"magicstick.dev/operator/tools/specgen/pipeline"
	"magicstick.dev/operator/tools/specgen/verify"
	"magicstick.dev/operator/tools/specgen/workspace"
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
	var out bytes.Buffer
	require.NoError(t, generate(ctx, root, &out))
	first := tree(t, root)
	require.Contains(t, first, "generated/apis/ai/v1alpha1/types_model.go")
	require.Contains(t, first, "generated/clientset/clientset.go")
	require.Regexp(t, `^[1-9][0-9]* CEL rules in [1-9][0-9]* CRDs; the dearest costs [1-9][0-9]*, [0-9.]+ % of the limit: \S+ spec\.versions\[0\]\S+\.rule \(.+\)\n`, out.String())

	start := time.Now()
	out.Reset()
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

// TestEditDuringTheRun: whoever edits the spec while a run reads it gets what the
// spec was at the start, is told so, and the next run does not take the tree for
// up to date.
func TestEditDuringTheRun(t *testing.T) {
	for name, input := range map[string]string{"spec": "spec/text", "generator": "tools/specgen/main.go", "modules": "go.sum"} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write := func(name, content string) {
				file := filepath.Join(root, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
				require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
			}
			for _, name := range []string{"go.mod", "go.sum", "spec/text", "tools/specgen/main.go"} {
				write(name, "first")
			}
			edit := ""
			copyOfText := []pipeline.Step{{Name: "copy", Generate: func(_ context.Context, ws *workspace.Workspace) error {
				if edit != "" {
					write(input, edit)
				}
				data, err := os.ReadFile(filepath.Join(ws.SpecDir, "text"))
				require.NoError(t, err)
				return ws.Write("text", data)
			}}}
			run := func() string {
				var out bytes.Buffer
				require.NoError(t, generateWith(t.Context(), root, copyOfText, &out))
				return out.String()
			}
			require.NotContains(t, run(), "up to date")
			require.Contains(t, run(), "up to date")
			require.FileExists(t, filepath.Join(root, stampFile))

			require.NoError(t, os.RemoveAll(filepath.Join(root, "generated")))
			edit = "second"
			require.Contains(t, run(), "changed during the run")
			require.Equal(t, map[string]string{"generated/text": "first"}, tree(t, root))
			require.NoFileExists(t, filepath.Join(root, stampFile))

			edit = ""
			require.NotContains(t, run(), "up to date")
			want := "first"
			if input == "spec/text" {
				want = "second"
			}
			require.Equal(t, map[string]string{"generated/text": want}, tree(t, root))
			require.Contains(t, run(), "up to date")
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
		require.Regexp(t, `spec\.versions\[0\]\S+\.rule +authSecretRef can only be set together with url +!has\(self\.authSecretRef\)`, out.String())
	})
}
