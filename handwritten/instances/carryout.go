package instances

import (
	"context"
	"errors"
	"fmt"
	"slices"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"magicstick.dev/operator/handwritten/kube"
)

// walk carries out the steps in their order. What a plan took from the cache is
// asked of the API server again where being wrong would open a door: whether the
// routes are closed before a policy is touched, whether the policy is accepted
// before a route is opened.
//
// After a failure, one of before included, nothing is made or opened any more,
// but every route that has to be shut still is.
func (r *Reconciler) walk(ctx context.Context, steps []Step, facts Facts, failure error) error {
	for _, step := range steps {
		if failure != nil && !(step.Do.shuts() && facts.Routes[step.Name] != nil) {
			continue
		}
		if err := r.take(ctx, step, facts); err != nil {
			failure = errors.Join(failure, err)
			continue
		}
		log.FromContext(ctx).V(1).Info("changed the access", "step", string(step.Do), "object", step.Name)
	}
	return failure
}

func (r *Reconciler) take(ctx context.Context, step Step, facts Facts) error {
	name := types.NamespacedName{Namespace: r.Settings.IdentityNamespace, Name: step.Name}
	switch step.Do {
	case ApplyGrant:
		name.Namespace = targetNamespace(facts.Instance)
		_, err := r.Children.Apply(ctx, step.Grant, name, &gatewayv1beta1.ReferenceGrant{}, facts.Grant)
		return err
	case RemoveGrant:
		return r.Children.Delete(ctx, facts.Grant)
	case CloseRoute:
		_, err := r.Children.Apply(ctx, step.Route, name, &gatewayv1.HTTPRoute{}, facts.Routes[step.Name])
		return err
	case OpenRoute:
		return r.open(ctx, step, name, facts.Routes[step.Name])
	case WithdrawBackend:
		return r.withdraw(ctx, facts.Routes[step.Name])
	case RemoveRoute:
		return r.Children.Delete(ctx, facts.Routes[step.Name])
	}
	if err := r.closed(ctx, step.Routes); err != nil {
		return err
	}
	switch step.Do {
	case ApplyPolicy:
		_, err := r.Children.Apply(ctx, step.Policy, name, &envoyv1alpha1.SecurityPolicy{}, facts.Policies[step.Name])
		return err
	case ReplacePolicy:
		return r.replacePolicy(ctx, name)
	case ReleasePolicy:
		_, err := r.releasePolicy(ctx, name)
		return err
	case RemovePolicy:
		policy, err := r.releasePolicy(ctx, name)
		if err != nil || policy == nil || policy.DeletionTimestamp != nil {
			return err
		}
		return r.Children.Delete(ctx, policy)
	}
	return fmt.Errorf("changing the access: unknown step %q", step.Do)
}

// open writes a route with its backend, bound to the version of the route that
// was written for the policy as it is now. Whoever changes the policy writes
// the routes first, so a late call of an earlier process fails here.
func (r *Reconciler) open(ctx context.Context, step Step, name types.NamespacedName, current *gatewayv1.HTTPRoute) error {
	live, err := r.livePolicy(ctx, types.NamespacedName{Namespace: name.Namespace, Name: *step.Policy.Name})
	if err != nil {
		return err
	}
	state, err := judge(step.Policy, live, r.Settings.Gateway, r.Settings.IdentityNamespace)
	if err != nil {
		return err
	}
	now, err := mark(step.Policy, live)
	if err != nil {
		return err
	}
	switch {
	case !state.accepted:
		return stale("httproutes", name.Name, state.problem)
	case now != step.Mark:
		return stale("httproutes", name.Name, "the policy is another one by now")
	}
	step.Route.WithResourceVersion(current.ResourceVersion)
	_, err = r.Children.Apply(ctx, step.Route, name, &gatewayv1.HTTPRoute{}, current)
	return err
}

// closed makes sure that the routes lead nowhere, by asking the API server.
func (r *Reconciler) closed(ctx context.Context, routes []string) error {
	for _, name := range routes {
		route := &gatewayv1.HTTPRoute{}
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Settings.IdentityNamespace, Name: name}, route)
		switch {
		case absent(err):
		case err != nil:
			return fmt.Errorf("asking whether HTTPRoute %s has a backend: %w", name, err)
		default:
			if err := r.withdraw(ctx, route); err != nil {
				return err
			}
		}
	}
	return nil
}

// withdraw takes the backend from a route; the API server's answer confirms it.
func (r *Reconciler) withdraw(ctx context.Context, route *gatewayv1.HTTPRoute) error {
	if !hasBackend(route) {
		return nil
	}
	return client.IgnoreNotFound(r.Children.Patch(ctx, route, withoutBackends(route)))
}

// releasePolicy takes our finalizer off; nil when there is no such policy.
func (r *Reconciler) releasePolicy(ctx context.Context, name types.NamespacedName) (*envoyv1alpha1.SecurityPolicy, error) {
	policy, err := r.livePolicy(ctx, name)
	if err != nil || policy == nil {
		return nil, err
	}
	before := policy.DeepCopy()
	if !controllerutil.RemoveFinalizer(policy, finalizerGuard) {
		return policy, nil
	}
	if err := r.Children.Patch(ctx, before, policy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return policy, nil
}

// replacePolicy deletes a policy to which another program or a person added
// something, because an apply takes away only what it gave. Fields without
// another owner are defaults of a CRD that is newer than this program: they are
// reported and left alone, and the routes stay closed.
func (r *Reconciler) replacePolicy(ctx context.Context, name types.NamespacedName) error {
	policy, err := r.livePolicy(ctx, name)
	if err != nil || policy == nil {
		return err
	}
	foreign := slices.ContainsFunc(policy.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager != kube.FieldManager && entry.Subresource == ""
	})
	if !foreign {
		return nil
	}
	if policy, err = r.releasePolicy(ctx, name); err != nil || policy == nil {
		return err
	}
	return r.Children.Delete(ctx, policy)
}

// livePolicy asks the API server; nil when there is no such policy.
func (r *Reconciler) livePolicy(ctx context.Context, name types.NamespacedName) (*envoyv1alpha1.SecurityPolicy, error) {
	policy := &envoyv1alpha1.SecurityPolicy{}
	err := r.Live.Get(ctx, name, policy)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking for SecurityPolicy %s: %w", name, err)
	}
	return policy, nil
}

// absent: no such object, or no such kind.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// stale is the error of a plan that was made from facts that no longer hold.
func stale(resource, name, why string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: resource}, name, fmt.Errorf("the facts have changed: %s", why))
}
