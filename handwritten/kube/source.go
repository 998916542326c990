package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

// Source is where Flux finds manifests and charts.
type Source struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// DefaultSource is used while no Appliance says otherwise (contract/appliance.md C.1).
var DefaultSource = Source{Kind: "GitRepository", Name: "flux-system", Namespace: "flux-system"}

// SourceOf is the source that an Appliance names.
func SourceOf(appliance *appliancev1alpha1.Appliance) Source {
	source := appliance.Spec.Source
	return Source{Kind: string(source.Kind), Name: source.Name, Namespace: source.Namespace}
}

// ReadSource reads the source from the Appliance, from a cache. Without an
// Appliance it is DefaultSource.
func ReadSource(ctx context.Context, reader client.Reader, name types.NamespacedName) (Source, error) {
	appliance := &appliancev1alpha1.Appliance{}
	err := reader.Get(ctx, name, appliance, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if client.IgnoreNotFound(err) != nil {
		return DefaultSource, fmt.Errorf("reading the source from Appliance %s: %w", name, err)
	}
	if err != nil {
		return DefaultSource, nil
	}
	return SourceOf(appliance), nil
}

// SourceChanged lets the Appliance through when what is rendered from its source
// would change.
func SourceChanged(appliance types.NamespacedName) predicate.Predicate {
	return predicate.And(Named(appliance), predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, isOld := e.ObjectOld.(*appliancev1alpha1.Appliance)
			after, isNew := e.ObjectNew.(*appliancev1alpha1.Appliance)
			return !isOld || !isNew || SourceOf(before) != SourceOf(after)
		},
	})
}
