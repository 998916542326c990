//go:build peers

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"magicstick.dev/operator/handwritten/kube"
)

// changes are all versions of the gateway's routes and policies. One etcd
// numbers both kinds, so that they can be put into one order.
type changes struct {
	mutex    sync.Mutex
	versions []change
}

type change struct {
	order   int64
	deleted bool
	object  client.Object
}

func (e *edge) record(scheme *runtime.Scheme) *changes {
	e.t.Helper()
	watching, err := client.NewWithWatch(e.plane.RESTConfig(), client.Options{Scheme: scheme})
	require.NoError(e.t, err)
	c := &changes{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, list := range []client.ObjectList{&gatewayv1.HTTPRouteList{}, &envoyv1alpha1.SecurityPolicyList{}} {
		stream, err := watching.Watch(ctx, list, client.InNamespace(kube.GuardNamespace))
		require.NoError(e.t, err)
		running.Go(func() { c.listen(stream) })
	}
	e.t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

func (c *changes) listen(stream watch.Interface) {
	for event := range stream.ResultChan() {
		object, ok := event.Object.(client.Object)
		if !ok {
			continue // the end of the stream
		}
		order, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
		if err != nil {
			continue
		}
		c.mutex.Lock()
		c.versions = append(c.versions, change{order: order, deleted: event.Type == watch.Deleted, object: object})
		c.mutex.Unlock()
	}
}

func (c *changes) ordered() []change {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	slices.SortStableFunc(c.versions, func(a, b change) int { return int(a.order - b.order) })
	return slices.Clone(c.versions)
}

// latest is the number of the last change so far.
func (c *changes) latest() int64 {
	all := c.ordered()
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].order
}

// wasShut reports whether the route had no backend in some version after a change.
func (c *changes) wasShut(name string, after int64) bool {
	for _, version := range c.ordered() {
		if route, ok := version.object.(*gatewayv1.HTTPRoute); ok && route.Name == name && version.order > after && !leads(route) {
			return true
		}
	}
	return false
}

// openedUnguarded lists the moments at which a route got its backend although
// Envoy Gateway had not accepted the present form of our policy for it. It also
// returns how often a route got its backend at all.
func (c *changes) openedUnguarded() (problems []string, opened int) {
	policies := map[string]*envoyv1alpha1.SecurityPolicy{}
	open := map[string]bool{}
	for _, version := range c.ordered() {
		switch object := version.object.(type) {
		case *envoyv1alpha1.SecurityPolicy:
			policies[object.Name] = object
			if version.deleted {
				delete(policies, object.Name)
			}
		case *gatewayv1.HTTPRoute:
			if object.Labels[kube.LabelManagedBy] != kube.ManagedByOperator {
				continue
			}
			leading := leads(object) && !version.deleted
			if leading && !open[object.Name] {
				opened++
				if problem := unguarded(object, policies); problem != "" {
					problems = append(problems, fmt.Sprintf("%d: HTTPRoute %s: %s", version.order, object.Name, problem))
				}
			}
			open[object.Name] = leading
		}
	}
	return problems, opened
}

// unguarded says why no policy of ours is in force for the route.
func unguarded(route *gatewayv1.HTTPRoute, policies map[string]*envoyv1alpha1.SecurityPolicy) string {
	problem := "no policy"
	for _, policy := range policies {
		if policy.Labels[kube.LabelManagedBy] != kube.ManagedByOperator ||
			!slices.ContainsFunc(policy.Spec.TargetRefs, func(target gatewayv1.LocalPolicyTargetReferenceWithSectionName) bool {
				return string(target.Name) == route.Name
			}) {
			continue
		}
		problem = accepted(policy)
		if problem == "" {
			return ""
		}
	}
	return problem
}

// accepted says why a policy is not accepted in its present form; empty when it is.
func accepted(policy *envoyv1alpha1.SecurityPolicy) string {
	if policy.DeletionTimestamp != nil {
		return policy.Name + " is being deleted"
	}
	if len(policy.Status.Ancestors) == 0 {
		return policy.Name + " has no answer"
	}
	for _, ancestor := range policy.Status.Ancestors {
		condition := apimeta.FindStatusCondition(ancestor.Conditions, string(gatewayv1.PolicyConditionAccepted))
		if condition == nil || condition.Status != "True" || condition.ObservedGeneration != policy.Generation {
			return fmt.Sprintf("%s, generation %d: %+v", policy.Name, policy.Generation, condition)
		}
	}
	return ""
}
