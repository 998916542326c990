package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/publish"
	"magicstick.dev/operator/handwritten/artifacts/registrytest"
	"magicstick.dev/operator/handwritten/artifacts/source/huggingfacestandin"
	"magicstick.dev/operator/handwritten/artifacts/source/standin"
)

// publishEnv makes the test binary the command itself, in the test below.
const publishEnv = "MAGICSTICK_TEST_PUBLISH"

// TestPublishProcess is the command in a process of its own, when a test starts it so.
func TestPublishProcess(_ *testing.T) {
	if os.Getenv(publishEnv) == "" {
		return
	}
	at := slices.Index(os.Args, "--")
	os.Args = append(os.Args[:1], os.Args[at+1:]...)
	profile, err := os.Create(os.Getenv("BENCH_PROFILE")) // of the benchmark; none when it does not say so
	if err == nil {
		err = pprof.StartCPUProfile(profile)
	}
	code := run()
	if err == nil {
		pprof.StopCPUProfile()
	}
	os.Exit(code)
}

// publishing is one run of the command in a process of its own.
type publishing struct {
	command  *exec.Cmd
	out, err bytes.Buffer
}

// startPublish starts "magicstick publish" against a mirror of the stand-in.
func startPublish(t *testing.T, hub *huggingfacestandin.Hub, args ...string) *publishing {
	t.Helper()
	p := &publishing{}
	all := append([]string{"-test.run=^TestPublishProcess$", "--", "publish", "--plain-http", "--json"}, args...)
	for _, host := range hub.Hosts() {
		all = append(all, "--source-host", host)
	}
	p.command = exec.Command(os.Args[0], all...)
	p.command.Env = append(os.Environ(), publishEnv+"=1", "HF_ENDPOINT="+hub.URL().String(), "DOCKER_CONFIG="+t.TempDir())
	p.command.Stdout, p.command.Stderr = &p.out, &p.err
	require.NoError(t, p.command.Start())
	return p
}

// wait returns the exit code, -1 for a signal, and the last line of output.
func (p *publishing) wait(t *testing.T) (int, publish.DoneEvent) {
	t.Helper()
	err := p.command.Wait()
	var exit *exec.ExitError
	require.True(t, err == nil || errors.As(err, &exit), "%v", err)
	lines := strings.Split(strings.TrimSpace(p.out.String()), "\n")
	var last publish.DoneEvent
	for _, line := range lines {
		if p.command.ProcessState.ExitCode() < 0 {
			break // it may have died in the middle of a line
		}
		last = publish.DoneEvent{}
		assert.NoError(t, json.Unmarshal([]byte(line), &last), line)
	}
	return p.command.ProcessState.ExitCode(), last
}

// startModel serves two shards of 64 MiB and their companions, and a registry for them.
func startModel(t *testing.T, faults *registrytest.Faults) (*huggingfacestandin.Hub, *registrytest.Registry, int64) {
	t.Helper()
	hub, err := huggingfacestandin.Start()
	require.NoError(t, err)
	t.Cleanup(hub.Close)
	files := map[string]standin.Content{
		"config.json":                      standin.Bytes([]byte(`{}`)),
		"model-00001-of-00002.safetensors": standin.Pattern(1, 64<<20),
		"model-00002-of-00002.safetensors": standin.Pattern(2, 64<<20),
	}
	hub.Add(huggingfacestandin.Repository{Name: "owner/model", Commit: strings.Repeat("a", 40), Files: files})
	registry, err := registrytest.Start(registrytest.Options{Folder: t.TempDir(), Wrap: faults.Wrap})
	require.NoError(t, err)
	t.Cleanup(registry.Stop)
	return hub, registry, 128<<20 + 2
}

// TestPublishKilledAtTenRandomPoints kills the process with SIGKILL whenever the registry has got
// some more bytes, starts it again, and compares with a run that nobody disturbed.
func TestPublishKilledAtTenRandomPoints(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var victim *os.Process
	var kills []int64
	faults := &registrytest.Faults{OnBytes: func(received int64) {
		mu.Lock()
		defer mu.Unlock()
		if victim != nil && len(kills) > 0 && received >= kills[0] {
			kills = kills[1:]
			_ = victim.Kill()
			victim = nil
		}
	}}
	hub, registry, total := startModel(t, faults)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 10 {
		kills = append(kills, random.Int64N(total))
	}
	slices.Sort(kills)
	t.Logf("seed %d: killed at %v", seed, kills)

	cache := t.TempDir()
	var last publish.DoneEvent
	killed, code := 0, 0
	for {
		p := startPublish(t, hub, "owner/model", registry.Address+"/ai/model:v1", "--cache-dir", cache)
		mu.Lock()
		victim = p.command.Process
		mu.Unlock()
		if code, last = p.wait(t); code != -1 {
			require.Zero(t, code, p.err.String())
			break
		}
		killed++
		require.LessOrEqual(t, killed, 10)
	}
	assert.Positive(t, killed)
	assert.LessOrEqual(t, faults.Received.Load()-total, int64(killed)*(2<<20), "sent again")

	undisturbed := startPublish(t, hub, "owner/model", registry.Address+"/ai/undisturbed:v1", "--cache-dir", t.TempDir())
	code, want := undisturbed.wait(t)
	require.Zero(t, code, undisturbed.err.String())
	assert.Equal(t, want.ModelPack, last.ModelPack)
	assert.Equal(t, want.Image, last.Image)
}

