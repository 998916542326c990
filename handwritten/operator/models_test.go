package operator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	kubeaicrds "magicstick.dev/operator/generated/external/kubeai/crds"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

func has(parts ...string) func(string) bool {
	return func(text string) bool {
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return false
			}
		}
		return true
	}
}

// The way of a CPU model: modules, Model, Pod, ready replica, catalog; and back
// when the replica is lost (U026, S038, S043, S050).
func TestCPUModelOnItsWayToServiceAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.create(defaultAppliance())
	w.start()
	w.cpuModel("local-chat")
	waiting := w.model("local-chat", "WaitingForModules", "WaitingForModules")
	require.Contains(t, *waiting.Status.Message, "kubeai")
	require.Equal(t, []string{"appliance.magicstick.dev/model-cleanup"}, waiting.Finalizers)
	require.EqualValues(t, 4096, *waiting.Status.MemoryRequiredMi, "what was resolved is told while the model waits")
	require.False(t, w.in(&kubeaiv1.Model{}, "local-chat"))
	w.appliance("Reconciling", "WaitingForModules")

	w.readyModules("kubeai", "litellm", "model-catalog")
	model := w.kubeAIModel("local-chat", nil)
	require.Equal(t, "magicstick-cpu:1", model.Spec.ResourceProfile)
	noPod := w.model("local-chat", "WaitingForPod", "WaitingForPod")
	w.eventually(func() string {
		w.get(noPod, "local-chat")
		if noPod.Status.PodCreation == nil {
			return "no podCreation: " + show(noPod.Status)
		}
		return ""
	})
	require.Contains(t, noPod.Status.PodCreation.Revision, string(model.UID)+".1.1")
	require.WithinDuration(t, time.Now(), noPod.Status.PodCreation.Since.Time, 30*time.Second)

	pod := w.pod(model, "local-chat-1")
	starting := w.model("local-chat", "Starting", "WaitingForReadyReplica")
	require.Contains(t, *starting.Status.Message, "0/1")
	require.Nil(t, starting.Status.PodCreation)
	require.Empty(t, starting.Status.EffectiveKVCacheType)
	require.EqualValues(t, "auto", starting.Status.RequestedKVCacheType)

	w.reports(pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodPending
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: "server", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"},
		}}}
	})
	w.says("local-chat", has("container server", "ImagePullBackOff: no such image"))
	w.eventually(func() string {
		state := w.appliance("Reconciling", "WaitingForModels")
		if message := ptr.Deref(state.Status.Models["local-chat"].Message, ""); !strings.Contains(message, "ImagePullBackOff") {
			return "the Appliance says " + message
		}
		return ""
	})

	w.reports(pod, isReady)
	w.counts("local-chat", 1, 1)
	listed := w.model("local-chat", "Reconciling", "WaitingForCatalog")
	require.NotContains(t, *listed.Status.Message, "ImagePullBackOff", "the failure leaves with the recovery")
	w.index("local-chat")
	ready := w.model("local-chat", "Ready", "CatalogReady")
	require.Equal(t, "Model is available in the generated model catalog.", strings.Split(*ready.Status.Message, " Node")[0])
	require.EqualValues(t, "auto", ready.Status.EffectiveKVCacheType)
	require.Equal(t, &appliancev1alpha1.ModelActivationStatusReplicas{Ready: 1, Expected: 1}, ready.Status.Replicas)

	state := w.appliance("Ready", "Ready")
	row := state.Status.Models["local-chat"]
	require.Equal(t, "kubeai/local-chat", *row.ModelRef, "S097")
	require.EqualValues(t, "cpu", row.ComputeTarget, "S097")
	require.EqualValues(t, "VLLM", row.Engine, "S097")
	require.Equal(t, "magicstick-cpu:1", *row.ResolvedResourceProfile, "S097")

	w.counts("local-chat", 1, 0)
	back := w.model("local-chat", "Starting", "WaitingForReadyReplica")
	require.Empty(t, back.Status.EffectiveKVCacheType)
	require.NoError(t, w.client.Delete(t.Context(), pod))
	w.model("local-chat", "WaitingForPod", "WaitingForPod")

	require.NoError(t, w.client.Delete(t.Context(), back))
	w.gone(&appliancev1alpha1.ModelActivation{}, "local-chat")
	require.False(t, w.in(&kubeaiv1.Model{}, "local-chat"))
}

