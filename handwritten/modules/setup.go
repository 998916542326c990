package modules

import (
	"context"
	"fmt"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

// workers is how many activations are worked on at a time. A pass waits for
// the API server most of its time.
const workers = 8

// Setup adds the two controllers of this room to the manager: one for
// activations, one for Kustomizations that nobody asks for any more. The
// manager's cache needs kube.IndexModuleActivations.
func (r *Reconciler) Setup(mgr ctrl.Manager, kinds *kube.OptionalKinds, catalog types.NamespacedName) error {
	trigger, leftoverTrigger := &kube.Trigger{}, &kube.Trigger{}
	activations, err := ctrl.NewControllerManagedBy(mgr).
		Named("modules").
		For(&appliancev1alpha1.ModuleActivation{}).
		Watches(&appliancev1alpha1.ModuleActivation{}, handler.EnqueueRequestsFromMapFunc(r.related), builder.WithPredicates(kube.IntentChanged())).
		Watches(&appliancev1alpha1.Appliance{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(kube.SourceChanged(r.Appliance))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.all), builder.WithPredicates(kube.Named(catalog))).
		WatchesRawSource(trigger).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Build(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of modules: %w", err)
	}
	leftovers, err := ctrl.NewControllerManagedBy(mgr).
		Named("module-leftovers").
		Watches(&appliancev1alpha1.ModuleActivation{}, handler.EnqueueRequestsFromMapFunc(r.kustomizationsOf), builder.WithPredicates(deletions())).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.allKustomizations), builder.WithPredicates(kube.Named(catalog))).
		WatchesRawSource(leftoverTrigger).
		Build(reconcile.Func(r.reconcileLeftover))
	if err != nil {
		return fmt.Errorf("setting up the controller of left over Kustomizations: %w", err)
	}
	kinds.Watch(KustomizationKind(), activations, handler.EnqueueRequestsFromMapFunc(r.dependingOn),
		func(ctx context.Context) { trigger.Enqueue(r.all(ctx, nil)...) })
	kinds.Watch(KustomizationKind(), leftovers, &handler.EnqueueRequestForObject{},
		func(ctx context.Context) { leftoverTrigger.Enqueue(r.allKustomizations(ctx, nil)...) },
		predicate.NewPredicateFuncs(ours))
	return nil
}

// all enqueues every activation.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &appliancev1alpha1.ModuleActivationList{}
	err := r.Client.List(ctx, list, client.InNamespace(r.Appliance.Namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing activations to look at again")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// related enqueues the other activations that an activation decides over: the
// duplicates of its module, those whose module requires it, and those that wait
// for its name.
func (r *Reconciler) related(ctx context.Context, object client.Object) []reconcile.Request {
	activation, ok := object.(*appliancev1alpha1.ModuleActivation)
	if !ok {
		return nil
	}
	return r.affected(ctx, activation.Spec.Module, activation.Name)
}

// dependingOn enqueues the activations that a Kustomization speaks for: those of
// the module on its label and of the module that uses its name - which are two
// when one stands in the way of the other - and of the modules that require them.
func (r *Reconciler) dependingOn(ctx context.Context, object client.Object) []reconcile.Request {
	modules := []string{object.GetLabels()[kube.LabelModule]}
	if catalog, err := r.Catalogs.ModuleCatalog(ctx); err == nil {
		for _, candidate := range catalog.All() {
			if kustomizationName(candidate) == object.GetName() {
				modules = append(modules, candidate.Key)
			}
		}
	}
	return r.affected(ctx, modules...)
}

// affected enqueues the activations of the modules and of what requires them.
func (r *Reconciler) affected(ctx context.Context, modules ...string) []reconcile.Request {
	var askedAs []string
	catalog, err := r.Catalogs.ModuleCatalog(ctx)
	for _, module := range modules {
		if module == "" {
			continue
		}
		askedAs = append(askedAs, module)
		if err != nil {
			continue
		}
		if found, known := catalog.Resolve(module); known {
			askedAs = append(askedAs, names(found)...)
		}
		for _, key := range catalog.Dependants(module) {
			if found, known := catalog.Resolve(key); known {
				askedAs = append(askedAs, names(found)...)
			}
		}
	}
	activations, err := r.world().Activations(ctx, askedAs...)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing activations to look at again")
		return nil
	}
	return kube.Requests(activations)
}

func (r *Reconciler) kustomizationsOf(ctx context.Context, object client.Object) []reconcile.Request {
	activation, ok := object.(*appliancev1alpha1.ModuleActivation)
	if !ok {
		return nil
	}
	module := activation.Spec.Module
	if catalog, err := r.Catalogs.ModuleCatalog(ctx); err == nil {
		if found, known := catalog.Resolve(module); known {
			module = found.Key
		}
	}
	return r.labelled(ctx, client.MatchingLabels{kube.LabelManagedBy: kube.ManagedByOperator, kube.LabelModule: module})
}

func (r *Reconciler) allKustomizations(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.labelled(ctx, client.MatchingLabels{kube.LabelManagedBy: kube.ManagedByOperator})
}

func (r *Reconciler) labelled(ctx context.Context, labels client.MatchingLabels) []reconcile.Request {
	if presence, _ := r.Kinds.Presence(ctx, KustomizationKind().CRD); presence != kube.Present {
		return nil
	}
	list := &kustomizev1.KustomizationList{}
	if err := r.Foreign.List(ctx, list, client.InNamespace(r.Settings.FluxNamespace), labels, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing Kustomizations to look at again")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

func deletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// ours are Kustomizations that carry the operator's labels.
func ours(object client.Object) bool {
	labels := object.GetLabels()
	return labels[kube.LabelManagedBy] == kube.ManagedByOperator && labels[kube.LabelModule] != ""
}
