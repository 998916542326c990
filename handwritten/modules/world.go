package modules

import (
	"context"
	"fmt"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"magicstick.dev/operator/handwritten/kube"
)

// cacheWorld looks things up in the caches of the manager.
type cacheWorld struct {
	kube.CachedModules

	kustomizations client.Reader // Flux's
	children       *kube.Children
	fluxNamespace  string
}

func (w cacheWorld) Kustomization(ctx context.Context, name string) (*kustomizev1.Kustomization, error) {
	kustomization := &kustomizev1.Kustomization{}
	found, err := w.children.Get(ctx, types.NamespacedName{Namespace: w.fluxNamespace, Name: name}, kustomization)
	if err != nil || !found {
		return nil, err
	}
	return kustomization, nil
}

func (w cacheWorld) Kustomizations(ctx context.Context, module string) ([]*kustomizev1.Kustomization, error) {
	list := &kustomizev1.KustomizationList{}
	err := w.kustomizations.List(ctx, list, client.InNamespace(w.fluxNamespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{kube.LabelManagedBy: kube.ManagedByOperator, kube.LabelModule: module})
	if err != nil {
		return nil, fmt.Errorf("listing the Kustomizations of module %s: %w", module, err)
	}
	found := make([]*kustomizev1.Kustomization, 0, len(list.Items))
	for i := range list.Items {
		current := &kustomizev1.Kustomization{}
		exists, err := w.children.Get(ctx, client.ObjectKeyFromObject(&list.Items[i]), current)
		if err != nil {
			return nil, err
		}
		if exists {
			found = append(found, current)
		}
	}
	return found, nil
}