// U020: an external model needs its modules and its entry, and never a node.
func TestExternalModelFollowsTheCatalog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS)))
	w.inAI()
	w.start()
	w.external("gpt")
	w.model("gpt", "WaitingForModules", "WaitingForModules")
	require.False(t, w.get(&appliancev1alpha1.ModuleActivation{}, "kubeai"))
	w.readyModules("litellm", "model-catalog")
	waiting := w.model("gpt", "Reconciling", "WaitingForCatalog")
	require.Contains(t, *waiting.Status.Message, "does not exist")
	w.index("another")
	w.says("gpt", has("lists it"))
	w.index("another", "gpt")
	ready := w.model("gpt", "Ready", "CatalogReady")
	require.Equal(t, "litellm/gpt", *ready.Status.ModelRef)
	w.rawIndex(`{"models": [}`)
	require.Contains(t, *w.model("gpt", "Reconciling", "WaitingForCatalog").Status.Message, "catalog.json")
	w.index("gpt")
	w.model("gpt", "Ready", "CatalogReady")
	change(w, &appliancev1alpha1.ModelActivation{}, "gpt", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
	w.model("gpt", "Disabled", "Disabled")
	require.NoError(t, w.client.Delete(t.Context(), ready))
	w.gone(&appliancev1alpha1.ModelActivation{}, "gpt")
}

// onCPU is a realtime model on cpu, which needs no device.
func onCPU(nonce string) appliancev1alpha1.ModelActivationSpecLocal {
	local := appliancev1alpha1.ModelActivationSpecLocal{
		URL: "hf://owner/omni", Realtime: &appliancev1alpha1.ModelActivationSpecLocalRealtime{Profile: "omni-cpu", GPUNode: "box"},
	}
	if nonce != "" {
		local.Realtime.RestartNonce = ptr.To(nonce)
	}
	return local
}

// S056, S060: a direct runtime on its way into service; its failing container is
// told (D7); a Deployment or Service that a hand took away comes back.
func TestRealtimeModelOnItsWayToService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.activate("omni", onCPU(""))
	w.readyModules("litellm", "model-catalog")
	deployment := w.deployment("omni-runtime")
	require.True(t, w.in(&corev1.Service{}, "omni-runtime"))
	starting := w.model("omni", "Starting", "WaitingForReadyReplica")
	require.Equal(t, "realtime/omni", *starting.Status.ModelRef, "H21")
	require.Nil(t, starting.Status.PodCreation, "no stall timer")

	pod := w.directPod(deployment, "omni-runtime-1")
	w.reports(pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodRunning
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: "server", RestartCount: 3,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "no stage 2 in config"}},
		}}
	})
	w.says("omni", has("0/1", "omni-runtime-1", "container server", "CrashLoopBackOff", "no stage 2 in config"))
	w.reports(pod, isReady)
	w.rolledOut("omni-runtime", 1)
	w.index("omni")
	ready := w.model("omni", "Ready", "CatalogReady")
	require.NotContains(t, *ready.Status.Message, "CrashLoopBackOff")

	require.NoError(t, w.client.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: "omni-runtime"}}))
	w.eventually(func() string {
		if !w.in(&corev1.Service{}, "omni-runtime") {
			return "the Service is not made again"
		}
		return ""
	})
	require.NoError(t, w.client.Delete(t.Context(), deployment))
	w.eventually(func() string {
		again := &appsv1.Deployment{}
		if !w.in(again, "omni-runtime") || again.UID == deployment.UID {
			return "the Deployment is not made again"
		}
		return ""
	})
	w.model("omni", "Starting", "WaitingForReadyReplica")

	change(w, &appliancev1alpha1.ModelActivation{}, "omni", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
	w.vanished(&appsv1.Deployment{}, "omni-runtime")
	w.vanished(&corev1.Service{}, "omni-runtime")
	w.says("omni", has("Pod "+w.options.ModelNamespace+"/omni-runtime-1"))
	require.NoError(t, w.client.Delete(t.Context(), pod))
	w.model("omni", "Disabled", "Disabled")
}

// D6: nothing of another runtime is made while anything of the former one is
// there, and a Pod that holds the only GPU is part of it.
func TestChangedEngineNeverMakesASecondRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.activate("chat", appliancev1alpha1.ModelActivationSpecLocal{URL: "hf://owner/omni", ComputeTarget: "cpu"})
	w.readyModules("kubeai", "litellm", "model-catalog")
	model := w.kubeAIModel("chat", nil)
	pod := w.pod(model, "chat-1")
	w.reports(pod, isReady)
	w.counts("chat", 1, 1)
	w.index("chat")
	w.model("chat", "Ready", "CatalogReady")

	change(w, &appliancev1alpha1.ModelActivation{}, "chat", func(a *appliancev1alpha1.ModelActivation) {
		local := onCPU("")
		a.Spec.Local = &local
	})
	w.vanished(&kubeaiv1.Model{}, "chat")
	w.model("chat", "Starting", "WaitingForReadyReplica")
	w.says("chat", has("Waiting until Pod "+w.options.ModelNamespace+"/chat-1 has ended"))
	require.False(t, w.in(&appsv1.Deployment{}, "chat-runtime"), "the Pod still holds its devices")
	require.NoError(t, w.client.Delete(t.Context(), pod)) // as the garbage collector would
	w.deployment("chat-runtime")
	w.says("chat", has("0/1"))
	require.False(t, w.in(&kubeaiv1.Model{}, "chat"))
}

