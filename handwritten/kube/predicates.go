package kube

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Named lets the objects of these names through.
func Named(names ...types.NamespacedName) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(object client.Object) bool {
		return slices.Contains(names, client.ObjectKeyFromObject(object))
	})
}

// IntentChanged lets through what matters to other objects: that one exists,
// what it wants, and that it goes. Its status does not.
func IntentChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || Going(e)
		},
	}
}

// Going reports whether an update begins, or ends, a deletion.
func Going(e event.UpdateEvent) bool {
	return (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
}

// Requests are those for objects of a list.
func Requests[T client.Object](objects []T) []reconcile.Request {
	requests := make([]reconcile.Request, 0, len(objects))
	for _, object := range objects {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
	}
	return requests
}
