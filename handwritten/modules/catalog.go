package modules

import (
	"context"

	"magicstick.dev/operator/handwritten/catalogs"
)

// Catalog is the module catalog as it is read right now; *catalogs.Modules is one.
type Catalog interface {
	// Resolve finds a module by canonical key or alias.
	Resolve(name string) (catalogs.Module, bool)
	// Dependants are the canonical keys of the modules that require this one directly.
	Dependants(name string) []string
	// All lists the modules.
	All() []catalogs.Module
}

// Catalogs reads the module catalog. An error means that it is missing or
// broken; its text is shown to people.
type Catalogs interface {
	ModuleCatalog(ctx context.Context) (Catalog, error)
}

// staticKustomizations repairs catalogs of older installations, which name
// objects for the two modules of the static graph that do not exist
// (contract/appliance.md C.2).
var staticKustomizations = map[string]string{
	"platform-basis": "infrastructure-basis",
	"app-dashboard":  "apps",
}

// kustomizationName is the name of the object whose readiness stands for the module.
func kustomizationName(module catalogs.Module) string {
	if name, found := staticKustomizations[module.KustomizationName]; found && module.Static {
		return name
	}
	return module.KustomizationName
}

// names are all under which activations may ask for the module.
func names(module catalogs.Module) []string {
	return append([]string{module.Key}, module.Aliases...)
}

// mayEnable is false for the modules that are part of the installation
// (contract/appliance.md C.2).
func mayEnable(module catalogs.Module) bool {
	return !module.Static && module.Key != "basis" && module.Key != "dashboard"
}
