package dev_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/dev"
	"magicstick.dev/operator/handwritten/operator"
)

// output collects what a run prints, for tests that look at it meanwhile.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// rows reads the last table by kind/name.
func rows(t *testing.T, text string) map[string]string {
	t.Helper()
	at := strings.LastIndex(text, "KIND ")
	require.GreaterOrEqual(t, at, 0, "no table in:\n%s", text)
	found := map[string]string{}
	for line := range strings.Lines(text[at:]) {
		if fields := strings.Fields(line); len(fields) >= 4 {
			found[fields[0]+"/"+fields[1]] = strings.TrimSpace(line)
		}
	}
	return found
}

func TestRun_once_brings_everything_to_rest_and_prints_it(t *testing.T) {
	out := &output{}
	began := time.Now()
	require.NoError(t, dev.Run(t.Context(), dev.Options{Once: true, Out: out}), "%s", out)
	t.Logf("%s in all\n%s", time.Since(began).Round(time.Millisecond), out)
	table := rows(t, out.String())
	assert.Regexp(t, `Reconciling +WaitingForModules`, table["Appliance/local"])
	// Without Flux nobody makes basis ready, so the modules wait and are suspended, not absent.
	assert.Regexp(t, `WaitingForModules.*basis`, table["ModuleActivation/litellm"])
	assert.Contains(t, table["Kustomization/app-litellm"], "Suspended")
	for _, name := range []string{"ModelActivation/qwen2505bcpu", "AppInstance/openclaw-default", "ApplianceSetup/local"} {
		assert.Contains(t, table, name, "an example of the seed")
	}
	assert.Regexp(t, `registry +\d+\.\d s  http://127\.0\.0\.1:\d+`, out.String())
	// The temporary folder is gone.
	dir := regexp.MustCompile(`data in (\S+)`).FindStringSubmatch(out.String())
	require.NotNil(t, dir)
	assert.NoDirExists(t, dir[1])
}

func TestRun_once_says_what_is_not_at_rest(t *testing.T) {
	out := &output{}
	err := dev.Run(t.Context(), dev.Options{Once: true, Timeout: time.Millisecond, Out: out})
	require.ErrorContains(t, err, "waiting for convergence")
	require.ErrorContains(t, err, "after 1ms")
}

func TestRun_on_an_existing_cluster_keeps_what_is_there(t *testing.T) {
	plane := controlplanetest.StartControlPlane(t, controlplanetest.WithControllerManager())
	scheme, err := operator.Scheme()
	require.NoError(t, err)
	c, err := client.New(plane.RESTConfig(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	options := func(out *output) dev.Options {
		return dev.Options{Once: true, Kubeconfig: plane.KubeconfigPath(), Out: out}
	}
	first := &output{}
	require.NoError(t, dev.Run(t.Context(), options(first)), "%s", first)
	assert.Regexp(t, `examples .* \d+ objects created\n`, first)

	// A person changes an example; the next run must not take that back.
	activation := &appliancev1alpha1.ModuleActivation{}
	key := client.ObjectKey{Namespace: "ai-system", Name: "litellm"}
	require.NoError(t, c.Get(t.Context(), key, activation))
	require.NoError(t, c.Patch(t.Context(), activation, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"enabled":false}}`))))
	second := &output{}
	require.NoError(t, dev.Run(t.Context(), options(second)), "%s", second)
	assert.Regexp(t, `examples .* 0 objects created, \d+ were there`, second)
	assert.Regexp(t, `Disabled`, rows(t, second.String())["ModuleActivation/litellm"])
	require.NoError(t, c.Get(t.Context(), key, activation), "the cluster is not ours to stop")
}

func TestRun_names_the_example_that_is_refused(t *testing.T) {
	plane := controlplanetest.StartControlPlane(t)
	kube, err := kubernetes.NewForConfig(plane.RESTConfig())
	require.NoError(t, err)
	// A full namespace stands for any reason to refuse an object.
	_, err = kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "identity-system"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, kube.CoreV1().Namespaces().Delete(t.Context(), "identity-system", metav1.DeleteOptions{}))
	err = dev.Run(t.Context(), dev.Options{Once: true, Kubeconfig: plane.KubeconfigPath(), Out: &output{}})
	require.ErrorContains(t, err, "applying the examples: 1 of 14 were refused")
	require.ErrorContains(t, err, "appliancesetup/seed-first-run.yaml")
	require.ErrorContains(t, err, "being terminated")
}

func TestRun_refuses(t *testing.T) {
	for name, test := range map[string]struct {
		options dev.Options
		words   string
	}{
		"Flux on a foreign cluster": {dev.Options{Kubeconfig: "config", Flux: true}, "Flux can only run beside the built-in control plane"},
		"a missing kubeconfig":      {dev.Options{Kubeconfig: filepath.Join(t.TempDir(), "nowhere")}, "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Out = &output{}
			require.ErrorContains(t, dev.Run(t.Context(), test.options), test.words)
		})
	}
}

// childrenOf lists the processes that work in a data folder.
func childrenOf(t *testing.T, dir string) map[string]int {
	t.Helper()
	found := map[string]int{}
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || target != dir {
			continue
		}
		var pid int
		_, err = fmt.Sscanf(link, "/proc/%d/cwd", &pid)
		require.NoError(t, err)
		name, err := os.ReadFile(filepath.Join(filepath.Dir(link), "comm"))
		require.NoError(t, err)
		found[strings.TrimSpace(string(name))] = pid
	}
	return found
}

func TestRun_until_it_is_interrupted(t *testing.T) {
	dir := t.TempDir()
	out := &output{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- dev.Run(ctx, dev.Options{DataDir: dir, Out: out}) }()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "app-litellm") }, 2*time.Minute, 50*time.Millisecond, "%s", out)
	for _, words := range []string{"export KUBECONFIG=" + filepath.Join(dir, "kubeconfig"), "Ctrl-C stops everything", "make run FLUX=1"} {
		assert.Contains(t, out.String(), words)
	}
	require.Len(t, childrenOf(t, dir), 3)
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err, "an interruption is no failure")
	case <-time.After(30 * time.Second):
		t.Fatal("it did not stop")
	}
	assert.Empty(t, childrenOf(t, dir))
	assert.Contains(t, out.String(), "stopped in")
	assert.DirExists(t, filepath.Join(dir, "etcd"), "a given folder keeps the objects")
}

func TestRun_ends_when_a_part_dies(t *testing.T) {
	dir := t.TempDir()
	out := &output{}
	ended := make(chan error, 1)
	go func() { ended <- dev.Run(t.Context(), dev.Options{DataDir: dir, Out: out}) }()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "Ctrl-C stops") }, 2*time.Minute, 50*time.Millisecond, "%s", out)
	require.NoError(t, syscall.Kill(childrenOf(t, dir)["kube-apiserver"], syscall.SIGKILL))
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "running kube-apiserver: it ended unexpectedly (signal: killed)")
	case <-time.After(time.Minute):
		t.Fatal("nobody noticed")
	}
	assert.Empty(t, childrenOf(t, dir))
}
