package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/operator"
)

// witness sees every version of every route and policy of a namespace and
// holds them against the rule of contract/appliance.md C.4:
//
//	no write but one of somebody else may leave a route with a backend while a
//	policy in front of it is missing, changed or not accepted as it is.
//
// Versions of both kinds are put into one order by their resource versions,
// which one etcd hands out for both.
type witness struct {
	w      *world
	cancel context.CancelFunc
	done   sync.WaitGroup

	mutex   sync.Mutex
	seen    []version
	foreign map[string]bool // resource versions that the test wrote itself
}

type version struct {
	order   int64
	deleted bool
	object  client.Object
	at      time.Time
}

func (w *world) witness() *witness {
	w.t.Helper()
	scheme, err := operator.Scheme()
	require.NoError(w.t, err)
	watching, err := client.NewWithWatch(w.config, client.Options{Scheme: scheme})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	found := &witness{w: w, cancel: cancel, foreign: map[string]bool{}}
	for _, list := range []client.ObjectList{&gatewayv1.HTTPRouteList{}, &envoyv1alpha1.SecurityPolicyList{}} {
		stream, err := watching.Watch(ctx, list, client.InNamespace(w.options.IdentityNamespace))
		require.NoError(w.t, err)
		found.done.Add(1)
		go found.listen(stream)
	}
	w.t.Cleanup(func() { cancel(); found.done.Wait() })
	return found
}

func (s *witness) listen(stream watch.Interface) {
	defer s.done.Done()
	for event := range stream.ResultChan() {
		object, ok := event.Object.(client.Object)
		if !ok || event.Type == watch.Bookmark || event.Type == watch.Error {
			continue
		}
		order, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
		if err != nil {
			s.w.t.Errorf("resource version %q is no number", object.GetResourceVersion())
			return
		}
		s.mutex.Lock()
		s.seen = append(s.seen, version{order, event.Type == watch.Deleted, object, time.Now()})
		s.mutex.Unlock()
	}
}

// mine marks a version as written by the test.
func (s *witness) mine(resourceVersion string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.foreign[resourceVersion] = true
}

// judge replays everything that was seen.
func (s *witness) judge(patience time.Duration) (versions, openings, exposuresByOthers int) {
	s.w.t.Helper()
	time.Sleep(500 * time.Millisecond) // the streams are as fast as the API server
	s.mutex.Lock()
	defer s.mutex.Unlock()
	slices.SortFunc(s.seen, func(a, b version) int { return int(a.order - b.order) })
	routes, policies := map[string]*gatewayv1.HTTPRoute{}, map[string]*envoyv1alpha1.SecurityPolicy{}
	before := map[string]time.Time{}
	written := map[string]time.Time{} // policies, when their present version was seen
	for _, version := range s.seen {
		name := version.object.GetName()
		switch object := version.object.(type) {
		case *gatewayv1.HTTPRoute:
			if leads(object) && !leads(routes[name]) && !version.deleted {
				openings++
			}
			delete(routes, name)
			if !version.deleted {
				routes[name] = object
			}
		case *envoyv1alpha1.SecurityPolicy:
			delete(policies, name)
			if !version.deleted {
				policies[name] = object
				written[name] = version.at
			}
		}
		after := map[string]time.Time{}
		for name, route := range routes {
			problem, guard := s.unguarded(route, policies)
			if problem == "" {
				continue
			}
			since, known := before[name]
			if !known {
				since = version.at
			}
			after[name] = since
			// Between the operator's question and its write somebody else may
			// have written: nobody can know that.
			unknowable := guard != nil && s.foreign[guard.ResourceVersion] && version.at.Sub(written[guard.Name]) < time.Second
			changed, isRoute := version.object.(*gatewayv1.HTTPRoute)
			switch {
			case known && version.at.Sub(since) > patience:
				s.w.t.Errorf("HTTPRoute %s had a backend for %s although %s", name, version.at.Sub(since), problem)
			case known && isRoute && changed.Name == name && !unknowable:
				s.w.t.Errorf("version %d wrote HTTPRoute %s with a backend although %s", version.order, name, problem)
			case known:
			case s.foreign[version.object.GetResourceVersion()] || isRoute && unknowable:
				exposuresByOthers++
			default:
				s.w.t.Errorf("version %d of %T %s (deleted %t) exposed HTTPRoute %s: %s", version.order, version.object, version.object.GetName(), version.deleted, name, problem)
			}
		}
		before = after
	}
	require.Empty(s.w.t, before, "exposed at the end")
	return len(s.seen), openings, exposuresByOthers
}

// unguarded is why a route may not have the backend that it has.
func (s *witness) unguarded(route *gatewayv1.HTTPRoute, policies map[string]*envoyv1alpha1.SecurityPolicy) (string, *envoyv1alpha1.SecurityPolicy) {
	if !leads(route) {
		return "", nil
	}
	guards := 0
	for _, policy := range policies {
		for _, target := range policy.Spec.TargetRefs {
			if string(target.Name) != route.Name {
				continue
			}
			guards++
			if !acceptedNow(policy) {
				return "policy " + policy.Name + " is not accepted in generation " + strconv.FormatInt(policy.Generation, 10), policy
			}
			if policy.Spec.ExtAuth == nil || policy.Spec.ExtAuth.HTTP == nil || ptr.Deref(policy.Spec.ExtAuth.FailOpen, true) {
				return "policy " + policy.Name + " has no guard", policy
			}
		}
	}
	if guards == 0 {
		return "it has no policy", nil
	}
	return "", nil
}

// acceptedNow also counts a policy that is being deleted and was accepted before
// that: the API server moves the generation with the deletion, nothing else has
// changed, and the gateway enforces the policy until it is gone.
func acceptedNow(policy *envoyv1alpha1.SecurityPolicy) bool {
	generation := policy.Generation
	if policy.DeletionTimestamp != nil {
		generation--
	}
	for _, ancestor := range policy.Status.Ancestors {
		for _, condition := range ancestor.Conditions {
			if condition.Type == "Accepted" && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration >= generation {
				return true
			}
		}
	}
	return false
}

// The proof of the rule: people change everything that they may, the gateway
// changes its mind, policies are deleted by hand, requests conflict and fail,
// and the operator is killed in the middle of its writes, again and again.
func TestNoRouteWithoutItsGuard(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // A test needs no secrets.
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
