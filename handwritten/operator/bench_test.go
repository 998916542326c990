package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	shipped "magicstick.dev/operator/generated/catalogs"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/dev/fluxstandin"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/operator"
)

const (
	// crowd is how many models are put into service at once (DESIGN 9).
	crowd = 1000
	// creators are as many as the operator has workers for models.
	creators = 8
	// stillness is how long nothing may be written once all is done.
	stillness = 10 * time.Second
)

// BenchmarkModels measures the whole operator: 1000 ModelActivations are
// created at once, until each has its KubeAI Model (activations/s) and a status
// that says so (settled/s). Two controls run beside it: one that only creates
// 1000 ConfigMaps (control/s), the least that any program can do for 1000
// objects, and one that makes the operator's writes by hand, with nothing in
// between (writes/s, in activations). DESIGN 9 asks for at least half the rate
// of the latter: ratio >= 0.5. Requests of the operator are counted where they
// leave it, without watches and leases.
func BenchmarkModels(b *testing.B) {
	config := rest.CopyConfig(controlplanetest.Shared(b))
	config.QPS = -1
	scheme, err := operator.Scheme()
	require.NoError(b, err)
	direct, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(b, err)
	var control, byHand, applied, settled time.Duration
	var calls, writes, still int64
	for b.Loop() {
		control += createConfigMaps(b, config, direct)
		byHand += writeByHand(b, config, direct)
		m := newModels(b, config, direct)
		first, second := m.putIntoService()
		applied, settled = applied+first, settled+second
		calls += m.counter.calls.Load()
		writes += m.counter.writes.Load()
		still += m.rest()
		m.stop()
	}
	rounds := float64(b.N) * crowd
	b.ReportMetric(rounds/applied.Seconds(), "activations/s")
	b.ReportMetric(rounds/settled.Seconds(), "settled/s")
	b.ReportMetric(rounds/control.Seconds(), "control/s")
	b.ReportMetric(rounds/byHand.Seconds(), "writes/s")
	b.ReportMetric(byHand.Seconds()/settled.Seconds(), "ratio")
	b.ReportMetric(float64(calls)/rounds, "calls/activation")
	b.ReportMetric(float64(writes)/rounds, "writes/activation")
	b.ReportMetric(float64(still)/float64(b.N), "writes-at-rest")
	b.ReportMetric(0, "ns/op")
}

// crowded runs work for 1000 objects on several workers.
func crowded(b *testing.B, work func(i int) error) {
	b.Helper()
	var group sync.WaitGroup
	next, failed := make(chan int), make(chan error, crowd)
	for range creators {
		group.Go(func() {
			for i := range next {
				if err := work(i); err != nil {
					failed <- err
				}
			}
		})
	}
	for i := range crowd {
		next <- i
	}
	close(next)
	group.Wait()
	select {
	case err := <-failed:
		b.Fatal(err)
	default:
	}
}

func createConfigMaps(b *testing.B, config *rest.Config, direct client.Client) time.Duration {
	b.Helper()
	namespace := controlplanetest.Namespace(b, config)
	start := time.Now()
	crowded(b, func(i int) error {
		return direct.Create(b.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("m%04d", i)}, Data: map[string]string{"model": "m"},
		})
	})
	return time.Since(start)
}

