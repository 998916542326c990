package operator_test

import (
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// quietTime is how long a converged appliance is watched.
const quietTime = 2 * time.Minute

// D13: an appliance in which nothing happens costs no write at all. It has a
// module in every state that lasts. Requests are counted where they leave the
// operator, and resource versions compared at the API server.
func TestSteadyStateIsQuiet(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes")
	}
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	clock := w.clock()
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.create(defaultAppliance("litellm", "model-catalog"))
	w.create(activation("anything-llm"))      // Degraded
	w.create(activation("gpu"))               // waits for nfd
	w.create(activation("openclaw-operator")) // Flux never answers
	w.create(activation("nonsense"))          // unknown
	w.create(activation("nfd"))               // static
	off := activation("hermes-operator")
	off.Spec.Enabled = ptr.To(false)
	w.create(off)
	w.index("in-service", "omni")
	w.cpuModel("in-service")
	w.cpuModel("no-pod")
	w.activate("omni", onCPU(""))
	w.activate("refused", appliancev1alpha1.ModelActivationSpecLocal{Preset: "nonsense"})
	w.activate("no-gpu", appliancev1alpha1.ModelActivationSpecLocal{Preset: "qwen2505bcpu", ComputeTarget: "intel-gpu", VRAM: "4Gi"}) // waits for nfd
	w.start()
	for _, name := range []string{"app-litellm", "app-model-catalog"} {
		w.kustomization(name, running)
		w.flux(name, metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	}
	w.kustomization("app-anything-llm", running)
	w.flux("app-anything-llm", metav1.ConditionFalse, "BuildFailed", "kustomization path not found")
	w.module("litellm", "Ready", "KustomizationReady")
	w.module("model-catalog", "Ready", "KustomizationReady")
	w.module("anything-llm", "Degraded", "BuildFailed")
	w.module("gpu", "WaitingForModules", "WaitingForModules")
	w.readyModules("kubeai")
	w.kubeAIModel("no-pod", nil)
	w.eventually(func() string {
		if w.model("no-pod", "WaitingForPod", "WaitingForPod").Status.PodCreation == nil {
			return "the timer does not run"
		}
		return ""
	})
	clock.forward(2 * time.Minute)
	w.touch("no-pod")
	w.reports(w.pod(w.kubeAIModel("in-service", nil), "in-service-1"), isReady)
	w.counts("in-service", 1, 1)
	w.directPod(w.deployment("omni-runtime"), "omni-runtime-1")
	w.rolledOut("omni-runtime", 1)
	w.module("openclaw-operator", "Reconciling", "WaitingForKustomization")
	w.model("in-service", "Ready", "CatalogReady")
	w.model("omni", "Ready", "CatalogReady")
	w.model("refused", "Degraded", "InvalidModelSpec")
	w.model("no-gpu", "WaitingForModules", "WaitingForModules")
	w.module("nonsense", "Degraded", "UnknownModule")
	w.module("nfd", "Degraded", "StaticModule")
	w.module("hermes-operator", "Disabled", "Disabled")
	w.appliance("Degraded", "Degraded")
	w.model("no-pod", "Degraded", "ModelPodCreationStalled")
	time.Sleep(3 * time.Second) // the last coalesced write and its event

	versions := w.versions()
	_, mark := w.writes.since(0)
	time.Sleep(quietTime)
	writes, _ := w.writes.since(mark)
	require.Empty(t, writes, "writes in %s of rest", quietTime)
	require.Equal(t, versions, w.versions(), "resource versions after %s of rest", quietTime)
}

// versions are the resource versions of everything that the operator writes.
func (w *world) versions() map[string]string {
	w.t.Helper()
	found := map[string]string{}
	for _, list := range []client.ObjectList{&appliancev1alpha1.ApplianceList{}, &appliancev1alpha1.ModuleActivationList{}, &appliancev1alpha1.ModelActivationList{}} {
		require.NoError(w.t, w.client.List(w.t.Context(), list, client.InNamespace(w.options.Appliance.Namespace)))
		w.note(found, list)
	}
	kustomizations := &kustomizev1.KustomizationList{}
	require.NoError(w.t, w.client.List(w.t.Context(), kustomizations, client.InNamespace(w.options.FluxNamespace)))
	w.note(found, kustomizations)
	models := &kubeaiv1.ModelList{}
	require.NoError(w.t, w.client.List(w.t.Context(), models, client.InNamespace(w.options.ModelNamespace)))
	w.note(found, models)
	return found
}

func (w *world) note(found map[string]string, list client.ObjectList) {
	w.t.Helper()
	switch list := list.(type) {
	case *appliancev1alpha1.ApplianceList:
		for i := range list.Items {
			found["Appliance "+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	case *appliancev1alpha1.ModuleActivationList:
		for i := range list.Items {
			found["ModuleActivation "+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	case *appliancev1alpha1.ModelActivationList:
		for i := range list.Items {
			found["ModelActivation "+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	case *kubeaiv1.ModelList:
		for i := range list.Items {
			found["Model "+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	case *kustomizev1.KustomizationList:
		for i := range list.Items {
			found["Kustomization "+list.Items[i].Name] = list.Items[i].ResourceVersion
		}
	default:
		w.t.Fatalf("no versions of %T", list)
	}
}

// D11: kstatus takes an object as current when it has no observedGeneration.
// The schema's default of -1 keeps it from that before the first pass.
func TestUntouchedObjectsAreNotCurrent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.create(activation("litellm"))
	w.create(defaultAppliance())
	module, appliance := &appliancev1alpha1.ModuleActivation{}, &appliancev1alpha1.Appliance{}
	w.get(module, "litellm")
	w.get(appliance, "local")
	require.Equal(t, ptr.To[int64](-1), module.Status.ObservedGeneration)
	require.Equal(t, ptr.To[int64](-1), appliance.Status.ObservedGeneration)
}

// The number of calls that one module costs from nothing to its Kustomization:
// finalizer, Kustomization, first status, second status, and one event.
func TestCallsPerModuleAreTheLeast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.start()
	w.create(activation("litellm"))
	w.module("litellm", "Reconciling", "WaitingForKustomization")
	time.Sleep(2 * time.Second)
	writes, _ := w.writes.since(0)
	calls := 0
	for _, write := range writes {
		if !isEvent(write) {
			calls++
		}
	}
	require.Equal(t, 4, calls, "%v", writes)
}
