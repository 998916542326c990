package huggingfacestandin_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/source/huggingfacestandin"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

const commit = "1111111111222222222233333333334444444444"

// install puts the Hub's client into .bin/hubclient, once for each lock file, and
// returns that folder. It skips the test where there is no Node, or no npm registry.
func install(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped: it needs Node and, once, an npm registry")
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("skipped: the Hub's own client needs %s, which is not installed", program)
		}
	}
	root, err := filepath.Abs("../../../..")
	require.NoError(t, err)
	folder := filepath.Join(root, ".bin", "hubclient")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	lock, err := os.Create(filepath.Join(folder, "lock"))
	require.NoError(t, err)
	defer lock.Close() // ends the lock
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	changed := false
	for _, name := range []string{"package.json", "package-lock.json", "client.mjs"} {
		data, err := os.ReadFile(filepath.Join(root, "tools", "hubclient", name))
		require.NoError(t, err)
		have, _ := os.ReadFile(filepath.Join(folder, name))
		if bytes.Equal(have, data) {
			continue
		}
		changed = changed || name != "client.mjs"
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), data, 0o644))
	}
	done := filepath.Join(folder, "installed")
	if _, err := os.Stat(done); err == nil && !changed {
		return folder
	}
	_ = os.Remove(done)
	command := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=30000")
	command.Dir = folder
	if output, err := command.CombinedOutput(); err != nil {
		t.Skipf("skipped: npm cannot install the Hub's own client: %v\n%s", err, output)
	}
	require.NoError(t, os.WriteFile(done, nil, 0o644))
	return folder
}

type answer struct {
	Who  string
	Info struct {
		Name, Task, SHA, Author, Error string
		Private                        bool
		Gated                          any
	}
	Missing json.RawMessage
	List    []struct {
		Type, Path, OID string
		Size            int64
		LFS             *struct {
			OID         string
			Size        int64
			PointerSize int64
		}
	}
	Files []struct {
		Path, ETag, SHA256, Part, OID, LFS, Commit, Error string
		Size                                              int64
	}
	Snapshot struct{ Commit, Config, Error string }
}

func ask(t *testing.T, folder string, arguments ...string) answer {
	t.Helper()
	command := exec.CommandContext(t.Context(), "node", append([]string{"client.mjs"}, arguments...)...)
	command.Dir = folder
	var complaint bytes.Buffer
	command.Stderr = &complaint
	output, err := command.Output()
	require.NoError(t, err, complaint.String())
	var got answer
	require.NoError(t, json.Unmarshal(output, &got), string(output))
	return got
}

// The stand-in is faithful enough for the client that Hugging Face publishes.
func TestStandIn_the_Hubs_own_client_is_content(t *testing.T) {
	t.Parallel()
	folder := install(t)
	hub, err := huggingfacestandin.Start()
	require.NoError(t, err)
	t.Cleanup(hub.Close)
	hub.AddToken("hf_member", "member")
	hub.PageSize = 3
	files := map[string]standin.Content{
		"config.json": standin.Bytes([]byte(`{"model_type":"qwen3"}`)), "model.safetensors": standin.Pattern(1, 3<<20+5),
		"sub dir/täst 1.json": standin.Bytes([]byte(`{"a": 1}`)), "sub dir/deep/large.gguf": standin.Pattern(2, 2<<20),
	}
	repository := huggingfacestandin.Repository{Name: "a/public", Commit: commit, Files: files, LFSBytes: 1 << 20, PipelineTag: "text-generation", Refs: []string{"v1"}}
	hub.Add(repository)
	repository.Name, repository.Private, repository.Tokens = "a/private", true, []string{"hf_member"}
	hub.Add(repository)

	for _, who := range [][]string{{"a/public", "main"}, {"a/public", commit}, {"a/public", "v1"}, {"a/private", "main", "hf_member"}} {
		got := ask(t, folder, append([]string{hub.URL().String()}, who...)...)
		require.Equal(t, who[0], got.Info.Name, got.Info.Error)
		require.Equal(t, commit, got.Info.SHA)
		require.Equal(t, "text-generation", got.Info.Task)
		require.Equal(t, who[0] == "a/private", got.Info.Private)
		require.Equal(t, "null", string(got.Missing))
		require.Len(t, got.List, 4+2, "files and folders of two pages")
		require.Len(t, got.Files, 4)
		for _, file := range got.Files {
			content := files[file.Path]
			require.NotNil(t, content, "%+v", file)
			require.Empty(t, file.Error)
			require.Equal(t, content.Size(), file.Size)
			require.Equal(t, standin.SHA256(content), file.SHA256)
			part, err := io.ReadAll(io.NewSectionReader(content, 1, 4))
			require.NoError(t, err)
			require.Equal(t, hex.EncodeToString(part), file.Part, "a range")
			require.Equal(t, commit, file.Commit)
			if content.Size() >= 1<<20 {
				require.Equal(t, standin.SHA256(content), file.LFS)
			} else {
				require.Equal(t, standin.GitBlob(content), file.OID)
			}
		}
		require.Equal(t, commit, got.Snapshot.Commit, got.Snapshot.Error)
		require.Equal(t, standin.SHA256(files["config.json"]), got.Snapshot.Config)
		if len(who) == 3 {
			require.Equal(t, "member", got.Who)
		}
	}
	require.NotEmpty(t, hub.CDN.Requests())
	for _, request := range hub.CDN.Requests() {
		require.Empty(t, request.Header.Get("Authorization"))
	}
}
