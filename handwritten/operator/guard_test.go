package operator_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// The proof of the rule: people change everything that they may, the gateway
// changes its mind, policies are deleted by hand, requests conflict and fail,
// and the operator is killed in the middle of its writes, again and again.
func TestNoRouteWithoutItsGuard(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t, controlplanetest.Shared(t))
	witness := w.witness()
	gateway := w.gateway()
	gateway.wrote = witness.mine
	w.start()
	w.odysseus()
	names := []string{"odysseus-one", "odysseus-two", "odysseus-three"}
	for _, name := range names {
		w.instance(name, nil)
		w.helm(name, metav1.ConditionTrue, "InstallSucceeded", "ok")
		w.shown(name, "Ready", "InstallSucceeded")
	}

	length := 25 * time.Second
	if testing.Short() {
		length = 5 * time.Second
	}
	counts := map[string]int{}
	for end := time.Now().Add(length); time.Now().Before(end); {
		name := names[random.IntN(len(names))]
		edit := func(change func(*appliancev1alpha1.AppInstanceSpec)) {
			w.edit(name, func(instance *appliancev1alpha1.AppInstance) { change(&instance.Spec) })
		}
		access := func(change func(*appliancev1alpha1.AppInstanceSpecAccess)) {
			edit(func(spec *appliancev1alpha1.AppInstanceSpec) {
				if spec.Access == nil {
					spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{}
				}
				change(spec.Access)
			})
		}
		pick := func(words ...string) string { return words[random.IntN(len(words))] }
		action := pick("role", "authentication", "exposure", "domain", "name", "enabled", "gateway", "delete policy", "kill", "restart", "conflicts", "delete route", "recreate")
		counts[action]++
		switch action {
		case "role":
			access(func(a *appliancev1alpha1.AppInstanceSpecAccess) {
				a.Role = appliancev1alpha1.AppInstanceSpecAccessRole(pick("user", "viewer", "operator", "admin"))
			})
		case "authentication":
			access(func(a *appliancev1alpha1.AppInstanceSpecAccess) {
				a.Authentication = appliancev1alpha1.AppInstanceSpecAccessAuthentication(pick("sso", "none"))
			})
		case "exposure":
			access(func(a *appliancev1alpha1.AppInstanceSpecAccess) {
				a.Exposure = appliancev1alpha1.AppInstanceSpecAccessExposure(pick("local", "localAndPublic"))
			})
		case "domain":
			w.settings(map[string]string{"AI_APPLIANCE_MDNS_NAME": pick("a", "b"), "AI_APPLIANCE_DOMAIN": pick("x.example.org", "y.example.org")})
		case "name":
			edit(func(spec *appliancev1alpha1.AppInstanceSpec) {
				spec.Values = &apiextensionsv1.JSON{Raw: []byte(`{"name":"` + pick("red", "green", name) + `"}`)}
			})
		case "enabled":
			edit(func(spec *appliancev1alpha1.AppInstanceSpec) { spec.Enabled = ptr.To(random.IntN(3) > 0) })
		case "gateway":
			pickGateway(gateway, random.IntN(4))
		case "delete policy":
			policy := &envoyv1alpha1.SecurityPolicy{}
			if w.identity(policy, name+"-"+pick("local", "public")+"-sso") {
				require.NoError(t, client.IgnoreNotFound(w.client.Delete(t.Context(), policy)))
			}
		case "delete route":
			if route := w.route(name + "-" + pick("local", "public", "local-callback")); route != nil {
				require.NoError(t, client.IgnoreNotFound(w.client.Delete(t.Context(), route)))
			}
		case "recreate":
			instance := &appliancev1alpha1.AppInstance{}
			if w.get(instance, name) && instance.DeletionTimestamp == nil {
				require.NoError(t, client.IgnoreNotFound(w.client.Delete(t.Context(), instance)))
			}
		case "restart":
			w.stop()
			w.start()
		case "kill":
			w.kill(random.IntN(6))
			w.start()
		case "conflicts":
			w.conflicts(random.IntN(3) + 1)
		}
		time.Sleep(time.Duration(random.IntN(120)) * time.Millisecond)
		for _, name := range names {
			if !w.get(&appliancev1alpha1.AppInstance{}, name) {
				w.instance(name, nil)
			}
		}
	}
	w.writes.refuse(nil)
	gateway.accept()
	for _, name := range names {
		w.eventually(func() string {
			if instance := (&appliancev1alpha1.AppInstance{}); w.get(instance, name) && instance.DeletionTimestamp == nil {
				return ""
			}
			if !w.get(&appliancev1alpha1.AppInstance{}, name) {
				w.instance(name, nil)
			}
			return name + " is still being deleted"
		})
		w.edit(name, func(instance *appliancev1alpha1.AppInstance) {
			instance.Spec.Enabled, instance.Spec.Values, instance.Spec.Access = ptr.To(true), nil, nil
		})
	}
	for _, name := range names {
		w.eventually(func() string {
			w.helm(name, metav1.ConditionTrue, "InstallSucceeded", "ok")
			instance := &appliancev1alpha1.AppInstance{}
			if w.get(instance, name); instance.Status.Phase != "Ready" || ptr.Deref(instance.Status.ObservedGeneration, 0) != instance.Generation {
				return name + ": " + show(instance.Status)
			}
			return ""
		})
		for _, suffix := range []string{"-local", "-local-callback", "-public", "-public-callback"} {
			w.leadsTo(name+suffix, true)
		}
	}
	versions, openings, exposures := witness.judge(20 * time.Second)
	t.Logf("%v: %d versions, %d openings, %d exposures that others caused", counts, versions, openings, exposures)
	require.Greater(t, openings, 12, "the routes were opened again after the first time")
}

