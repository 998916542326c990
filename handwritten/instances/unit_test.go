package instances

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/kube"
)

var suffixes = []string{suffixLocal, suffixPublic, suffixLocal + suffixCallback, suffixPublic + suffixCallback, suffixLocal + suffixPolicy, suffixPublic + suffixPolicy, suffixGrant}

// Every name of an instance gives names of objects that the API server takes,
// and two instances never share one.
func TestObjectNames(t *testing.T) {
	require.Equal(t, "openclaw-demo-local-callback", objectName("openclaw-demo", "local-callback"))
	// A name that was given a hash is a legal name of another instance.
	long := strings.Repeat("k", 53)
	require.NotEqual(t, objectName(long, "local-callback"),
		objectName(strings.TrimSuffix(objectName(long, "local-callback"), "-local-callback"), "local-callback"))
	owner := map[string]string{}
	rapid.Check(t, func(t *rapid.T) {
		instance := rapid.StringMatching(`[a-z0-9]([-.a-z0-9]{0,250}[a-z0-9])?`).Draw(t, "instance")
		for _, suffix := range suffixes {
			name := objectName(instance, suffix)
			require.Empty(t, validation.IsDNS1123Label(name), name)
			require.True(t, strings.HasSuffix(name, "-"+suffix))
			if other, taken := owner[name]; taken {
				require.Equal(t, other, instance, "both have %s", name)
			}
			owner[name] = instance
		}
	})
}

// D12: no two routes share a cookie.
func TestCookiesAreUnique(t *testing.T) {
	require.Regexp(t, `^MagicStickAccessToken-[0-9a-f]{8}$`, accessTokenCookie("openclaw-demo-local"))
	require.Regexp(t, `^MagicStickIDToken-[0-9a-f]{8}$`, idTokenCookie("openclaw-demo-local"))
	seen := map[string]bool{}
	for _, instance := range []string{"openclaw-a", "openclaw-b", "hermes-a"} {
		for _, suffix := range []string{suffixLocal, suffixPublic} {
			for _, cookie := range []string{accessTokenCookie(objectName(instance, suffix)), idTokenCookie(objectName(instance, suffix))} {
				require.False(t, seen[cookie], cookie)
				seen[cookie] = true
			}
		}
	}
}

// U010, and the other catalog entries that the schema of the catalog refuses: a
// plan made from one says which key is wrong.
func TestInvalidCatalogEntries(t *testing.T) {
	applications, _ := shippedCatalogs(t)
	for name, test := range map[string]struct {
		break_ func(*Facts)
		words  string
	}{
		"requestTimeout": {func(f *Facts) { f.Application.Route.RequestTimeout = "30s" }, `applications.openclaw.route.requestTimeout: "30s", must be absent or 0s`},
		"chartPath":      {func(f *Facts) { f.Application.ChartPath = "" }, "applications.openclaw.chartPath: missing"},
		"port":           {func(f *Facts) { f.Application.Route.Port = 0 }, "applications.openclaw.route.port: 0, must be 1 to 65535"},
		"high port":      {func(f *Facts) { f.Application.Route.Port = 65536 }, "applications.openclaw.route.port: 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			s := simulate(t, situation{Instance: &appliancev1alpha1.AppInstance{ObjectMeta: metav1.ObjectMeta{Name: "openclaw-demo"}, Spec: appliancev1alpha1.AppInstanceSpec{Application: "openclaw"}}})
			s.pass()
			facts := s.facts()
			application, found := applications.Get("openclaw")
			require.True(t, found)
			facts.Application = &application
			test.break_(&facts)
			plan, err := Compute(facts)
			require.NoError(t, err)
			require.Equal(t, "Degraded", string(plan.Status.Phase))
			condition := kube.FindCondition(plan.Status.Conditions, conditions.AppInstanceConditionReady)
			require.Equal(t, conditions.AppInstanceReasonInvalidCatalogEntry, condition.Reason)
			require.Contains(t, condition.Message, test.words)
			require.Nil(t, plan.Release)
		})
	}
}

