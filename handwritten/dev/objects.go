package dev

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
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
	own, err := controlplane.EnsureCRDs(ctx, s.config, crds.FS)
	if err != nil {
		return "", err
	}
	if len(own.Updated) > 0 {
		s.out.line("  updated, because they differed: CRDs %s", strings.Join(own.Updated, ", "))
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
	return fmt.Sprintf("created: %d of the product, %d of Flux, %d of the gateway; updated: %d of the product",
		len(own.Created), missing, gateway, len(own.Updated)), nil
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
	objects, err := s.client()
	if err != nil {
		return "", err
	}
	var made tally
	for _, configMap := range catalogs.ShippedConfigMaps() {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": configMap.Namespace, "name": configMap.Name},
			"data":     toAnyMap(configMap.Data),
		}}
		result, err := createOrKeep(ctx, objects, example{object: object})
		if err != nil {
			return "", fmt.Errorf("installing the shipped catalog %s/%s: %w", configMap.Namespace, configMap.Name, err)
		}
		made[result]++
		s.tellKept(result, object, "the shipped catalog")
	}
	return fmt.Sprintf("%s; catalogs: %s", strings.Join(namespaces, ", "), made), nil
}

// client refuses fields that a kind does not have.
func (s *session) client() (client.Client, error) {
	c, err := client.New(s.config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict), nil
}

// apply makes the given fields so, whoever owned them before. It is for objects
// that follow this very run, such as the address of the Git source.
func (s *session) apply(ctx context.Context, object *unstructured.Unstructured) error {
	c, err := s.client()
	if err != nil {
		return err
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
	objects, err := s.client()
	if err != nil {
		return "", err
	}
	var made tally
	var refused []error
	for _, e := range list {
		if s.Kubeconfig != "" && e.object.GetKind() == "ApplianceSetup" {
			// Only the automation of a host that is being set up makes these.
			s.out.line("  left out: %s, which on a cluster only the setup of its host makes", title(e.object))
			continue
		}
		result, err := createOrKeep(ctx, objects, e)
		switch {
		case err == nil:
			made[result]++
			s.tellKept(result, e.object, "the example")
		case ctx.Err() != nil:
			return "", ctx.Err()
		default:
			refused = append(refused, fmt.Errorf("%s: %w", e.file, err))
		}
	}
	if len(refused) > 0 {
		return "", fmt.Errorf("applying the examples: %d of %d were refused: %w", len(refused), len(list), errors.Join(refused...))
	}
	return made.String(), nil
}

// outcome says what became of an object that should exist.
type outcome int

const (
	created outcome = iota
	present         // it was there, with every field that ours has
	kept            // it was there and differs
)

// tally counts outcomes.
type tally [kept + 1]int

func (t tally) String() string {
	text := fmt.Sprintf("%d created", t[created])
	if t[present] > 0 {
		text += fmt.Sprintf(", %d were there", t[present])
	}
	if t[kept] > 0 {
		text += fmt.Sprintf(", %d kept that differ", t[kept])
	}
	return text
}

func (s *session) tellKept(result outcome, object *unstructured.Unstructured, what string) {
	if result == kept {
		s.out.line("  kept: %s, which differs from %s", title(object), what)
	}
}

func title(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
}

// createOrKeep creates an object and never changes one that is there.
func createOrKeep(ctx context.Context, c client.Client, e example) (outcome, error) {
	err := createExample(ctx, c, e)
	if !apierrors.IsAlreadyExists(err) {
		return created, err
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(e.object.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(e.object), found); err != nil {
		return kept, err
	}
	for _, field := range []string{"spec", "data"} {
		if !includes(found.Object[field], e.object.Object[field]) {
			return kept, nil
		}
	}
	return present, nil
}

// includes says whether the fields of want have the same values in have, which
// may have more: the API server fills in defaults.
func includes(have, want any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case map[string]any:
		have, _ := have.(map[string]any)
		for key, value := range want {
			if present, found := have[key]; !found || !includes(present, value) {
				return false
			}
		}
		return true
	case []any:
		have, _ := have.([]any)
		return slices.EqualFunc(have, want, includes)
	}
	return have == want
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
