package instances

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// gatewayAnswer is what the gateway of a simulation says about policies.
type gatewayAnswer string

const (
	accepts gatewayAnswer = "accepts"
	rejects gatewayAnswer = "rejects"
	silent  gatewayAnswer = "silent"
)

// simulation is a world in memory in which plans are carried out step by step.
// It has no API server behind it; what it proves is the order of the steps.
type simulation struct {
	t require.TestingT

	instance *appliancev1alpha1.AppInstance
	others   []*appliancev1alpha1.AppInstance

	applications Applications
	modules      Modules
	catalogError string
	phases       map[string]string // of modules; Ready when not named, "absent" for no activation
	missing      map[string]string // CRDs
	kinds        KindFacts
	namespace    string // present, absent or terminating
	settings     map[string]string
	source       kube.Source
	gateway      gatewayAnswer
	flux         metav1.Condition

	release  *helmv2.HelmRelease
	routes   map[string]*gatewayv1.HTTPRoute
	policies map[string]*envoyv1alpha1.SecurityPolicy
	grant    *gatewayv1beta1.ReferenceGrant

	version int64
	gone    bool // the instance was let go
}

func present() KindFacts {
	here := Kind{Presence: kube.Present}
	return KindFacts{Release: here, Route: here, Policy: here, Grant: here}
}

func (s *simulation) Missing(_ context.Context, crd string) (string, error) {
	return s.missing[crd], nil
}

// Activations of a module: by default one that is Ready. Special words are
// absent, taken (its name, by another module), relooked (Flux is at work on it)
// and changed (Ready, but of an older generation).
func (s *simulation) Activations(_ context.Context, names ...string) ([]*appliancev1alpha1.ModuleActivation, error) {
	phase, named := s.phases[names[0]]
	if !named {
		phase = "Ready"
	}
	activation := &appliancev1alpha1.ModuleActivation{}
	activation.Name, activation.Generation = names[0], 1
	activation.Status.ObservedGeneration = ptr.To(int64(1))
	switch phase {
	case "absent", "taken":
		return nil, nil
	case "Disabled":
		activation.Spec.Enabled = ptr.To(false)
	case "changed":
		phase, activation.Generation = "Ready", 2
	case "relooked":
		phase = "Reconciling"
		activation.Status.Message = ptr.To("Waiting for Flux to reconcile Kustomization flux-system/app-" + names[0])
		activation.Status.Conditions = []metav1.Condition{{Type: readyType, Status: metav1.ConditionFalse, Reason: "WaitingForKustomization"}}
	}
	activation.Status.Phase = appliancev1alpha1.ModuleActivationStatusPhase(phase)
	return []*appliancev1alpha1.ModuleActivation{activation}, nil
}

func (s *simulation) Activation(_ context.Context, name string) (*appliancev1alpha1.ModuleActivation, error) {
	if s.phases[name] != "taken" {
		return nil, nil
	}
	activation := &appliancev1alpha1.ModuleActivation{}
	activation.Name, activation.Spec.Module = name, "gpu"
	return activation, nil
}

func (s *simulation) Namesakes(_ context.Context, application, short string) (found []*appliancev1alpha1.AppInstance, err error) {
	for _, candidate := range append(slices.Clone(s.others), s.instance) {
		if name, _ := kube.InstanceShortName(candidate); candidate.Spec.Application == application && name == short {
			found = append(found, candidate)
		}
	}
	return found, nil
}

func (s *simulation) Namespace(_ context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	switch s.namespace {
	case "absent":
		return nil, nil
	case "terminating":
		namespace.DeletionTimestamp = ptr.To(metav1.NewTime(clock))
	}
	return namespace, nil
}

func (s *simulation) Release(context.Context, string) (*helmv2.HelmRelease, error) {
	return s.release, nil
}

func (s *simulation) Route(_ context.Context, name string) (*gatewayv1.HTTPRoute, error) {
	return s.routes[name], nil
}

func (s *simulation) Policy(_ context.Context, name string) (*envoyv1alpha1.SecurityPolicy, error) {
	return s.policies[name], nil
}

func (s *simulation) Grant(context.Context, string, string) (*gatewayv1beta1.ReferenceGrant, error) {
	return s.grant, nil
}

