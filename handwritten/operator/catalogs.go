package operator

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"magicstick.dev/operator/handwritten/appliance"
	"magicstick.dev/operator/handwritten/catalogs"
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
