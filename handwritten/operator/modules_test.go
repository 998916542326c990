package operator_test

import (
	"testing"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