// TestPublishInterrupted ends with Ctrl-C half-way, and goes on there.
func TestPublishInterrupted(t *testing.T) {
	t.Parallel()
	var victim *os.Process
	var mu sync.Mutex
	var once sync.Once
	faults := &registrytest.Faults{OnBytes: func(received int64) {
		if received > 64<<20 {
			mu.Lock()
			defer mu.Unlock()
			once.Do(func() { _ = victim.Signal(syscall.SIGINT) })
		}
	}}
	hub, registry, total := startModel(t, faults)
	cache := t.TempDir()
	mu.Lock()
	first := startPublish(t, hub, "owner/model", registry.Address+"/ai/model:v1", "--cache-dir", cache)
	victim = first.command.Process
	mu.Unlock()
	code, last := first.wait(t)
	require.Equal(t, publish.ExitInterrupted, code, first.out.String())
	assert.Equal(t, "error", last.Event)

	second := startPublish(t, hub, "owner/model", registry.Address+"/ai/model:v1", "--cache-dir", cache)
	code, last = second.wait(t)
	require.Zero(t, code, second.err.String())
	assert.Equal(t, "done", last.Event)
	assert.Less(t, last.BytesRead, total/2+(24<<20), "what was hashed is not read again")
	assert.Less(t, last.BytesUploaded, total/2+(24<<20), "what the registry has is not sent again")
}

func TestPublishExitCodes(t *testing.T) {
	t.Parallel()
	readOnly, err := registrytest.Start(registrytest.Options{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(readOnly.Stop)
	full, err := registrytest.Start(registrytest.Options{Wrap: (&registrytest.Faults{Before: func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		w.WriteHeader(http.StatusInsufficientStorage)
		return true
	}}).Wrap})
	require.NoError(t, err)
	t.Cleanup(full.Stop)
	good, err := registrytest.Start(registrytest.Options{})
	require.NoError(t, err)
	t.Cleanup(good.Stop)
	folder := t.TempDir()
	model := filepath.Join(folder, "model.gguf")
	require.NoError(t, os.WriteFile(model, []byte("GGUF"), 0o600))
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"one_argument":    {[]string{"model"}, publish.ExitUsage, "takes a SOURCE and a REF"},
		"unknown_flag":    {[]string{model, "host/name", "--plain"}, publish.ExitUsage, "unknown flag"},
		"ref_with_scheme": {[]string{model, "oci://host/name"}, publish.ExitUsage, "it has a scheme"},
		"ref_with_digest": {[]string{model, "host/name@sha256:" + strings.Repeat("0", 64)}, publish.ExitUsage, "it has a digest"},
		"no_source":       {[]string{"./missing", good.Address + "/ai/model"}, publish.ExitSource, "missing"},
		"glob_of_nothing": {[]string{folder, good.Address + "/ai/model", "--include", "*.bin"}, publish.ExitSource, `include "*.bin"`},
		"read_only":       {[]string{model, readOnly.Address + "/ai/model"}, publish.ExitRegistry, "accepts no uploads"},
		"full":            {[]string{model, full.Address + "/ai/model"}, publish.ExitRegistry, "no space left"},
		"done":            {[]string{folder, good.Address + "/ai/model:v1", "--exclude", "*.bin"}, 0, `"event":"done"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, code, err := execute(t, "", append([]string{"publish", "--plain-http", "--json", "--cache-dir", t.TempDir()}, c.args...)...)
			assert.Equal(t, c.code, code, "%v", err)
			assert.Contains(t, out+fmt.Sprint(err), c.says)
			if code == publish.ExitSource || code == publish.ExitRegistry {
				assert.Contains(t, out, fmt.Sprintf(`"exitCode":%d`, code))
			}
		})
	}
}

// TestPublishOnATerminalEndsWithTheDigests checks the last line that people and scripts read.
func TestPublishOnATerminalEndsWithTheDigests(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &screen{out: &out, err: &out}
	s.done(publish.Result{Repository: "host/name", Tag: "v1", ModelPack: "sha256:aa", Image: "sha256:bb", BytesRead: 7, BytesUploaded: 9})
	assert.Equal(t, "host/name:v1 modelpack=sha256:aa image=sha256:bb read=7 uploaded=9\n", out.String())
}
