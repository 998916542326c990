package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// A direct runtime in service costs no call: what the API server fills in by
// itself is no drift.
func TestCallsPerDirectModelAreTheLeast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.readyModules("litellm", "model-catalog")
	w.index("omni")
	time.Sleep(2 * time.Second)
	_, mark := w.writes.since(0)
	w.activate("omni", onCPU(""))
	w.model("omni", "Starting", "WaitingForReadyReplica")
	w.directPod(w.deployment("omni-runtime"), "omni-runtime-1")
	w.rolledOut("omni-runtime", 1)
	w.model("omni", "Ready", "CatalogReady")
	time.Sleep(2 * time.Second)
	writes, _ := w.writes.since(mark)
	var calls []string
	for _, write := range writes {
		if !isEvent(write) {
			calls = append(calls, write)
		}
	}
	require.Len(t, calls, 6, "finalizer, Service, Deployment, and a status for each of three states: %v", calls)
}

// The number of calls that one model costs from nothing to a Pod that is waited
// for: finalizer, Model, first status, second status, and one event. Everything
// after that is one status for each thing that happens.
func TestCallsPerModelAreTheLeast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.options.ProfilesQuiet, w.options.ProfilesInterval = 10*time.Millisecond, 10*time.Millisecond // written before the counting begins
	w.start()
	w.readyModules("kubeai", "litellm", "model-catalog")
	w.index("chat")
	time.Sleep(2 * time.Second)
	_, mark := w.writes.since(0)
	calls := func() (made []string) {
		time.Sleep(2 * time.Second)
		var writes []string
		writes, mark = w.writes.since(mark)
		for _, write := range writes {
			if !isEvent(write) {
				made = append(made, write)
			}
		}
		return made
	}
	w.cpuModel("chat")
	w.model("chat", "WaitingForPod", "WaitingForPod")
	require.Len(t, calls(), 4)
	pod := w.pod(w.kubeAIModel("chat", nil), "chat-1")
	w.model("chat", "Starting", "WaitingForReadyReplica")
	require.Len(t, calls(), 1)
	w.reports(pod, isReady)
	w.counts("chat", 1, 1)
	w.model("chat", "Ready", "CatalogReady")
	require.Len(t, calls(), 1)
	change(w, &appliancev1alpha1.ModelActivation{}, "chat", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Local.ContextWindow = 1024 })
	w.model("chat", "Ready", "CatalogReady")
	require.Len(t, calls(), 2, "Model and status")
}
