package operator_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/kube"
)

// The proof of the rule: people change everything that they may, the gateway
// changes its mind, another one speaks in its place, policies are deleted and
// edited by hand, names collide, every write conflicts, and the operator is
// killed in the middle of its writes, again and again.
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
	// The last two have names that collide as soon as one of them is cut.
	names := []string{"odysseus-one", "odysseus-two", "odysseus-three", "odysseus-" + strings.Repeat("k", 44)}
	ready := func(name string) {
		w.instance(name, nil)
		w.helm(name, metav1.ConditionTrue, "InstallSucceeded", "ok")
		w.shown(name, "Ready", "InstallSucceeded")
	}
	for _, name := range names {
		ready(name)
	}
	for _, route := range w.routesOf(names[3]) {
		if cut, isCallback := strings.CutSuffix(route.Name, "-local-callback"); isCallback {
			require.NotEqual(t, names[3], cut)
			names = append(names, cut)
			ready(cut)
		}
	}
	require.Len(t, names, 5)

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
		action := pick("role", "authentication", "exposure", "domain", "name", "enabled", "gateway", "delete policy", "kill", "restart", "conflicts", "delete route", "recreate", "edit policy", "impostor")
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
			for _, policy := range some(random, w.policiesOf(name)) {
				require.NoError(t, client.IgnoreNotFound(w.client.Delete(t.Context(), &policy)))
			}
		case "edit policy":
			for _, policy := range some(random, w.policiesOf(name)) {
				policyEdits[pick(slices.Sorted(maps.Keys(policyEdits))...)](&policy)
				err := w.client.Update(t.Context(), &policy)
				if err == nil {
					witness.mine(policy.ResourceVersion)
				}
				require.True(t, err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err), "%v", err)
			}
		case "impostor":
			gateway.as(gatewayv1.GatewayController(pick("example.com/gateway", "", "")))
		case "delete route":
			for _, route := range some(random, w.routesOf(name)) {
				require.NoError(t, client.IgnoreNotFound(w.client.Delete(t.Context(), &route)))
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
			w.conflicts()
		}
		time.Sleep(time.Duration(random.IntN(120)) * time.Millisecond)
		for _, name := range names {
			if !w.get(&appliancev1alpha1.AppInstance{}, name) {
				w.instance(name, nil)
			}
		}
	}
	gateway.as("")
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
		require.Len(t, w.routesOf(name), 4)
		for _, route := range w.routesOf(name) {
			w.leadsTo(route.Name, true)
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

// conflicts lets every write of the operator fail once as if somebody had been
// faster, and succeed when it is made again.
func (w *world) conflicts() {
	met := map[string]bool{}
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		write := request.Method + " " + request.URL.Path
		if isEvent(write) {
			return nil, nil
		}
		met[write] = !met[write]
		if met[write] {
			return answer(request, http.StatusConflict, metav1.StatusReasonConflict, "somebody was faster"), nil
		}
		return nil, nil
	})
}

// routesOf are the routes that were made for an instance.
func (w *world) routesOf(instance string) []gatewayv1.HTTPRoute {
	w.t.Helper()
	list := &gatewayv1.HTTPRouteList{}
	require.NoError(w.t, w.client.List(w.t.Context(), list, client.InNamespace(w.options.IdentityNamespace), client.MatchingLabels{kube.LabelInstance: instance}))
	return list.Items
}

// policiesOf are the policies that were made for an instance.
func (w *world) policiesOf(instance string) []envoyv1alpha1.SecurityPolicy {
	w.t.Helper()
	list := &envoyv1alpha1.SecurityPolicyList{}
	require.NoError(w.t, w.client.List(w.t.Context(), list, client.InNamespace(w.options.IdentityNamespace), client.MatchingLabels{kube.LabelInstance: instance}))
	return list.Items
}

// some is one of the objects, none when there are none.
func some[T any](random *rand.Rand, objects []T) []T {
	if len(objects) == 0 {
		return nil
	}
	at := random.IntN(len(objects))
	return objects[at : at+1]
}
