package activations

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// workers is how many activations are worked on at a time. A pass waits for the
// API server most of its time.
const workers = 8

// The pause after a failure grows from the first to the last. A model whose
// runtime the API server could not take waits no longer than that once it can.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Setup adds the controllers of this room to the manager. shipped are the
// ConfigMaps of the catalogs. The manager's cache needs
// kube.IndexModuleActivations and IndexPods. It returns what makes the controller
// look at activations again, for news that are no objects.
func (r *Reconciler) Setup(mgr ctrl.Manager, kinds *kube.OptionalKinds, shipped ...types.NamespacedName) (*kube.Trigger, error) {
	trigger := &kube.Trigger{}
	all := handler.EnqueueRequestsFromMapFunc(r.all)
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("activations").
		For(&appliancev1alpha1.ModelActivation{}).
		Watches(&appliancev1alpha1.ModuleActivation{}, all, builder.WithPredicates(moduleChanged())).
		Watches(&corev1.ConfigMap{}, all, builder.WithPredicates(kube.Named(shipped...))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.listed), builder.WithPredicates(kube.Named(r.indexes()...))).
		Watches(&corev1.Node{}, all, builder.WithPredicates(nodeChanged())).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod)).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.ofRuntime)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.ofRuntime)).
		WatchesRawSource(trigger).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Build(r)
	if err != nil {
		return nil, fmt.Errorf("setting up the controller of model activations: %w", err)
	}
	again := func(ctx context.Context) { trigger.Enqueue(r.all(ctx, nil)...) }
	kinds.Watch(kubeAIKind, built, handler.EnqueueRequestsFromMapFunc(r.ofModel), again)
	for _, kind := range []kube.OptionalKind{preparedKind, preparedClusterKind} {
		kinds.Watch(kind, built, handler.EnqueueRequestsFromMapFunc(r.ofPrepared), again)
	}
	return trigger, nil
}

// indexes are the ConfigMaps with the generated catalogs.
func (r *Reconciler) indexes() []types.NamespacedName {
	names := make([]types.NamespacedName, 0, len(r.Namespaces))
	for _, namespace := range r.Namespaces {
		names = append(names, types.NamespacedName{Namespace: namespace, Name: r.Index})
	}
	return names
}

// all enqueues every activation.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.those(ctx, func(*appliancev1alpha1.ModelActivation) bool { return true })
}

// listed enqueues the activations that the generated catalog matters to: those
// that have come as far as that.
func (r *Reconciler) listed(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.those(ctx, func(activation *appliancev1alpha1.ModelActivation) bool {
		replicas := activation.Status.Replicas
		return activation.Spec.Type == appliancev1alpha1.ModelActivationSpecTypeExternal || replicas != nil && replicas.Ready > 0
	})
}

// those enqueues the activations that pass.
func (r *Reconciler) those(ctx context.Context, pass func(*appliancev1alpha1.ModelActivation) bool) []reconcile.Request {
	list := &appliancev1alpha1.ModelActivationList{}
	err := r.Client.List(ctx, list, client.InNamespace(r.Appliance.Namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing activations to look at again")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		if pass(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// ofModel enqueues the activation that has the name of a KubeAI Model, also when
// the Model is somebody else's.
func (r *Reconciler) ofModel(_ context.Context, object client.Object) []reconcile.Request {
	return r.activation(object.GetName())
}

func (r *Reconciler) ofPod(_ context.Context, object client.Object) []reconcile.Request {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	return r.activation(activationOf(pod))
}

// ofRuntime enqueues the activation whose direct runtime has the name.
func (r *Reconciler) ofRuntime(_ context.Context, object client.Object) []reconcile.Request {
	name, found := strings.CutSuffix(object.GetName(), runtimeSuffix)
	if !found {
		return nil
	}
	return r.activation(name)
}

func (r *Reconciler) activation(name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Appliance.Namespace, Name: name}}}
}

// ofPrepared enqueues the activations that serve a prepared model.
func (r *Reconciler) ofPrepared(ctx context.Context, object client.Object) []reconcile.Request {
	return r.those(ctx, func(activation *appliancev1alpha1.ModelActivation) bool {
		local := activation.Spec.Local
		return local != nil && local.ModelRef != nil && local.ModelRef.Name == object.GetName()
	})
}

// moduleChanged lets through what matters to models: that a module is wanted,
// and how it is.
func moduleChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isOld := e.ObjectOld.(*appliancev1alpha1.ModuleActivation)
		after, isNew := e.ObjectNew.(*appliancev1alpha1.ModuleActivation)
		return !isOld || !isNew || before.Generation != after.Generation || kube.Going(e) ||
			before.Status.Phase != after.Status.Phase ||
			ptr.Deref(before.Status.Message, "") != ptr.Deref(after.Status.Message, "") ||
			ptr.Deref(before.Status.ObservedGeneration, -1) != ptr.Deref(after.Status.ObservedGeneration, -1)
	}}
}

// nodeChanged lets a node through when what is known of its hardware changed; the
// kubelet writes much more often than that.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isOld := e.ObjectOld.(*corev1.Node)
		after, isNew := e.ObjectNew.(*corev1.Node)
		return !isOld || !isNew || !reflect.DeepEqual(nodeFrom(before), nodeFrom(after))
	}}
}
