package activations

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/kube/kubetest"
)

// planCase is testdata/plan/<case>/in.yaml: a world and the activation that a
// pass looks at.
type planCase struct {
	// Rule is the sentence that the case stands for.
	Rule string `json:"rule"`
	// Activation that the pass looks at.
	Activation *appliancev1alpha1.ModelActivation `json:"activation"`
	// Modules that are not Ready: none is absent, else phase or phase/reason.
	Modules map[string]string `json:"modules,omitempty"`
	// NameTaken are modules whose activation's name belongs to another module.
	NameTaken []string `json:"nameTaken,omitempty"`
	// KubeAI, when given, is absent; Filling says that its cache is not complete.
	KubeAI string `json:"kubeAI,omitempty"`
	// TakesOCI says that it accepts oci:// addresses.
	TakesOCI bool `json:"takesOCI,omitempty"`
	// Nodes by name with what they offer.
	Nodes map[string]map[string]string `json:"nodes,omitempty"`
	// Prepared is the model of modelRef.
	Prepared *PreparedModel `json:"prepared,omitempty"`
	// Runtime that exists.
	Runtime *existing `json:"runtime,omitempty"`
	// Pods of the runtime; their owner is filled in.
	Pods []*corev1.Pod `json:"pods,omitempty"`
	// Listed says that the generated catalog lists the model.
	Listed bool `json:"listed,omitempty"`
	// LeftOut says why the generated catalog does not list the model.
	LeftOut string `json:"leftOut,omitempty"`
	// IndexProblem says why the generated catalog cannot be read.
	IndexProblem string `json:"indexProblem,omitempty"`
	// CatalogProblem says which catalog cannot be read; Forgotten that there was
	// never a good one.
	CatalogProblem string `json:"catalogProblem,omitempty"`
	Forgotten      bool   `json:"forgotten,omitempty"`
	// Presets replace the shipped ones.
	Presets json.RawMessage `json:"presets,omitempty"`
	// Memory is what the replicas report.
	Memory *appliancev1alpha1.ModelActivationStatusMemoryUsage `json:"memory,omitempty"`
	// After is how long after 2026-01-02T03:04:05Z the pass is, such as 90s.
	After string `json:"after,omitempty"`
}

// existing is a runtime in the cluster, as the operator rendered it.
type existing struct {
	// Local is the spec.local that it was rendered from; the activation's when absent.
	Local *appliancev1alpha1.ModelActivationSpecLocal `json:"local,omitempty"`
	// Foreign, when given, are the labels of somebody else's objects.
	Foreign map[string]string `json:"foreign,omitempty"`
	// Edited is an edit by a foreign hand: the KubeAI Model's URL.
	Edited string `json:"edited,omitempty"`
	// Deleting objects wait for a finalizer.
	Deleting bool `json:"deleting,omitempty"`
	// Without names objects that are gone: Service or Deployment.
	Without string `json:"without,omitempty"`
	// All and Ready replicas as KubeAI or Kubernetes count them.
	All   int32 `json:"all,omitempty"`
	Ready int32 `json:"ready,omitempty"`
	// Failure is why no Pod can be made for the Deployment.
	Failure string `json:"failure,omitempty"`
	// Outdated says that the Deployment's controller has not seen its generation.
	Outdated bool `json:"outdated,omitempty"`
}

// planOutcome is testdata/plan/<case>/out.yaml.
type planOutcome struct {
	AddFinalizer  bool                                    `json:"addFinalizer,omitempty"`
	DropFinalizer bool                                    `json:"dropFinalizer,omitempty"`
	Enable        []string                                `json:"enable,omitempty"`
	Remove        []string                                `json:"remove,omitempty"`
	Apply         []string                                `json:"apply,omitempty"`
	Replace       string                                  `json:"replace,omitempty"`
	Next          string                                  `json:"next,omitempty"`
	Status        appliancev1alpha1.ModelActivationStatus `json:"status"`
}

