package appliance

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// Modules answers what is asked of the module catalog; *catalogs.Modules does.
type Modules interface {
	// Resolve finds a module by canonical key or alias.
	Resolve(name string) (catalogs.Module, bool)
}

// Seeds are the modules to switch on: enabled in spec.modules, under their key
// or an alias (contract/appliance.md H45), and asked for by no activation.
// unknown are the keys that no module has; they are reported, and no activation
// is made that could never work and that the operator may not delete again.
func Seeds(spec map[string]appliancev1alpha1.ApplianceSpecModulesValue, modules Modules, asked func(catalogs.Module) bool) (seeds, unknown []string) {
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		if !ptr.Deref(spec[name].Enabled, false) {
			continue
		}
		module, known := modules.Resolve(name)
		switch {
		case !known:
			unknown = append(unknown, name)
		case module.Static, module.Key == "basis", module.Key == "dashboard":
			// Part of the installation (contract/appliance.md C.2).
		case !slices.Contains(seeds, module.Key) && !asked(module):
			seeds = append(seeds, module.Key)
		}
	}
	return seeds, unknown
}

// names are all under which activations may ask for the module.
func names(module catalogs.Module) []string {
	return append([]string{module.Key}, module.Aliases...)
}

// nameTaken says that no activation for the module can be made, because its name
// belongs to one for another module; empty when it is for this one.
func nameTaken(key string, namesake *appliancev1alpha1.ModuleActivation, modules Modules) string {
	other := namesake.Spec.Module
	if module, known := modules.Resolve(other); known {
		other = module.Key
	}
	if other == key {
		return ""
	}
	return fmt.Sprintf("spec.modules: ModuleActivation %s exists but is for module %s; delete it, or switch %s on under another name",
		namesake.Name, kube.Truncate(other, maxShown), key)
}

// maxShown cuts names in messages that a person may have made very long.
const maxShown = 80
