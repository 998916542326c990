package catalogs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"magicstick.dev/operator/generated/catalogs"
)

// Source is the ConfigMap entry that holds a catalog.
type Source struct {
	// Title names the catalog in messages.
	Title string
	// Namespace and Name of the ConfigMap.
	Namespace, Name string
	// Key of the entry with the JSON text.
	Key string
}

// Where the catalogs live (contract/appliance.md D.1 to D.4).
var (
	ModulesSource      = Source{"module catalog", "ai-system", "magicstick-module-catalog", "modules.json"}
	ApplicationsSource = Source{"application catalog", "ai-system", "magicstick-app-catalog", "applications.json"}
	PresetsSource      = Source{"preset catalog", "ai-system", "magicstick-model-presets", "presets.json"}
	EnginesSource      = Source{"engine catalog", "ai-system", "magicstick-engine-catalog", "engines.json"}
	RealtimeSource     = Source{"realtime catalog", "ai-system", "magicstick-realtime-profiles", "realtime.json"}
)

// text takes the catalog out of its ConfigMap.
func (s Source) text(configMap *corev1.ConfigMap) ([]byte, error) {
	if text, found := configMap.Data[s.Key]; found {
		return []byte(text), nil
	}
	keys := slices.Sorted(maps.Keys(configMap.Data))
	if len(keys) == 0 {
		return nil, fmt.Errorf("key %s: missing, the ConfigMap is empty", s.Key)
	}
	return nil, fmt.Errorf("key %s: missing, the ConfigMap has %s", s.Key, strings.Join(keys, ", "))
}

// fromConfigMap reads a catalog with parse and names the ConfigMap in errors.
func fromConfigMap[T any](source Source, configMap *corev1.ConfigMap, parse func([]byte) (*T, error)) (*T, error) {
	text, err := source.text(configMap)
	if err == nil {
		var catalog *T
		if catalog, err = parse(text); err == nil {
			return catalog, nil
		}
	}
	return nil, fmt.Errorf("reading the %s from ConfigMap %s/%s: %w", source.Title, configMap.Namespace, configMap.Name, err)
}

// ShippedConfigMaps returns the catalogs that the product ships as the
// ConfigMaps from which they are read, for "magicstick dev" and for tests. An
// installed appliance gets them from its Git source or chart.
func ShippedConfigMaps() []*corev1.ConfigMap {
	var configMaps []*corev1.ConfigMap
	for _, shipped := range []struct {
		source Source
		text   []byte
	}{
		{ModulesSource, catalogs.ShippedModuleCatalogJSON()},
		{ApplicationsSource, catalogs.ShippedApplicationCatalogJSON()},
		{PresetsSource, catalogs.ShippedPresetCatalogJSON()},
		{EnginesSource, catalogs.ShippedEngineCatalogJSON()},
		{RealtimeSource, catalogs.ShippedRealtimeCatalogJSON()},
	} {
		configMaps = append(configMaps, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: shipped.source.Namespace, Name: shipped.source.Name},
			Data:       map[string]string{shipped.source.Key: string(shipped.text)},
		})
	}
	return configMaps
}

// findings collects the breaches of rules that no schema can express.
type findings []catalogs.Violation

func (f *findings) add(path, rule, value string) {
	*f = append(*f, catalogs.Violation{Path: path, Rule: rule, Value: value})
}

// err is nil without findings.
func (f findings) err(source Source) error {
	if len(f) == 0 {
		return nil
	}
	slices.SortStableFunc(f, func(a, b catalogs.Violation) int { return strings.Compare(a.Path, b.Path) })
	return &catalogs.InvalidError{Catalog: source.Title, Violations: f}
}

// titleCase is the display name of an entry that has none: anything-llm becomes
// "Anything Llm".
func titleCase(key string) string {
	words := strings.FieldsFunc(key, func(r rune) bool { return r == '-' || r == '.' })
	for i, word := range words {
		words[i] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, " ")
}