// caseWorld answers from a planCase.
type caseWorld struct {
	planCase   planCase
	model      *kubeaiv1.Model
	deployment *appsv1.Deployment
	service    *corev1.Service
	asked      map[string]bool
}

func (w caseWorld) Activations(_ context.Context, names ...string) ([]*appliancev1alpha1.ModuleActivation, error) {
	state, given := w.planCase.Modules[names[0]]
	if !given {
		state = "Ready"
	}
	if state == "none" {
		return nil, nil
	}
	phase, reason := state, "KustomizationReady"
	for i := range state {
		if state[i] == '/' {
			phase, reason = state[:i], state[i+1:]
		}
	}
	module := &appliancev1alpha1.ModuleActivation{ObjectMeta: metav1.ObjectMeta{Name: names[0], Generation: 1}}
	module.Spec.Module = names[0]
	module.Status.Phase = appliancev1alpha1.ModuleActivationStatusPhase(phase)
	module.Status.ObservedGeneration = ptr.To[int64](1)
	module.Status.Message = ptr.To("the module says " + reason)
	module.Status.Conditions = []metav1.Condition{{Type: "Ready", Reason: reason}}
	switch phase {
	case "off":
		module.Spec.Enabled = ptr.To(false)
	case "new":
		module.Status.ObservedGeneration = nil
	case "going":
		module.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
	}
	return []*appliancev1alpha1.ModuleActivation{module}, nil
}

func (w caseWorld) Activation(_ context.Context, name string) (*appliancev1alpha1.ModuleActivation, error) {
	for _, taken := range w.planCase.NameTaken {
		if taken == name {
			namesake := &appliancev1alpha1.ModuleActivation{ObjectMeta: metav1.ObjectMeta{Name: name}}
			namesake.Spec.Module = "something-else"
			return namesake, nil
		}
	}
	return nil, nil
}

func (w caseWorld) Nodes(context.Context) ([]corev1.Node, error) {
	w.asked["nodes"] = true
	var nodes []corev1.Node
	for name, offers := range w.planCase.Nodes {
		list := corev1.ResourceList{}
		for resourceName, amount := range offers {
			list[corev1.ResourceName(resourceName)] = resource.MustParse(amount)
		}
		nodes = append(nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
				Allocatable: list, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		})
	}
	return nodes, nil
}

func (w caseWorld) Prepared(context.Context, *appliancev1alpha1.ModelActivation, string) (*PreparedModel, error) {
	return w.planCase.Prepared, nil
}

func (w caseWorld) Model(context.Context, types.NamespacedName) (*kubeaiv1.Model, error) {
	return w.model, nil
}

func (w caseWorld) Deployment(context.Context, types.NamespacedName) (*appsv1.Deployment, error) {
	return w.deployment, nil
}

func (w caseWorld) Service(context.Context, types.NamespacedName) (*corev1.Service, error) {
	return w.service, nil
}

func (w caseWorld) Pods(context.Context, types.NamespacedName, string) ([]*corev1.Pod, error) {
	return w.planCase.Pods, nil
}

func (w caseWorld) Listing(context.Context, string, string) (Listing, error) {
	w.asked["catalog"] = true
	return Listing{Listed: w.planCase.Listed, Why: w.planCase.LeftOut, Problem: w.planCase.IndexProblem}, nil
}

func (w caseWorld) Memory(types.NamespacedName) MemoryReport {
	return MemoryReport{Usage: w.planCase.Memory, Known: w.planCase.Memory != nil}
}

// The state machine of contract/appliance.md C.6, one folder per rule.
func TestPlan(t *testing.T) {
	cases, err := filepath.Glob("testdata/plan/*/in.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, file := range cases {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			world, observed := loadPlan(t, file)
			plan, err := Compute(observed)
			require.NoError(t, err)
			kubetest.Golden(t, filepath.Join(dir, "out.yaml"), outcomeOf(plan), *update)
			inTable(t, plan)
			again, err := Compute(observed)
			require.NoError(t, err)
			require.Equal(t, outcomeOf(plan), outcomeOf(again), "the same facts give the same plan")
			if world.planCase.Activation.Spec.Type == "external" {
				require.False(t, world.asked["nodes"], "external models never read nodes")
			} else if runtimeState(observed).ready == 0 {
				require.False(t, world.asked["catalog"], "U026: not consulted while no replica is ready")
			}
			require.LessOrEqual(t, len(plan.Status.Conditions), 1)
			atMostOneRuntime(t, observed, plan)
		})
	}
}

