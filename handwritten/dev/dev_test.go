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
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/controlplane"
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
	assert.Regexp(t, ` WaitingForModules +WaitingForModules +VLLM on cpu: `, table["ModelActivation/qwen2505bcpu"])
	assert.NotContains(t, out.String(), "NO MODEL RUNS HERE")
	for _, name := range []string{"ModelActivation/qwen2505bcpu", "AppInstance/openclaw-default", "ApplianceSetup/local"} {
		assert.Contains(t, table, name, "an example of the seed")
	}
	assert.Regexp(t, `registry +\d+\.\d s  http://127\.0\.0\.1:\d+`, out.String())
	// The temporary folder is gone.
	dir := regexp.MustCompile(`data in (\S+)`).FindStringSubmatch(out.String())
	require.NotNil(t, dir)
	assert.NoDirExists(t, dir[1])
}

// What a newcomer sees with `make run ONCE=1`, and again in a folder that was kept.
func TestRun_with_stand_ins_puts_models_into_service(t *testing.T) {
	dir := t.TempDir()
	for _, attempt := range []string{"first", "again"} {
		t.Run(attempt, func(t *testing.T) {
			out := &output{}
			began := time.Now()
			require.NoError(t, dev.Run(t.Context(), dev.Options{Once: true, StandIns: true, DataDir: dir, Out: out}), "%s", out)
			t.Logf("%s in all\n%s", time.Since(began).Round(time.Millisecond), out)
			assert.Regexp(t, `stand-ins .*NO MODEL RUNS HERE: small programs play Flux, KubeAI and LiteLLM \(http://127\.0\.0\.1:\d+\)`, out)
			assert.Contains(t, out.String(), "Secret ai/external-openai-api-key of the example of an external model has a key that opens nothing")
			table := rows(t, out.String())
			for _, module := range []string{"kubeai", "litellm", "model-catalog"} {
				assert.Regexp(t, ` Ready +KustomizationReady `, table["ModuleActivation/"+module])
			}
			assert.Regexp(t, ` Ready +CatalogReady +VLLM on cpu: `, table["ModelActivation/qwen2505bcpu"])
			assert.Regexp(t, ` Ready +CatalogReady +OLlama on cpu: `, table["ModelActivation/qwen2505b-ollama"])
			assert.Regexp(t, ` Ready +CatalogReady +openai/gpt-4o-mini: `, table["ModelActivation/example-openai-gpt-4o-mini"])
			assert.Regexp(t, ` WaitingForGPU .* No node offers nvidia\.com/gpu`, table["ModelActivation/qwen2505b-nvidia"])
			for _, model := range []string{"qwen2505bcpu", "qwen2505b-ollama", "example-openai-gpt-4o-mini"} {
				assert.Regexp(t, ` Listed +- +chat model litellm/`+model, table["ModelIndex/"+model])
			}
			assert.NotContains(t, table, "ModelIndex/qwen2505b-nvidia")
			assert.Equal(t, 1, strings.Count(out.String(), "the default for chat"))
		})
	}
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
	firstLine, _, _ := strings.Cut(first.String(), "\n")
	assert.Contains(t, firstLine, plane.RESTConfig().Host)
	assert.Contains(t, firstLine, `context "magicstick-dev" of KUBECONFIG=`+plane.KubeconfigPath())
	assert.Regexp(t, `CRDs .* created: 9 of the product, .*; updated: 0 `, first)
	assert.Regexp(t, `catalogs: \d+ created\n`, first)
	assert.Regexp(t, `examples .* \d+ created\n`, first)
	assert.NotContains(t, first.String(), "kept")
	assert.Contains(t, first.String(), "left out: ApplianceSetup identity-system/local")
	// Nothing is played on somebody's cluster.
	assert.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Name: "models.kubeai.org"}, &apiextensionsv1.CustomResourceDefinition{})))
	secrets := &corev1.SecretList{}
	require.NoError(t, c.List(t.Context(), secrets, client.InNamespace("ai")))
	assert.Empty(t, secrets.Items)
	assert.NotContains(t, rows(t, first.String()), "ApplianceSetup/local")

	// A person customises the catalog, changes and relabels an example, marks a
	// CRD, and has one from another version; none of the first three is taken back.
	module := &appliancev1alpha1.ModuleActivation{ObjectMeta: metav1.ObjectMeta{Namespace: "ai-system", Name: "litellm"}}
	catalog := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ai-system", Name: "magicstick-app-catalog"}}
	definition := func(name string) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name + ".appliance.magicstick.dev"}}
	}
	patch := func(object client.Object, text string) string {
		require.NoError(t, c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))))
		return object.GetResourceVersion()
	}
	patch(module, `{"spec":{"enabled":false}}`)
	marked := patch(definition("hostoperations"), `{"metadata":{"labels":{"team":"theirs"}}}`)
	patch(definition("appinstances"), `{"spec":{"names":{"shortNames":["older"]}}}`)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(catalog), catalog))
	var key string
	for key = range catalog.Data {
	}
	customised := patch(catalog, fmt.Sprintf(`{"data":{%q:%q}}`, key, catalog.Data[key]+"\n"))

	second := &output{}
	require.NoError(t, dev.Run(t.Context(), options(second)), "%s", second)
	assert.Contains(t, second.String(), "kept: ConfigMap ai-system/magicstick-app-catalog, which differs from the shipped catalog")
	assert.Contains(t, second.String(), "kept: ModuleActivation ai-system/litellm, which differs from the example")
	assert.Equal(t, 2, strings.Count(second.String(), "kept: "))
	assert.Contains(t, second.String(), "updated, because they differed: CRDs appinstances.appliance.magicstick.dev\n")
	assert.Regexp(t, `created: 0 of the product, 0 of Flux, 0 of the gateway; updated: 1 `, second)
	assert.Regexp(t, `catalogs: 0 created, \d+ were there, 1 kept that differ\n`, second)
	assert.Regexp(t, `examples .* 0 created, \d+ were there, 1 kept that differ\n`, second)
	assert.Regexp(t, `Disabled`, rows(t, second.String())["ModuleActivation/litellm"])
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(catalog), catalog), "the cluster is not ours to stop")
	assert.Equal(t, customised, catalog.ResourceVersion)
	crd := definition("hostoperations")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
	assert.Equal(t, marked, crd.ResourceVersion)
}