var clock = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (s *simulation) facts() Facts {
	read := Catalogs{Applications: s.applications, Modules: s.modules}
	if s.catalogError != "" {
		read.Problem = errors.New(s.catalogError)
	}
	facts, err := Observe(context.Background(), s.instance, read, s.kinds, s)
	require.NoError(s.t, err)
	facts.Settings = Settings{
		IdentityNamespace: "identity-system", Gateway: "identity-pilot",
		OIDCClientID: "magicstick-human-gateway-local", OIDCClientSecret: "magicstick-human-gateway-client",
		Reserved: []string{"ai-system", "our-sign-in"},
	}
	facts.Domains = kube.DomainsFrom(s.settings, kube.DefaultDomains)
	facts.Source, facts.Now = s.source, clock
	return facts
}

// pass computes a plan and carries it out.
func (s *simulation) pass() Plan {
	facts := s.facts()
	plan, err := Compute(facts)
	require.NoError(s.t, err)
	again, err := Compute(facts)
	require.NoError(s.t, err)
	require.Equal(s.t, plan, again, "the same facts give the same plan")
	before := s.exposed() // by others: the gateway changed its mind, a policy vanished
	for _, step := range plan.Access {
		s.take(step)
		for name := range s.exposed() {
			require.True(s.t, before[name], "%s %s exposes HTTPRoute %s", step.Do, step.Name, name)
		}
	}
	require.Empty(s.t, s.exposed(), "one pass closes what others exposed")
	switch {
	case plan.Release != nil:
		s.version++
		current := s.release
		s.release = &helmv2.HelmRelease{}
		s.apply(plan.Release, s.release, orNil(current))
		if current != nil {
			s.release.Status = current.Status
		}
	case plan.SuspendRelease:
		s.release.Spec.Suspend = true
	case plan.RemoveRelease:
		s.release = nil
	}
	for _, key := range plan.Enable {
		s.phases[key] = "Ready"
	}
	s.instance.Status = *plan.Status.DeepCopy()
	s.gone = plan.DropFinalizer
	return plan
}

func orNil[T any, P interface {
	*T
	client.Object
}](object P) client.Object {
	if object == nil {
		return nil
	}
	return object
}

// apply decodes what was rendered as the API server would store it: the
// generation moves with the spec.
func (s *simulation) apply(rendered any, object, current client.Object) {
	raw, err := json.Marshal(rendered)
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(raw, object))
	s.version++
	object.SetResourceVersion(strconv.FormatInt(s.version, 10))
	object.SetUID(types.UID("uid-" + object.GetResourceVersion()))
	object.SetManagedFields([]metav1.ManagedFieldsEntry{ownership(s.t, raw)})
	object.SetGeneration(1)
	if current != nil {
		object.SetUID(current.GetUID())
		object.SetGeneration(current.GetGeneration())
		if !equality.Semantic.DeepEqual(spec(s.t, object), spec(s.t, current)) {
			object.SetGeneration(current.GetGeneration() + 1)
		}
	}
}

func spec(t require.TestingT, object any) any {
	raw, err := json.Marshal(object)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(raw, &fields))
	return fields["spec"]
}

func (s *simulation) take(step Step) {
	for _, name := range step.Routes {
		require.False(s.t, hasBackend(s.routes[name]), "%s %s while HTTPRoute %s has a backend", step.Do, step.Name, name)
	}
	switch step.Do {
	case ApplyGrant:
		s.grant = &gatewayv1beta1.ReferenceGrant{}
		s.apply(step.Grant, s.grant, nil)
	case RemoveGrant:
		s.grant = nil
	case CloseRoute, OpenRoute:
		route, current := &gatewayv1.HTTPRoute{}, s.routes[step.Name]
		s.apply(step.Route, route, orNil(current))
		if current != nil {
			route.Status = current.Status
		}
		require.Equal(s.t, step.Do == OpenRoute, hasBackend(route), "%s %s", step.Do, step.Name)
		s.routes[step.Name] = route
	case WithdrawBackend:
		s.routes[step.Name] = withoutBackends(s.routes[step.Name])
	case RemoveRoute:
		delete(s.routes, step.Name)
	case ApplyPolicy:
		policy, current := &envoyv1alpha1.SecurityPolicy{}, s.policies[step.Name]
		s.apply(step.Policy, policy, orNil(current))
		if current != nil {
			policy.Status = current.Status
		}
		s.policies[step.Name] = policy
	case ReleasePolicy:
		if policy := s.policies[step.Name]; policy != nil && policy.DeletionTimestamp != nil {
			delete(s.policies, step.Name)
		}
	case ReplacePolicy, RemovePolicy:
		delete(s.policies, step.Name)
	default:
		s.t.Errorf("unknown step %q", step.Do)
	}
}