// Whatever the facts: nothing is made while anything of another runtime is there (D6).
func atMostOneRuntime(t *testing.T, observed Observed, plan Plan) {
	t.Helper()
	foreign := observed.Model != nil && !ours(observed.Model, observed.Activation.Name)
	kubeAIPods := group(observed.Pods, func(pod *corev1.Pod) bool { return !foreign && kubeAIOwner(pod) != nil }).all()
	directPods := group(observed.Pods, func(pod *corev1.Pod) bool { return kubeAIOwner(pod) == nil }).all()
	if plan.Model != nil {
		require.False(t, ours(observed.Deployment, observed.Activation.Name))
		require.Empty(t, directPods)
	}
	if plan.Deployment != nil || plan.Service != nil {
		require.False(t, ours(observed.Model, observed.Activation.Name))
		require.Empty(t, kubeAIPods)
	}
}

func outcomeOf(plan Plan) planOutcome {
	out := planOutcome{AddFinalizer: plan.AddFinalizer, DropFinalizer: plan.DropFinalizer, Enable: plan.Enable, Status: plan.Status}
	for _, object := range plan.Remove {
		out.Remove = append(out.Remove, title(object))
	}
	if plan.Model != nil {
		out.Apply = append(out.Apply, "KubeAI Model "+*plan.Model.GetNamespace()+"/"+*plan.Model.GetName())
	}
	if plan.Deployment != nil {
		out.Apply = append(out.Apply, "Deployment "+*plan.Deployment.Namespace+"/"+*plan.Deployment.Name)
	}
	if plan.Service != nil {
		out.Apply = append(out.Apply, "Service "+*plan.Service.Namespace+"/"+*plan.Service.Name)
	}
	if plan.Replace != nil {
		out.Replace = plan.Replace.Name
	}
	if plan.Next != 0 {
		out.Next = plan.Next.String()
	}
	return out
}

// inTable checks that phase and reason are a pair that spec/conditions declares.
func inTable(t *testing.T, plan Plan) {
	t.Helper()
	if plan.DropFinalizer {
		return
	}
	condition := kube.FindCondition(plan.Status.Conditions, conditions.ModelActivationConditionReady)
	require.NotNil(t, condition)
	for _, phase := range conditions.ModelActivation.Phases {
		if phase.Phase == string(plan.Status.Phase) {
			require.Contains(t, phase.Reasons, condition.Reason)
			return
		}
	}
	t.Fatalf("phase %q is not in the table", plan.Status.Phase)
}

var planTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func loadPlan(t *testing.T, file string) (caseWorld, Observed) {
	t.Helper()
	raw, err := os.ReadFile(file) // #nosec G304 -- a path of the test's own
	require.NoError(t, err)
	var in planCase
	require.NoError(t, yaml.UnmarshalStrict(raw, &in))
	require.NotEmpty(t, in.Rule)
	in.Activation.Namespace = "ai-system"
	if in.Activation.Generation == 0 {
		in.Activation.Generation = 1
	}
	modules, err := catalogs.ParseModules(shipped.ShippedModuleCatalogJSON())
	require.NoError(t, err)
	set := CatalogSet{Catalogs: shippedCatalogs(t), Modules: modules, Problem: in.CatalogProblem}
	world := caseWorld{planCase: in, asked: map[string]bool{}}
	world.exists(t, set)
	if in.Presets != nil {
		set.Presets, err = catalogs.ParsePresets(in.Presets)
		require.NoError(t, err)
	}
	if in.Forgotten {
		set = CatalogSet{Problem: in.CatalogProblem}
	}
	kubeAI := Kind{Presence: kube.Present, TakesOCI: in.TakesOCI}
	if in.KubeAI != "" {
		kubeAI = Kind{Presence: kube.Absent, Detail: in.KubeAI}
	}
	now := planTime
	if in.After != "" {
		after, err := time.ParseDuration(in.After)
		require.NoError(t, err)
		now = now.Add(after)
	}
	observed, err := Observe(t.Context(), in.Activation, set, nil, kubeAI, world, now)
	require.NoError(t, err)
	return world, observed
}

