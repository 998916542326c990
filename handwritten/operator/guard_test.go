package operator_test

import (
	"encoding/json"
	"testing"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// A policy that somebody deletes stays in force until its routes are closed.
func TestPolicyDeletedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	witness := w.witness()
	gateway := w.gateway()
	gateway.wrote = witness.mine
	w.start()
	w.odysseus()
	w.instance("odysseus-demo", nil)
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")

	// With the operator away nothing happens to the policy.
	w.stop()
	policy := w.policy("odysseus-demo-local-sso")
	require.NoError(t, w.client.Delete(t.Context(), policy))
	require.NotNil(t, w.policy("odysseus-demo-local-sso").DeletionTimestamp)
	require.True(t, leads(w.route("odysseus-demo-local")))
	gateway.say(nil)
	w.start()
	w.eventually(func() string {
		if now := w.policy("odysseus-demo-local-sso"); now == nil || now.UID == policy.UID {
			return "the policy was not written anew"
		}
		return ""
	})
	w.leadsTo("odysseus-demo-local", false)
	w.leadsTo("odysseus-demo-local-callback", false)
	require.True(t, leads(w.route("odysseus-demo-public")), "the other address is guarded by its own policy")
	gateway.accept()
	w.leadsTo("odysseus-demo-local", true)
	_, _, exposures := witness.judge(time.Minute)
	require.Zero(t, exposures)
}

// policyEdits are what somebody may do to a policy by hand, where there is
// something to be done.
var policyEdits = map[string]func(*envoyv1alpha1.SecurityPolicy){
	"guard fails open": func(p *envoyv1alpha1.SecurityPolicy) {
		if p.Spec.ExtAuth != nil {
			p.Spec.ExtAuth.FailOpen = ptr.To(true)
		}
	},
	"guard removed": func(p *envoyv1alpha1.SecurityPolicy) { p.Spec.ExtAuth = nil },
	"tokens accepted from anywhere": func(p *envoyv1alpha1.SecurityPolicy) {
		if p.Spec.OIDC != nil {
			p.Spec.OIDC.PassThroughAuthHeader = ptr.To(true)
		}
	},
	"role added": func(p *envoyv1alpha1.SecurityPolicy) {
		if p.Spec.Authorization != nil {
			claim := &p.Spec.Authorization.Rules[0].Principal.JWT.Claims[0]
			claim.Values = append(claim.Values, "guest")
		}
	},
	"another target": func(p *envoyv1alpha1.SecurityPolicy) {
		if len(p.Spec.TargetRefs) > 1 {
			p.Spec.TargetRefs = p.Spec.TargetRefs[1:]
		}
	},
}

// What somebody adds to a policy or takes from it closes the routes and is undone.
func TestPolicyChangedByHand(t *testing.T) {
	t.Parallel()
	for name, edit := range policyEdits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Shared(t))
			gateway := w.gateway()
			w.start()
			w.odysseus()
			w.instance("odysseus-demo", nil)
			w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
			w.shown("odysseus-demo", "Ready", "InstallSucceeded")
			before := w.policy("odysseus-demo-local-sso").Spec
			gateway.say(nil)
			w.eventually(func() string {
				policy := w.policy("odysseus-demo-local-sso")
				edit(policy)
				if err := w.client.Update(t.Context(), policy); err != nil {
					return err.Error()
				}
				return ""
			})
			w.leadsTo("odysseus-demo-local", false)
			w.eventually(func() string {
				if now := w.policy("odysseus-demo-local-sso"); now == nil || marshal(t, now.Spec) != marshal(t, before) {
					return "the policy was not repaired"
				}
				return ""
			})
			require.False(t, leads(w.route("odysseus-demo-local")))
			gateway.accept()
			w.leadsTo("odysseus-demo-local", true)
			w.shown("odysseus-demo", "Ready", "InstallSucceeded")
		})
	}
}

// The CRD of the policies is deleted under open routes, and comes back.
func TestGatewayCRDsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS)))
	witness := w.witness()
	gateway := w.gateway()
	gateway.wrote = witness.mine
	w.start()
	w.odysseus()
	w.instance("odysseus-demo", nil)
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")

	policies := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "securitypolicies.gateway.envoyproxy.io"}}
	require.NoError(t, w.client.Delete(t.Context(), policies))
	lost := w.shown("odysseus-demo", "WaitingForCRDs", "WaitingForCRDs")
	require.Contains(t, *lost.Status.Message, "securitypolicies.gateway.envoyproxy.io")
	w.leadsTo("odysseus-demo-local", false)
	w.leadsTo("odysseus-demo-public", false)
	w.eventually(func() string {
		err := w.client.Get(t.Context(), types.NamespacedName{Name: policies.Name}, policies)
		if !apierrors.IsNotFound(err) {
			return "the CRD still exists: " + show(policies.Status.Conditions)
		}
		return ""
	})
	_, _, exposures := witness.judge(time.Minute)
	require.Zero(t, exposures, "the finalizer held the policies until the routes were closed")

	controlplanetest.InstallCRDs(t, w.config, gatewaycrds.FS)
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")
	w.leadsTo("odysseus-demo-local", true)

	routes := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "httproutes.gateway.networking.k8s.io"}}
	require.NoError(t, w.client.Delete(t.Context(), routes))
	lost = w.shown("odysseus-demo", "WaitingForCRDs", "WaitingForCRDs")
	require.Contains(t, *lost.Status.Message, "httproutes.gateway.networking.k8s.io")
	require.NoError(t, w.client.Delete(t.Context(), lost))
	w.gone(&appliancev1alpha1.AppInstance{}, "odysseus-demo")
	require.Nil(t, w.policy("odysseus-demo-local-sso"))
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	return string(raw)
}
