package gobuild

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// helloModule writes a module with one program, which prints main.word.
func helloModule(t *testing.T) Program {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.test/hello\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"),
		[]byte("package main\n\nvar word = \"none\"\n\nfunc main() { print(word) }\n"), 0o600))
	return Program{Name: "hello", Package: "example.test/hello", ModuleDir: dir, LDFlags: "-X main.word=first"}
}

func buildLocked(t *testing.T, folder *Folder, programs ...Program) error {
	t.Helper()
	unlock, err := folder.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	return folder.Build(t.Context(), programs...)
}

func TestBuild_builds_once_and_again_when_the_flags_change(t *testing.T) {
	program := helloModule(t)
	var log bytes.Buffer
	folder := &Folder{Dir: filepath.Join(t.TempDir(), "new", "bin"), Log: &log}
	require.NoError(t, buildLocked(t, folder, program))
	assert.Contains(t, log.String(), "[1/1] hello: building, because it is missing")
	out, err := exec.Command(filepath.Join(folder.Dir, "hello")).CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "first", string(out))

	log.Reset()
	require.NoError(t, buildLocked(t, folder, program))
	assert.Equal(t, "up to date: hello\n", log.String())

	log.Reset()
	program.LDFlags = "-X main.word=second"
	require.NoError(t, buildLocked(t, folder, program))
	assert.Contains(t, log.String(), `because it was built with -ldflags="-X main.word=first" instead of "-X main.word=second"`)
	out, err = exec.Command(filepath.Join(folder.Dir, "hello")).CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "second", string(out))
}

func TestBuild_keeps_the_old_program_when_the_new_one_fails(t *testing.T) {
	program := helloModule(t)
	folder := &Folder{Dir: t.TempDir()}
	require.NoError(t, buildLocked(t, folder, program))
	before, err := os.ReadFile(filepath.Join(folder.Dir, "hello"))
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(filepath.Join(program.ModuleDir, "main.go"), []byte("package main\n\nfunc main() { undefined() }\n"), 0o600))
	program.LDFlags = "-s"
	err = buildLocked(t, folder, program)
	require.ErrorContains(t, err, "building hello: exit status 1")
	require.ErrorContains(t, err, "undefined: undefined")
	after, err := os.ReadFile(filepath.Join(folder.Dir, "hello"))
	require.NoError(t, err)
	assert.Equal(t, before, after)
	leftovers, err := filepath.Glob(filepath.Join(folder.Dir, ".*"+temporarySuffix))
	require.NoError(t, err)
	assert.Empty(t, leftovers)
}

func TestBuild_replaces_a_file_that_is_no_go_program(t *testing.T) {
	program := helloModule(t)
	folder := &Folder{Dir: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(folder.Dir, "hello"), []byte("half a downloa"), 0o700))
	reason, err := folder.Stale(program)
	require.NoError(t, err)
	assert.Equal(t, "it was not built by Go", reason)
	require.NoError(t, buildLocked(t, folder, program))
	reason, err = folder.Stale(program)
	require.NoError(t, err)
	assert.Empty(t, reason)
}

func TestStale_names_a_module_folder_that_cannot_be_read(t *testing.T) {
	_, err := (&Folder{Dir: t.TempDir()}).Stale(Program{Name: "x", ModuleDir: filepath.Join(t.TempDir(), "nowhere")})
	require.ErrorContains(t, err, "checking x: reading the pinned versions")
}

func TestLock_lets_concurrent_runs_build_once(t *testing.T) {
	program := helloModule(t)
	dir := t.TempDir()
	var builds atomic.Int32
	var runs sync.WaitGroup
	for range 4 {
		runs.Go(func() {
			folder := &Folder{Dir: dir, GoCommand: func(ctx context.Context, dir string, args ...string) ([]byte, error) {
				builds.Add(1)
				return goCommand(ctx, dir, args...)
			}}
			assert.NoError(t, buildLocked(t, folder, program))
		})
	}
	runs.Wait()
	assert.Equal(t, int32(1), builds.Load())
}

func TestLock_ends_with_the_context_and_says_that_it_waits(t *testing.T) {
	var log bytes.Buffer
	folder := &Folder{Dir: t.TempDir(), Log: &log}
	unlock, err := folder.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = folder.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Contains(t, log.String(), "waiting for another build in "+folder.Dir)
}

