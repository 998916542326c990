package instances

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// workers is how many instances are worked on at a time. A pass waits for the
// API server most of its time.
const workers = 8

// Setup adds the controller of this room to the manager. configMaps are those
// of the catalogs and of the settings. The manager's cache needs
// kube.IndexModuleActivations and IndexInstances.
func (r *Reconciler) Setup(mgr ctrl.Manager, kinds *kube.OptionalKinds, configMaps ...types.NamespacedName) error {
	trigger := &kube.Trigger{}
	all := handler.EnqueueRequestsFromMapFunc(r.all)
	instances, err := ctrl.NewControllerManagedBy(mgr).
		Named("instances").
		For(&appliancev1alpha1.AppInstance{}).
		Watches(&appliancev1alpha1.AppInstance{}, handler.EnqueueRequestsFromMapFunc(r.namesakes), builder.WithPredicates(kube.IntentChanged())).
		Watches(&appliancev1alpha1.ModuleActivation{}, handler.EnqueueRequestsFromMapFunc(r.requiring)).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, handler.EnqueueRequestsFromMapFunc(r.needing), builder.WithPredicates(existenceChanged())).
		Watches(&appliancev1alpha1.Appliance{}, all, builder.WithPredicates(kube.SourceChanged(r.Appliance))).
		Watches(&corev1.ConfigMap{}, all, builder.WithPredicates(kube.Named(configMaps...))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.inNamespace), builder.WithPredicates(existenceChanged())).
		WatchesRawSource(trigger).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Build(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of instances: %w", err)
	}
	changed := func(ctx context.Context) { trigger.Enqueue(r.all(ctx, nil)...) }
	kinds.Watch(releaseKind, instances, handler.EnqueueRequestsFromMapFunc(r.named), changed)
	for _, kind := range []kube.OptionalKind{routeKind, policyKind, grantKind} {
		kinds.Watch(kind, instances, handler.EnqueueRequestsFromMapFunc(r.labelled), changed)
	}
	return nil
}

// all enqueues every instance.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.matching(ctx)
}

// matching enqueues the instances that the options select.
func (r *Reconciler) matching(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	instances, err := r.world().instances(ctx, options...)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing instances to look at again")
		return nil
	}
	return kube.Requests(instances)
}

// namesakes enqueues the instances that share host names with this one: when
// the older goes, the younger may come.
func (r *Reconciler) namesakes(ctx context.Context, object client.Object) []reconcile.Request {
	instance, ok := object.(*appliancev1alpha1.AppInstance)
	if !ok {
		return nil
	}
	short, _ := kube.InstanceShortName(instance) // Usable all the same.
	return r.matching(ctx, client.MatchingFields{indexHost: hostKey(instance.Spec.Application, short)})
}

// requiring enqueues the instances whose application requires the module of an
// activation, or one whose name the activation takes.
func (r *Reconciler) requiring(ctx context.Context, object client.Object) []reconcile.Request {
	activation, ok := object.(*appliancev1alpha1.ModuleActivation)
	if !ok {
		return nil
	}
	modules, err := r.Catalogs.Modules(ctx)
	if err != nil {
		return nil // The catalog's return enqueues.
	}
	key := func(name string) string {
		if module, found := modules.Resolve(name); found {
			return module.Key
		}
		return name
	}
	module, taken := key(activation.Spec.Module), activation.Name
	return r.whose(ctx, func(application string) bool {
		found, known := r.application(ctx, application)
		for _, required := range found.RequiredModules {
			if known && (key(required) == module || key(required) == taken) {
				return true
			}
		}
		return false
	})
}

// needing enqueues the instances whose application needs the CRD.
func (r *Reconciler) needing(ctx context.Context, object client.Object) []reconcile.Request {
	return r.whose(ctx, func(application string) bool {
		found, known := r.application(ctx, application)
		for _, crd := range found.RequiredCRDs {
			if known && crd == object.GetName() {
				return true
			}
		}
		return false
	})
}

// whose enqueues the instances of the applications that match, asking once per application.
func (r *Reconciler) whose(ctx context.Context, matches func(application string) bool) []reconcile.Request {
	instances, err := r.world().instances(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "listing instances to look at again")
		return nil
	}
	answers := map[string]bool{}
	var requests []reconcile.Request
	for _, instance := range instances {
		answer, asked := answers[instance.Spec.Application]
		if !asked {
			answer = matches(instance.Spec.Application)
			answers[instance.Spec.Application] = answer
		}
		if answer {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(instance)})
		}
	}
	return requests
}

func (r *Reconciler) inNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	return r.matching(ctx, client.MatchingFields{indexNamespace: object.GetName()})
}

// named enqueues the instance of the same name: a HelmRelease.
func (r *Reconciler) named(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Appliance.Namespace, Name: object.GetName()}}}
}

// labelled enqueues the instance that an object was made for.
func (r *Reconciler) labelled(_ context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[kube.LabelInstance]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Appliance.Namespace, Name: name}}}
}

// existenceChanged lets through that something is there, ready to be used, or goes.
func existenceChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isCRD := e.ObjectOld.(*apiextensionsv1.CustomResourceDefinition)
			after, wasCRD := e.ObjectNew.(*apiextensionsv1.CustomResourceDefinition)
			if isCRD && wasCRD && kube.Established(before) != kube.Established(after) {
				return true
			}
			return kube.Going(e)
		},
	}
}

func (r *Reconciler) application(ctx context.Context, key string) (catalogs.Application, bool) {
	applications, err := r.Catalogs.Applications(ctx)
	if err != nil {
		return catalogs.Application{}, false
	}
	return applications.Get(key)
}
