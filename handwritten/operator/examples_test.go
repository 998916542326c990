package operator_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// examples are the documents of spec/examples/<kind>/valid, by file name. The
// refused ones never reach the operator; that the API server refuses them is
// the parity test's.
func examples[T any](t *testing.T, kind string) map[string][]*T {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "spec", "examples", kind, "valid", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	found := map[string][]*T{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, document := range bytes.Split(append([]byte("\n"), raw...), []byte("\n---")) {
			if !bytes.Contains(document, []byte("apiVersion:")) {
				continue
			}
			object := new(T)
			require.NoError(t, yaml.UnmarshalStrict(document, object), file)
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			found[name] = append(found[name], object)
		}
	}
	return found
}

// Whatever the schema lets through, the operator answers with a state that
// spec/conditions knows, and goes on.
func TestEveryAcceptedModuleActivationGetsAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	names := map[string]string{}
	for file, documents := range examples[appliancev1alpha1.ModuleActivation](t, "moduleactivation") {
		name := "x-" + file
		names[file] = name
		first := documents[0].DeepCopy()
		first.Name, first.ResourceVersion = name, ""
		status := first.Status
		w.create(first)
		for _, document := range documents {
			change(w, &appliancev1alpha1.ModuleActivation{}, name, func(a *appliancev1alpha1.ModuleActivation) {
				module := a.Spec.Module
				a.Spec = *document.Spec.DeepCopy()
				a.Spec.Module = module
			})
		}
		if status.Phase != "" {
			changeStatus(w, &appliancev1alpha1.ModuleActivation{}, name, func(a *appliancev1alpha1.ModuleActivation) { a.Status = status })
		}
	}
	for file, name := range names {
		w.eventually(func() string {
			activation := &appliancev1alpha1.ModuleActivation{}
			require.True(t, w.get(activation, name))
			condition := meta.FindStatusCondition(activation.Status.Conditions, conditions.ModuleActivationConditionReady)
			if condition == nil || condition.ObservedGeneration != activation.Generation || condition.Reason == conditions.ModuleActivationReasonReconciling {
				return file + ": no answer: " + show(activation.Status)
			}
			for _, phase := range conditions.ModuleActivation.Phases {
				if phase.Phase == string(activation.Status.Phase) {
					for _, reason := range phase.Reasons {
						if reason == condition.Reason {
							return ""
						}
					}
				}
			}
			return fmt.Sprintf("%s: %s/%s is not in the table", file, activation.Status.Phase, condition.Reason)
		})
	}
}

func TestEveryAcceptedApplianceGetsAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.create(defaultAppliance())
	w.start()
	for file, documents := range examples[appliancev1alpha1.Appliance](t, "appliance") {
		for _, document := range documents {
			change(w, &appliancev1alpha1.Appliance{}, "local", func(a *appliancev1alpha1.Appliance) { a.Spec = *document.Spec.DeepCopy() })
			if document.Status.Phase != "" {
				changeStatus(w, &appliancev1alpha1.Appliance{}, "local", func(a *appliancev1alpha1.Appliance) { a.Status = *document.Status.DeepCopy() })
			}
			w.eventually(func() string {
				appliance := &appliancev1alpha1.Appliance{}
				require.True(t, w.get(appliance, "local"))
				condition := meta.FindStatusCondition(appliance.Status.Conditions, conditions.ApplianceConditionReady)
				if condition == nil || condition.ObservedGeneration != appliance.Generation || *appliance.Status.ObservedGeneration != appliance.Generation {
					return file + ": no answer: " + show(appliance.Status.Conditions)
				}
				return ""
			})
		}
	}
}

// U016: the default Appliance of the seed is GPU-neutral, and of its four
// modules the two that are no part of the installation are seeded.
func TestSeedDefaultAppliance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	appliance := examples[appliancev1alpha1.Appliance](t, "appliance")["seed-default-appliance"][0]
	require.Equal(t, []string{"basis", "dashboard", "litellm", "model-catalog"}, slices.Sorted(maps.Keys(appliance.Spec.Modules)))
	w.create(appliance)
	w.start()
	w.module("litellm", "WaitingForModules", "WaitingForModules")
	w.module("model-catalog", "WaitingForModules", "WaitingForModules")
	list := &appliancev1alpha1.ModuleActivationList{}
	require.NoError(t, w.client.List(t.Context(), list, client.InNamespace(w.options.Appliance.Namespace)))
	require.Len(t, list.Items, 2)
	// The aggregate is written at most once a second: an earlier one may stand for a moment.
	want := "Waiting for module litellm to become ready: Waiting for basis (Kustomization " + w.options.FluxNamespace + "/infrastructure-basis does not exist)"
	w.eventually(func() string {
		state := w.appliance("Reconciling", "WaitingForModules")
		if message := meta.FindStatusCondition(state.Status.Conditions, "Ready").Message; message != want {
			return "the Appliance says " + message
		}
		return ""
	})
}

// An unknown module in the defaults is told on the Appliance; no object is made
// for it that could never work.
func TestUnknownDefaultModule(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.create(defaultAppliance("nonsense", "Not_A_Name"))
	w.start()
	state := w.appliance("Degraded", "Degraded")
	require.Equal(t, "Degraded", string(state.Status.Modules["nonsense"].Phase))
	require.Equal(t, "Degraded", string(state.Status.Modules["Not_A_Name"].Phase))
	require.False(t, w.get(&appliancev1alpha1.ModuleActivation{}, "nonsense"))
	change(w, &appliancev1alpha1.Appliance{}, "local", func(a *appliancev1alpha1.Appliance) { a.Spec.Modules = nil })
	w.appliance("Ready", "Ready")
}

// An instance that is not Ready keeps the Appliance from being Ready, and its
// row has the address under which it is reached.
func TestInstancesAreAggregated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.create(defaultAppliance())
	w.start()
	w.odysseus()
	w.gateway()
	w.appliance("Ready", "Ready")
	w.instance("odysseus-default", nil)
	state := w.appliance("Reconciling", "WaitingForInstances")
	require.Equal(t, "Reconciling", string(state.Status.Instances["odysseus"]["default"].Phase))
	require.Contains(t, meta.FindStatusCondition(state.Status.Conditions, "Ready").Message, "Waiting for odysseus/default to become ready")
	w.helm("odysseus-default", metav1.ConditionTrue, "InstallSucceeded", "ok")
	state = w.appliance("Ready", "Ready")
	require.Equal(t, "https://default.odysseus.magicstick.local/", *state.Status.Instances["odysseus"]["default"].URL)
}
