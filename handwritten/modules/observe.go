package modules

import (
	"context"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// Source is the Flux source that Kustomizations point at.
type Source struct{ Kind, Name, Namespace string }

// DefaultSource is used while no Appliance says otherwise (contract/appliance.md C.1).
var DefaultSource = Source{Kind: "GitRepository", Name: "flux-system", Namespace: "flux-system"}

// Settings are the names that an installation may choose.
type Settings struct {
	// FluxNamespace holds the Kustomizations.
	FluxNamespace string
	// SettingsConfigMap, in FluxNamespace, holds the variables of the appliance.
	SettingsConfigMap string
}

// World is what can be looked up, the cache of the controller or a file of a test.
type World interface {
	// Activations are those whose spec.module is one of the names.
	Activations(ctx context.Context, names ...string) ([]*appliancev1alpha1.ModuleActivation, error)
	// Kustomization of that name in Flux's namespace, nil when there is none.
	Kustomization(ctx context.Context, name string) (*kustomizev1.Kustomization, error)
	// Kustomizations that carry the operator's labels for the module.
	Kustomizations(ctx context.Context, module string) ([]*kustomizev1.Kustomization, error)
}

// Flux says whether Kustomizations can be read and written.
type Flux struct {
	Presence kube.Presence
	// Detail names the missing CRD.
	Detail string
}

// Facts is everything that a plan is computed from.
type Facts struct {
	Activation *appliancev1alpha1.ModuleActivation
	// CatalogError says why the catalog cannot be read; Module is nil then.
	CatalogError string
	// Module is nil when the catalog does not know it.
	Module *catalogs.Module
	// Winner is the activation that decides for the module: the oldest that is
	// not being deleted. It is nil when only deleted ones are left.
	Winner *appliancev1alpha1.ModuleActivation
	// Kustomization of the catalog's name, nil when there is none.
	Kustomization *kustomizev1.Kustomization
	// Owned are the Kustomizations that exist on behalf of the module, also
	// under a name that the catalog no longer uses.
	Owned []*kustomizev1.Kustomization
	// Requires has one entry per required module, in the order of the catalog.
	Requires []Requirement
	Flux     Flux
	Source   Source
	Settings Settings
	Now      time.Time
}

// Requirement is the state of a required module.
type Requirement struct {
	// Key is canonical when Module is known.
	Key    string
	Module *catalogs.Module
	// Activation that decides; nil for static modules and when nobody asked.
	Activation *appliancev1alpha1.ModuleActivation
	// Kustomization is nil when it does not exist.
	Kustomization *kustomizev1.Kustomization
}

// Observe collects the facts of one activation. catalog is nil when catalogErr is set.
func Observe(ctx context.Context, activation *appliancev1alpha1.ModuleActivation, catalog Catalog, catalogErr error, world World, flux Flux) (Facts, error) {
	facts := Facts{Activation: activation, Flux: flux, Source: DefaultSource}
	askedAs := []string{activation.Spec.Module}
	if catalogErr != nil {
		facts.CatalogError = catalogErr.Error()
	} else if module, found := catalog.Resolve(activation.Spec.Module); found {
		facts.Module = &module
		askedAs = names(module)
	}
	same, err := world.Activations(ctx, askedAs...)
	if err != nil {
		return facts, err
	}
	facts.Winner = winner(same)
	if flux.Presence != kube.Present {
		return facts, facts.requirements(ctx, catalog, world)
	}

	if facts.Module != nil {
		if facts.Kustomization, err = world.Kustomization(ctx, kustomizationName(*facts.Module)); err != nil {
			return facts, err
		}
	}
	if facts.Module == nil || activation.DeletionTimestamp != nil || !ptr.Deref(activation.Spec.Enabled, true) {
		if err := facts.ownedKustomizations(ctx, askedAs[0], world); err != nil {
			return facts, err
		}
	}
	return facts, facts.requirements(ctx, catalog, world)
}

// ownedKustomizations finds what a removal has to remove: by label, and what
// lost its labels by the name in the status and in the catalog.
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
		f.own(inStatus, module)
	}
	f.own(named, module)
	return nil
}

func (f *Facts) own(kustomization *kustomizev1.Kustomization, module string) {
	if kustomization != nil && owned(kustomization, module) && !contains(f.Owned, kustomization) {
		f.Owned = append(f.Owned, kustomization)
	}
}

func (f *Facts) requirements(ctx context.Context, catalog Catalog, world World) error {
	if f.Module == nil {
		return nil
	}
	for _, name := range f.Module.Requires {
		requirement := Requirement{Key: name}
		module, found := catalog.Resolve(name)
		if found {
			requirement.Key, requirement.Module = module.Key, &module
			if !module.Static {
				activations, err := world.Activations(ctx, names(module)...)
				if err != nil {
					return err
				}
				requirement.Activation = winner(activations)
				if requirement.Activation == nil && len(activations) > 0 {
					requirement.Activation = activations[0]
				}
			}
			if f.Flux.Presence == kube.Present {
				kustomization, err := world.Kustomization(ctx, kustomizationName(module))
				if err != nil {
					return err
				}
				requirement.Kustomization = kustomization
			}
		}
		f.Requires = append(f.Requires, requirement)
	}
	return nil
}

// winner is the oldest activation that is not being deleted (contract/appliance.md
// H15). One that is being deleted gives way, so that its successor takes over
// the running module instead of installing it again.
func winner(activations []*appliancev1alpha1.ModuleActivation) *appliancev1alpha1.ModuleActivation {
	var oldest *appliancev1alpha1.ModuleActivation
	for _, candidate := range activations {
		if candidate.DeletionTimestamp == nil && (oldest == nil || older(candidate, oldest)) {
			oldest = candidate
		}
	}
	return oldest
}

// older orders by creation, then by name: two objects may share a second.
func older(a, b *appliancev1alpha1.ModuleActivation) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// owned tells the operator's Kustomizations from those of people. A foreign one
// of the same name is never deleted.
func owned(kustomization *kustomizev1.Kustomization, module string) bool {
	labels := kustomization.GetLabels()
	if labels[kube.LabelManagedBy] == kube.ManagedByOperator && labels[kube.LabelModule] == module {
		return true
	}
	for _, entry := range kustomization.GetManagedFields() {
		if entry.Manager == kube.FieldManager && entry.Subresource == "" {
			return true
		}
	}
	return false
}

func contains(list []*kustomizev1.Kustomization, wanted *kustomizev1.Kustomization) bool {
	for _, candidate := range list {
		if candidate.Name == wanted.Name {
			return true
		}
	}
	return false
}