func TestLock_removes_what_a_killed_run_left(t *testing.T) {
	folder := &Folder{Dir: t.TempDir()}
	leftover := filepath.Join(folder.Dir, ".hello.123"+temporarySuffix)
	require.NoError(t, os.WriteFile(leftover, nil, 0o600))
	unlock, err := folder.Lock(t.Context())
	require.NoError(t, err)
	unlock()
	assert.NoFileExists(t, leftover)
}

func TestBuild_stops_at_the_first_failure(t *testing.T) {
	var built []string
	folder := &Folder{Dir: t.TempDir(), GoCommand: func(_ context.Context, _ string, args ...string) ([]byte, error) {
		built = append(built, args[len(args)-1])
		return []byte("no such module"), errors.New("exit status 1")
	}}
	program := helloModule(t)
	second := program
	second.Name = "second"
	err := buildLocked(t, folder, program, second)
	require.ErrorContains(t, err, "building hello: exit status 1\nno such module")
	assert.Len(t, built, 1)
}

func TestDiffers(t *testing.T) {
	program := Program{Package: "k8s.example/cmd/server", LDFlags: "-s"}
	pinned := &pins{
		required: map[string]string{"k8s.example": "v1.2.3", "api.example": "v0.0.0", "dep.example": "v1.0.0"},
		replaced: map[string]string{"api.example": "v0.2.3"},
		sums: map[string]bool{
			"k8s.example v1.2.3 h1:k": true, "api.example v0.2.3 h1:a": true, "dep.example v1.0.0 h1:d": true, "deep.example v9.0.0 h1:x": true,
		},
	}
	good := func() *debug.BuildInfo {
		return &debug.BuildInfo{
			Path: program.Package,
			Main: debug.Module{Path: "k8s.example", Version: "v1.2.3", Sum: "h1:k"},
			Deps: []*debug.Module{
				{Path: "api.example", Version: "v0.0.0", Replace: &debug.Module{Path: "api.example", Version: "v0.2.3", Sum: "h1:a"}},
				{Path: "dep.example", Version: "v1.0.0", Sum: "h1:d"},
				{Path: "deep.example", Version: "v9.0.0", Sum: "h1:x"},
			},
			Settings: []debug.BuildSetting{
				{Key: "-ldflags", Value: "-s"}, {Key: "CGO_ENABLED", Value: "0"},
				{Key: "GOARCH", Value: runtime.GOARCH}, {Key: "GOOS", Value: runtime.GOOS},
			},
		}
	}
	require.Empty(t, differs(good(), program, pinned))
	for name, test := range map[string]struct {
		change func(*debug.BuildInfo)
		reason string
	}{
		"another program":        {func(i *debug.BuildInfo) { i.Path = "other" }, "built from other"},
		"another platform":       {func(i *debug.BuildInfo) { i.Settings[3].Value = "plan9" }, `GOOS="plan9"`},
		"with cgo":               {func(i *debug.BuildInfo) { i.Settings[1].Value = "1" }, `CGO_ENABLED="1" instead of "0"`},
		"no flags recorded":      {func(i *debug.BuildInfo) { i.Settings = i.Settings[1:] }, `without -ldflags="-s"`},
		"older program":          {func(i *debug.BuildInfo) { i.Main.Version = "v1.2.2" }, "k8s.example v1.2.2 instead of v1.2.3"},
		"older replacement":      {func(i *debug.BuildInfo) { i.Deps[0].Replace.Version = "v0.2.2" }, "api.example v0.2.2 instead of v0.2.3"},
		"replacement not used":   {func(i *debug.BuildInfo) { i.Deps[0].Replace = nil }, "api.example v0.0.0 instead of v0.2.3"},
		"older dependency":       {func(i *debug.BuildInfo) { i.Deps[1].Version = "v0.9.0" }, "dep.example v0.9.0 instead of v1.0.0"},
		"another deep one":       {func(i *debug.BuildInfo) { i.Deps[2].Version = "v8.0.0" }, "deep.example v8.0.0, which go.sum does not list"},
		"tampered with contents": {func(i *debug.BuildInfo) { i.Deps[1].Sum = "h1:evil" }, "dep.example v1.0.0, which go.sum does not list"},
	} {
		t.Run(name, func(t *testing.T) {
			info := good()
			test.change(info)
			assert.Contains(t, differs(info, program, pinned), test.reason)
		})
	}
}
