package kube

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
)

// ModuleLookup finds activations, in the cache of a controller or in a file of a test.
type ModuleLookup interface {
	// Activations are those whose spec.module is one of the names.
	Activations(ctx context.Context, names ...string) ([]*appliancev1alpha1.ModuleActivation, error)
	// Activation of that name, whatever module it is for; nil when there is none.
	Activation(ctx context.Context, name string) (*appliancev1alpha1.ModuleActivation, error)
}

// CachedModules is the ModuleLookup over a cache with IndexModule.
type CachedModules struct {
	Reader    client.Reader
	Namespace string
}

// Activations are those whose spec.module is one of the names.
func (m CachedModules) Activations(ctx context.Context, names ...string) ([]*appliancev1alpha1.ModuleActivation, error) {
	return ModuleActivations(ctx, m.Reader, m.Namespace, names...)
}

// Activation of that name, whatever module it is for; nil when there is none.
func (m CachedModules) Activation(ctx context.Context, name string) (*appliancev1alpha1.ModuleActivation, error) {
	return ModuleActivationNamed(ctx, m.Reader, types.NamespacedName{Namespace: m.Namespace, Name: name})
}

// Deciding is the activation that decides for a module: the oldest that is not
// being deleted (contract/appliance.md H15), else the oldest; nil without any.
func Deciding(activations []*appliancev1alpha1.ModuleActivation) *appliancev1alpha1.ModuleActivation {
	var found *appliancev1alpha1.ModuleActivation
	for _, candidate := range activations {
		if found == nil || decides(candidate, found) {
			found = candidate
		}
	}
	return found
}

// decides orders by being there to stay, then by age.
func decides(a, b *appliancev1alpha1.ModuleActivation) bool {
	if (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) {
		return a.DeletionTimestamp == nil
	}
	return Older(a, b)
}

// Older orders by creation, then by name: two objects may share a second.
func Older(a, b client.Object) bool {
	if before, after := a.GetCreationTimestamp(), b.GetCreationTimestamp(); !before.Equal(&after) {
		return before.Before(&after)
	}
	return a.GetName() < b.GetName()
}

// FindActivation finds the activation that decides for the module key, which
// people also call by the names askedAs. When there is none, taken is the
// activation for another module that has the name which it would get.
func FindActivation(ctx context.Context, key string, askedAs []string, lookup ModuleLookup) (found, taken *appliancev1alpha1.ModuleActivation, err error) {
	activations, err := lookup.Activations(ctx, askedAs...)
	if err != nil {
		return nil, nil, err
	}
	if found = Deciding(activations); found != nil {
		return found, nil, nil
	}
	namesake, err := lookup.Activation(ctx, key)
	switch {
	case err != nil || namesake == nil:
		return nil, nil, err
	case slices.Contains(askedAs, namesake.Spec.Module):
		return namesake, nil, nil // made between the two questions
	}
	return nil, namesake, nil
}

// RequiredModule is the state of a module that an object needs.
type RequiredModule struct {
	// Key is canonical when the module is known.
	Key    string
	Known  bool
	Static bool
	// Activation that decides; nil when nobody asked.
	Activation *appliancev1alpha1.ModuleActivation
	// NameTaken is an activation for another module under the name that one for
	// this module would get, so that none can be made.
	NameTaken *appliancev1alpha1.ModuleActivation
}

// ToEnable reports whether the module has to be switched on, and can be.
func (r RequiredModule) ToEnable() bool {
	return r.Known && !r.Static && r.Activation == nil && r.NameTaken == nil
}

// Missing says why the module does not count as Ready, empty when it does.
//
// What runs is more patient: Flux looks at every module again and again, and a
// module that is merely being looked at must not take anything back to where it
// waits for modules. What waits goes on when the module is Ready and not before.
func (r RequiredModule) Missing(running bool) string {
	activation := r.Activation
	switch {
	case !r.Known:
		return "not in the module catalog"
	case r.Static:
		return ""
	case activation == nil && r.NameTaken != nil:
		return NameTaken(r.Key, r.NameTaken)
	case activation == nil:
		return "being switched on"
	case activation.DeletionTimestamp != nil:
		return "being deleted"
	case !ptr.Deref(activation.Spec.Enabled, true):
		return "disabled"
	}
	status := activation.Status
	ready := status.Phase == appliancev1alpha1.ModuleActivationStatusPhaseReady
	seen := ptr.Deref(status.ObservedGeneration, -1) >= activation.Generation
	switch {
	case ready && (seen || running), running && relooked(activation):
		return ""
	case !seen:
		return "not looked at yet"
	}
	state := string(status.Phase)
	if message := ptr.Deref(status.Message, ""); message != "" {
		state += ": " + message
	}
	return state
}

// relooked reports whether Flux is at work on a module and has come to no result
// yet; a failure has another phase.
func relooked(activation *appliancev1alpha1.ModuleActivation) bool {
	ready := FindCondition(activation.Status.Conditions, conditions.ModuleActivationConditionReady)
	return activation.Status.Phase == appliancev1alpha1.ModuleActivationStatusPhaseReconciling &&
		ready != nil && ready.Reason == conditions.ModuleActivationReasonWaitingForKustomization
}