// edit changes an instance; one that is gone is left alone.
func (w *world) edit(name string, change func(*appliancev1alpha1.AppInstance)) {
	w.t.Helper()
	for {
		instance := &appliancev1alpha1.AppInstance{}
		if !w.get(instance, name) {
			return
		}
		change(instance)
		err := w.client.Update(w.t.Context(), instance)
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		require.True(w.t, apierrors.IsConflict(err), "%v", err)
	}
}

func pickGateway(gateway *gatewayPlayer, mood int) {
	switch mood {
	case 0:
		gateway.reject()
	case 1:
		gateway.say(nil)
	default:
		gateway.accept()
	}
}

var errEnded = errors.New("the operator is dead")

// kill lets the operator make some more writes, of which the last one gets
// through but is never answered, and ends it.
func (w *world) kill(after int) {
	w.t.Helper()
	dead := make(chan struct{})
	var once sync.Once
	left := after
	w.writes.refuse(func(request *http.Request, next http.RoundTripper) (*http.Response, error) {
		left--
		if left > 0 {
			return nil, nil
		}
		if left == 0 {
			response, err := next.RoundTrip(request)
			if err == nil {
				_ = response.Body.Close()
			}
		}
		once.Do(func() { close(dead) })
		return nil, errEnded
	})
	select {
	case <-dead:
	case <-time.After(300 * time.Millisecond):
	}
	w.stop()
	w.writes.refuse(nil)
}

// conflicts lets one of n writes fail as if somebody had been faster.
func (w *world) conflicts(n int) {
	count := 0
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		count++
		if count%n != 0 || count > 60 {
			return nil, nil
		}
		return answer(request, http.StatusConflict, metav1.StatusReasonConflict, "somebody was faster"), nil
	})
}

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

// What somebody adds to a policy or takes from it closes the routes and is undone.
func TestPolicyChangedByHand(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*envoyv1alpha1.SecurityPolicy){
		"guard fails open": func(p *envoyv1alpha1.SecurityPolicy) { p.Spec.ExtAuth.FailOpen = ptr.To(true) },
		"guard removed":    func(p *envoyv1alpha1.SecurityPolicy) { p.Spec.ExtAuth = nil },
		"tokens accepted from anywhere": func(p *envoyv1alpha1.SecurityPolicy) {
			p.Spec.OIDC.PassThroughAuthHeader = ptr.To(true)
		},
		"role added": func(p *envoyv1alpha1.SecurityPolicy) {
			claim := &p.Spec.Authorization.Rules[0].Principal.JWT.Claims[0]
			claim.Values = append(claim.Values, "guest")
		},
		"another target": func(p *envoyv1alpha1.SecurityPolicy) { p.Spec.TargetRefs = p.Spec.TargetRefs[1:] },
	} {
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

// A process that was stopped between its question and its write, and goes on
// when another has long taken over and changed the policy, opens nothing.
func TestLateWriteOfAFormerLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	witness := w.witness()
	gateway := w.gateway()
	gateway.wrote = witness.mine
	gateway.say(nil)
	w.start()
	w.odysseus()
	w.instance("odysseus-demo", nil)
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-demo", "Reconciling", "WaitingForAccessGuard")

	held, release := make(chan struct{}), make(chan struct{})
	late := make(chan int, 1)
	var once sync.Once
	w.writes.refuse(func(request *http.Request, next http.RoundTripper) (*http.Response, error) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		if !strings.Contains(request.URL.Path, "/httproutes/") || !bytes.Contains(body, []byte("backendRefs")) {
			return nil, nil
		}
		first := false
		once.Do(func() { first = true })
		if !first {
			return nil, nil
		}
		close(held)
		<-release
		response, err := next.RoundTrip(request)
		if err == nil {
			late <- response.StatusCode
		}
		return response, err
	})
	gateway.accept()
	select {
	case <-held:
	case <-time.After(patience):
		t.Fatal("the first process never wrote a backend")
	}
	gateway.say(nil)
	w.edit("odysseus-demo", func(instance *appliancev1alpha1.AppInstance) {
		instance.Spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{Role: "admin"}
	})
	before := w.policy("odysseus-demo-local-sso").Generation
	successor := *w
	successor.writes = &writeCounter{}
	successor.start()
	w.eventually(func() string {
		if w.policy("odysseus-demo-local-sso").Generation == before {
			return "the second process has not changed the policy"
		}
		return ""
	})
	close(release)
	require.Equal(t, http.StatusConflict, <-late)
	require.False(t, leads(w.route("odysseus-demo-local")))
	w.stop() // the former leader
	gateway.accept()
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")
	_, _, exposures := witness.judge(time.Minute)
	require.Zero(t, exposures)
}
