package modules

import (
	"context"
	"slices"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"magicstick.dev/operator/handwritten/kube"
)

// owned tells the Kustomizations that the operator made for the module from
// those of people and of other modules, which are never changed or deleted,
// whatever their name. The labels decide; where a hand took them off, the
// fields that the operator applied do.
func owned(kustomization *kustomizev1.Kustomization, module string) bool {
	labels := kustomization.GetLabels()
	switch labels[kube.LabelModule] {
	case module:
		return labels[kube.LabelManagedBy] == kube.ManagedByOperator || applied(kustomization)
	case "":
		return applied(kustomization)
	}
	return false
}

// applied reports whether the operator has written the Kustomization. A mere
// change to one does not count: only what it renders is applied.
func applied(kustomization *kustomizev1.Kustomization) bool {
	return slices.ContainsFunc(kustomization.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == kube.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
	})
}

// ownedKustomizations finds what stands for the module in the cluster: by label,
// and what lost its labels by the name in the status and in the catalog.
func (f *Facts) ownedKustomizations(ctx context.Context, module string, world World) error {
	var err error
	if f.Owned, err = world.Kustomizations(ctx, module); err != nil {
		return err
	}
	named := f.Kustomization
	if name := ptr.Deref(f.Activation.Status.Kustomization, ""); name != "" && (named == nil || named.Name != name) {
		inStatus, err := world.Kustomization(ctx, name)
		if err != nil {
			return err
		}
		mine := inStatus != nil && owned(inStatus, module)
		if inStatus != nil && !mine && f.Module == nil {
			if mine, err = underCanonicalName(ctx, inStatus, world); err != nil {
				return err
			}
		}
		if mine {
			f.own(inStatus)
		}
	}
	if named != nil && owned(named, module) {
		f.own(named)
	}
	return nil
}

// underCanonicalName is for an activation whose spec.module cannot be resolved:
// it may be an alias, and the label of what it made holds the canonical key.
// The name in its status says that the Kustomization is its own, unless there
// is an activation under the key on the label.
func underCanonicalName(ctx context.Context, kustomization *kustomizev1.Kustomization, world World) (bool, error) {
	key := kustomization.GetLabels()[kube.LabelModule]
	if !owned(kustomization, key) {
		return false, nil
	}
	activations, err := world.Activations(ctx, key)
	return err == nil && len(activations) == 0, err
}

func (f *Facts) own(kustomization *kustomizev1.Kustomization) {
	if !slices.ContainsFunc(f.Owned, func(other *kustomizev1.Kustomization) bool { return other.Name == kustomization.Name }) {
		f.Owned = append(f.Owned, kustomization)
	}
}
