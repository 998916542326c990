package activations

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// Setup adds the controller to the manager. catalogs are the ConfigMaps of the
// shipped catalogs.
func (r *Profiles) Setup(mgr ctrl.Manager, kinds *kube.OptionalKinds, catalogs ...types.NamespacedName) error {
	r.pace.quiet = cmp.Or(r.Quiet, DefaultProfilesQuiet)
	r.pace.interval = cmp.Or(r.Interval, DefaultProfilesInterval)
	trigger := &kube.Trigger{}
	news := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return r.news() })
	namespaces := []types.NamespacedName{{Name: r.Namespace}, {Name: r.wrapperName().Namespace}}
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("kubeai-configuration").
		Watches(&appliancev1alpha1.ModelActivation{}, news, builder.WithPredicates(wishChanged())).
		Watches(&appliancev1alpha1.ModuleActivation{}, news, builder.WithPredicates(comesOrGoes())).
		Watches(&corev1.ConfigMap{}, news, builder.WithPredicates(kube.Named(append(catalogs, r.profilesName(), r.wrapperName())...))).
		Watches(&corev1.Namespace{}, news, builder.WithPredicates(kube.Named(namespaces...), comesOrGoes())).
		Watches(&corev1.Node{}, news, builder.WithPredicates(offerChanged())).
		WatchesRawSource(trigger).
		Build(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of KubeAI's configuration: %w", err)
	}
	again := func(context.Context) { trigger.Enqueue(r.news()...) }
	kinds.Watch(kubeAIKind, built, news, again, profileChanged())
	for _, kind := range []kube.OptionalKind{preparedKind, preparedClusterKind} {
		kinds.Watch(kind, built, news, again, readyChanged())
	}
	return nil
}

// news notes that something changed and asks for a look at both ConfigMaps.
func (r *Profiles) news() []reconcile.Request {
	r.pace.news(r.Activations.Now())
	return []reconcile.Request{{NamespacedName: r.profilesName()}, {NamespacedName: r.wrapperName()}}
}

// updates lets every beginning and end through, and of the changes those that
// differ in what counts.
func updates[T client.Object](differ func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isOld := e.ObjectOld.(T)
		after, isNew := e.ObjectNew.(T)
		return !isOld || !isNew || differ(before, after)
	}}
}

// comesOrGoes lets no change through that is neither beginning nor end.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// wishChanged lets an activation through when it may ask for something else.
func wishChanged() predicate.Predicate {
	return updates(func(before, after *appliancev1alpha1.ModelActivation) bool {
		return before.Generation != after.Generation || (before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
	})
}

// profileChanged lets a Model of KubeAI through when it names another profile.
func profileChanged() predicate.Predicate {
	return updates(func(before, after *kubeaiv1.Model) bool {
		return before.Spec == nil || after.Spec == nil || before.Spec.ResourceProfile != after.Spec.ResourceProfile
	})
}

// readyChanged lets a prepared model through when it can be served, or no more.
func readyChanged() predicate.Predicate {
	ready := func(object client.Object) bool {
		for _, kind := range []string{kindModel, kindClusterModel} {
			if prepared := PreparedFrom(kind, object, ""); prepared != nil {
				return prepared.Ready
			}
		}
		return false
	}
	return updates(func(before, after client.Object) bool { return ready(before) != ready(after) })
}

// offerChanged lets a node through when it offers another resource, or no longer
// does.
func offerChanged() predicate.Predicate {
	return updates(func(before, after *corev1.Node) bool {
		was, is := nodeFrom(before).Extended, nodeFrom(after).Extended
		if len(was) != len(is) {
			return true
		}
		for name := range was {
			if _, still := is[name]; !still {
				return true
			}
		}
		return false
	})
}
