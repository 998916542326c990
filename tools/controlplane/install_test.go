package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/gobuild"
)

// fakeSource stands for setup-envtest; files are what it downloads.
type fakeSource struct {
	version string
	files   []string
	askErr  error
	hang    bool
	asked   int
	fetched int
	dir     string
}

func (s *fakeSource) prepare(context.Context) error { return nil }

func (s *fakeSource) ask(ctx context.Context, _ string) error {
	s.asked++
	if s.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.askErr
}

func (s *fakeSource) fetch(context.Context, string) (string, string, error) {
	s.fetched++
	for _, name := range s.files {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte("ready "+name), 0o600); err != nil {
			return "", "", err
		}
	}
	return s.version, s.dir, nil
}

type fixture struct {
	*installer
	source *fakeSource
	built  *[]string
	log    *bytes.Buffer
}

// newFixture makes an installer whose compiler writes the program's name.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	moduleDir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(moduleDir, "go.mod"), []byte("module m\n\nrequire k8s.io/kubernetes v1.36.3\n"), 0o600))
	version, err := pinnedVersion(moduleDir)
	require.NoError(t, err)
	var built []string
	log := &bytes.Buffer{}
	folder := &gobuild.Folder{Dir: t.TempDir(), Log: log, GoCommand: func(_ context.Context, _ string, args ...string) ([]byte, error) {
		name := filepath.Base(args[len(args)-1])
		built = append(built, name)
		for i, arg := range args {
			if arg == "-o" {
				return nil, os.WriteFile(args[i+1], []byte("built "+name), 0o700)
			}
		}
		return nil, errors.New("no -o")
	}}
	source := &fakeSource{version: "1.36.1", files: []string{"etcd", "kube-apiserver", "kubectl"}, dir: t.TempDir()}
	return &fixture{
		installer: &installer{
			folder: folder, log: log, version: version, programs: programs(moduleDir, version),
			envtest: source, askTimeout: 50 * time.Millisecond,
		},
		source: source, built: &built, log: log,
	}
}

func (f *fixture) content(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.folder.Dir, name))
	require.NoError(t, err)
	return string(data)
}

func TestInstall_fetches_what_is_offered_and_builds_the_rest(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.install(t.Context()))
	assert.Equal(t, "ready etcd", f.content(t, "etcd"))
	assert.Equal(t, "ready kubectl", f.content(t, "kubectl"))
	assert.Equal(t, []string{"kube-controller-manager"}, *f.built)
	info, err := os.Stat(filepath.Join(f.folder.Dir, "etcd"))
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&0o100, "executable")
	assert.Contains(t, f.log.String(), "setup-envtest brought Kubernetes 1.36.1")

	t.Run("and does not fetch again", func(t *testing.T) {
		*f.built = nil
		require.NoError(t, f.install(t.Context()))
		assert.Equal(t, 1, f.source.fetched)
	})
	t.Run("but again when a file was damaged", func(t *testing.T) {
		require.NoError(t, os.WriteFile(filepath.Join(f.folder.Dir, "kubectl"), []byte("ready kubectx"), 0o700))
		require.NoError(t, f.install(t.Context()))
		assert.Equal(t, 2, f.source.fetched)
		assert.Equal(t, "ready kubectl", f.content(t, "kubectl"))
	})
	t.Run("and again when another minor version is pinned", func(t *testing.T) {
		f.version = kubeVersion{full: "v1.37.0", major: "1", minor: "37"}
		assert.False(t, f.fetched("etcd"))
	})
}

func TestInstall_builds_everything_when_the_source(t *testing.T) {
	all := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}
	for name, change := range map[string]func(*fixture){
		"cannot be reached": func(f *fixture) { f.source.askErr = errors.New("no such host") },
		"does not answer":   func(f *fixture) { f.source.hang = true },
		"is not wanted":     func(f *fixture) { f.envtest = nil },
		"has nothing":       func(f *fixture) { f.source.files = nil },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			change(f)
			began := time.Now()
			require.NoError(t, f.install(t.Context()))
			assert.Less(t, time.Since(began), 5*time.Second)
			assert.Equal(t, all, *f.built)
			assert.Equal(t, "built etcd", f.content(t, "etcd"))
		})
	}
}

func TestInstall_does_not_ask_for_what_only_a_build_gives(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.install(t.Context()))
	require.NoError(t, os.Remove(filepath.Join(f.folder.Dir, "kube-controller-manager")))
	*f.built = nil
	require.NoError(t, f.install(t.Context()))
	assert.Equal(t, []string{"kube-controller-manager"}, *f.built)
	// The first run asked once; the fake's build carries no record, so it is built again, but never asked for.
	assert.Equal(t, 1, f.source.asked)
}

func TestInstall_ends_when_interrupted_instead_of_building(t *testing.T) {
	f := newFixture(t)
	f.source.hang = true
	f.askTimeout = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, f.install(ctx), context.DeadlineExceeded)
	assert.Empty(t, *f.built)
}

func TestInstall_with_assets(t *testing.T) {
	assets := func(t *testing.T, names ...string) string {
		dir := t.TempDir()
		for _, name := range names {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o700))
		}
		return dir
	}
	t.Run("of setup-envtest builds only the controller manager", func(t *testing.T) {
		f := newFixture(t)
		f.assets = assets(t, "etcd", "kube-apiserver", "kubectl")
		require.NoError(t, f.install(t.Context()))
		assert.Equal(t, []string{"kube-controller-manager"}, *f.built)
		assert.Zero(t, f.source.asked)
	})
	t.Run("that are complete builds nothing", func(t *testing.T) {
		f := newFixture(t)
		f.assets = assets(t, "etcd", "kube-apiserver", "kubectl", "kube-controller-manager")
		require.NoError(t, f.install(t.Context()))
		assert.Empty(t, *f.built)
	})
	t.Run("without kube-apiserver is an error", func(t *testing.T) {
		f := newFixture(t)
		f.assets = assets(t, "etcd")
		require.ErrorContains(t, f.install(t.Context()), f.assets+" has no kube-apiserver")
	})
	t.Run("with a folder in place of a program is an error", func(t *testing.T) {
		f := newFixture(t)
		f.assets = assets(t, "etcd")
		require.NoError(t, os.Mkdir(filepath.Join(f.assets, "kube-apiserver"), 0o700))
		require.ErrorContains(t, f.install(t.Context()), "kube-apiserver is not an executable file")
	})
}

func TestPinnedVersion(t *testing.T) {
	for content, want := range map[string]string{
		"module m\n": "does not require k8s.io/kubernetes",
		"module m\n\nrequire k8s.io/kubernetes v1.36.3-rc.1\n": `"v1.36.3-rc.1" is not vMAJOR.MINOR.PATCH`,
		"not a go.mod": "go.mod:1",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(content), 0o600))
		_, err := pinnedVersion(dir)
		require.ErrorContains(t, err, want)
	}
	_, err := pinnedVersion(t.TempDir())
	require.ErrorContains(t, err, "reading the version of Kubernetes")
}

// The real module must give flags that the binaries of an earlier build carry,
// or everybody builds for ten minutes again.
func TestPrograms_of_the_repository(t *testing.T) {
	version, err := pinnedVersion("build")
	require.NoError(t, err)
	list := programs("build", version)
	require.Len(t, list, 4)
	for _, program := range list {
		assert.Contains(t, program.LDFlags, "-X k8s.io/component-base/version.gitVersion="+version.full)
		assert.Equal(t, program.Name, filepath.Base(program.Package))
	}
}
