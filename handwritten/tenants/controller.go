package tenants

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=appinstances,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=resourcequotas;limitranges,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete

// Reconciler carries out plans for tenant namespaces.
type Reconciler struct {
	// Client reads from the cache.
	Client client.Client
	// Children writes the objects that are rendered.
	Children *kube.Children
	// Namespace of the AppInstances.
	Namespace string
}

// Setup adds the controller to the manager. The cache holds those of the three
// kinds that carry the operator's label.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	inside := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
	})
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetName() == policyName || object.GetName() == quotaName || object.GetName() == limitsName
	}))
	err := ctrl.NewControllerManagedBy(mgr).
		Named("tenants").
		For(&corev1.Namespace{}, builder.WithPredicates(tenants())).
		Watches(&appliancev1alpha1.AppInstance{}, handler.EnqueueRequestsFromMapFunc(r.tenantsOf), builder.WithPredicates(ofPaperclip())).
		Watches(&networkingv1.NetworkPolicy{}, inside, ours).
		Watches(&corev1.ResourceQuota{}, inside, ours).
		Watches(&corev1.LimitRange{}, inside, ours).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of Paperclip's namespaces: %w", err)
	}
	return nil
}

// Reconcile makes one pass over one namespace.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := &corev1.Namespace{}
	if err := r.Client.Get(ctx, request.NamespacedName, namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	list := &appliancev1alpha1.AppInstanceList{}
	if err := r.Client.List(ctx, list, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("looking for the instance behind namespace %s: %w", namespace.Name, err)
	}
	instances := make([]*appliancev1alpha1.AppInstance, 0, len(list.Items))
	for i := range list.Items {
		instances = append(instances, &list.Items[i])
	}
	return kube.Outcome(ctx, r.carryOut(ctx, namespace.Name, Compute(namespace, instances)))
}

func (r *Reconciler) carryOut(ctx context.Context, namespace string, plan Plan) error {
	network, networkFound, err := read(ctx, r.Children, namespace, policyName, &networkingv1.NetworkPolicy{})
	if err != nil {
		return err
	}
	if plan.RemovePolicy && networkFound && network.Labels[kube.LabelManagedBy] == kube.ManagedByOperator {
		log.FromContext(ctx).Info("nobody owns this namespace any more, removing its network policy", "namespace", namespace)
		return r.Children.Delete(ctx, network)
	}
	if plan.Policy == nil {
		return nil
	}
	if err := r.apply(ctx, plan.Policy, &networkingv1.NetworkPolicy{}, network, networkFound); err != nil {
		return err
	}
	quota, found, err := read(ctx, r.Children, namespace, quotaName, &corev1.ResourceQuota{})
	if err != nil {
		return err
	}
	if err := r.apply(ctx, plan.Quota, &corev1.ResourceQuota{}, quota, found); err != nil {
		return err
	}
	limits, found, err := read(ctx, r.Children, namespace, limitsName, &corev1.LimitRange{})
	if err != nil {
		return err
	}
	return r.apply(ctx, plan.Limits, &corev1.LimitRange{}, limits, found)
}

func read[T client.Object](ctx context.Context, children *kube.Children, namespace, name string, object T) (T, bool, error) {
	found, err := children.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object)
	// A read that found nothing leaves the object without its key.
	object.SetNamespace(namespace)
	object.SetName(name)
	return object, found, err
}

func (r *Reconciler) apply(ctx context.Context, desired runtime.ApplyConfiguration, prototype, current client.Object, found bool) error {
	name := client.ObjectKeyFromObject(current)
	if !found {
		current = nil
	}
	_, err := r.Children.Apply(ctx, desired, name, prototype, current)
	return err
}

// tenantsOf enqueues the namespaces that may be the instance's.
func (r *Reconciler) tenantsOf(ctx context.Context, object client.Object) []reconcile.Request {
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.MatchingLabels{labelManagedBy: managedByPlugin}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing Paperclip's namespaces")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, object.GetName()+"-") {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}})
		}
	}
	return requests
}

// tenants lets Paperclip's namespaces through, also one that stops being one.
func tenants() predicate.Predicate {
	is := func(object client.Object) bool {
		namespace, ok := object.(*corev1.Namespace)
		return ok && tenant(namespace)
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return is(e.Object) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(e event.GenericEvent) bool { return is(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return is(e.ObjectOld) || is(e.ObjectNew) },
	}
}

// ofPaperclip lets instances of Paperclip through when what they want changed.
func ofPaperclip() predicate.Predicate {
	return predicate.And(
		predicate.NewPredicateFuncs(func(object client.Object) bool {
			instance, ok := object.(*appliancev1alpha1.AppInstance)
			return ok && instance.Spec.Application == application
		}),
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
				(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
		}},
	)
}