// exists renders the runtime that is in the cluster already.
func (w *caseWorld) exists(t *testing.T, set CatalogSet) {
	t.Helper()
	if w.planCase.Runtime == nil {
		w.owners()
		return
	}
	before := w.planCase.Activation.DeepCopy()
	if w.planCase.Runtime.Local != nil {
		before.Spec.Local = w.planCase.Runtime.Local
	}
	resolved, err := Resolve(Facts{
		Activation: before, Catalogs: set.Catalogs, Prepared: w.planCase.Prepared, KubeAITakesOCI: true,
		Published: map[string]int64{"nvidia.com/gpu": 2},
	})
	var refusal *Refusal
	if err != nil && (!errors.As(err, &refusal) || resolved == nil) {
		require.NoError(t, err)
	}
	objects := EngineOf(resolved).Render(resolved, Settings{})
	if objects.Model != nil {
		w.model = objects.Model
		w.model.UID, w.model.Generation, w.model.ResourceVersion = "0b1e7f7e-model", 1, "7"
		w.mark(t, w.model)
		w.model.Status.Replicas = &kubeaiv1.ModelStatusReplicas{All: w.planCase.Runtime.All, Ready: w.planCase.Runtime.Ready}
		if w.planCase.Runtime.Edited != "" {
			w.model.Spec.URL = w.planCase.Runtime.Edited
		}
	} else {
		w.deployment, w.service = &appsv1.Deployment{}, &corev1.Service{}
		convert(t, objects.Deployment, w.deployment)
		convert(t, objects.Service, w.service)
		for _, object := range []client.Object{w.deployment, w.service} {
			object.SetUID("0b1e7f7e-direct")
			object.SetGeneration(2)
			object.SetResourceVersion("7")
			w.mark(t, object)
		}
		w.deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: w.planCase.Runtime.All, UpdatedReplicas: w.planCase.Runtime.All, ReadyReplicas: w.planCase.Runtime.Ready}
		if w.planCase.Runtime.Outdated {
			w.deployment.Status.ObservedGeneration = 1
		}
		if w.planCase.Runtime.Failure != "" {
			w.deployment.Status.Conditions = []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: w.planCase.Runtime.Failure},
			}
		}
		switch w.planCase.Runtime.Without {
		case "Service":
			w.service = nil
		case "Deployment":
			w.deployment = nil
		}
	}
	w.owners()
}

// mark makes an object the operator's own, or somebody else's.
func (w *caseWorld) mark(t *testing.T, object client.Object) {
	t.Helper()
	if w.planCase.Runtime.Foreign != nil {
		object.SetLabels(w.planCase.Runtime.Foreign)
	} else {
		kubetest.Own(t, object)
	}
	if w.planCase.Runtime.Deleting {
		object.SetDeletionTimestamp(ptr.To(metav1.NewTime(planTime)))
	}
}

// owners fills in whose the Pods are: those with a label component are direct ones.
func (w *caseWorld) owners() {
	for _, pod := range w.planCase.Pods {
		pod.Namespace = "ai"
		if pod.Labels[labelComponent] != "" || pod.OwnerReferences != nil {
			continue
		}
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "kubeai.org/v1", Kind: "Model", Name: w.planCase.Activation.Name, UID: "0b1e7f7e-model", Controller: ptr.To(true),
		}}
	}
}

// convert reads an apply configuration as the object that it becomes.
func convert(t *testing.T, from, into any) {
	t.Helper()
	raw, err := json.Marshal(from)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, into))
}