// F.3: whatever people write into the values of an application, no Ingress of
// its chart leads past the guard, and what else they wrote is passed on.
func TestIngressIsForcedForEveryApplication(t *testing.T) {
	applications, _ := shippedCatalogs(t)
	for _, key := range []string{"hermes", "kubeopencode", "odysseus", "openclaw", "paperclip"} {
		for name, given := range map[string]string{
			"nothing":          `{"mine":1}`,
			"both switched on": `{"mine":1,"ingress":{"enabled":true,"host":"evil.example.org","className":"nginx"},"server":{"ingress":{"enabled":true,"host":"evil.example.org"},"mine":2}}`,
			"nulls":            `{"mine":1,"ingress":null,"server":null}`,
			"enabled as text":  `{"mine":1,"ingress":{"enabled":"yes"}}`,
		} {
			t.Run(key+" "+name, func(t *testing.T) {
				application, found := applications.Get(key)
				require.True(t, found)
				instance := &appliancev1alpha1.AppInstance{}
				instance.Spec.Values = &apiextensionsv1.JSON{Raw: []byte(given)}
				values, err := userValues(instance, application.Route.ServiceName, "demo", "demo.example.org")
				require.NoError(t, err)
				require.Equal(t, json.Number("1"), values["mine"])
				server, isObject := values["server"].(map[string]any)
				require.True(t, isObject)
				for _, ingress := range []any{values["ingress"], server["ingress"]} {
					require.Subset(t, ingress, map[string]any{"enabled": false, "host": "demo.example.org"})
				}
			})
		}
	}
}

// A route leads somewhere through any rule, and through a mirror of requests.
func TestHasBackend(t *testing.T) {
	mirror := gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestMirror, RequestMirror: &gatewayv1.HTTPRequestMirrorFilter{}}
	strip := gatewayv1.HTTPRouteFilter{Type: gatewayv1.HTTPRouteFilterRequestHeaderModifier}
	for name, test := range map[string]struct {
		rules []gatewayv1.HTTPRouteRule
		leads bool
	}{
		"no rule":               {nil, false},
		"empty rule":            {[]gatewayv1.HTTPRouteRule{{}}, false},
		"header filter":         {[]gatewayv1.HTTPRouteRule{{Filters: []gatewayv1.HTTPRouteFilter{strip}}}, false},
		"backend":               {[]gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{}}}}, true},
		"backend of a 2nd rule": {[]gatewayv1.HTTPRouteRule{{}, {BackendRefs: []gatewayv1.HTTPBackendRef{{}}}}, true},
		"mirror":                {[]gatewayv1.HTTPRouteRule{{Filters: []gatewayv1.HTTPRouteFilter{strip, mirror}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			route := &gatewayv1.HTTPRoute{Spec: gatewayv1.HTTPRouteSpec{Rules: test.rules}}
			require.Equal(t, test.leads, hasBackend(route))
			require.False(t, hasBackend(withoutBackends(route)))
			require.Equal(t, test.leads, hasBackend(route), "the original is left alone")
			for i, rule := range withoutBackends(route).Spec.Rules {
				kept := slices.DeleteFunc(slices.Clone(route.Spec.Rules[i].Filters), mirrors)
				require.Equal(t, kept, rule.Filters)
			}
		})
	}
	require.False(t, hasBackend(nil))
}

