package controlplane_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"magicstick.dev/operator/handwritten/controlplane"
)

// victimEnv makes the test binary start a control plane, print its PIDs and
// data folder, and sleep, so that a test can kill it.
const victimEnv = "CONTROLPLANE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		victim()
		return
	}
	os.Exit(m.Run())
}

type victimReport struct {
	PIDs    map[string]int
	DataDir string
}

func victim() {
	plane, err := controlplane.Start(context.Background(), controlplane.Options{ControllerManager: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	line, _ := json.Marshal(victimReport{PIDs: plane.PIDs(), DataDir: plane.DataDir()})
	fmt.Println(string(line))
	select {}
}

func start(t *testing.T, opts controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	plane, err := controlplane.Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	return plane
}

func alive(pid int) bool {
	// A zombie that nobody reaped yet is dead for our purpose.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !os.IsNotExist(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	return fields[0] != "Z" && fields[0] != "X"
}

func TestStart_serves_an_api_server_and_stops_without_a_trace(t *testing.T) {
	began := time.Now()
	plane := start(t, controlplane.Options{})
	t.Logf("started in %s", time.Since(began).Round(time.Millisecond))

	fromFile, err := clientcmd.BuildConfigFromFlags("", plane.KubeconfigPath())
	require.NoError(t, err)
	for name, config := range map[string]*rest.Config{"RESTConfig": plane.RESTConfig(), "kubeconfig": fromFile} {
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		version, err := client.Discovery().ServerVersion()
		require.NoError(t, err, name)
		assert.Regexp(t, `^1$`, version.Major)
		// Pods can be created although nobody makes ServiceAccounts.
		_, err = client.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.invalid/c"}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err, name)
	}
	info, err := os.Stat(plane.KubeconfigPath())
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "the kubeconfig holds a key")

	pids := plane.PIDs()
	began = time.Now()
	require.NoError(t, plane.Stop())
	t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
	for name, pid := range pids {
		assert.False(t, alive(pid), "%s still runs", name)
	}
	assert.NoDirExists(t, plane.DataDir())
	assert.NoError(t, plane.Err(), "a wanted stop is not a failure")
}

func TestStart_runs_the_controller_manager_when_asked(t *testing.T) {
	plane := start(t, controlplane.Options{ControllerManager: true})
	client, err := kubernetes.NewForConfig(plane.RESTConfig())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	}, 20*time.Second, 100*time.Millisecond, "the ServiceAccount default")

	_, err = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, client.CoreV1().Namespaces().Delete(t.Context(), "short-lived", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "short-lived", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, 20*time.Second, 100*time.Millisecond, "the namespace is finalised")
}

func TestStart_keeps_the_objects_of_a_given_folder(t *testing.T) {
	dir := t.TempDir()
	plane := start(t, controlplane.Options{DataDir: dir})
	client, err := kubernetes.NewForConfig(plane.RESTConfig())
	require.NoError(t, err)
	_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	_, err = controlplane.Start(t.Context(), controlplane.Options{DataDir: dir})
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "another control plane is running in it")

	require.NoError(t, plane.Stop())
	plane = start(t, controlplane.Options{DataDir: dir})
	client, err = kubernetes.NewForConfig(plane.RESTConfig())
	require.NoError(t, err)
	_, err = client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err)
}

