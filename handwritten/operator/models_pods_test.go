package operator_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/activations"
	"magicstick.dev/operator/handwritten/activations/standin"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// S044, S045, S046: Pods that ended are replaced one by one, with their owner's
// UID, and others are not touched.
func TestEndedPodIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	clock := w.clock()
	w.start()
	w.cpuModel("chat")
	w.readyModules("kubeai", "litellm", "model-catalog")
	model := w.kubeAIModel("chat", nil)
	strange := model.DeepCopy()
	strange.UID = "11111111-2222-3333-4444-555555555555"
	others := w.pod(strange, "of-a-former-model")
	w.reports(others, evicted)
	pending := w.pod(model, "pending")
	for i := range 5 {
		pod := w.pod(model, fmt.Sprintf("chat-%d", i))
		w.reports(pod, evicted)
		w.eventually(func() string {
			if w.in(&corev1.Pod{}, pod.Name) {
				clock.forward(time.Second)
				w.poke(pending)
				return pod.Name + " is still there"
			}
			return ""
		})
		w.eventually(func() string {
			found := &appliancev1alpha1.ModelActivation{}
			require.True(t, w.get(found, "chat"))
			if recovery := found.Status.PodRecovery; recovery == nil || int(recovery.Attempts) != i+1 || *recovery.PodUID != string(pod.UID) {
				return "podRecovery " + show(found.Status)
			}
			return ""
		})
	}
	last := w.pod(model, "chat-last")
	w.reports(last, evicted)
	exhausted := w.model("chat", "Degraded", "ModelPodRecoveryExhausted")
	require.Contains(t, *exhausted.Status.Message, "chat-0: Evicted: The node was low on resource")
	clock.forward(time.Hour)
	w.poke(pending)
	for _, name := range []string{"chat-last", "pending", "of-a-former-model"} {
		require.True(t, w.in(&corev1.Pod{}, name), name)
	}
	require.NoError(t, w.client.Delete(t.Context(), last))
	w.model("chat", "Starting", "WaitingForReadyReplica")
	w.reports(pending, isReady)
	w.counts("chat", 1, 1)
	require.Nil(t, w.model("chat", "Reconciling", "WaitingForCatalog").Status.PodRecovery, "S048")
}

// S039, S040, S042: two minutes without a Pod, told by the status over restarts.
func TestStalledPodCreationSurvivesARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	clock := w.clock()
	w.start()
	w.cpuModel("chat")
	w.readyModules("kubeai", "litellm", "model-catalog")
	var since metav1.Time
	w.eventually(func() string {
		found := w.model("chat", "WaitingForPod", "WaitingForPod")
		if found.Status.PodCreation == nil {
			return "no podCreation"
		}
		since = found.Status.PodCreation.Since
		return ""
	})
	w.stop()
	clock.forward(110 * time.Second)
	w.start()
	require.Equal(t, since, w.model("chat", "WaitingForPod", "WaitingForPod").Status.PodCreation.Since)
	w.stop()
	clock.forward(11 * time.Second)
	w.start()
	stalled := w.model("chat", "Degraded", "ModelPodCreationStalled")
	require.Equal(t, since, stalled.Status.PodCreation.Since)
	pod := w.pod(w.kubeAIModel("chat", nil), "chat-1")
	require.Nil(t, w.model("chat", "Starting", "WaitingForReadyReplica").Status.PodCreation)

	// A Pod that is stuck while it ends is no Pod, and named.
	pod.Finalizers = []string{"example.com/stuck"}
	require.NoError(t, w.client.Update(t.Context(), pod))
	require.NoError(t, w.client.Delete(t.Context(), pod))
	w.model("chat", "WaitingForPod", "WaitingForPod")
	w.says("chat", has("chat-1 is still being deleted"))
	change(w, &appliancev1alpha1.ModelActivation{}, "chat", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
	w.vanished(&kubeaiv1.Model{}, "chat")
	w.model("chat", "Removing", "Removing")
	w.says("chat", has("/chat-1 has ended"))
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	pod.Finalizers = nil
	require.NoError(t, w.client.Update(t.Context(), pod))
	w.model("chat", "Disabled", "Disabled")
}