func TestRun_names_the_example_that_is_refused(t *testing.T) {
	plane := controlplanetest.StartControlPlane(t)
	kube, err := kubernetes.NewForConfig(plane.RESTConfig())
	require.NoError(t, err)
	_, err = kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ai-system"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	// A quota stands for any reason to refuse an object.
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}}
	none := corev1.ResourceList{"count/moduleactivations.appliance.magicstick.dev": resource.MustParse("0")}
	quota.Spec.Hard = none
	quota, err = kube.CoreV1().ResourceQuotas("ai-system").Create(t.Context(), quota, metav1.CreateOptions{})
	require.NoError(t, err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	_, err = kube.CoreV1().ResourceQuotas("ai-system").UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	require.NoError(t, err)
	err = dev.Run(t.Context(), dev.Options{Once: true, Kubeconfig: plane.KubeconfigPath(), Out: &output{}})
	require.ErrorContains(t, err, "applying the examples: 1 of ")
	require.ErrorContains(t, err, "moduleactivation/seed-litellm.yaml")
	require.ErrorContains(t, err, "exceeded quota")
}

// Two operators on one cluster: the second stands by, says so, and takes over
// when the first ends, and again when the holder of the Lease was killed.
func TestRun_stands_by_while_another_operator_works(t *testing.T) {
	dir := t.TempDir()
	first, second := &output{}, &output{}
	run := func(options dev.Options) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- dev.Run(ctx, options) }()
		return sync.OnceFunc(func() {
			cancel()
			require.NoError(t, <-ended)
		})
	}
	sees := func(out *output, words string, within time.Duration) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(out.String(), words) }, within, 50*time.Millisecond, "%q in %s", words, out)
	}
	plane := controlplanetest.StartControlPlane(t, controlplanetest.WithControllerManager())
	stopFirst := run(dev.Options{Kubeconfig: plane.KubeconfigPath(), Out: first})
	t.Cleanup(stopFirst)
	sees(first, "everything runs", time.Minute)
	assert.NotContains(t, first.String(), "stands by")
	stopSecond := run(dev.Options{Kubeconfig: plane.KubeconfigPath(), Out: second})
	t.Cleanup(stopSecond)
	sees(second, "stands by for the Lease ai-system/magicstick-operator: the operator ", time.Minute)
	assert.Contains(t, second.String(), "for 15 s after it was killed")
	stopFirst()
	// The Lease was released: nobody waits for its 15 seconds.
	sees(second, "this one works now", 8*time.Second)
	stopSecond()

	t.Run("on the embedded plane after a kill", func(t *testing.T) {
		// What a killed operator leaves in the data folder: its Lease, just renewed.
		before, err := controlplane.Start(t.Context(), controlplane.Options{DataDir: dir})
		require.NoError(t, err)
		kube, err := kubernetes.NewForConfig(before.RESTConfig())
		require.NoError(t, err)
		_, err = kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ai-system"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		left := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: operator.LeaseName}}
		now := metav1.NowMicro()
		left.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("killed"), LeaseDurationSeconds: ptr.To(int32(6)), AcquireTime: &now, RenewTime: &now}
		_, err = kube.CoordinationV1().Leases("ai-system").Create(t.Context(), left, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, before.Stop())

		third := &output{}
		stop := run(dev.Options{DataDir: dir, Out: third})
		t.Cleanup(stop)
		sees(third, "stands by for the Lease ai-system/magicstick-operator: the operator killed holds it until it ends, or for 6 s after it was killed", 2*time.Minute)
		sees(third, "this one works now", 10*time.Second)
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
		require.NoError(t, err)
		kube, err = kubernetes.NewForConfig(config)
		require.NoError(t, err)
		lease, err := kube.CoordinationV1().Leases("ai-system").Get(t.Context(), operator.LeaseName, metav1.GetOptions{})
		require.NoError(t, err)
		assert.NotEqual(t, "killed", *lease.Spec.HolderIdentity)
		assert.Equal(t, int32(6), *lease.Spec.LeaseDurationSeconds, "the next one waits no longer either")
		stop()
		after, err := controlplane.Start(t.Context(), controlplane.Options{DataDir: dir})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, after.Stop()) })
		kube, err = kubernetes.NewForConfig(after.RESTConfig())
		require.NoError(t, err)
		lease, err = kube.CoordinationV1().Leases("ai-system").Get(t.Context(), operator.LeaseName, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Empty(t, ptr.Deref(lease.Spec.HolderIdentity, ""), "an orderly end gives the Lease back")
	})
}

func TestRun_refuses(t *testing.T) {
	for name, test := range map[string]struct {
		options dev.Options
		words   string
	}{
		"Flux on a foreign cluster":      {dev.Options{Kubeconfig: "config", Flux: true}, "Flux can only run beside the built-in control plane"},
		"stand-ins on a foreign cluster": {dev.Options{Kubeconfig: "config", StandIns: true}, "stand-ins only work on the built-in control plane"},
		"a missing kubeconfig":           {dev.Options{Kubeconfig: filepath.Join(t.TempDir(), "nowhere")}, "nowhere"},
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
	go func() { ended <- dev.Run(ctx, dev.Options{DataDir: dir, StandIns: true, Out: out}) }()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "ModelIndex") }, 2*time.Minute, 50*time.Millisecond, "%s", out)
	for _, words := range []string{"export KUBECONFIG=" + filepath.Join(dir, "kubeconfig"), "Ctrl-C stops everything", "make run STANDINS=0", "NO MODEL RUNS HERE"} {
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
