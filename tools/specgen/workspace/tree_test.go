package workspace

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository makes a folder that looks like a repository to a workspace.
func repository(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	files["go.mod"], files["go.sum"] = "module magicstick.dev/operator\n", ""
	for name, content := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return root
}

func open(t *testing.T, root string) *Workspace {
	t.Helper()
	ws, err := New(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ws.Close()) })
	return ws
}

func TestSync(t *testing.T) {
	root := repository(t, map[string]string{
		"generated/same.go":        "same",
		"generated/edited.go":      "edited by hand",
		"generated/old/gone.go":    "stale",
		"handwritten/untouched.go": "mine",
	})
	ws := open(t, root)
	require.NoError(t, ws.Write("same.go", []byte("same")))
	require.NoError(t, ws.Write("edited.go", []byte("as generated")))
	require.NoError(t, ws.Write("deep/new.go", []byte("new")))

	want := []Difference{
		{"generated/deep/new.go", Missing},
		{"generated/edited.go", Edited},
		{"generated/old/gone.go", Extra},
	}
	differences, err := ws.Differences()
	require.NoError(t, err)
	require.Equal(t, want, differences)

	before, err := os.Stat(filepath.Join(root, "generated/same.go"))
	require.NoError(t, err)
	changed, err := ws.Sync()
	require.NoError(t, err)
	require.Equal(t, want, changed)
	after, err := os.Stat(filepath.Join(root, "generated/same.go"))
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime(), "an equal file is not written again")
	require.NoDirExists(t, filepath.Join(root, "generated/old"), "an empty folder goes with its last file")
	require.FileExists(t, filepath.Join(root, "handwritten/untouched.go"))

	differences, err = ws.Differences()
	require.NoError(t, err)
	require.Empty(t, differences)
}

func TestSyncStaysInsideGenerated(t *testing.T) {
	root := repository(t, map[string]string{"handwritten/victim.go": "mine"})
	require.NoError(t, os.Mkdir(filepath.Join(root, "generated"), 0o750))
	require.NoError(t, os.Symlink("../handwritten", filepath.Join(root, "generated/apis")))
	ws := open(t, root)
	require.NoError(t, ws.Write("apis/victim.go", []byte("overwritten")))
	// The link itself is no longer generated; what it points to is not followed.
	_, err := ws.Sync()
	content, readErr := os.ReadFile(filepath.Join(root, "handwritten/victim.go"))
	require.NoError(t, readErr)
	require.Equal(t, "mine", string(content), "sync error: %v", err)
}

func TestWriteStaysInsideStaging(t *testing.T) {
	ws := open(t, repository(t, map[string]string{}))
	for _, name := range []string{"../escape.go", "/tmp/escape.go", "a/../../escape.go"} {
		require.Error(t, ws.Write(name, nil), name)
	}
	require.NoError(t, ws.Write("a.go", nil))
	require.ErrorContains(t, ws.Write("a.go", nil), `"a.go"`, "two steps cannot write one file")
}

func TestFingerprint(t *testing.T) {
	root := repository(t, map[string]string{
		"spec/crds/a.yaml":            "a",
		"tools/specgen/main.go":       "package main",
		"tools/specgen/main_test.go":  "package main",
		"generated/apis/ai/types.go":  "package v1",
		"handwritten/modules/plan.go": "package modules",
	})
	print := func() string {
		fingerprint, err := Fingerprint(root)
		require.NoError(t, err)
		return fingerprint
	}
	base := print()
	require.Equal(t, base, print())
	for _, name := range []string{"spec/crds/a.yaml", "tools/specgen/main.go", "generated/apis/ai/types.go", "go.sum"} {
		file := filepath.Join(root, name)
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, append(content, ' '), 0o600))
		require.NotEqual(t, base, print(), name)
		require.NoError(t, os.WriteFile(file, content, 0o600))
		require.Equal(t, base, print(), name)
	}
	for _, name := range []string{"tools/specgen/main_test.go", "handwritten/modules/plan.go"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("other"), 0o600))
		require.Equal(t, base, print(), name)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(root, "generated")))
	require.NotEqual(t, base, print(), "a deleted tree counts")
}