// writeByHand makes the writes of one activation in the order of the operator:
// create, finalizer, first status, child, second status, event.
func writeByHand(b *testing.B, config *rest.Config, direct client.Client) time.Duration {
	b.Helper()
	own, target := controlplanetest.Namespace(b, config), controlplanetest.Namespace(b, config)
	ctx := b.Context()
	start := time.Now()
	crowded(b, func(i int) error {
		object := modelOf(own, target, i)
		if err := direct.Create(ctx, object); err != nil {
			return err
		}
		if _, err := kube.EnsureFinalizer(ctx, direct, object, kube.FinalizerModel); err != nil {
			return err
		}
		status := func(message string) error {
			before := object.DeepCopy()
			object.Status.Message, object.Status.ObservedGeneration = &message, &object.Generation
			_, err := kube.PatchStatus(ctx, direct, before, object)
			return err
		}
		if err := status("first"); err != nil {
			return err
		}
		child := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kubeai.org/v1", "kind": "Model",
			"metadata": map[string]any{"namespace": target, "name": object.Name, "labels": map[string]any{kube.LabelManagedBy: kube.ManagedByOperator}},
			"spec": map[string]any{
				"engine": "VLLM", "url": "hf://Qwen/Qwen2.5-0.5B-Instruct", "features": []any{"TextGeneration"},
				"resourceProfile": "magicstick-cpu:1", "minReplicas": int64(1), "maxReplicas": int64(1),
				"args": []any{"--max-model-len=4096", "--max-num-seqs=1"}, "env": map[string]any{"A": "B"},
			},
		}}
		if err := direct.Apply(ctx, client.ApplyConfigurationFromUnstructured(child), client.FieldOwner("bench")); err != nil {
			return err
		}
		if err := status("second"); err != nil {
			return err
		}
		return direct.Create(ctx, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: own, Name: object.Name},
			InvolvedObject: corev1.ObjectReference{Kind: "ModelActivation", Namespace: own, Name: object.Name},
			Reason:         "WaitingForPod", Message: "second", Type: corev1.EventTypeNormal,
		})
	})
	return time.Since(start)
}

func modelOf(namespace, target string, i int) *appliancev1alpha1.ModelActivation {
	return &appliancev1alpha1.ModelActivation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("m%04d", i)},
		Spec: appliancev1alpha1.ModelActivationSpec{
			Type: appliancev1alpha1.ModelActivationSpecTypeLocal, TargetNamespace: target,
			Local: &appliancev1alpha1.ModelActivationSpecLocal{
				Preset: "qwen2505bcpu", Engine: appliancev1alpha1.ModelActivationSpecLocalEngineVLLM,
				ComputeTarget: appliancev1alpha1.ModelActivationSpecLocalComputeTargetCPU,
			},
		},
	}
}

// requestCounter counts what a client sends.
type requestCounter struct{ calls, writes atomic.Int64 }

func (c *requestCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if !strings.Contains(request.URL.Path, "/leases") && request.URL.Query().Get("watch") == "" {
			c.calls.Add(1)
			if request.Method != http.MethodGet {
				c.writes.Add(1)
			}
		}
		return next.RoundTrip(request)
	})
}

// models is an appliance whose modules are all Ready.
type models struct {
	b       *testing.B
	direct  client.Client
	options operator.Options
	counter *requestCounter
	// seen is the operator's own cache: looking there asks nothing of the API server.
	seen client.Reader
	stop func()
}

func newModels(b *testing.B, config *rest.Config, direct client.Client) *models {
	b.Helper()
	m := &models{b: b, direct: direct, options: operator.DefaultOptions(), counter: &requestCounter{}}
	namespace := controlplanetest.Namespace(b, config)
	o := &m.options
	o.Appliance.Namespace = namespace
	o.ModuleCatalog.Namespace, o.ApplicationCatalog.Namespace = namespace, namespace
	o.ModelPresets.Namespace, o.EngineCatalog.Namespace, o.RealtimeProfiles.Namespace = namespace, namespace, namespace
	o.ModelNamespace, o.FluxNamespace = controlplanetest.Namespace(b, config), controlplanetest.Namespace(b, config)
	o.IdentityNamespace = controlplanetest.Namespace(b, config)
	o.LeaderElection, o.MetricsAddress, o.ProbeAddress = false, "0", "0"
	for _, configMap := range catalogs.ShippedConfigMaps() {
		configMap.Namespace = namespace
		require.NoError(b, direct.Create(b.Context(), configMap))
	}
	appliance := defaultAppliance("litellm", "model-catalog", "kubeai")
	appliance.Namespace = namespace
	require.NoError(b, direct.Create(b.Context(), appliance))

	ctx, cancel := context.WithCancel(context.Background())
	stopFlux := m.playFlux(ctx, config)
	connection := rest.CopyConfig(config)
	connection.Wrap(m.counter.wrap)
	mgr, err := operator.New(ctx, connection, m.options)
	require.NoError(b, err)
	m.seen = mgr.GetCache()
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	m.stop = func() {
		cancel()
		require.NoError(b, <-done)
		stopFlux()
	}
	m.wait(func() bool {
		list := &appliancev1alpha1.ModuleActivationList{}
		require.NoError(b, direct.List(b.Context(), list, client.InNamespace(namespace)))
		ready := 0
		for i := range list.Items {
			if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, "Ready") {
				ready++
			}
		}
		return ready == 3
	})
	// Then the cache holds Models, too: their kind is one that may be missing.
	m.wait(func() bool {
		return m.seen.List(b.Context(), &kubeaiv1.ModelList{}, client.InNamespace(m.options.ModelNamespace)) == nil
	})
	return m
}

