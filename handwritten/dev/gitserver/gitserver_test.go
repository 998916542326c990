package gitserver_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/dev/gitserver"
)

func start(t *testing.T) *gitserver.Server {
	t.Helper()
	server, err := gitserver.Start(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	return server
}

func clone(t *testing.T, url string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	output, err := exec.Command("git", "clone", "--quiet", "--depth=1", "--branch="+gitserver.Branch, url, dir).CombinedOutput()
	require.NoError(t, err, string(output))
	return dir
}

func TestServer_is_cloned_with_the_files_of_the_last_commit(t *testing.T) {
	server := start(t)
	first, err := server.Commit(t.Context(), "first", map[string][]byte{"a/one.yaml": []byte("1"), "gone": nil})
	require.NoError(t, err)
	second, err := server.Commit(t.Context(), "second", map[string][]byte{"a/one.yaml": []byte("2"), "b/.gitignore": []byte("*")})
	require.NoError(t, err)
	assert.NotEqual(t, first, second)

	dir := clone(t, server.URL)
	data, err := os.ReadFile(filepath.Join(dir, "a", "one.yaml"))
	require.NoError(t, err)
	assert.Equal(t, "2", string(data))
	assert.NoFileExists(t, filepath.Join(dir, "gone"))
	assert.FileExists(t, filepath.Join(dir, "b", ".gitignore"))
	head, err := exec.Command("git", "-C", dir, "rev-parse", "HEAD").Output()
	require.NoError(t, err)
	assert.Equal(t, second+"\n", string(head))
}

func TestServer_takes_no_pushes(t *testing.T) {
	server := start(t)
	response, err := http.Get(server.URL + "/info/refs?service=git-receive-pack")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusForbidden, response.StatusCode)
}

func TestCommit_refuses_a_path_that_climbs_out(t *testing.T) {
	_, err := start(t).Commit(t.Context(), "bad", map[string][]byte{"../escape": nil})
	require.ErrorContains(t, err, `writing "../escape"`)
}

func TestStart_says_that_git_is_missing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := gitserver.Start(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "Git is not installed")
}
