package catalogs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"magicstick.dev/operator/generated/catalogs"
)

// Defaults of absent fields (contract/appliance.md D.1).
const (
	// OtherGroup lists the modules that name no group.
	OtherGroup = "other"
	// defaultOrder places modules without an order at the end of their group.
	defaultOrder = 10000
	// defaultParameterType is a plain text field.
	defaultParameterType = "text"
)

// Module is one capability of the appliance, with defaults filled in.
type Module struct {
	// Key is the canonical name and the name of the module's ModuleActivation.
	Key string
	// DisplayName is the name as people read it.
	DisplayName string
	// Description says in a sentence what the module is for; may be empty.
	Description string
	// Group is the key of the group that lists the module.
	Group string
	// Order is the position inside the group.
	Order int64
	// Aliases are the other names of the module.
	Aliases []string
	// Static modules belong to the appliance's own Flux graph and cannot be switched.
	Static bool
	// LocalModel tells that the module is normally switched on by the first local model that needs it.
	LocalModel bool
	// Path is the module's folder in the appliance's source, without leading "./".
	Path string
	// KustomizationName is the name of the Flux Kustomization in flux-system.
	KustomizationName string
	// Requires holds the canonical keys of the modules that must be Ready first, in catalog order.
	Requires []string
	// RequiredCRDs must be established before the module counts as healthy.
	RequiredCRDs []string
	// Default modules are seeded into a new appliance.
	Default bool
	// UninstallPolicy says what stays when the module is switched off; empty when the catalog says nothing.
	UninstallPolicy catalogs.ModuleUninstallPolicy
	// PostBuildSubstitution turns on the substitution of the appliance's settings.
	PostBuildSubstitution bool
	// Parameters that a ModuleActivation may set.
	Parameters []catalogs.ModuleParameter
	// CredentialsProvider is the built-in provider of the module's login; empty when it has none.
	CredentialsProvider catalogs.ModuleCredentialsProvider
}

// IsStatic tells whether the module belongs to the appliance's own Flux graph.
func (m Module) IsStatic() bool { return m.Static }

// Parameter finds a declared parameter by name.
func (m Module) Parameter(name string) (catalogs.ModuleParameter, bool) {
	index := slices.IndexFunc(m.Parameters, func(p catalogs.ModuleParameter) bool { return p.Name == name })
	if index < 0 {
		return catalogs.ModuleParameter{}, false
	}
	return m.Parameters[index], true
}

// Group is a heading in lists of modules.
type Group struct {
	// Key is the name that modules refer to.
	Key string
	// DisplayName is the heading as people read it.
	DisplayName string
	// Order is the position of the group.
	Order int64
}

// Modules is the parsed module catalog.
type Modules struct {
	byKey  map[string]Module
	names  map[string]string // key or alias, as written
	folded map[string]string // key or alias, in lower case
	listed []Module          // as people see them
	sorted []Module          // dependencies first
	groups []Group
}

// ModulesFromConfigMap reads the module catalog from its ConfigMap.
func ModulesFromConfigMap(configMap *corev1.ConfigMap) (*Modules, error) {
	return fromConfigMap(ModulesSource, configMap, ParseModules)
}

