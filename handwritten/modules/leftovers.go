package modules

import (
	"context"
	"fmt"
	"slices"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// reconcileLeftover removes a Kustomization of a known module when no
// activation is left that could (contract/appliance.md C.1 step 6): somebody
// took the finalizer off by force. A module that the catalog does not know is
// left alone, because the catalog may be the mistake.
func (r *Reconciler) reconcileLeftover(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if presence, _ := r.Kinds.Presence(ctx, KustomizationKind().CRD); presence != kube.Present {
		return reconcile.Result{}, nil
	}
	kustomization := &kustomizev1.Kustomization{}
	found, err := r.Children.Get(ctx, request.NamespacedName, kustomization)
	if err != nil || !found || !ours(kustomization) || kustomization.DeletionTimestamp != nil {
		return reconcile.Result{}, err
	}
	catalog, err := r.Catalogs.ModuleCatalog(ctx)
	if err != nil {
		return reconcile.Result{}, nil //nolint:nilerr // Without a catalog nothing is removed; its return enqueues.
	}
	module, known := catalog.Resolve(kustomization.Labels[kube.LabelModule])
	if !known || module.Static {
		// A module that became part of the installation is not ours any more.
		return reconcile.Result{}, nil
	}
	askedAs := names(module)
	activations, err := r.world().Activations(ctx, askedAs...)
	if err != nil || len(activations) > 0 {
		return reconcile.Result{}, err
	}
	// The cache of activations may be behind the one of Kustomizations, and
	// removing a running module is not to be undone: ask the API server.
	list := &appliancev1alpha1.ModuleActivationList{}
	if err := r.Live.List(ctx, list, client.InNamespace(r.Appliance.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("asking for the activations of module %s: %w", module.Key, err)
	}
	for i := range list.Items {
		if slices.Contains(askedAs, list.Items[i].Spec.Module) {
			return reconcile.Result{}, nil
		}
	}
	return kube.Outcome(ctx, r.remove(ctx, kustomization))
}
