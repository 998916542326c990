package instances

import (
	"cmp"
	"encoding/json"
	"flag"
	"path/filepath"
	"testing"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/kube/kubetest"
)

var update = flag.Bool("update", false, "write testdata/*/out.yaml anew")

// situation is testdata/<case>/in.yaml: an instance in its world, and what
// happens when everything has come to rest.
type situation struct {
	// Rule is the sentence that the case stands for.
	Rule string `json:"rule"`

	circumstances

	Instance *appliancev1alpha1.AppInstance   `json:"instance"`
	Others   []*appliancev1alpha1.AppInstance `json:"others,omitempty"`
	// Then are changes, each made when the world is at rest; the passes after
	// the last one are the outcome.
	Then []happening `json:"then,omitempty"`
}

// circumstances is what an instance meets. Empty means: as it should be.
type circumstances struct {
	// Catalog replaces the shipped application catalog.
	Catalog      json.RawMessage `json:"catalog,omitempty"`
	CatalogError string          `json:"catalogError,omitempty"`
	// Modules are phases other than Ready; absent for no activation.
	Modules map[string]string `json:"modules,omitempty"`
	// Missing CRDs of the application.
	Missing []string `json:"missing,omitempty"`
	// Absent kinds: release, route, policy, grant.
	Absent    []string          `json:"absent,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Settings  map[string]string `json:"settings,omitempty"`
	Source    *kube.Source      `json:"source,omitempty"`
	Gateway   gatewayAnswer     `json:"gateway,omitempty"`
	// Flux is the Ready condition of the release; True when not given.
	Flux *metav1.Condition `json:"flux,omitempty"`
}

type happening struct {
	circumstances
	// Patch is a JSON merge patch of the instance.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Delete deletes the instance.
	Delete bool `json:"delete,omitempty"`
	// DeletePolicy is deleted by hand, and held by its finalizer.
	DeletePolicy string `json:"deletePolicy,omitempty"`
	// LosePolicy vanishes without a trace.
	LosePolicy string `json:"losePolicy,omitempty"`
	// ExtendPolicy lets somebody add a field.
	ExtendPolicy string `json:"extendPolicy,omitempty"`
	// RecreatePolicy is deleted and made anew by somebody, with the same content,
	// and accepted by the gateway.
	RecreatePolicy string `json:"recreatePolicy,omitempty"`
	// RefuseRoute lets the gateway refuse a route, by the condition that
	// RefuseWith names, or ResolvedRefs; with True it takes that back.
	RefuseRoute  string                 `json:"refuseRoute,omitempty"`
	RefuseWith   string                 `json:"refuseWith,omitempty"`
	RefuseStatus metav1.ConditionStatus `json:"refuseStatus,omitempty"`
	// OthersGone removes the other instances.
	OthersGone bool `json:"othersGone,omitempty"`
}

// outcome is testdata/<case>/out.yaml: the passes that did something.
type outcome struct {
	Enable         []string                            `json:"enable,omitempty"`
	Access         []shown                             `json:"access,omitempty"`
	Release        any                                 `json:"release,omitempty"`
	SuspendRelease bool                                `json:"suspendRelease,omitempty"`
	RemoveRelease  bool                                `json:"removeRelease,omitempty"`
	DropFinalizer  bool                                `json:"dropFinalizer,omitempty"`
	Status         appliancev1alpha1.AppInstanceStatus `json:"status"`
}

type shown struct {
	Do     Verb   `json:"do"`
	Name   string `json:"name"`
	Object any    `json:"object,omitempty"`
}

func show(plan Plan) outcome {
	result := outcome{
		Enable: plan.Enable, SuspendRelease: plan.SuspendRelease, RemoveRelease: plan.RemoveRelease,
		DropFinalizer: plan.DropFinalizer, Status: plan.Status,
	}
	if plan.Release != nil {
		result.Release = plan.Release
	}
	for _, step := range plan.Access {
		entry := shown{Do: step.Do, Name: step.Name}
		switch {
		case step.Route != nil:
			entry.Object = step.Route
		case step.Grant != nil:
			entry.Object = step.Grant
		case step.Do == ApplyPolicy:
			entry.Object = step.Policy
		}
		result.Access = append(result.Access, entry)
	}
	return result
}

func TestPlan(t *testing.T) {
	kubetest.Cases(t, func(t *testing.T, dir string) {
		in := read(t, dir)
		s := simulate(t, in)
		plans := s.settle()
		for i, change := range in.Then {
			s.happen(t, change)
			if i < len(in.Then)-1 {
				s.settle()
				continue
			}
			plans = s.settle()
		}
		var result []outcome
		for _, plan := range plans {
			inTable(t, plan, s.flux.Reason)
			result = append(result, show(plan))
		}
		kubetest.Golden(t, filepath.Join(dir, "out.yaml"), result, *update)
	})
}

// inTable checks that phase and reason are a pair that spec/conditions declares.
func inTable(t *testing.T, plan Plan, flux string) {
	t.Helper()
	if plan.DropFinalizer {
		return
	}
	condition := kube.FindCondition(plan.Status.Conditions, conditions.AppInstanceConditionReady)
	require.NotNil(t, condition)
	require.NotEmpty(t, condition.Message)
	if condition.Reason == flux {
		return // passed through
	}
	for _, phase := range conditions.AppInstance.Phases {
		if phase.Phase == string(plan.Status.Phase) {
			require.Contains(t, phase.Reasons, condition.Reason)
			return
		}
	}
	t.Fatalf("phase %q is not in the table", plan.Status.Phase)
}

func read(t *testing.T, dir string) situation {
	t.Helper()
	var in situation
	kubetest.Read(t, dir, &in)
	require.NotEmpty(t, in.Rule)
	return in
}

func simulate(t *testing.T, in situation) *simulation {
	t.Helper()
	applications, modules := shippedCatalogs(t)
	s := &simulation{
		t: t, instance: in.Instance, others: in.Others, applications: applications, modules: modules,
		phases: map[string]string{}, missing: map[string]string{}, kinds: present(), namespace: "present",
		gateway: accepts, source: kube.Source{Kind: "GitRepository", Name: "magicstick-public", Namespace: "flux-system"},
		flux:   metav1.Condition{Status: metav1.ConditionTrue, Reason: "InstallSucceeded", Message: "Helm install succeeded for release ai/demo.v1 with chart openclaw@0.1.0"},
		routes: map[string]*gatewayv1.HTTPRoute{}, policies: map[string]*envoyv1alpha1.SecurityPolicy{},
	}
	for i, instance := range append([]*appliancev1alpha1.AppInstance{in.Instance}, in.Others...) {
		instance.Namespace, instance.Generation = "ai-system", 1
		if instance.CreationTimestamp.IsZero() {
			instance.CreationTimestamp = metav1.NewTime(clock.AddDate(0, 0, -i))
		}
	}
	s.meet(t, in.circumstances)
	return s
}

// meet applies circumstances.
func (s *simulation) meet(t *testing.T, c circumstances) {
	t.Helper()
	if c.Catalog != nil {
		applications, err := catalogs.ParseApplications(c.Catalog)
		require.NoError(t, err)
		s.applications = applications
	}
	s.catalogError = c.CatalogError
	for key, phase := range c.Modules {
		s.phases[key] = phase
	}
	for _, crd := range c.Missing {
		s.missing[crd] = "CustomResourceDefinition " + crd + " is not installed"
	}
	s.kinds = present()
	for _, name := range c.Absent {
		kind := map[string]*Kind{"release": &s.kinds.Release, "route": &s.kinds.Route, "policy": &s.kinds.Policy, "grant": &s.kinds.Grant}[name]
		require.NotNil(t, kind, name)
		crd := map[string]string{"release": releaseKind.CRD, "route": routeKind.CRD, "policy": policyKind.CRD, "grant": grantKind.CRD}[name]
		*kind = Kind{Presence: kube.Absent, Detail: "CustomResourceDefinition " + crd + " is not installed"}
		switch name {
		case "policy":
			s.policies = map[string]*envoyv1alpha1.SecurityPolicy{}
		case "route":
			s.routes = map[string]*gatewayv1.HTTPRoute{}
		}
	}
	if c.Namespace != "" {
		s.namespace = c.Namespace
	}
	if c.Settings != nil {
		s.settings = c.Settings
	}
	if c.Source != nil {
		s.source = *c.Source
	}
	if c.Gateway != "" {
		s.gateway = c.Gateway
	}
	if c.Flux != nil {
		s.flux = *c.Flux
	}
}

// happen changes the world.
func (s *simulation) happen(t *testing.T, e happening) {
	t.Helper()
	s.meet(t, e.circumstances)
	if e.Patch != nil {
		before, err := json.Marshal(s.instance)
		require.NoError(t, err)
		after, err := jsonpatch.MergePatch(before, e.Patch)
		require.NoError(t, err)
		patched := &appliancev1alpha1.AppInstance{}
		require.NoError(t, json.Unmarshal(after, patched))
		patched.Generation = s.instance.Generation + 1
		s.instance = patched
	}
	if e.Delete {
		s.instance.DeletionTimestamp = ptr.To(metav1.NewTime(clock))
		s.instance.Generation++
	}
	if e.DeletePolicy != "" {
		s.policies[e.DeletePolicy].DeletionTimestamp = ptr.To(metav1.NewTime(clock))
	}
	if e.LosePolicy != "" {
		require.Contains(t, s.policies, e.LosePolicy)
		delete(s.policies, e.LosePolicy)
	}
	if e.ExtendPolicy != "" {
		policy := s.policies[e.ExtendPolicy]
		policy.Spec.OIDC.PassThroughAuthHeader = ptr.To(true)
		policy.Generation++
	}
	if e.RecreatePolicy != "" {
		policy := s.policies[e.RecreatePolicy]
		policy.UID, policy.Generation = "another-uid", 1
		accept(policy, metav1.ConditionTrue, "Accepted", "Policy has been accepted.")
	}
	if e.RefuseRoute != "" {
		route := s.routes[e.RefuseRoute]
		condition := metav1.Condition{
			Type: "ResolvedRefs", Status: metav1.ConditionFalse, Reason: "BackendNotFound",
			Message: "Service ai/openclaw-demo not found", ObservedGeneration: route.Generation,
		}
		if e.RefuseWith != "" {
			condition.Type, condition.Reason, condition.Message = e.RefuseWith, "NotAllowedByListeners", "No listener takes the route."
		}
		condition.Status = cmp.Or(e.RefuseStatus, condition.Status)
		route.Status.Parents = []gatewayv1.RouteParentStatus{{
			ParentRef: gatewayv1.ParentReference{Name: "identity-pilot"}, Conditions: []metav1.Condition{condition},
		}}
	}
	if e.OthersGone {
		s.others = nil
	}
	s.answer()
}