func TestStart_ends_all_processes_after_kill_9_of_the_parent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), victimEnv+"=1")
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	t.Cleanup(func() { _ = parent.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var report victimReport
	require.NoError(t, json.Unmarshal([]byte(line), &report))
	require.Len(t, report.PIDs, 3)
	for name, pid := range report.PIDs {
		require.True(t, alive(pid), "%s should run before the kill", name)
	}
	// Had the parent-death signal been tied to a short-lived thread, the children
	// would be gone after the runtime retired it; give it time to.
	time.Sleep(time.Second)

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	for name, pid := range report.PIDs {
		assert.Eventually(t, func() bool { return !alive(pid) }, 5*time.Second, 10*time.Millisecond, "%s (%d) outlived its parent", name, pid)
	}

	// The folder of the killed process cannot clean up after itself; the next start does.
	require.DirExists(t, report.DataDir)
	start(t, controlplane.Options{})
	assert.NoDirExists(t, report.DataDir)
}

func TestOpenDataDir_sweeps_what_was_left_behind_and_nothing_else(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	for _, name := range []string{"magicstick-controlplane-1", "magicstick-dev-2", "magicstick-dev-notes", "magicstick-other-3"} {
		require.NoError(t, os.MkdirAll(filepath.Join(parent, name, "below"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(parent, name, "lock"), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(parent, "magicstick-dev-3"), 0o700)) // just made, not locked yet
	held, err := controlplane.OpenDataDir("", controlplane.PurposeDev)
	require.NoError(t, err)
	for _, name := range []string{"magicstick-controlplane-1", "magicstick-dev-2"} {
		assert.NoDirExists(t, filepath.Join(parent, name))
	}
	second, err := controlplane.OpenDataDir("", controlplane.PurposeControlPlane)
	require.NoError(t, err)
	for _, path := range []string{"magicstick-dev-notes", "magicstick-other-3", "magicstick-dev-3", filepath.Base(held.Path())} {
		assert.DirExists(t, filepath.Join(parent, path))
	}
	_, err = controlplane.OpenDataDir(held.Path(), controlplane.PurposeDev)
	require.ErrorContains(t, err, "another magicstick works in it")
	require.NoError(t, errors.Join(held.Close(), second.Close()))
	assert.NoDirExists(t, held.Path())
}

func TestStart_names_the_port_that_is_taken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	port := listener.Addr().(*net.TCPAddr).Port
	_, err = controlplane.Start(t.Context(), controlplane.Options{Port: port})
	require.ErrorContains(t, err, fmt.Sprintf("choosing the port of kube-apiserver: port %d of 127.0.0.1 is taken", port))
}

func TestStart_uses_the_given_port_and_holds_it(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	plane := start(t, controlplane.Options{Port: port})
	assert.Equal(t, fmt.Sprintf("https://127.0.0.1:%d", port), plane.RESTConfig().Host)
	_, err = controlplane.Start(t.Context(), controlplane.Options{Port: port})
	require.ErrorContains(t, err, "is taken")
}

func TestStart_says_how_to_get_missing_binaries(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T) controlplane.Options{
		"folder given": func(t *testing.T) controlplane.Options { return controlplane.Options{BinDir: t.TempDir()} },
		"assets variable": func(t *testing.T) controlplane.Options {
			t.Setenv(controlplane.AssetsEnv, t.TempDir())
			return controlplane.Options{}
		},
		"outside the repository": func(t *testing.T) controlplane.Options {
			t.Setenv(controlplane.AssetsEnv, "")
			t.Chdir(t.TempDir())
			return controlplane.Options{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := controlplane.Start(t.Context(), prepare(t))
			require.ErrorContains(t, err, "make controlplane")
			require.ErrorContains(t, err, "etcd")
			require.ErrorContains(t, err, "kube-apiserver")
		})
	}
}

func TestStart_quotes_the_log_of_a_process_that_fails(t *testing.T) {
	_, err := controlplane.Start(t.Context(), controlplane.Options{APIServerArgs: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "starting kube-apiserver: it ended (exit status 1) before it was ready")
	require.ErrorContains(t, err, "unknown flag: --no-such-flag")
}

func TestStart_gives_up_after_the_timeout_with_the_last_answer(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\necho 'still thinking'\ntrap '' TERM\nexec sleep 600\n"
	for _, name := range []string{"etcd", "kube-apiserver"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700))
	}
	began := time.Now()
	_, err := controlplane.Start(t.Context(), controlplane.Options{BinDir: bin, StartTimeout: 500 * time.Millisecond})
	require.ErrorContains(t, err, "starting etcd: not ready after")
	require.ErrorContains(t, err, "connection refused")
	require.ErrorContains(t, err, "still thinking")
	// The process ignores SIGTERM (an ignored signal stays ignored across exec): only SIGKILL ends it.
	assert.Less(t, time.Since(began), 15*time.Second)
	assert.Greater(t, time.Since(began), 10*time.Second)
}

func TestFailed_reports_a_process_that_dies(t *testing.T) {
	plane := start(t, controlplane.Options{})
	require.NoError(t, plane.Err())
	require.NoError(t, syscall.Kill(plane.PIDs()["kube-apiserver"], syscall.SIGKILL))
	select {
	case <-plane.Failed():
	case <-time.After(5 * time.Second):
		t.Fatal("nobody noticed that kube-apiserver died")
	}
	require.ErrorContains(t, plane.Err(), "running kube-apiserver: it ended unexpectedly (signal: killed)")
}

const widgetCRD = `# a comment before
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.test.magicstick.dev
spec:
  group: test.magicstick.dev
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object}}
`

func apiextensions(t *testing.T, config *rest.Config) apiextensionsclient.CustomResourceDefinitionInterface {
	t.Helper()
	client, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	return client.ApiextensionsV1().CustomResourceDefinitions()
}