// ParseModules reads a module catalog from JSON. A breach of the schema or of a
// rule between modules is a *catalogs.InvalidError of generated/catalogs.
func ParseModules(text []byte) (*Modules, error) {
	catalog, err := catalogs.ParseModuleCatalog(text)
	if err != nil {
		return nil, err
	}
	modules := &Modules{
		byKey:  make(map[string]Module, len(catalog.Modules)),
		names:  map[string]string{},
		folded: map[string]string{},
	}
	var problems findings
	for _, key := range sortedKeys(catalog.Groups) {
		group := catalog.Groups[key]
		modules.groups = append(modules.groups, Group{Key: key, DisplayName: group.DisplayName, Order: group.Order})
	}
	if _, named := catalog.Groups[OtherGroup]; !named {
		modules.groups = append(modules.groups, Group{Key: OtherGroup, DisplayName: titleCase(OtherGroup), Order: 1000})
	}
	slices.SortStableFunc(modules.groups, func(a, b Group) int { return cmp.Compare(a.Order, b.Order) })

	keys := sortedKeys(catalog.Modules)
	modules.indexNames(keys, catalog.Modules, &problems)
	kustomizations := map[string]string{}
	for _, key := range keys {
		entry := catalog.Modules[key]
		path := "modules." + key
		if first, taken := kustomizations[entry.KustomizationName]; taken {
			problems.add(path+".kustomizationName", "already taken by module "+first, strconv.Quote(entry.KustomizationName))
		}
		kustomizations[entry.KustomizationName] = key
		modules.byKey[key] = modules.resolved(key, entry, &problems)
	}
	if err := problems.err(ModulesSource); err != nil {
		return nil, err
	}
	if err := modules.sort(keys); err != nil {
		return nil, err
	}
	return modules, nil
}

// indexNames fills the name indexes and finds names that stand for two modules.
// Names that differ only in case count as equal, because people's input is
// matched without regard to case.
func (m *Modules) indexNames(keys []string, entries map[string]catalogs.Module, problems *findings) {
	for _, key := range keys {
		m.names[key], m.folded[strings.ToLower(key)] = key, key
	}
	for _, key := range keys {
		for i, alias := range entries[key].Aliases {
			if owner, taken := m.folded[strings.ToLower(alias)]; taken && owner != key {
				problems.add(fmt.Sprintf("modules.%s.aliases[%d]", key, i), "already a name of module "+owner, strconv.Quote(alias))
				continue
			}
			m.names[alias], m.folded[strings.ToLower(alias)] = key, key
		}
	}
}

// resolved fills in defaults, turns required aliases into keys, and checks what
// the entry refers to.
func (m *Modules) resolved(key string, entry catalogs.Module, problems *findings) Module {
	path := "modules." + key
	module := Module{
		Key:                   key,
		DisplayName:           cmp.Or(entry.DisplayName, titleCase(key)),
		Description:           entry.Description,
		Group:                 cmp.Or(entry.Group, OtherGroup),
		Order:                 defaultOrder,
		Aliases:               entry.Aliases,
		Static:                entry.ActivationMode == catalogs.ModuleActivationModeStatic,
		LocalModel:            entry.ActivationPolicy == catalogs.ModuleActivationPolicyLocalModel,
		Path:                  entry.Path,
		KustomizationName:     entry.KustomizationName,
		RequiredCRDs:          entry.RequiredCRDs,
		Default:               entry.Default,
		UninstallPolicy:       entry.UninstallPolicy,
		PostBuildSubstitution: entry.PostBuildSubstitution,
		Parameters:            slices.Clone(entry.Parameters),
	}
	if entry.Order != nil {
		module.Order = *entry.Order
	}
	if entry.Credentials != nil {
		module.CredentialsProvider = entry.Credentials.Provider
	}
	if !slices.ContainsFunc(m.groups, func(g Group) bool { return g.Key == module.Group }) {
		problems.add(path+".group", "no such group", strconv.Quote(module.Group))
	}
	for i, required := range entry.Requires {
		target, known := m.names[required]
		switch {
		case !known:
			problems.add(fmt.Sprintf("%s.requires[%d]", path, i), "no such module", strconv.Quote(required))
		case slices.Contains(module.Requires, target):
			problems.add(fmt.Sprintf("%s.requires[%d]", path, i), "requires module "+target+" twice", strconv.Quote(required))
		default:
			module.Requires = append(module.Requires, target)
		}
	}
	variables := map[string]bool{}
	for i := range module.Parameters {
		parameter := &module.Parameters[i]
		parameter.Type = cmp.Or(parameter.Type, defaultParameterType)
		if slices.ContainsFunc(module.Parameters[:i], func(p catalogs.ModuleParameter) bool { return p.Name == parameter.Name }) {
			problems.add(fmt.Sprintf("%s.parameters[%d].name", path, i), "declared twice", strconv.Quote(parameter.Name))
		}
		if parameter.Substitution != "" && variables[parameter.Substitution] {
			problems.add(fmt.Sprintf("%s.parameters[%d].substitution", path, i), "already set by another parameter",
				strconv.Quote(parameter.Substitution))
		}
		variables[parameter.Substitution] = true
	}
	return module
}

