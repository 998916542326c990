package modules

import (
	"context"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// Settings are the names that an installation may choose.
type Settings struct {
	// FluxNamespace holds the Kustomizations.
	FluxNamespace string
	// SettingsConfigMap, in FluxNamespace, holds the variables of the appliance.
	SettingsConfigMap string
}

// World is what can be looked up, the cache of the controller or a file of a test.
type World interface {
	kube.ModuleLookup
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
	// Kustomization of the catalog's name, nil when there is none. It may be
	// somebody else's: see owned.
	Kustomization *kustomizev1.Kustomization
	// Owned are the Kustomizations that exist on behalf of the module, also
	// under a name that the catalog no longer uses. Static modules have none.
	Owned []*kustomizev1.Kustomization
	// Requires has one entry per required module, in the order of the catalog.
	Requires []Requirement
	Flux     Flux
	Source   kube.Source
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
	// NameTaken is an activation for another module under the name that one
	// for this module would get, so that none can be made.
	NameTaken *appliancev1alpha1.ModuleActivation
	// Kustomization is nil when it does not exist.
	Kustomization *kustomizev1.Kustomization
}

// Observe collects the facts of one activation. catalog is nil when catalogErr is set.
func Observe(ctx context.Context, activation *appliancev1alpha1.ModuleActivation, catalog Catalog, catalogErr error, world World, flux Flux) (Facts, error) {
	facts := Facts{Activation: activation, Flux: flux, Source: kube.DefaultSource}
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
	if facts.Module == nil || !facts.Module.Static {
		if err := facts.ownedKustomizations(ctx, askedAs[0], world); err != nil {
			return facts, err
		}
	}
	return facts, facts.requirements(ctx, catalog, world)
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
				var err error
				if requirement.Activation, requirement.NameTaken, err = kube.FindActivation(ctx, module.Key, names(module), world); err != nil {
					return err
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
	if oldest := kube.Deciding(activations); oldest != nil && oldest.DeletionTimestamp == nil {
		return oldest
	}
	return nil
}