// Drift: a Model that a hand deleted or edited is what the activation wants again.
func TestKubeAIModelDriftIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.cpuModel("chat")
	w.readyModules("kubeai", "litellm", "model-catalog")
	model := w.kubeAIModel("chat", nil)
	wanted := model.Spec.URL
	model.Spec.Args, model.Labels = []string{"--by-hand"}, nil
	require.NoError(t, w.client.Update(t.Context(), model))
	w.kubeAIModel("chat", func(m *kubeaiv1.Model) string {
		if m.Spec.URL != wanted || len(m.Labels) != 2 || strings.Contains(strings.Join(m.Spec.Args, " "), "--by-hand") {
			return "drifted: " + show(m.Spec) + show(m.Labels)
		}
		return ""
	})
	require.NoError(t, w.client.Delete(t.Context(), model))
	w.kubeAIModel("chat", func(m *kubeaiv1.Model) string {
		if m.UID == model.UID {
			return "not made again"
		}
		return ""
	})
}

// An object of somebody else under the name of the runtime is left alone, named,
// and no obstacle once it is gone.
func TestModelOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	theirs := &kubeaiv1.Model{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: "chat", Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}},
		Spec:       &kubeaiv1.ModelSpec{Engine: "VLLM", URL: "hf://theirs/model", Features: []kubeaiv1.ModelSpecFeaturesItem{"TextGeneration"}},
	}
	require.NoError(t, w.client.Create(t.Context(), theirs))
	w.start()
	w.cpuModel("chat")
	w.readyModules("kubeai", "litellm", "model-catalog")
	refused := w.model("chat", "Degraded", "RuntimeConflict")
	require.Contains(t, *refused.Status.Message, "is managed by Helm")
	found := w.kubeAIModel("chat", nil)
	require.Equal(t, theirs.ResourceVersion, found.ResourceVersion, "not touched")

	change(w, &appliancev1alpha1.ModelActivation{}, "chat", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
	w.model("chat", "Disabled", "Disabled")
	require.Equal(t, theirs.ResourceVersion, w.kubeAIModel("chat", nil).ResourceVersion)
	change(w, &appliancev1alpha1.ModelActivation{}, "chat", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = nil })
	w.model("chat", "Degraded", "RuntimeConflict")
	require.NoError(t, w.client.Delete(t.Context(), theirs))
	w.kubeAIModel("chat", func(m *kubeaiv1.Model) string {
		if m.UID == theirs.UID {
			return "still theirs"
		}
		return ""
	})
	w.model("chat", "WaitingForPod", "WaitingForPod")
}

// U025: without a GPU the model waits; S002: for the one of its target.
func TestModelWaitsForItsGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS, kubeaicrds.FS)))
	w.node("nvidia", offers("64Gi", "nvidia.com/gpu", 2))
	w.start()
	w.activate("chat", appliancev1alpha1.ModelActivationSpecLocal{Preset: "qwen2505bcpu", ComputeTarget: "amd-gpu", VRAM: "4Gi"})
	w.static("platform-nfd", metav1.ConditionTrue)
	w.readyModules("amd-gpu", "kubeai", "litellm", "model-catalog")
	waiting := w.model("chat", "WaitingForGPU", "WaitingForGPU")
	require.EqualValues(t, 4096, *waiting.Status.VRAMRequiredMi)
	require.False(t, w.in(&kubeaiv1.Model{}, "chat"))
	w.node("amd", offers("64Gi", "amd.com/gpu", 1))
	w.kubeAIModel("chat", nil)
	w.model("chat", "WaitingForPod", "WaitingForPod")
}

// KubeAI comes after the operator, goes away under it, and comes back.
func TestKubeAIAppearsVanishesAndReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS)))
	w.start()
	w.cpuModel("chat")
	w.readyModules("kubeai", "litellm", "model-catalog")
	require.Contains(t, *w.model("chat", "WaitingForCRDs", "WaitingForCRDs").Status.Message, "models.kubeai.org is not installed")
	for range 2 {
		controlplanetest.InstallCRDs(t, w.config, kubeaicrds.FS)
		w.kubeAIModel("chat", nil)
		w.model("chat", "WaitingForPod", "WaitingForPod")
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "models.kubeai.org"}}
		require.NoError(t, w.client.Delete(t.Context(), crd))
		w.model("chat", "WaitingForCRDs", "WaitingForCRDs")
		w.eventually(func() string {
			if err := w.client.Get(t.Context(), types.NamespacedName{Name: crd.Name}, crd); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("the CRD is still there: %v", err)
			}
			return ""
		})
	}
	require.NoError(t, w.client.Delete(t.Context(), &appliancev1alpha1.ModelActivation{ObjectMeta: metav1.ObjectMeta{Name: "chat", Namespace: w.options.Appliance.Namespace}}))
	w.gone(&appliancev1alpha1.ModelActivation{}, "chat")
}
