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
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// A newcomer's first minute: the default Appliance, the static graph ready,
// Flux installs, everything gets Ready.
func TestDefaultApplianceBecomesReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.create(defaultAppliance("basis", "dashboard", "litellm", "modelCatalog"))
	w.start()

	litellm := w.module("litellm", "Reconciling", "WaitingForKustomization")
	require.Equal(t, "true", litellm.Annotations["appliance.magicstick.dev/auto-enabled"])
	require.Equal(t, "magicstick-operator", litellm.Labels["app.kubernetes.io/managed-by"])
	w.module("model-catalog", "WaitingForModules", "WaitingForModules")
	w.appliance("Reconciling", "WaitingForModules")

	w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.module("litellm", "Ready", "KustomizationReady")
	w.kustomization("app-model-catalog", func(k *kustomizev1.Kustomization) string {
		if k.Spec.Suspend {
			return "still suspended"
		}
		return ""
	})
	w.flux("app-model-catalog", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.module("model-catalog", "Ready", "KustomizationReady")

	appliance := w.appliance("Ready", "Ready")
	require.Len(t, appliance.Status.Modules, 2, "static modules have no activation and no row")
	require.Equal(t, ptr.To(true), appliance.Status.Modules["litellm"].AutoEnabled, "S098")
	require.Equal(t, ptr.To("app-litellm"), appliance.Status.Modules["litellm"].Kustomization)
	require.Equal(t, appliance.Generation, *appliance.Status.ObservedGeneration, "H46")
	require.False(t, w.get(&appliancev1alpha1.ModuleActivation{}, "basis"), "static modules are not seeded")
}

func TestUnreadyDependencySuspendsAndNeverDeletes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.create(activation("litellm"))
	w.start()
	w.kustomization("app-litellm", running)
	w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.module("litellm", "Ready", "KustomizationReady")
	uid := w.kustomization("app-litellm", nil).UID

	w.flux("infrastructure-basis", metav1.ConditionFalse, "HealthCheckFailed", "cert-manager is not available")
	waiting := w.module("litellm", "WaitingForModules", "WaitingForModules")
	require.Contains(t, *waiting.Status.Message, "HealthCheckFailed: cert-manager is not available")
	suspended := w.kustomization("app-litellm", func(k *kustomizev1.Kustomization) string {
		if !k.Spec.Suspend {
			return "not suspended"
		}
		return ""
	})
	require.Equal(t, uid, suspended.UID)
	require.True(t, suspended.Spec.Prune)
	require.Equal(t, "Delete", suspended.Spec.DeletionPolicy)

	w.flux("infrastructure-basis", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.kustomization("app-litellm", running)
	w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.module("litellm", "Ready", "KustomizationReady")
	require.Equal(t, uid, w.kustomization("app-litellm", running).UID, "the same object all the time")
}

// S100, with Flux's finalizer, as on a real cluster: what counts is how the
// Kustomization stands at the moment of its deletion.
func TestRemovalUnsuspendsKeepsParametersThenDeletes(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"disable", "delete"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Shared(t))
			litellm := activation("litellm")
			litellm.Spec.Parameters = map[string]string{"postgresStorage": "5Gi"}
			w.create(litellm)
			w.start()
			w.module("litellm", "WaitingForModules", "WaitingForModules")
			change(w, &kustomizev1.Kustomization{}, "app-litellm", func(k *kustomizev1.Kustomization) {
				require.True(t, k.Spec.Suspend)
				k.Finalizers = []string{"finalizers.fluxcd.io"}
			})
			if by == "disable" {
				change(w, &appliancev1alpha1.ModuleActivation{}, "litellm", func(a *appliancev1alpha1.ModuleActivation) { a.Spec.Enabled = ptr.To(false) })
			} else {
				require.NoError(t, w.client.Delete(t.Context(), litellm))
			}
			w.module("litellm", "Removing", "Removing")
			going := w.kustomization("app-litellm", func(k *kustomizev1.Kustomization) string {
				if k.DeletionTimestamp == nil {
					return "not being deleted"
				}
				return ""
			})
			require.False(t, going.Spec.Suspend, "Flux prunes only what is not suspended")
			require.Equal(t, "5Gi", going.Spec.PostBuild.Substitute["AI_APPLIANCE_LITELLM_POSTGRES_STORAGE"])
			require.True(t, w.get(&appliancev1alpha1.ModuleActivation{}, "litellm"), "the activation stays until Flux is done")

			change(w, &kustomizev1.Kustomization{}, "app-litellm", func(k *kustomizev1.Kustomization) { k.Finalizers = nil })
			w.gone(&kustomizev1.Kustomization{}, "app-litellm")
			if by == "delete" {
				w.gone(&appliancev1alpha1.ModuleActivation{}, "litellm")
				return
			}
			require.Nil(t, w.module("litellm", "Disabled", "Disabled").Status.Kustomization)

			change(w, &appliancev1alpha1.ModuleActivation{}, "litellm", func(a *appliancev1alpha1.ModuleActivation) { a.Spec.Enabled = ptr.To(true) })
			again := w.kustomization("app-litellm", nil)
			require.Equal(t, "5Gi", again.Spec.PostBuild.Substitute["AI_APPLIANCE_LITELLM_POSTGRES_STORAGE"], "parameters survive off and on")
		})
	}
}