// playFlux makes every module Ready without any object of its own.
func (m *models) playFlux(ctx context.Context, config *rest.Config) (stop func()) {
	m.b.Helper()
	modules, err := catalogs.ParseModules(shipped.ShippedModuleCatalogJSON())
	require.NoError(m.b, err)
	folders := map[string][]byte{}
	for _, module := range modules.All() {
		folders[module.Path] = nil
		if module.IsStatic() {
			require.NoError(m.b, m.direct.Create(m.b.Context(), &kustomizev1.Kustomization{
				ObjectMeta: metav1.ObjectMeta{Namespace: m.options.FluxNamespace, Name: module.KustomizationName},
				Spec: kustomizev1.KustomizationSpec{
					Interval: metav1.Duration{Duration: time.Hour}, Path: module.Path,
					SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "flux-system"},
				},
			}))
		}
	}
	mgr, err := fluxstandin.New(config, fluxstandin.Options{Namespace: m.options.FluxNamespace, Folders: folders})
	require.NoError(m.b, err)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return func() { require.NoError(m.b, <-done) }
}

// wait looks a hundred times a second.
func (m *models) wait(done func() bool) {
	m.b.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		require.True(m.b, time.Now().Before(deadline), "it never ends")
	}
}

// putIntoService creates the activations and waits for what is made of them: the
// Models, and the statuses.
func (m *models) putIntoService() (applied, settled time.Duration) {
	m.b.Helper()
	m.counter.calls.Store(0)
	m.counter.writes.Store(0)
	start := time.Now()
	crowded(m.b, func(i int) error {
		return m.direct.Create(m.b.Context(), modelOf(m.options.Appliance.Namespace, m.options.ModelNamespace, i))
	})
	m.wait(func() bool {
		list := &kubeaiv1.ModelList{}
		require.NoError(m.b, m.seen.List(m.b.Context(), list, client.InNamespace(m.options.ModelNamespace), client.UnsafeDisableDeepCopy))
		return len(list.Items) == crowd
	})
	applied = time.Since(start)
	m.wait(func() bool {
		list := &appliancev1alpha1.ModelActivationList{}
		require.NoError(m.b, m.seen.List(m.b.Context(), list, client.InNamespace(m.options.Appliance.Namespace), client.UnsafeDisableDeepCopy))
		for i := range list.Items {
			if ready := meta.FindStatusCondition(list.Items[i].Status.Conditions, "Ready"); ready == nil || ready.Reason != "WaitingForPod" {
				return false
			}
		}
		return true
	})
	return applied, time.Since(start)
}

// rest counts what is written although nothing happens any more.
func (m *models) rest() int64 {
	m.b.Helper()
	// The last write of the Appliance, which gathers for a second, and events.
	time.Sleep(3 * time.Second)
	before := m.counter.writes.Load()
	time.Sleep(stillness)
	return m.counter.writes.Load() - before
}