func TestInstallCRDs(t *testing.T) {
	plane := start(t, controlplane.Options{})
	config := plane.RESTConfig()
	source := fstest.MapFS{"a/widget.yaml": {Data: []byte(widgetCRD)}, "README.md": {Data: []byte("not read")}}
	require.NoError(t, controlplane.InstallCRDs(t.Context(), config, source))
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.Discovery().RESTClient().Get().AbsPath("/apis/test.magicstick.dev/v1/widgets").DoRaw(t.Context())
	require.NoError(t, err, "served as soon as InstallCRDs returns")

	t.Run("again, changed, is an update", func(t *testing.T) {
		changed := strings.Replace(widgetCRD, "listKind: WidgetList", "listKind: WidgetList, shortNames: [wdg]", 1)
		require.NoError(t, controlplane.InstallCRDs(t.Context(), config, fstest.MapFS{"w.yaml": {Data: []byte(changed)}}))
	})
	t.Run("what happened is told, and marks of others stay", func(t *testing.T) {
		definitions := apiextensions(t, config)
		_, err := definitions.Patch(t.Context(), "widgets.test.magicstick.dev", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"of":"others"}}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		ensure := func(text string) controlplane.CRDChanges {
			changes, err := controlplane.EnsureCRDs(t.Context(), config, fstest.MapFS{"w.yaml": {Data: []byte(text)}})
			require.NoError(t, err)
			return changes
		}
		name := []string{"widgets.test.magicstick.dev"}
		assert.Equal(t, controlplane.CRDChanges{Updated: name}, ensure(widgetCRD))
		before, err := definitions.Get(t.Context(), name[0], metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, controlplane.CRDChanges{Unchanged: name}, ensure(widgetCRD))
		after, err := definitions.Get(t.Context(), name[0], metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, before.ResourceVersion, after.ResourceVersion, "nothing is written when nothing differs")
		assert.Equal(t, "others", after.Labels["of"])
		assert.Empty(t, after.Spec.Names.ShortNames, "the update took the short name back")
	})
	t.Run("only when missing leaves the present one alone", func(t *testing.T) {
		changed := strings.Replace(widgetCRD, "listKind: WidgetList", "listKind: WidgetList, shortNames: [other]", 1)
		created, err := controlplane.InstallMissingCRDs(t.Context(), config, fstest.MapFS{"w.yaml": {Data: []byte(changed)}})
		require.NoError(t, err)
		assert.Zero(t, created)
		list, err := client.Discovery().ServerResourcesForGroupVersion("test.magicstick.dev/v1")
		require.NoError(t, err)
		assert.NotContains(t, list.APIResources[0].ShortNames, "other")

		other := strings.NewReplacer("widget", "gadget", "Widget", "Gadget").Replace(widgetCRD)
		created, err = controlplane.InstallMissingCRDs(t.Context(), config, fstest.MapFS{"g.yaml": {Data: []byte(other)}})
		require.NoError(t, err)
		assert.Equal(t, 1, created)
	})
	t.Run("a CRD that the API server refuses is named", func(t *testing.T) {
		broken := strings.Replace(widgetCRD, "name: widgets.test", "name: other.test", 1)
		err := controlplane.InstallCRDs(t.Context(), config, fstest.MapFS{"w.yaml": {Data: []byte(broken)}})
		require.ErrorContains(t, err, "installing the CRD other.test.magicstick.dev")
	})
	t.Run("a name clash is reported instead of waited for", func(t *testing.T) {
		clash := strings.NewReplacer("widgets", "wodgets", "singular: widget", "singular: wodget").Replace(widgetCRD)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := controlplane.InstallCRDs(ctx, config, fstest.MapFS{"w.yaml": {Data: []byte(clash)}})
		require.ErrorContains(t, err, "wodgets.test.magicstick.dev")
		require.ErrorContains(t, err, "already in use")
	})
	for name, content := range map[string]string{
		"unknown field":  strings.Replace(widgetCRD, "scope:", "scoop:", 1),
		"another kind":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
		"not YAML":       "{{{",
		"only a scalar":  "hello",
		"truncated list": "apiVersion: [",
	} {
		t.Run(name+" names the file", func(t *testing.T) {
			err := controlplane.InstallCRDs(t.Context(), config, fstest.MapFS{"dir/bad.yaml": {Data: []byte(content)}})
			require.ErrorContains(t, err, "dir/bad.yaml")
		})
	}
}
