//go:build peers

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

const (
	demo       = "odysseus-demo"
	demoLocal  = "odysseus-demo-local"
	demoPolicy = "odysseus-demo-local-sso"
)

var demoRoutes = []string{demoLocal, "odysseus-demo-local-callback", "odysseus-demo-public", "odysseus-demo-public-callback"}

// One appliance with the real Envoy Gateway, as a team lives with it: an
// application is opened, its guard breaks in every way that we know and is
// repaired, and what the proxies are told is looked at all along.
func TestEnvoyGateway_with_the_operator(t *testing.T) {
	e := startEdge(t)

	t.Log("without an answer of the gateway nothing opens")
	e.instance(demo, "odysseus", nil)
	e.installed(demo, demo, 7000)
	e.shut(demo, "has no answer from the gateway yet", demoRoutes...)

	t.Log("Envoy Gateway accepts the policies, and only then the routes get their backends")
	e.followWire()
	e.startController()
	e.open(demo, demoRoutes...)
	e.guarded("odysseus-demo-local", "demo.odysseus.magicstick.local", signIn, "/guard/ai-system/odysseus-demo/sso")
	e.guarded("odysseus-demo-public", "demo.odysseus.magicstick.example.com", signIn, "/guard/ai-system/odysseus-demo/sso")
	e.guarded("odysseus-demo-local-callback", "magicstick.local", signIn, "/guard/ai-system/odysseus-demo/sso")
	e.guarded("odysseus-demo-public-callback", "magicstick.example.com", signIn, "/guard/ai-system/odysseus-demo/sso")

	e.survivesBrokenSurroundings()
	e.survivesHands()
	e.survivesAnotherPolicy()
	e.waitsForTheGateway()
	e.servesEveryApplication()
	e.needsTheFilterOrder()

	t.Log("switched off: the proxies forget it")
	e.change(demo, func(i *appliancev1alpha1.AppInstance) { i.Spec.Enabled = ptr.To(false) })
	e.told("the proxies have no route to "+demo, func(w *wire) error {
		for _, name := range demoRoutes {
			if _, err := w.route(name); err == nil {
				return fmt.Errorf("they still have %s", name)
			}
		}
		return nil
	})

	problems, opened := e.changes.openedUnguarded()
	assert.Empty(t, problems, "no route got a backend before its policy was accepted as it was")
	assert.Greater(t, opened, 30, "backends came and went often enough to mean something")
}

// survivesBrokenSurroundings takes away, one after the other, what the policies
// need. Envoy Gateway then refuses them, and answers 500 by itself until we
// have withdrawn the backend.
func (e *edge) survivesBrokenSurroundings() {
	e.t.Helper()
	secret := e.clientSecret()
	for _, fault := range []struct {
		what, words  string
		strike, mend func()
	}{
		{
			"the Secret of the OIDC client is missing", "OIDC: ",
			func() { e.remove(secret) }, func() { secret = e.clientSecret(); e.create(secret) },
		},
		{
			"the Secret of the OIDC client has no client-secret", "OIDC: client secret not found",
			func() { e.keepInSecret("other") }, func() { e.keepInSecret("client-secret") },
		},
		{
			"the guard has no Pod", "ExtAuth: no ready endpoints for the related Service identity-system/magicstick-admin",
			func() { e.pods(kube.GuardNamespace, kube.GuardService, false) },
			func() { e.pods(kube.GuardNamespace, kube.GuardService, true) },
		},
		{
			"the guard's Service is missing", "ExtAuth: ",
			func() {
				e.remove(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: kube.GuardNamespace, Name: kube.GuardService}})
			},
			func() { e.create(plainService(kube.GuardNamespace, kube.GuardService, kube.GuardPort)) },
		},
		{
			"Keycloak has no Pod", "JWT: no ready endpoints for the related Service identity-system/keycloak",
			func() { e.pods(kube.GuardNamespace, "keycloak", false) },
			func() { e.pods(kube.GuardNamespace, "keycloak", true) },
		},
	} {
		e.t.Log(fault.what)
		fault.strike()
		e.shut(demo, fault.words, demoRoutes...)
		e.refused(demoRoutes...)
		fault.mend()
		e.open(demo, demoRoutes...)
	}
}