// S099, and the seed: runtime intent wins over spec.modules for ever.
func TestDisabledDefaultStaysDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	off := activation("litellm")
	off.Spec.Enabled = ptr.To(false)
	w.create(off)
	w.create(defaultAppliance("basis", "dashboard", "litellm", "model-catalog"))
	w.start()
	w.module("litellm", "Disabled", "Disabled")
	waiting := w.module("model-catalog", "WaitingForModules", "WaitingForModules")
	require.Contains(t, *waiting.Status.Message, "litellm (disabled)")
	w.stop()
	w.start()
	w.appliance("Reconciling", "WaitingForModules")
	change(w, &appliancev1alpha1.Appliance{}, "local", func(a *appliancev1alpha1.Appliance) { a.Spec.Profile = "full" })
	w.eventually(func() string {
		appliance := &appliancev1alpha1.Appliance{}
		w.get(appliance, "local")
		if *appliance.Status.ObservedGeneration != appliance.Generation {
			return "generation not seen"
		}
		return ""
	})
	still := w.module("litellm", "Disabled", "Disabled")
	require.Equal(t, int64(1), still.Generation, "nobody touched its spec")
	require.NotContains(t, still.Annotations, "appliance.magicstick.dev/auto-enabled")
}

func TestDeletedDefaultIsSeededAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.create(defaultAppliance("litellm"))
	w.start()
	first := w.module("litellm", "WaitingForModules", "WaitingForModules")
	require.NoError(t, w.client.Delete(t.Context(), first))
	w.eventually(func() string {
		second := &appliancev1alpha1.ModuleActivation{}
		if !w.get(second, "litellm") || second.UID == first.UID {
			return "not seeded again"
		}
		return ""
	})
}

func TestRequiredModulesAreSwitchedOnDownTheChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.create(activation("anything-llm"))
	w.start()
	for _, name := range []string{"litellm", "model-catalog"} {
		required := w.module(name, "WaitingForModules", "WaitingForModules")
		require.Equal(t, "true", required.Annotations["appliance.magicstick.dev/auto-enabled"])
		require.Equal(t, name, required.Labels["appliance.magicstick.dev/module"])
		require.Equal(t, &appliancev1alpha1.ModuleActivationSpecApplianceRef{Name: "local", Namespace: w.options.Appliance.Namespace}, required.Spec.ApplianceRef)
	}
	for _, name := range []string{"basis", "dashboard", "gpu", "kubeai", "nfd"} {
		require.False(t, w.get(&appliancev1alpha1.ModuleActivation{}, name), name)
	}
	// H39: what was switched on stays on when its last user is gone.
	require.NoError(t, w.client.Delete(t.Context(), w.module("anything-llm", "WaitingForModules", "WaitingForModules")))
	w.gone(&appliancev1alpha1.ModuleActivation{}, "anything-llm")
	w.module("litellm", "WaitingForModules", "WaitingForModules")
	w.module("model-catalog", "WaitingForModules", "WaitingForModules")
}