// S017, S103: what Ollama says of its memory is in the status while a replica is
// ready, and no longer.
func TestMemoryOfOllama(t *testing.T) {
	t.Parallel()
	// Pods of KubeAI answer at port 8000 of their own address; every process of a
	// machine may listen on any address of the loopback network.
	address := "127.44.7.1"
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address+":8000")
	if err != nil {
		t.Skipf("no such address on this machine: %v", err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/api/ps" {
			_, _ = out.Write([]byte(`{"models":[{"name":"chat","model":"chat","size":1073741824,"size_vram":268435456}]}`))
		}
	})}}
	server.Start()
	t.Cleanup(server.Close)
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.readyModules("kubeai", "litellm", "model-catalog")
	w.activate("chat", appliancev1alpha1.ModelActivationSpecLocal{Preset: "qwen2505bcpu", ComputeTarget: "cpu", Engine: "OLlama", KVCacheType: "q8_0"})
	model := w.kubeAIModel("chat", nil)
	require.Equal(t, "q8_0", model.Spec.Env["OLLAMA_KV_CACHE_TYPE"])
	pod := w.pod(model, "chat-1")
	w.reports(pod, func(status *corev1.PodStatus) {
		isReady(status)
		status.PodIP, status.PodIPs = address, []corev1.PodIP{{IP: address}}
	})
	w.counts("chat", 1, 1)
	w.eventually(func() string {
		found := w.model("chat", "Reconciling", "WaitingForCatalog")
		if found.Status.MemoryUsage == nil {
			return "no memory: " + show(found.Status)
		}
		require.EqualValues(t, 256, found.Status.MemoryUsage.VRAMMi)
		require.EqualValues(t, 1024, found.Status.MemoryUsage.TotalMi)
		require.EqualValues(t, 1, found.Status.MemoryUsage.Replicas)
		require.EqualValues(t, "f16", found.Status.EffectiveKVCacheType, "the Pod was started without the variable")
		return ""
	})
	w.counts("chat", 1, 0)
	lost := w.model("chat", "Starting", "WaitingForReadyReplica")
	require.Nil(t, lost.Status.MemoryUsage)
	require.Empty(t, lost.Status.EffectiveKVCacheType)
}

// The whole way with KubeAI played: a model gets into service and back after
// every kind of failure; while it changes there is never a second Pod (D6).
func TestModelWithKubeAIPlayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.options.ProfilesQuiet, w.options.ProfilesInterval = 10*time.Millisecond, 10*time.Millisecond
	w.start()
	ctx, cancel := context.WithCancel(t.Context())
	played := make(chan error, 1)
	go func() {
		played <- standin.Run(ctx, w.config, standin.Options{
			Namespace:   w.options.ModelNamespace,
			Profiles:    types.NamespacedName{Namespace: w.options.FluxNamespace, Name: activations.ProfilesConfigMap},
			ProfilesKey: activations.ProfilesKey, StartUp: 300 * time.Millisecond,
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-played; err != nil {
			t.Errorf("playing KubeAI: %v", err)
		}
	})
	w.readyModules("kubeai", "litellm", "model-catalog")
	w.index("chat")
	most := w.mostPods()
	w.cpuModel("chat")
	w.model("chat", "Ready", "CatalogReady")

	fate := func(fate standin.Fate) {
		t.Helper()
		for {
			model := w.kubeAIModel("chat", nil)
			model.Annotations = map[string]string{standin.AnnotationFate: string(fate)}
			err := w.client.Update(t.Context(), model)
			if !apierrors.IsConflict(err) {
				require.NoError(t, err)
				return
			}
		}
	}
	for _, c := range []struct {
		fate standin.Fate
		says string
	}{{standin.Crash, "CrashLoopBackOff"}, {standin.PullFailure, "Pull"}, {standin.Unschedulable, "finds no node"}} {
		fate(c.fate)
		w.model("chat", "Starting", "WaitingForReadyReplica")
		w.says("chat", has(c.says))
		fate(standin.Ready)
		require.NotContains(t, *w.model("chat", "Ready", "CatalogReady").Status.Message, c.says)
	}
	fate(standin.Failed)
	w.eventually(func() string {
		found := &appliancev1alpha1.ModelActivation{}
		w.get(found, "chat")
		if recovery := found.Status.PodRecovery; recovery == nil || recovery.Attempts < 1 {
			return "no attempt: " + show(found.Status)
		}
		return ""
	})
	fate(standin.Ready)
	w.changeContext("chat", 1024) // a changed revision waits for no pause
	require.Nil(t, w.model("chat", "Ready", "CatalogReady").Status.PodRecovery)
	w.eventually(func() string {
		for _, pod := range w.podsOf("chat") {
			if strings.Contains(strings.Join(pod.Spec.Containers[0].Args, " "), "--max-model-len=1024") {
				return ""
			}
		}
		return "the Pod has the old settings"
	})
	w.model("chat", "Ready", "CatalogReady")
	require.Equal(t, 1, most(), "Pods at the same time")
}

// podsOf are the Pods of a KubeAI Model that are not on their way out.
func (w *world) podsOf(model string) []corev1.Pod {
	w.t.Helper()
	list := &corev1.PodList{}
	require.NoError(w.t, w.client.List(w.t.Context(), list, client.InNamespace(w.options.ModelNamespace), client.MatchingLabels{"model": model}))
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// mostPods watches the Pods of the models and tells how many there were at the
// same time; those on their way out do not count.
func (w *world) mostPods() func() int {
	w.t.Helper()
	watching, err := client.NewWithWatch(w.config, client.Options{})
	require.NoError(w.t, err)
	events, err := watching.Watch(w.t.Context(), &corev1.PodList{}, client.InNamespace(w.options.ModelNamespace))
	require.NoError(w.t, err)
	w.t.Cleanup(events.Stop)
	var most atomic.Int64
	go func() {
		present := map[string]bool{}
		for event := range events.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			if event.Type == watch.Deleted || pod.DeletionTimestamp != nil {
				delete(present, pod.Name)
			} else {
				present[pod.Name] = true
			}
			most.Store(max(most.Load(), int64(len(present))))
		}
	}()
	return func() int { return int(most.Load()) }
}
