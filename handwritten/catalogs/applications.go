package catalogs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"magicstick.dev/operator/generated/catalogs"
)

// Application tells how instances of one application are installed and reached.
type Application struct {
	// Key is the value of an AppInstance's spec.application.
	Key string
	// DisplayName is the name as people read it.
	DisplayName string
	// Description says in a sentence what the application is for; may be empty.
	Description string
	// ChartPath is the folder of the Helm chart in the appliance's source, without leading "./".
	ChartPath string
	// Route is the Service behind the instance's address.
	Route catalogs.ApplicationRoute
	// RequiredModules must be Ready before an instance is installed, in catalog order.
	RequiredModules []string
	// RequiredCRDs must exist before an instance is installed.
	RequiredCRDs []string
	// NativeKind and NativeAPIVersion name the object that the chart makes; empty when it makes none of its own kind.
	NativeKind, NativeAPIVersion string
	nativeName                   catalogs.ApplicationNativeName
}

// ServiceName is the name of the Service behind an instance's route.
func (a Application) ServiceName(instance, shortName string) string {
	if a.Route.ServiceName == catalogs.ApplicationRouteServiceNameShortName {
		return shortName
	}
	return instance
}

// NativeName is the name of the object that the chart makes for an instance;
// empty when the application declares none.
func (a Application) NativeName(instance, shortName string) string {
	switch {
	case a.NativeKind == "":
		return ""
	case a.nativeName == catalogs.ApplicationNativeNameShortName:
		return shortName
	}
	return instance
}

// Applications is the parsed application catalog.
type Applications struct {
	byKey map[string]Application
}

// ApplicationsFromConfigMap reads the application catalog from its ConfigMap.
func ApplicationsFromConfigMap(configMap *corev1.ConfigMap) (*Applications, error) {
	return fromConfigMap(ApplicationsSource, configMap, ParseApplications)
}

// ParseApplications reads an application catalog from JSON. A breach of the
// schema is a *catalogs.InvalidError of generated/catalogs.
func ParseApplications(text []byte) (*Applications, error) {
	catalog, err := catalogs.ParseApplicationCatalog(text)
	if err != nil {
		return nil, err
	}
	applications := &Applications{byKey: make(map[string]Application, len(catalog.Applications))}
	for key, entry := range catalog.Applications {
		applications.byKey[key] = Application{
			Key:              key,
			DisplayName:      cmp.Or(entry.DisplayName, titleCase(key)),
			Description:      entry.Description,
			ChartPath:        entry.ChartPath,
			Route:            entry.Route,
			RequiredModules:  entry.RequiredModules,
			RequiredCRDs:     entry.RequiredCRDs,
			NativeKind:       entry.NativeKind,
			NativeAPIVersion: entry.NativeAPIVersion,
			nativeName:       entry.NativeName,
		}
	}
	return applications, nil
}

// Get finds an application by its key.
func (a *Applications) Get(key string) (Application, bool) {
	application, found := a.byKey[key]
	return application, found
}

// All lists the applications by key.
func (a *Applications) All() []Application {
	var all []Application
	for _, key := range sortedKeys(a.byKey) {
		all = append(all, a.byKey[key])
	}
	return all
}

// CheckModules finds required modules that the module catalog does not have.
// The two catalogs are separate objects and may be out of step for a moment,
// therefore this is not a part of parsing.
func (a *Applications) CheckModules(modules *Modules) error {
	var problems findings
	for _, application := range a.All() {
		for i, required := range application.RequiredModules {
			if _, known := modules.Resolve(required); !known {
				problems.add(fmt.Sprintf("applications.%s.requiredModules[%d]", application.Key, i), "no such module", strconv.Quote(required))
			}
		}
	}
	return problems.err(ApplicationsSource)
}

func sortedKeys[V any](entries map[string]V) []string { return slices.Sorted(maps.Keys(entries)) }
