package fluxstandin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Labels that Flux gives to the objects of a Kustomization.
const (
	labelName      = "kustomize.toolkit.fluxcd.io/name"
	labelNamespace = "kustomize.toolkit.fluxcd.io/namespace"
)

// variable is ${NAME} or ${NAME:=default}.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(?::=([^}]*))?\}`)

// clean drops the "./" before a path.
func clean(path string) string { return strings.Trim(strings.TrimPrefix(path, "./"), "/") }

// build decodes the manifests of a folder, with variables replaced and labels added.
func build(text []byte, kustomization *kustomizev1.Kustomization) ([]*unstructured.Unstructured, error) {
	if postBuild := kustomization.Spec.PostBuild; postBuild != nil {
		text = substitute(text, postBuild.Substitute)
	}
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		json, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		if bytes.Equal(bytes.TrimSpace(json), []byte("null")) {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(json); err != nil {
			return nil, fmt.Errorf("reading the manifests: %w", err)
		}
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelName], labels[labelNamespace] = kustomization.Name, kustomization.Namespace
		object.SetLabels(labels)
		objects = append(objects, object)
	}
}

// substitute replaces variables by their values or defaults; one without
// either becomes empty.
func substitute(text []byte, values map[string]string) []byte {
	return variable.ReplaceAllFunc(text, func(match []byte) []byte {
		parts := variable.FindSubmatch(match)
		if value, found := values[string(parts[1])]; found && value != "" {
			return []byte(value)
		}
		return parts[2]
	})
}

// reference is an object in Flux's inventory: <namespace>_<name>_<group>_<kind>.
func reference(object *unstructured.Unstructured) kustomizev1.ResourceRef {
	kind := object.GroupVersionKind()
	return kustomizev1.ResourceRef{
		ID:      strings.Join([]string{object.GetNamespace(), object.GetName(), kind.Group, kind.Kind}, "_"),
		Version: kind.Version,
	}
}

// prune deletes what the inventory has and the next one has not.
func (f *flux) prune(ctx context.Context, kustomization *kustomizev1.Kustomization, next *kustomizev1.ResourceInventory) error {
	if kustomization.Status.Inventory == nil || !kustomization.Spec.Prune {
		return nil
	}
	for _, entry := range kustomization.Status.Inventory.Entries {
		if slices.ContainsFunc(next.Entries, func(kept kustomizev1.ResourceRef) bool { return kept.ID == entry.ID }) {
			continue
		}
		parts := strings.Split(entry.ID, "_")
		if len(parts) != 4 {
			return fmt.Errorf("pruning %q: not an entry of an inventory", entry.ID)
		}
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: parts[2], Version: entry.Version, Kind: parts[3]})
		object.SetNamespace(parts[0])
		object.SetName(parts[1])
		err := f.direct.Delete(ctx, object)
		if client.IgnoreNotFound(err) != nil && !apimeta.IsNoMatchError(err) {
			return fmt.Errorf("pruning %s %s: %w", parts[3], parts[1], err)
		}
	}
	return nil
}
