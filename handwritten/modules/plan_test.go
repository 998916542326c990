package modules

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"path/filepath"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/stretchr/testify/require"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	parsed "magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/kube/kubetest"
)

var update = flag.Bool("update", false, "write testdata/*/out.yaml anew")

// situation is testdata/<case>/in.yaml: a world and the activation that a pass looks at.
type situation struct {
	// Rule is the sentence that the case stands for.
	Rule string `json:"rule"`
	// Look is the name of the activation.
	Look string `json:"look"`
	// Flux, when given, is absent: the sentence names what is missing.
	Flux string `json:"flux,omitempty"`
	// CatalogError, when given, takes the catalog away.
	CatalogError string `json:"catalogError,omitempty"`
	// Catalog replaces the shipped one.
	Catalog json.RawMessage `json:"catalog,omitempty"`
	Source  *kube.Source    `json:"source,omitempty"`

	Activations []*appliancev1alpha1.ModuleActivation `json:"activations"`
	// Kustomizations that the operator applied: it owns every field that is shown.
	Kustomizations []*kustomizev1.Kustomization `json:"kustomizations,omitempty"`
	// Foreign Kustomizations belong to somebody else.
	Foreign []*kustomizev1.Kustomization `json:"foreign,omitempty"`
}

// outcome is testdata/<case>/out.yaml.
type outcome struct {
	AddFinalizer  bool                                     `json:"addFinalizer,omitempty"`
	DropFinalizer bool                                     `json:"dropFinalizer,omitempty"`
	Enable        []string                                 `json:"enable,omitempty"`
	Apply         any                                      `json:"apply,omitempty"`
	Suspend       []string                                 `json:"suspend,omitempty"`
	Remove        []string                                 `json:"remove,omitempty"`
	Retire        []string                                 `json:"retire,omitempty"`
	Status        appliancev1alpha1.ModuleActivationStatus `json:"status"`
}

func (s situation) askedBy(names ...string) (found []*appliancev1alpha1.ModuleActivation) {
	for _, candidate := range s.Activations {
		for _, name := range names {
			if candidate.Spec.Module == name {
				found = append(found, candidate)
			}
		}
	}
	return found
}

// fileWorld answers from a situation.
type fileWorld struct{ situation }

func (w fileWorld) Activations(_ context.Context, names ...string) ([]*appliancev1alpha1.ModuleActivation, error) {
	return w.askedBy(names...), nil
}

func (w fileWorld) Activation(_ context.Context, name string) (*appliancev1alpha1.ModuleActivation, error) {
	for _, candidate := range w.situation.Activations {
		if candidate.Name == name {
			return candidate, nil
		}
	}
	return nil, nil
}

func (w fileWorld) Kustomization(_ context.Context, name string) (*kustomizev1.Kustomization, error) {
	for _, candidate := range w.situation.Kustomizations {
		if candidate.Name == name {
			return candidate, nil
		}
	}
	return nil, nil
}

func (w fileWorld) Kustomizations(_ context.Context, module string) (found []*kustomizev1.Kustomization, err error) {
	for _, candidate := range w.situation.Kustomizations {
		if candidate.Labels[kube.LabelManagedBy] == kube.ManagedByOperator && candidate.Labels[kube.LabelModule] == module {
			found = append(found, candidate)
		}
	}
	return found, nil
}

// The state machine of contract/appliance.md C.2, one folder per rule. Its test
// cases S005, S099 and S100 run on an API server in handwritten/operator; S100
// is also TestPlan/disabled-removes, S099 TestPlan/disabled-dependency-is-never-revived.
func TestPlan(t *testing.T) {
	kubetest.Cases(t, func(t *testing.T, dir string) {
		facts := load(t, dir)
		plan, err := Compute(facts)
		require.NoError(t, err)
		result := outcome{AddFinalizer: plan.AddFinalizer, DropFinalizer: plan.DropFinalizer, Enable: plan.Enable, Status: plan.Status}
		if plan.Apply != nil {
			result.Apply = plan.Apply
		}
		result.Suspend, result.Remove, result.Retire = namesOf(plan.Suspend), namesOf(plan.Remove), namesOf(plan.Retire)
		kubetest.Golden(t, filepath.Join(dir, "out.yaml"), result, *update)
		inTable(t, plan, facts)

		again, err := Compute(facts)
		require.NoError(t, err)
		require.Equal(t, plan, again, "the same facts give the same plan")
	})
}

func namesOf(kustomizations []*kustomizev1.Kustomization) (found []string) {
	for _, kustomization := range kustomizations {
		found = append(found, kustomization.Name)
	}
	return found
}

// inTable checks that phase and reason are a pair that spec/conditions declares.
func inTable(t *testing.T, plan Plan, facts Facts) {
	t.Helper()
	if plan.DropFinalizer {
		return
	}
	condition := kube.FindCondition(plan.Status.Conditions, conditions.ModuleActivationConditionReady)
	require.NotNil(t, condition)
	for _, kustomization := range []*kustomizev1.Kustomization{facts.Kustomization} {
		if kustomization != nil && plan.Status.Phase == appliancev1alpha1.ModuleActivationStatusPhaseDegraded {
			if state := readiness(kustomization); state.Reason == condition.Reason {
				return // passed through from Flux
			}
		}
	}
	for _, phase := range conditions.ModuleActivation.Phases {
		if phase.Phase == string(plan.Status.Phase) {
			require.Contains(t, phase.Reasons, condition.Reason)
			return
		}
	}
	t.Fatalf("phase %q is not in the table", plan.Status.Phase)
}

func load(t *testing.T, dir string) Facts {
	t.Helper()
	var in situation
	kubetest.Read(t, dir, &in)
	require.NotEmpty(t, in.Rule)
	if in.Catalog == nil {
		in.Catalog = catalogs.ShippedModuleCatalogJSON()
	}
	catalog, err := parsed.ParseModules(in.Catalog)
	require.NoError(t, err)
	for _, kustomization := range in.Kustomizations {
		kustomization.Namespace = "flux-system"
		kubetest.Own(t, kustomization, "suspend", "wait")
	}
	in.Kustomizations = append(in.Kustomizations, in.Foreign...)
	flux := Flux{Presence: kube.Present}
	if in.Flux != "" {
		flux = Flux{Presence: kube.Absent, Detail: in.Flux}
	}
	var looked *appliancev1alpha1.ModuleActivation
	for _, candidate := range in.Activations {
		candidate.Namespace = "ai-system"
		if candidate.Name == in.Look {
			looked = candidate
		}
	}
	require.NotNil(t, looked, "look names no activation")
	var catalogErr error
	if in.CatalogError != "" {
		catalogErr = errors.New(in.CatalogError)
	}
	facts, err := Observe(t.Context(), looked, catalog, catalogErr, fileWorld{in}, flux)
	require.NoError(t, err)
	if in.Source != nil {
		facts.Source = *in.Source
	}
	facts.Settings = Settings{FluxNamespace: "flux-system", SettingsConfigMap: "ai-appliance-settings"}
	facts.Now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return facts
}