// survivesHands lets a person change and delete a policy.
func (e *edge) survivesHands() {
	e.t.Helper()
	e.t.Log("the issuer is changed by hand")
	before := e.changes.latest()
	e.patch(demoPolicy, `{"spec":{"oidc":{"provider":{"issuer":"https://id.elsewhere.example/realms/other"}}}}`)
	e.reopened(before, demoLocal, "odysseus-demo-local-callback")
	assert.Equal(e.t, "https://id.magicstick.local/realms/magicstick", e.policy(demoPolicy).Spec.OIDC.Provider.Issuer)

	e.t.Log("the guard is made to fail open by hand")
	before = e.changes.latest()
	e.patch(demoPolicy, `{"spec":{"extAuth":{"failOpen":true}}}`)
	e.reopened(before, demoLocal, "odysseus-demo-local-callback")
	assert.Equal(e.t, ptr.To(false), e.policy(demoPolicy).Spec.ExtAuth.FailOpen)

	e.t.Log("the policy is deleted by hand")
	before = e.changes.latest()
	old := e.policy(demoPolicy)
	e.remove(old)
	e.reopened(before, demoLocal, "odysseus-demo-local-callback")
	assert.NotEqual(e.t, old.UID, e.policy(demoPolicy).UID)
	e.guarded(demoLocal, "demo.odysseus.magicstick.local", signIn, "/guard/ai-system/odysseus-demo/sso")
}

// survivesAnotherPolicy lets somebody else put an open policy on a guarded route.
func (e *edge) survivesAnotherPolicy() {
	e.t.Helper()
	e.t.Log("a younger policy for the same route changes nothing")
	other := &envoyv1alpha1.SecurityPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: kube.GuardNamespace, Name: "a-foreign-policy"}}
	other.Spec.TargetRefs = []gatewayv1.LocalPolicyTargetReferenceWithSectionName{{
		LocalPolicyTargetReference: gatewayv1.LocalPolicyTargetReference{Group: gatewayv1.GroupName, Kind: "HTTPRoute", Name: demoLocal},
	}}
	other.Spec.Authorization = &envoyv1alpha1.Authorization{DefaultAction: ptr.To(envoyv1alpha1.AuthorizationActionAllow)}
	e.aSecondAfter(e.policy(demoPolicy))
	e.create(other)
	e.eventually("Envoy Gateway refuses the younger policy", func(context.Context) error {
		if problem := accepted(e.policy(other.Name)); !strings.Contains(problem, "Conflicted") {
			return fmt.Errorf("%s", problem)
		}
		return nil
	})
	e.open(demo, demoRoutes...)
	e.guarded(demoLocal, "demo.odysseus.magicstick.local", signIn, "/guard/ai-system/odysseus-demo/sso")

	e.t.Log("but it is the older one when ours is deleted by hand: ours is refused, and the route stays shut")
	e.aSecondAfter(other)
	e.remove(e.policy(demoPolicy))
	e.shut(demo, "Conflicted", demoLocal, "odysseus-demo-local-callback")
	e.told("the proxies have no way past the foreign policy", func(w *wire) error {
		route, err := w.route(demoLocal)
		if err != nil {
			return err
		}
		if route.Route != nil || route.DirectResponse == nil || route.DirectResponse.Status != 500 {
			return fmt.Errorf("%+v", route)
		}
		return nil
	})
	e.remove(other)
	e.open(demo, demoRoutes...)
}

// waitsForTheGateway changes what a guard demands while nobody can accept it.
func (e *edge) waitsForTheGateway() {
	e.t.Helper()
	e.t.Log("a stricter role while Envoy Gateway is away: shut until it has seen the new form")
	require.NoError(e.t, e.controller.Stop(patience))
	e.change(demo, func(i *appliancev1alpha1.AppInstance) {
		i.Spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{Role: appliancev1alpha1.AppInstanceSpecAccessRoleAdmin}
	})
	e.shut(demo, "waits for the gateway to look at its present form", demoRoutes...)
	e.startController()
	e.open(demo, demoRoutes...)
	e.told("the proxies ask for the new role", func(w *wire) error {
		route, err := w.route(demoLocal)
		if err != nil {
			return err
		}
		rules := string(route.TypedPerFilterConfig["envoy.filters.http.rbac"])
		if !strings.Contains(rules, `"magicstick-admin"`) || strings.Contains(rules, `"magicstick-operator"`) {
			return fmt.Errorf("%s", rules)
		}
		return nil
	})
}