// exposed are the routes with a backend but without a policy that the gateway
// has accepted as it is.
func (s *simulation) exposed() map[string]bool {
	found := map[string]bool{}
	for name, route := range s.routes {
		if !hasBackend(route) {
			continue
		}
		guarded := false
		for _, policy := range s.policies {
			for _, target := range policy.Spec.TargetRefs {
				problem, _ := refusal(policy, "identity-pilot", "identity-system")
				if string(target.Name) == name && problem == "" {
					guarded = true
				}
			}
		}
		if !guarded {
			found[name] = true
		}
	}
	return found
}

// answer lets the gateway and Flux look at everything.
func (s *simulation) answer() {
	for _, policy := range s.policies {
		switch s.gateway {
		case accepts:
			accept(policy, metav1.ConditionTrue, "Accepted", "Policy has been accepted.")
		case rejects:
			accept(policy, metav1.ConditionFalse, "Invalid", "Secret identity-system/magicstick-human-gateway-client does not exist.")
		}
	}
	if s.release != nil && s.flux.Status != "" {
		s.release.Status.ObservedGeneration = s.release.Generation
		condition := s.flux
		condition.Type, condition.ObservedGeneration = readyType, s.release.Generation
		meta.SetStatusCondition(&s.release.Status.Conditions, condition)
	}
}

const readyType = "Ready"

func accept(policy *envoyv1alpha1.SecurityPolicy, status metav1.ConditionStatus, reason, message string) {
	policy.Status = gatewayv1.PolicyStatus{Ancestors: []gatewayv1.PolicyAncestorStatus{{
		AncestorRef: gatewayv1.ParentReference{
			Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: ptr.To(gatewayv1.Kind("Gateway")),
			Namespace: ptr.To(gatewayv1.Namespace(policy.Namespace)), Name: "identity-pilot",
			SectionName: ptr.To(gatewayv1.SectionName("https")),
		},
		ControllerName: "gateway.envoyproxy.io/gatewayclass-controller",
		Conditions: []metav1.Condition{{
			Type: "Accepted", Status: status, Reason: reason, Message: message,
			ObservedGeneration: policy.Generation, LastTransitionTime: metav1.NewTime(clock),
		}},
	}}}
}

// settle makes passes until nothing changes and returns those that did something.
func (s *simulation) settle() []Plan {
	var plans []Plan
	before := ""
	for range 12 {
		plan := s.pass()
		now := fmt.Sprint(s.version, len(s.routes), len(s.policies), s.release == nil, s.grant == nil) + marshal(s.t, plan.Status)
		// Letting go of a policy that is not there is a question, not a change.
		idle := !slices.ContainsFunc(plan.Access, func(step Step) bool { return step.Do != ReleasePolicy })
		if !plan.DropFinalizer && idle && plan.Release == nil && !plan.RemoveRelease && now == before {
			return plans
		}
		before = now
		plans = append(plans, plan)
		s.answer()
		if s.gone {
			return plans
		}
	}
	s.t.Errorf("no rest after 12 passes: %s", before)
	s.t.FailNow()
	return nil
}

func marshal(t require.TestingT, object any) string {
	raw, err := json.Marshal(object)
	require.NoError(t, err)
	return string(raw)
}

// ownership is the managed fields entry of an object that was applied as given.
func ownership(t require.TestingT, raw []byte) metav1.ManagedFieldsEntry {
	var fields map[string]any
	require.NoError(t, json.Unmarshal(raw, &fields))
	applied := map[string]any{"spec": fields["spec"]}
	metadata, _ := fields["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, name := range []string{"labels", "annotations"} {
		if metadata[name] != nil {
			kept[name] = metadata[name]
		}
	}
	applied["metadata"] = kept
	set, err := fieldpath.SetFromValue(value.NewValueInterface(applied)).ToJSON()
	require.NoError(t, err)
	return metav1.ManagedFieldsEntry{
		Manager: kube.FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(string(bytes.TrimSpace(set))),
	}
}

// shippedCatalogs are the catalogs of the product.
func shippedCatalogs(t testing.TB) (*catalogs.Applications, *catalogs.Modules) {
	t.Helper()
	var applications *catalogs.Applications
	var modules *catalogs.Modules
	for _, configMap := range catalogs.ShippedConfigMaps() {
		var err error
		switch configMap.Name {
		case catalogs.ApplicationsSource.Name:
			applications, err = catalogs.ApplicationsFromConfigMap(configMap)
		case catalogs.ModulesSource.Name:
			modules, err = catalogs.ModulesFromConfigMap(configMap)
		}
		require.NoError(t, err)
	}
	return applications, modules
}
