package operator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
}

func newShipped(reader client.Reader, options Options) *shipped {
	return &shipped{
		modules: &kube.ConfigMapDocument[*catalogs.Modules]{
			Reader: reader, Name: options.ModuleCatalog, Parse: catalogs.ModulesFromConfigMap,
		},
		applications: &kube.ConfigMapDocument[*catalogs.Applications]{
			Reader: reader, Name: options.ApplicationCatalog, Parse: catalogs.ApplicationsFromConfigMap,
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
