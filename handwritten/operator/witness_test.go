package operator_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

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
	var former *envoyv1alpha1.SecurityPolicy // the route's own, which somebody may have turned away
	for _, policy := range policies {
		if policy.Name == strings.TrimSuffix(route.Name, "-callback")+"-sso" {
			former = policy
		}
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
		return "it has no policy", former
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
		if ancestor.ControllerName != envoyv1alpha1.GatewayControllerName {
			continue
		}
		for _, condition := range ancestor.Conditions {
			if condition.Type == "Accepted" && condition.Status == metav1.ConditionTrue && condition.ObservedGeneration >= generation {
				return true
			}
		}
	}
	return false
}
