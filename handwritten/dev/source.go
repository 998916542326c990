package dev

import (
	"context"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/dev/flux"
	"magicstick.dev/operator/handwritten/dev/gitserver"
)

// sourceName is the GitRepository that the default Appliance names.
const sourceName = "flux-system"

// standInSource is a Git tree with one small folder per module, where the
// appliance's own source has the real manifests. A stand-in creates a ConfigMap
// that shows the values of the module's parameters, and empty versions of the
// CRDs that the real module brings, so that everything that the operator and
// Flux do - substitution, health checks, pruning - happens for real, without
// images, nodes or internet.
func standInSource() (map[string][]byte, error) {
	modules, err := catalogs.ParseModules(shipped.ShippedModuleCatalogJSON())
	if err != nil {
		return nil, fmt.Errorf("making the stand-in source: %w", err)
	}
	files := map[string][]byte{}
	for _, module := range modules.All() {
		objects := append([]map[string]any{standInConfigMap(module)}, standInCRDs(module)...)
		var text strings.Builder
		for _, object := range objects {
			document, err := yaml.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("making the stand-in of module %s: %w", module.Key, err)
			}
			text.WriteString("---\n")
			text.Write(document)
		}
		files[path.Join(module.Path, "module.yaml")] = []byte(text.String())
		files[path.Join(module.Path, "kustomization.yaml")] = []byte(
			"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [module.yaml]\n")
	}
	return files, nil
}

func standInConfigMap(module catalogs.Module) map[string]any {
	data := map[string]any{"module": module.Key, "description": module.Description}
	for _, parameter := range module.Parameters {
		if parameter.Substitution != "" {
			// Flux replaces this by the value of the activation, or by the default.
			data[parameter.Name] = "${" + parameter.Substitution + ":=" + parameter.Placeholder + "}"
		}
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "ai", "name": "module-" + module.Key},
		"data":     data,
	}
}

// standInCRDs make <plural>.<group> known, with any content.
func standInCRDs(module catalogs.Module) []map[string]any {
	var crds []map[string]any
	for _, name := range module.RequiredCRDs {
		plural, group, _ := strings.Cut(name, ".")
		// The real kind's spelling is not in the catalog and does not matter here.
		singular := strings.TrimSuffix(plural, "s")
		kind := strings.ToUpper(singular[:1]) + singular[1:]
		crds = append(crds, map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{
				"name": name,
				// A group below k8s.io needs the approval that the real CRD has.
				"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, stand-in of magicstick dev"},
			},
			"spec": map[string]any{
				"group": group, "scope": "Namespaced",
				"names": map[string]any{"plural": plural, "singular": singular, "kind": kind, "listKind": kind + "List"},
				"versions": []any{map[string]any{
					"name": "v1", "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{
						"type": "object", "x-kubernetes-preserve-unknown-fields": true,
					}},
				}},
			},
		})
	}
	return crds
}

// applySource creates the GitRepository of the default Appliance and, as the
// appliance's own Flux graph does, the Kustomizations of the static modules.
func (s *session) applySource(ctx context.Context, url string) error {
	objects := []map[string]any{{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": map[string]any{"namespace": flux.Namespace, "name": sourceName},
		"spec": map[string]any{
			"url": url, "interval": "1m0s", "ref": map[string]any{"branch": gitserver.Branch},
		},
	}}
	modules, err := catalogs.ParseModules(shipped.ShippedModuleCatalogJSON())
	if err != nil {
		return fmt.Errorf("applying the Flux graph: %w", err)
	}
	for _, module := range modules.All() {
		if !module.IsStatic() {
			continue
		}
		objects = append(objects, map[string]any{
			"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
			"metadata": map[string]any{"namespace": flux.Namespace, "name": module.KustomizationName},
			"spec": map[string]any{
				"interval": "10m0s", "prune": true, "wait": true, "path": "./" + module.Path,
				"sourceRef": map[string]any{"kind": "GitRepository", "name": sourceName},
			},
		})
	}
	for _, object := range objects {
		if err := s.apply(ctx, &unstructured.Unstructured{Object: object}); err != nil {
			return fmt.Errorf("applying the Flux graph: %w", err)
		}
	}
	return nil
}
