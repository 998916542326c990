package dev

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"magicstick.dev/operator/generated/crds"
	"magicstick.dev/operator/generated/examples"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/controlplane"
	"magicstick.dev/operator/handwritten/dev/flux"
)

// fieldOwner is the manager of the fields that dev writes.
const fieldOwner = client.FieldOwner("magicstick-dev")

// namespaces of a standard installation (contract/appliance.md Annex 1).
var namespaces = []string{"ai-system", "ai", flux.Namespace, "identity-system"}

func (s *session) installCRDs(ctx context.Context) (string, error) {
	if err := controlplane.InstallCRDs(ctx, s.config, crds.FS); err != nil {
		return "", err
	}
	// A cluster with Flux has CRDs that fit its Flux; ours must not replace them.
	// The same goes for its gateway.
	missing, err := controlplane.InstallMissingCRDs(ctx, s.config, fluxcrds.FS)
	if err != nil {
		return "", err
	}
	gateway, err := controlplane.InstallMissingCRDs(ctx, s.config, gatewaycrds.FS)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d of the product, %d of Flux, %d of the gateway", len(crds.Files()), missing, gateway), nil
}

func (s *session) applyBasics(ctx context.Context) (string, error) {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return "", fmt.Errorf("applying namespaces: %w", err)
	}
	for _, name := range namespaces {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return "", fmt.Errorf("creating the namespace %s: %w", name, err)
		}
	}
	shipped := catalogs.ShippedConfigMaps()
	for _, configMap := range shipped {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": configMap.Namespace, "name": configMap.Name},
			"data":     toAnyMap(configMap.Data),
		}}
		if err := s.apply(ctx, object); err != nil {
			return "", fmt.Errorf("installing the shipped catalog: %w", err)
		}
	}
	return fmt.Sprintf("%s; %d catalogs", strings.Join(namespaces, ", "), len(shipped)), nil
}

// apply makes the given fields so, whoever owned them before.
func (s *session) apply(ctx context.Context, object *unstructured.Unstructured) error {
	c, err := client.New(s.config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	// What we apply is read from the embedded files or built above, not a cached object.
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

// example is one object that the seed documents show.
type example struct {
	file   string
	object *unstructured.Unstructured
	// status says that the example is about the status.
	status bool
}

// readExamples decodes the embedded examples. Of an object that several
// examples show, the one without a status is kept: the status of those is what
// the operator writes.
func readExamples() ([]example, error) {
	var all []example
	index := map[string]int{}
	for _, file := range examples.Files() {
		data, err := examples.FS.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the example %s: %w", file, err)
		}
		object, err := decode(data)
		if err != nil {
			return nil, fmt.Errorf("reading the example %s: %w", file, err)
		}
		e := example{file: file, object: object, status: hasStatusMarker(data)}
		key := object.GetKind() + "/" + object.GetNamespace() + "/" + object.GetName()
		at, seen := index[key]
		switch {
		case !seen:
			index[key] = len(all)
			all = append(all, e)
		case all[at].status && !e.status:
			all[at] = e
		}
	}
	return all, nil
}

// decode reads one object; integers stay integers.
func decode(text []byte) (*unstructured.Unstructured, error) {
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(json)
}

// hasStatusMarker looks for the comment "# subresource: status" before the object.
func hasStatusMarker(data []byte) bool {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() && strings.HasPrefix(lines.Text(), "#") {
		if strings.TrimSpace(strings.TrimPrefix(lines.Text(), "#")) == "subresource: status" {
			return true
		}
	}
	return false
}

// applyExamples creates the examples that do not exist yet; what a person
// changed since stays. All refusals are reported together.
func (s *session) applyExamples(ctx context.Context) (string, error) {
	list, err := readExamples()
	if err != nil {
		return "", err
	}
	c, err := client.New(s.config, client.Options{})
	if err != nil {
		return "", fmt.Errorf("applying the examples: %w", err)
	}
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	created, kept := 0, 0
	var refused []error
	for _, e := range list {
		err := createExample(ctx, strict, e)
		switch {
		case err == nil:
			created++
		case apierrors.IsAlreadyExists(err):
			kept++
		case ctx.Err() != nil:
			return "", ctx.Err()
		default:
			refused = append(refused, fmt.Errorf("%s: %w", e.file, err))
		}
	}
	if len(refused) > 0 {
		return "", fmt.Errorf("applying the examples: %d of %d were refused: %w", len(refused), len(list), errors.Join(refused...))
	}
	result := fmt.Sprintf("%d objects created", created)
	if kept > 0 {
		result += fmt.Sprintf(", %d were there", kept)
	}
	return result, nil
}

func createExample(ctx context.Context, c client.Client, e example) error {
	object := e.object.DeepCopy()
	status, hasStatus := object.Object["status"]
	delete(object.Object, "status")
	if err := c.Create(ctx, object, fieldOwner); err != nil {
		return err
	}
	if !e.status || !hasStatus {
		return nil
	}
	object.Object["status"] = status
	return c.Status().Update(ctx, object, fieldOwner)
}

func toAnyMap(data map[string]string) map[string]any {
	values := make(map[string]any, len(data))
	for key, value := range data {
		values[key] = value
	}
	return values
}