// What counts as an answer of the gateway (C.4 (2)).
func TestRefusal(t *testing.T) {
	answer := func(edit func(*gatewayv1.PolicyAncestorStatus)) gatewayv1.PolicyAncestorStatus {
		policy := &envoyv1alpha1.SecurityPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "identity-system", Generation: 2}}
		accept(policy, metav1.ConditionTrue, "Accepted", "ok")
		found := policy.Status.Ancestors[0]
		if edit != nil {
			edit(&found)
		}
		return found
	}
	yes := answer(nil)
	no := answer(func(a *gatewayv1.PolicyAncestorStatus) {
		a.Conditions[0].Status, a.Conditions[0].Reason = metav1.ConditionFalse, "Conflicted"
	})
	for name, test := range map[string]struct {
		answers []gatewayv1.PolicyAncestorStatus
		want    string
	}{
		"none":               {nil, "has no answer"},
		"yes":                {[]gatewayv1.PolicyAncestorStatus{yes}, ""},
		"two times yes":      {[]gatewayv1.PolicyAncestorStatus{yes, yes}, ""},
		"yes and no":         {[]gatewayv1.PolicyAncestorStatus{yes, no}, "Conflicted"},
		"no":                 {[]gatewayv1.PolicyAncestorStatus{no}, "is not accepted by the gateway: Conflicted"},
		"unknown":            {[]gatewayv1.PolicyAncestorStatus{answer(func(a *gatewayv1.PolicyAncestorStatus) { a.Conditions[0].Status = metav1.ConditionUnknown })}, "is not accepted"},
		"older generation":   {[]gatewayv1.PolicyAncestorStatus{answer(func(a *gatewayv1.PolicyAncestorStatus) { a.Conditions[0].ObservedGeneration = 1 })}, "present form"},
		"no generation":      {[]gatewayv1.PolicyAncestorStatus{answer(func(a *gatewayv1.PolicyAncestorStatus) { a.Conditions[0].ObservedGeneration = 0 })}, "present form"},
		"newer generation":   {[]gatewayv1.PolicyAncestorStatus{answer(func(a *gatewayv1.PolicyAncestorStatus) { a.Conditions[0].ObservedGeneration = 3 })}, "present form"},
		"no condition":       {[]gatewayv1.PolicyAncestorStatus{answer(func(a *gatewayv1.PolicyAncestorStatus) { a.Conditions = nil })}, "has no answer"},
		"another gateway":    {[]gatewayv1.PolicyAncestorStatus{answer(func(a *gatewayv1.PolicyAncestorStatus) { a.AncestorRef.Name = "other" })}, "has no answer"},
		"another controller": {[]gatewayv1.PolicyAncestorStatus{answer(func(a *gatewayv1.PolicyAncestorStatus) { a.ControllerName = "example.com/gateway" })}, "has no answer"},
		"another namespace":  {[]gatewayv1.PolicyAncestorStatus{answer(func(a *gatewayv1.PolicyAncestorStatus) { a.AncestorRef.Namespace = ptr.To(gatewayv1.Namespace("x")) })}, "has no answer"},
		"another kind":       {[]gatewayv1.PolicyAncestorStatus{answer(func(a *gatewayv1.PolicyAncestorStatus) { a.AncestorRef.Kind = ptr.To(gatewayv1.Kind("HTTPRoute")) })}, "has no answer"},
		"no of another gateway": {[]gatewayv1.PolicyAncestorStatus{yes, answer(func(a *gatewayv1.PolicyAncestorStatus) {
			a.AncestorRef.Name, a.Conditions[0].Status = "other", metav1.ConditionFalse
		})}, ""},
		"yes without defaults": {[]gatewayv1.PolicyAncestorStatus{answer(func(a *gatewayv1.PolicyAncestorStatus) {
			a.AncestorRef = gatewayv1.ParentReference{Name: "identity-pilot"}
		})}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &envoyv1alpha1.SecurityPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "identity-system", Generation: 2}}
			policy.Status.Ancestors = test.answers
			found, refused := refusal(policy, "identity-pilot", "identity-system")
			if test.want == "" {
				require.Empty(t, found)
			} else {
				require.Contains(t, found, test.want)
			}
			// Silence and an answer to something else are no refusal.
			require.Equal(t, strings.Contains(test.want, "not accepted") || test.want == "Conflicted", refused)
		})
	}
}

// Roles go up, never down; a typo that came past the schema opens nothing.
func TestAdmittedRoles(t *testing.T) {
	require.Equal(t, []string{"magicstick-user", "magicstick-viewer", "magicstick-operator", "magicstick-admin"}, admittedRoles("user"))
	require.Equal(t, []string{"magicstick-viewer", "magicstick-operator", "magicstick-admin"}, admittedRoles("viewer"))
	require.Equal(t, []string{"magicstick-operator", "magicstick-admin"}, admittedRoles("operator"))
	require.Equal(t, []string{"magicstick-admin"}, admittedRoles("admin"))
	require.Equal(t, []string{"magicstick-admin"}, admittedRoles("oprator"))
}