// sort makes the two orders; a circle of dependencies is an error.
func (m *Modules) sort(keys []string) error {
	for _, key := range keys {
		m.listed = append(m.listed, m.byKey[key])
	}
	position := map[string]int64{}
	for _, group := range m.groups {
		position[group.Key] = group.Order
	}
	slices.SortStableFunc(m.listed, func(a, b Module) int {
		return cmp.Or(cmp.Compare(position[a.Group], position[b.Group]), cmp.Compare(a.Order, b.Order))
	})
	const (
		visiting = 1
		done     = 2
	)
	state := map[string]int{}
	var circle func(module Module, trail []string) []string
	circle = func(module Module, trail []string) []string {
		trail = append(trail, module.Key)
		switch state[module.Key] {
		case done:
			return nil
		case visiting:
			return trail[slices.Index(trail, module.Key):]
		}
		state[module.Key] = visiting
		for _, required := range module.Requires {
			if found := circle(m.byKey[required], trail); found != nil {
				return found
			}
		}
		state[module.Key] = done
		m.sorted = append(m.sorted, module)
		return nil
	}
	for _, module := range m.listed {
		if found := circle(module, nil); found != nil {
			var problems findings
			problems.add("modules."+found[0]+".requires", "requires itself in a circle", strings.Join(found, " -> "))
			return problems.err(ModulesSource)
		}
	}
	return nil
}

// Resolve finds a module by its canonical key or an alias, exactly as written.
// This is the lookup of spec.module, spec.modules and dependencies.
func (m *Modules) Resolve(name string) (Module, bool) {
	module, found := m.byKey[m.names[name]]
	return module, found
}

// ResolveFold is Resolve without regard to upper and lower case, for names that
// people type (contract/appliance.md E.2).
func (m *Modules) ResolveFold(name string) (Module, bool) {
	module, found := m.byKey[m.folded[strings.ToLower(name)]]
	return module, found
}

// All lists the modules as people see them: by group, order and key.
func (m *Modules) All() []Module { return m.listed }

// DependencyOrder lists the modules so that each comes after those that it requires.
func (m *Modules) DependencyOrder() []Module { return m.sorted }

// Groups lists the headings in their order.
func (m *Modules) Groups() []Group { return m.groups }

// Closure returns the named modules and everything that they require, directly
// or not, so that each comes after those that it requires. Names that are not
// in the catalog are left out.
func (m *Modules) Closure(names ...string) []Module {
	wanted := map[string]bool{}
	var want func(key string)
	want = func(key string) {
		if wanted[key] {
			return
		}
		wanted[key] = true
		for _, required := range m.byKey[key].Requires {
			want(required)
		}
	}
	for _, name := range names {
		if key, known := m.names[name]; known {
			want(key)
		}
	}
	var closure []Module
	for _, module := range m.sorted {
		if wanted[module.Key] {
			closure = append(closure, module)
		}
	}
	return closure
}

// Dependants lists the keys of the modules that require the named one directly,
// in display order.
func (m *Modules) Dependants(name string) []string {
	key, known := m.names[name]
	if !known {
		return nil
	}
	var dependants []string
	for _, module := range m.listed {
		if slices.Contains(module.Requires, key) {
			dependants = append(dependants, module.Key)
		}
	}
	return dependants
}
