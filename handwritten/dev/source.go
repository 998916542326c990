package dev

import (
	"context"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	shipped "magicstick.dev/operator/generated/catalogs"
	kubeaicrds "magicstick.dev/operator/generated/external/kubeai/crds"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
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
	folders, err := standInFolders()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for folder, text := range folders {
		files[path.Join(folder, "module.yaml")] = text
		files[path.Join(folder, "kustomization.yaml")] = []byte(
			"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [module.yaml]\n")
	}
	return files, nil
}

// standInFolders are the manifests of the stand-in source by module path.
func standInFolders() (map[string][]byte, error) {
	modules, err := catalogs.ParseModules(shipped.ShippedModuleCatalogJSON())
	if err != nil {
		return nil, fmt.Errorf("making the stand-in source: %w", err)
	}
	folders := map[string][]byte{}
	for _, module := range modules.All() {
		crds, err := standInCRDs(module)
		if err != nil {
			return nil, fmt.Errorf("making the stand-in of module %s: %w", module.Key, err)
		}
		var text strings.Builder
		for _, object := range append([]map[string]any{standInConfigMap(module)}, crds...) {
			document, err := yaml.Marshal(object)
			if err != nil {
				return nil, fmt.Errorf("making the stand-in of module %s: %w", module.Key, err)
			}
			text.WriteString("---\n")
			text.Write(document)
		}
		folders[module.Path] = []byte(text.String())
	}
	return folders, nil
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

// standInCRDs make <plural>.<group> known, with any content. KubeAI's is the
// part that the product knows: the operator writes objects of it.
func standInCRDs(module catalogs.Module) ([]map[string]any, error) {
	var crds []map[string]any
	for _, name := range module.RequiredCRDs {
		plural, group, _ := strings.Cut(name, ".")
		if group == kubeaiv1.GroupName {
			text, err := kubeaicrds.FS.ReadFile(group + "/model.yaml")
			if err != nil {
				return nil, fmt.Errorf("reading the CRD of KubeAI: %w", err)
			}
			object, err := decode(text)
			if err != nil {
				return nil, fmt.Errorf("reading the CRD of KubeAI: %w", err)
			}
			crds = append(crds, object.Object)
			continue
		}
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
	return crds, nil
}

// applySource creates the GitRepository of the default Appliance and the
// Kustomizations of the static modules.
func (s *session) applySource(ctx context.Context, url string) error {
	repository := map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": map[string]any{"namespace": flux.Namespace, "name": sourceName},
		"spec": map[string]any{
			"url": url, "interval": "1m0s", "ref": map[string]any{"branch": gitserver.Branch},
		},
	}
	if err := s.apply(ctx, &unstructured.Unstructured{Object: repository}); err != nil {
		return fmt.Errorf("applying the Flux graph: %w", err)
	}
	return s.applyStaticModules(ctx)
}

// applyStaticModules makes the Kustomizations of the static modules, as the
// appliance's own Flux graph does.
func (s *session) applyStaticModules(ctx context.Context) error {
	modules, err := catalogs.ParseModules(shipped.ShippedModuleCatalogJSON())
	if err != nil {
		return fmt.Errorf("applying the Flux graph: %w", err)
	}
	for _, module := range modules.All() {
		if !module.IsStatic() {
			continue
		}
		kustomization := map[string]any{
			"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
			"metadata": map[string]any{"namespace": flux.Namespace, "name": module.KustomizationName},
			"spec": map[string]any{
				"interval": "10m0s", "prune": true, "wait": true, "path": "./" + module.Path,
				"sourceRef": map[string]any{"kind": "GitRepository", "name": sourceName},
			},
		}
		if err := s.apply(ctx, &unstructured.Unstructured{Object: kustomization}); err != nil {
			return fmt.Errorf("applying the Flux graph: %w", err)
		}
	}
	return nil
}
