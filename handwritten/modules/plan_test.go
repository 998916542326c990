package modules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	parsed "magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
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
	Source  *Source         `json:"source,omitempty"`

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
	cases, err := filepath.Glob("testdata/*/in.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, file := range cases {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			facts := load(t, file)
			plan, err := Compute(facts)
			require.NoError(t, err)
			result := outcome{AddFinalizer: plan.AddFinalizer, DropFinalizer: plan.DropFinalizer, Enable: plan.Enable, Status: plan.Status}
			if plan.Apply != nil {
				result.Apply = plan.Apply
			}
			result.Suspend, result.Remove, result.Retire = namesOf(plan.Suspend), namesOf(plan.Remove), namesOf(plan.Retire)
			have, err := yaml.Marshal(result)
			require.NoError(t, err)
			golden := filepath.Join(dir, "out.yaml")
			if *update {
				require.NoError(t, os.WriteFile(golden, have, 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), string(have))
			inTable(t, plan, facts)

			again, err := Compute(facts)
			require.NoError(t, err)
			require.Equal(t, plan, again, "the same facts give the same plan")
		})
	}
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

func load(t *testing.T, file string) Facts {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var in situation
	require.NoError(t, yaml.UnmarshalStrict(raw, &in))
	require.NotEmpty(t, in.Rule)
	if in.Catalog == nil {
		in.Catalog = catalogs.ShippedModuleCatalogJSON()
	}
	catalog, err := parsed.ParseModules(in.Catalog)
	require.NoError(t, err)
	for _, kustomization := range in.Kustomizations {
		kustomization.Namespace = "flux-system"
		kustomization.ManagedFields = []metav1.ManagedFieldsEntry{ownership(t, kustomization)}
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

// ownership is the managed fields entry of an object whose labels and spec the
// operator applied as they stand. Unlike a typed object, what was applied says
// false where the operator renders false.
func ownership(t *testing.T, kustomization *kustomizev1.Kustomization) metav1.ManagedFieldsEntry {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kustomization)
	require.NoError(t, err)
	spec, ok := fields["spec"].(map[string]any)
	require.True(t, ok)
	for _, name := range []string{"suspend", "wait"} {
		if _, found := spec[name]; !found {
			spec[name] = false
		}
	}
	applied := map[string]any{"spec": spec}
	if metadata, found := fields["metadata"].(map[string]any); found && metadata["labels"] != nil {
		applied["metadata"] = map[string]any{"labels": metadata["labels"]}
	}
	raw, err := fieldpath.SetFromValue(value.NewValueInterface(applied)).ToJSON()
	require.NoError(t, err)
	return metav1.ManagedFieldsEntry{
		Manager: kube.FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(string(bytes.TrimSpace(raw))),
	}
}