func TestCRDs(t *testing.T) {
	crd := func(kind string) string {
		plural := strings.ToLower(kind) + "s"
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + plural + ".x.dev}\n" +
			"spec: {group: x.dev, names: {kind: " + kind + "}, versions: [{name: v1, schema: {openAPIV3Schema: {type: object}}}]}\n"
	}
	for name, broken := range map[string]struct{ content, want string }{
		"unknown key":   {crd("A") + "extra: 1\n", `"spec/crds/a.yaml", line 5, extra: unknown field`},
		"two documents": {crd("A") + "---\n" + crd("B"), "holds several documents"},
		"another kind":  {"apiVersion: v1\nkind: Secret\n", "kind Secret"},
		"other type":    {"apiVersion: v1\nkind: CustomResourceDefinition\n", "is apiVersion v1"},
		"empty":         {"", "is empty"},
		"binary":        {"\x00\x01\xff", "is not text"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, repository(t, map[string]string{"spec/crds/a.yaml": broken.content})).CRDs()
			require.ErrorContains(t, err, `reading the CRDs of spec/crds: CRD file "spec/crds/a.yaml"`)
			require.ErrorContains(t, err, broken.want)
		})
	}
	t.Run("sorted by kind, each caller with its own", func(t *testing.T) {
		ws := open(t, repository(t, map[string]string{"spec/crds/1.yaml": crd("B"), "spec/crds/2.yaml": crd("A")}))
		crds, err := ws.CRDs()
		require.NoError(t, err)
		require.Equal(t, "A", crds[0].Kind())
		require.Equal(t, "crds/2.yaml", crds[0].File)
		require.Equal(t, crd("A"), string(crds[0].YAML))
		crds[0].Definition.Spec.Names.Kind = "Changed"
		again, err := ws.CRDs()
		require.NoError(t, err)
		require.Equal(t, "A", again[0].Kind())
	})
	t.Run("one kind twice", func(t *testing.T) {
		_, err := open(t, repository(t, map[string]string{"spec/crds/1.yaml": crd("A"), "spec/crds/2.yaml": crd("A")})).CRDs()
		require.ErrorContains(t, err, `CRD file "spec/crds/2.yaml", line 3, metadata.name: "as.x.dev" is already defined in "spec/crds/1.yaml"`)
	})
	t.Run("a folder that is not there", func(t *testing.T) {
		_, err := open(t, repository(t, map[string]string{})).CRDsBelow("external")
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

// TestSpecOfTheStart: what is written to the spec during a run is not read by it,
// and the fingerprint is that of what was read and staged.
func TestSpecOfTheStart(t *testing.T) {
	root := repository(t, map[string]string{"spec/a.txt": "at the start"})
	ws := open(t, root)
	require.NoError(t, ws.Write("a.go", []byte("package a")))
	changed, err := ws.InputsChanged()
	require.NoError(t, err)
	require.False(t, changed)
	_, err = ws.Sync()
	require.NoError(t, err)
	ours, err := ws.Fingerprint()
	require.NoError(t, err)
	repo, err := Fingerprint(root)
	require.NoError(t, err)
	require.Equal(t, repo, ours)

	require.NoError(t, os.WriteFile(filepath.Join(root, "spec/a.txt"), []byte("edited"), 0o600))
	read, err := os.ReadFile(filepath.Join(ws.SpecDir, "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "at the start", string(read))
	changed, err = ws.InputsChanged()
	require.NoError(t, err)
	require.True(t, changed)
	again, err := ws.Fingerprint()
	require.NoError(t, err)
	require.Equal(t, ours, again)
	repo, err = Fingerprint(root)
	require.NoError(t, err)
	require.NotEqual(t, repo, ours)
}
