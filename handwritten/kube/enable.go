package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

// IndexModule is the cache index over ModuleActivation.spec.module.
const IndexModule = "spec.module"

// IndexModuleActivations adds IndexModule to a cache, once per manager.
func IndexModuleActivations(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &appliancev1alpha1.ModuleActivation{}, IndexModule, func(object client.Object) []string {
		activation, ok := object.(*appliancev1alpha1.ModuleActivation)
		if !ok {
			return nil
		}
		return []string{activation.Spec.Module}
	})
	if err != nil {
		return fmt.Errorf("indexing ModuleActivations by module: %w", err)
	}
	return nil
}

// ModuleActivations lists the activations in a namespace whose spec.module is
// one of the names, from a cache with IndexModule. The objects are the cache's
// own and must not be changed.
func ModuleActivations(ctx context.Context, reader client.Reader, namespace string, names ...string) ([]*appliancev1alpha1.ModuleActivation, error) {
	var found []*appliancev1alpha1.ModuleActivation
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		list := &appliancev1alpha1.ModuleActivationList{}
		err := reader.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{IndexModule: name},
			client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
		if err != nil {
			return nil, fmt.Errorf("listing the activations of module %s: %w", name, err)
		}
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	return found, nil
}

// ModuleActivationNamed reads an activation by its own name, whatever module it
// is for, from the cache; nil when there is none. The object is the cache's own.
//
// The operator names an activation after its module. When the name is taken by
// an activation for another module, EnableModule can do nothing, and whoever
// waits for the module has to say so.
func ModuleActivationNamed(ctx context.Context, reader client.Reader, name types.NamespacedName) (*appliancev1alpha1.ModuleActivation, error) {
	activation := &appliancev1alpha1.ModuleActivation{}
	err := reader.Get(ctx, name, activation, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ModuleActivation %s: %w", name, err)
	}
	return activation, nil
}

// maxName cuts names in messages that a person may have made very long, in bytes.
const maxName = 80

// NameTaken says why a module cannot be switched on: its name belongs to an
// activation for another module.
func NameTaken(key string, namesake *appliancev1alpha1.ModuleActivation) string {
	return fmt.Sprintf("cannot be switched on: ModuleActivation %s exists but is for module %s; delete it, or switch %s on under another name",
		namesake.Name, Truncate(namesake.Spec.Module, maxName), key)
}

// EnableModule creates the ModuleActivation of a module that somebody needs and
// nobody has asked for (contract/appliance.md C.2, auto mode), and reports
// whether it did. key is canonical.
//
// It creates and never changes: an activation of that name that exists - also
// one that is disabled, or that the cache has not shown yet - stays as it is.
// A person's "off" is never undone.
func EnableModule(ctx context.Context, c client.Client, key string, appliance types.NamespacedName) (bool, error) {
	activation := &appliancev1alpha1.ModuleActivation{
		ObjectMeta: metav1.ObjectMeta{
			Name: key, Namespace: appliance.Namespace,
			Labels:      map[string]string{LabelManagedBy: ManagedByOperator, LabelModule: key},
			Annotations: map[string]string{AnnotationAutoEnabled: "true"},
		},
		Spec: appliancev1alpha1.ModuleActivationSpec{
			Module: key, Enabled: ptr.To(true),
			ApplianceRef: &appliancev1alpha1.ModuleActivationSpecApplianceRef{Name: appliance.Name, Namespace: appliance.Namespace},
		},
	}
	err := c.Create(ctx, activation, client.FieldOwner(FieldManager))
	switch {
	case apierrors.IsAlreadyExists(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("switching on module %s: %w", key, err)
	}
	return true, nil
}

// EnableModules is EnableModule for several modules.
func EnableModules(ctx context.Context, c client.Client, keys []string, appliance types.NamespacedName) error {
	for _, key := range keys {
		created, err := EnableModule(ctx, c, key, appliance)
		if err != nil {
			return err
		}
		if created {
			log.FromContext(ctx).Info("switched on a required module", "module", key)
		}
	}
	return nil
}