// The rule holds whatever happens in whatever order, and the world comes to
// rest with open routes when everything is well again.
func TestAnyOrderOfEvents(t *testing.T) {
	applications, modules := shippedCatalogs(t)
	rapid.Check(t, func(rt *rapid.T) {
		instance := &appliancev1alpha1.AppInstance{ObjectMeta: metav1.ObjectMeta{Name: "openclaw-demo", Namespace: "ai-system", Generation: 1, CreationTimestamp: metav1.NewTime(clock)}}
		instance.Spec.Application = "openclaw"
		s := &simulation{
			t: rt, instance: instance, applications: applications, modules: modules,
			phases: map[string]string{}, missing: map[string]string{}, kinds: present(), namespace: "present", gateway: accepts, source: kube.DefaultSource,
			flux:   metav1.Condition{Status: metav1.ConditionTrue, Reason: "InstallSucceeded", Message: "ok"},
			routes: map[string]*gatewayv1.HTTPRoute{}, policies: map[string]*envoyv1alpha1.SecurityPolicy{},
		}
		access := func() *appliancev1alpha1.AppInstanceSpecAccess {
			if instance.Spec.Access == nil {
				instance.Spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{}
			}
			instance.Generation++
			return instance.Spec.Access
		}
		anyPolicy := func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"openclaw-demo-local-sso", "openclaw-demo-public-sso"}).Draw(t, "policy")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {
				s.pass()
			},
			"gateway looks": func(*rapid.T) { s.answer() },
			"gateway": func(t *rapid.T) {
				s.gateway = rapid.SampledFrom([]gatewayAnswer{accepts, rejects, silent}).Draw(t, "answer")
			},
			"role": func(t *rapid.T) { access().Role = rapid.SampledFrom(roleLadder).Draw(t, "role") },
			"authentication": func(t *rapid.T) {
				access().Authentication = rapid.SampledFrom([]appliancev1alpha1.AppInstanceSpecAccessAuthentication{"sso", "none"}).Draw(t, "authentication")
			},
			"exposure": func(t *rapid.T) {
				access().Exposure = rapid.SampledFrom([]appliancev1alpha1.AppInstanceSpecAccessExposure{"local", "localAndPublic"}).Draw(t, "exposure")
			},
			"enabled": func(t *rapid.T) { access(); instance.Spec.Enabled = ptr.To(rapid.Bool().Draw(t, "enabled")) },
			"domain": func(t *rapid.T) {
				s.settings = map[string]string{kube.SettingMDNSName: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name"), kube.SettingPublicDomain: rapid.SampledFrom([]string{"x.org", "y.org"}).Draw(t, "domain")}
			},
			"policy deleted": func(t *rapid.T) {
				if policy := s.policies[anyPolicy(t)]; policy != nil {
					policy.DeletionTimestamp = ptr.To(metav1.NewTime(clock))
				}
			},
			"policy lost": func(t *rapid.T) { delete(s.policies, anyPolicy(t)) },
			"policy edited": func(t *rapid.T) {
				if policy := s.policies[anyPolicy(t)]; policy != nil {
					policy.Spec.ExtAuth.FailOpen = ptr.To(true)
					policy.Generation++
				}
			},
			"catalog": func(t *rapid.T) {
				s.catalogError = rapid.SampledFrom([]string{"", "the catalog is gone"}).Draw(t, "error")
			},
			"module": func(t *rapid.T) {
				s.phases["litellm"] = rapid.SampledFrom([]string{"Ready", "Degraded", "absent"}).Draw(t, "phase")
			},
			"namespace": func(t *rapid.T) {
				s.namespace = rapid.SampledFrom([]string{"present", "absent", "terminating"}).Draw(t, "state")
			},
		})
		s.gateway, s.catalogError, s.namespace, s.phases = accepts, "", "present", map[string]string{}
		instance.Spec.Enabled = ptr.To(true)
		instance.Generation++
		s.answer()
		s.settle()
		require.Equal(rt, "Ready", string(instance.Status.Phase), "%+v", instance.Status)
		for name, route := range s.routes {
			require.True(rt, hasBackend(route), name)
		}
		require.NotEmpty(rt, s.routes)
	})
}
