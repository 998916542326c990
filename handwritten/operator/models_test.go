package operator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
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