// servesEveryApplication opens one instance of each, with sign-in or without.
func (e *edge) servesEveryApplication() {
	e.t.Helper()
	e.t.Log("every application of the catalog")
	for application, port := range map[string]int32{"openclaw": 18789, "hermes": 9119, "paperclip": 3100, "kubeopencode": 4096} {
		name, service := application+"-team", application+"-team"
		if application == "kubeopencode" {
			service = "team" // contract/appliance.md D.2
		}
		e.instance(name, application, nil)
		e.installed(name, service, port)
		e.open(name, name+"-local", name+"-local-callback", name+"-public", name+"-public-callback")
		e.guarded(name+"-local", "team."+application+".magicstick.local", signIn, "/guard/ai-system/"+name+"/sso")
	}
	e.told("Hermes gets no cookies, the others do", func(w *wire) error {
		for name, want := range map[string][]string{"hermes-team-local": {"Cookie"}, "openclaw-team-local": nil} {
			route, err := w.route(name)
			if err != nil {
				return err
			}
			// The router does it, behind all filters: they need the cookies.
			if !slices.Equal(route.RequestHeadersToRemove, want) {
				return fmt.Errorf("%s loses %q", name, route.RequestHeadersToRemove)
			}
		}
		return nil
	})

	e.t.Log("an application for everybody still asks the guard")
	e.instance("odysseus-hall", "odysseus", func(i *appliancev1alpha1.AppInstance) {
		i.Spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{
			Authentication: appliancev1alpha1.AppInstanceSpecAccessAuthenticationNone,
			Exposure:       appliancev1alpha1.AppInstanceSpecAccessExposureLocal,
		}
	})
	e.installed("odysseus-hall", "odysseus-hall", 7000)
	e.open("odysseus-hall", "odysseus-hall-local")
	e.guarded("odysseus-hall-local", "hall.odysseus.magicstick.local", []string{"ext_authz", "router"}, "/guard/ai-system/odysseus-hall/none")
	e.pods(kube.GuardNamespace, kube.GuardService, false)
	e.shut("odysseus-hall", "ExtAuth: no ready endpoints", "odysseus-hall-local")
	e.refused("odysseus-hall-local")
	e.pods(kube.GuardNamespace, kube.GuardService, true)
	e.open("odysseus-hall", "odysseus-hall-local")
	e.open(demo, demoRoutes...)
}

// needsTheFilterOrder shows what the installation must say to the gateway, and
// why: without it the guard is asked before anybody can have signed in.
func (e *edge) needsTheFilterOrder() {
	e.t.Helper()
	e.t.Log("without filterOrder the guard would be asked first")
	proxy := &envoyv1alpha1.EnvoyProxy{}
	require.NoError(e.t, e.Get(e.t.Context(), client.ObjectKey{Namespace: kube.GuardNamespace, Name: "magicstick"}, proxy))
	order := proxy.Spec.FilterOrder
	proxy.Spec.FilterOrder = nil
	require.NoError(e.t, e.Update(e.t.Context(), proxy))
	e.guarded(demoLocal, "demo.odysseus.magicstick.local", []string{"ext_authz", "oauth2", "jwt_authn", "rbac", "router"}, "/guard/ai-system/odysseus-demo/sso")
	require.NoError(e.t, e.Get(e.t.Context(), client.ObjectKeyFromObject(proxy), proxy))
	proxy.Spec.FilterOrder = order
	require.NoError(e.t, e.Update(e.t.Context(), proxy))
	e.guarded(demoLocal, "demo.odysseus.magicstick.local", signIn, "/guard/ai-system/odysseus-demo/sso")
}