// S005: kubeai alone pulls in nothing else.
func TestKubeAIDoesNotPullInTheGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.create(activation("kubeai"))
	w.start()
	w.kustomization("platform-kubeai", running)
	w.flux("platform-kubeai", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.module("kubeai", "Ready", "KustomizationReady")
	list := &appliancev1alpha1.ModuleActivationList{}
	require.NoError(t, w.client.List(t.Context(), list, client.InNamespace(w.options.Appliance.Namespace)))
	require.Len(t, list.Items, 1)
}

func TestSourceChangeReachesEveryKustomization(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.create(defaultAppliance("litellm", "model-catalog"))
	w.start()
	w.kustomization("app-litellm", nil)
	change(w, &appliancev1alpha1.Appliance{}, "local", func(a *appliancev1alpha1.Appliance) {
		a.Spec.Source.Name, a.Spec.Source.Namespace = "magicstick-public", "sources"
	})
	for _, name := range []string{"app-litellm", "app-model-catalog"} {
		w.kustomization(name, func(k *kustomizev1.Kustomization) string {
			if k.Spec.SourceRef.Name != "magicstick-public" || k.Spec.SourceRef.Namespace != "sources" {
				return "old source " + show(k.Spec.SourceRef)
			}
			return ""
		})
	}
}

func TestDriftIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.create(activation("litellm"))
	w.start()
	w.kustomization("app-litellm", running)
	change(w, &kustomizev1.Kustomization{}, "app-litellm", func(k *kustomizev1.Kustomization) {
		k.Spec.Path, k.Spec.Suspend, k.Labels = "./elsewhere", true, nil
	})
	w.kustomization("app-litellm", func(k *kustomizev1.Kustomization) string {
		if k.Spec.Path != "./magic-cluster/apps/ai/litellm/base" || k.Spec.Suspend || k.Labels["appliance.magicstick.dev/module"] != "litellm" {
			return "drifted: " + show(k.Spec) + show(k.Labels)
		}
		return ""
	})
	require.NoError(t, w.client.Delete(t.Context(), w.kustomization("app-litellm", nil)))
	w.kustomization("app-litellm", running)
}

func TestDuplicateStaticAndUnknownModules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.create(activation("litellm"))
	w.start()
	w.kustomization("app-litellm", running)
	time.Sleep(1100 * time.Millisecond) // creation times have seconds
	second := activation("litellm")
	second.Name = "second"
	w.create(second)
	w.create(activation("basis"))
	w.create(activation("nonsense"))

	require.Contains(t, *w.module("second", "Degraded", "DuplicateModule").Status.Message, "litellm is older")
	w.module("basis", "Degraded", "StaticModule")
	w.module("nonsense", "Degraded", "UnknownModule")
	require.False(t, w.get(&kustomizev1.Kustomization{}, "platform-basis"), "H16")

	uid := w.kustomization("app-litellm", running).UID
	require.NoError(t, w.client.Delete(t.Context(), &appliancev1alpha1.ModuleActivation{ObjectMeta: metav1.ObjectMeta{Name: "litellm", Namespace: w.options.Appliance.Namespace}}))
	w.gone(&appliancev1alpha1.ModuleActivation{}, "litellm")
	w.module("second", "Reconciling", "WaitingForKustomization")
	taken := w.kustomization("app-litellm", running)
	require.Equal(t, uid, taken.UID, "the younger one takes the running module over")
	require.Nil(t, taken.DeletionTimestamp)

	for _, name := range []string{"nonsense", "basis", "second"} {
		require.NoError(t, w.client.Delete(t.Context(), &appliancev1alpha1.ModuleActivation{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.options.Appliance.Namespace}}))
		w.gone(&appliancev1alpha1.ModuleActivation{}, name)
	}
	w.gone(&kustomizev1.Kustomization{}, "app-litellm")
	require.True(t, w.get(&kustomizev1.Kustomization{}, "infrastructure-basis"))
}

func running(k *kustomizev1.Kustomization) string {
	if k.Spec.Suspend || k.DeletionTimestamp != nil {
		return "not running: " + show(k.Spec)
	}
	return ""
}
