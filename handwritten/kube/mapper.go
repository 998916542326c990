package kube

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// OptionalMapper makes the REST mapper of a manager that knows optional kinds
// by heart and asks the API server for all others. Without it, a cache that is
// bound to a namespace cannot be built while the CRD of one of them is absent.
func OptionalMapper(scheme *runtime.Scheme, kinds ...OptionalKind) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(connection *rest.Config, client *http.Client) (meta.RESTMapper, error) {
		known := meta.NewDefaultRESTMapper(nil)
		for _, kind := range kinds {
			gvk, err := apiutil.GVKForObject(kind.Prototype, scheme)
			if err != nil {
				return nil, fmt.Errorf("looking up the kind behind %s: %w", kind.CRD, err)
			}
			plural, _, _ := strings.Cut(kind.CRD, ".")
			scope := meta.RESTScopeNamespace
			if kind.ClusterScoped {
				scope = meta.RESTScopeRoot
			}
			known.AddSpecific(gvk, gvk.GroupVersion().WithResource(plural),
				gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind)), scope)
		}
		discovered, err := apiutil.NewDynamicRESTMapper(connection, client)
		if err != nil {
			return nil, fmt.Errorf("asking the API server for its kinds: %w", err)
		}
		return optionalMapper{discovered, known}, nil
	}
}

// optionalMapper answers for kinds; everything that starts from a resource
// name goes to the API server, as nobody asks that for optional kinds.
type optionalMapper struct {
	meta.RESTMapper
	known *meta.DefaultRESTMapper
}

func (m optionalMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if mapping, err := m.known.RESTMapping(kind, versions...); err == nil {
		return mapping, nil
	}
	return m.RESTMapper.RESTMapping(kind, versions...)
}

func (m optionalMapper) RESTMappings(kind schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	if mappings, err := m.known.RESTMappings(kind, versions...); err == nil {
		return mappings, nil
	}
	return m.RESTMapper.RESTMappings(kind, versions...)
}
