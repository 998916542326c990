package operator

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"magicstick.dev/operator/handwritten/activations"
	"magicstick.dev/operator/handwritten/appliance"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/instances"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/modules"
)

// shipped reads the catalogs from their ConfigMaps, each parsed once per change.
type shipped struct {
	modules      *kube.ConfigMapDocument[*catalogs.Modules]
	applications *kube.ConfigMapDocument[*catalogs.Applications]
	presets      *kube.ConfigMapDocument[*catalogs.Presets]
	engines      *kube.ConfigMapDocument[*catalogs.Engines]
	realtime     *kube.ConfigMapDocument[*catalogs.Realtime]
}

func newShipped(reader client.Reader, options Options) *shipped {
	return &shipped{
		modules: &kube.ConfigMapDocument[*catalogs.Modules]{
			Reader: reader, Name: options.ModuleCatalog, Parse: catalogs.ModulesFromConfigMap,
		},
		applications: &kube.ConfigMapDocument[*catalogs.Applications]{
			Reader: reader, Name: options.ApplicationCatalog, Parse: catalogs.ApplicationsFromConfigMap,
		},
		presets: &kube.ConfigMapDocument[*catalogs.Presets]{
			Reader: reader, Name: options.ModelPresets, Parse: catalogs.PresetsFromConfigMap,
		},
		engines: &kube.ConfigMapDocument[*catalogs.Engines]{
			Reader: reader, Name: options.EngineCatalog, Parse: catalogs.EnginesFromConfigMap,
		},
		realtime: &kube.ConfigMapDocument[*catalogs.Realtime]{
			Reader: reader, Name: options.RealtimeProfiles, Parse: catalogs.RealtimeFromConfigMap,
		},
	}
}

// moduleCatalogs is what the room modules asks for.
type moduleCatalogs struct{ *shipped }

func (c moduleCatalogs) ModuleCatalog(ctx context.Context) (modules.Catalog, error) {
	catalog, err := c.modules.Get(ctx)
	if err != nil {
		return nil, err
	}
	return catalog, nil
}

// applianceCatalogs is what the room appliance asks for.
type applianceCatalogs struct{ *shipped }

func (c applianceCatalogs) Modules(ctx context.Context) (appliance.Modules, error) {
	catalog, err := c.modules.Get(ctx)
	if err != nil {
		return nil, err
	}
	return catalog, nil
}

func (c applianceCatalogs) Applications(ctx context.Context) (appliance.Applications, error) {
	catalog, err := c.applications.Get(ctx)
	if err != nil {
		return nil, err
	}
	return catalog, nil
}

// instanceCatalogs is what the room instances asks for.
type instanceCatalogs struct{ *shipped }

func (c instanceCatalogs) Modules(ctx context.Context) (instances.Modules, error) {
	catalog, err := c.modules.Get(ctx)
	if err != nil {
		return nil, err
	}
	return catalog, nil
}

func (c instanceCatalogs) Applications(ctx context.Context) (instances.Applications, error) {
	catalog, err := c.applications.Get(ctx)
	if err != nil {
		return nil, err
	}
	return catalog, nil
}

// modelCatalogs is what the room activations asks for.
type modelCatalogs struct{ *shipped }

// ModelCatalogs takes the last good catalog where the present one cannot be used:
// a slip in one of them takes no model out of service.
func (c modelCatalogs) ModelCatalogs(ctx context.Context) activations.CatalogSet {
	var set activations.CatalogSet
	var problems []string
	set.Presets = present(ctx, c.presets, &problems)
	set.Engines = present(ctx, c.engines, &problems)
	set.Realtime = present(ctx, c.realtime, &problems)
	if modules := present(ctx, c.modules, &problems); modules != nil {
		set.Modules = modules
	}
	set.Problem = strings.Join(problems, "; ")
	return set
}

// present is the catalog as it is, or was when it was last good; nil when it never was.
func present[T any](ctx context.Context, document *kube.ConfigMapDocument[*T], problems *[]string) *T {
	catalog, err := document.Get(ctx)
	if err == nil {
		return catalog
	}
	*problems = append(*problems, err.Error())
	last, _ := document.LastGood()
	return last
}

// domains reads the domains of the appliance from its settings. Without
// settings the defaults apply.
type domains struct {
	reader   client.Reader
	name     types.NamespacedName
	defaults kube.Domains
}

func (d domains) Domains(ctx context.Context) (kube.Domains, error) {
	settings := &corev1.ConfigMap{}
	err := d.reader.Get(ctx, d.name, settings, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return kube.Domains{}, fmt.Errorf("reading the settings from ConfigMap %s: %w", d.name, err)
	}
	return kube.DomainsFrom(settings.Data, d.defaults), nil
}
