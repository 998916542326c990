package validation

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"magicstick.dev/operator/generated/crds"
	"magicstick.dev/operator/generated/validation"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

func TestMain(m *testing.M) {
	os.Exit(controlplanetest.Main(m, controlplanetest.WithCRDs(crds.FS)))
}

// TestParity asks a real API server and the generated validation about every
// file of spec/examples. Both must give the same answer: accepted or refused,
// and the same fields with the same words. The answer must also be the one that
// the file promises.
func TestParity(t *testing.T) {
	server := newServer(t)
	for _, example := range readExamples(t) {
		t.Run(example.name, func(t *testing.T) {
			require.NotEmpty(t, example.objects, "an example has a document")
			server.play(t, example)
		})
	}
}

// server writes objects to the API server and compares its answers.
type server struct {
	config     *rest.Config
	client     dynamic.Interface
	namespaces kubernetes.Interface
	resources  map[schema.GroupVersionKind]schema.GroupVersionResource
	known      map[string]bool
}

func newServer(t *testing.T) *server {
	t.Helper()
	config := controlplanetest.Shared(t)
	config.QPS, config.Burst = 1000, 1000
	definitions, err := crds.All()
	require.NoError(t, err)
	s := &server{config: config, known: map[string]bool{}, resources: map[schema.GroupVersionKind]schema.GroupVersionResource{}}
	for _, definition := range definitions {
		for _, version := range definition.Spec.Versions {
			group := schema.GroupVersion{Group: definition.Spec.Group, Version: version.Name}
			s.resources[group.WithKind(definition.Spec.Names.Kind)] = group.WithResource(definition.Spec.Names.Plural)
		}
	}
	s.client, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	s.namespaces, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return s
}

var (
	dryRun = []string{metav1.DryRunAll}
	strict = "Strict"
)

// play writes the states of an example one after the other. Only the last write
// may be refused, and it is a dry run.
func (s *server) play(t *testing.T, e example) {
	first := e.objects[0]
	validator, err := validation.ForGVK(first.GroupVersionKind())
	require.NoError(t, err)
	client := s.clientFor(t, first, validator.Namespaced())
	last := len(e.objects) - 1

	if last == 0 && !e.status {
		_, err := client.Create(t.Context(), first, metav1.CreateOptions{DryRun: dryRun, FieldValidation: strict})
		compare(t, e, err, validator.Validate(first))
		return
	}
	bare, updates := first, e.objects[1:]
	update, validate := client.Update, validator.ValidateUpdate
	if e.status {
		bare, updates = first.DeepCopy(), e.objects
		delete(bare.Object, "status")
		update, validate = s.updateStatus(client), validator.ValidateStatusUpdate
	}
	stored := s.create(t, client, validator, bare)
	for i, object := range updates {
		options := metav1.UpdateOptions{FieldValidation: strict}
		final := i == len(updates)-1
		if final {
			options.DryRun = dryRun
		}
		inProcess := validate(object, stored)
		answer, err := update(t.Context(), inheritStored(object, stored), options)
		if final {
			compare(t, e, err, inProcess)
			return
		}
		require.NoError(t, err, "an earlier document must be accepted by the API server")
		require.Empty(t, inProcess, "an earlier document must be accepted in process")
		stored = answer
	}
}

// updateStatus has the shape of Update.
func (s *server) updateStatus(client dynamic.ResourceInterface) func(context.Context, *unstructured.Unstructured, metav1.UpdateOptions, ...string) (*unstructured.Unstructured, error) {
	return func(ctx context.Context, object *unstructured.Unstructured, options metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured, error) {
		return client.UpdateStatus(ctx, object, options)
	}
}

// create stores the first state for real, checks that both sides accept it, and
// removes it after the test.
func (s *server) create(t *testing.T, client dynamic.ResourceInterface, validator *validation.Validator, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored, err := client.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: strict})
	require.NoError(t, err, "the first document must be accepted by the API server")
	t.Cleanup(func() {
		ctx := context.Background()
		if len(stored.GetFinalizers()) > 0 {
			patch := []byte(`{"metadata":{"finalizers":null}}`)
			_, err := client.Patch(ctx, stored.GetName(), "application/merge-patch+json", patch, metav1.PatchOptions{})
			require.NoError(t, err)
		}
		require.NoError(t, client.Delete(ctx, stored.GetName(), metav1.DeleteOptions{}))
	})
	require.Empty(t, validator.Validate(object), "the first document must be accepted in process")
	return stored
}

func inheritStored(object, stored *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	object.SetName(stored.GetName())
	object.SetNamespace(stored.GetNamespace())
	object.SetUID(stored.GetUID())
	object.SetResourceVersion(stored.GetResourceVersion())
	return object
}

func (s *server) clientFor(t *testing.T, object *unstructured.Unstructured, namespaced bool) dynamic.ResourceInterface {
	t.Helper()
	resource, known := s.resources[object.GroupVersionKind()]
	require.True(t, known, "no CRD for %s", object.GroupVersionKind())
	if !namespaced {
		return s.client.Resource(resource)
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	if !s.known[namespace] {
		_, err := s.namespaces.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
		s.known[namespace] = true
	}
	return s.client.Resource(resource).Namespace(namespace)
}

// compare checks the two answers against one another and against the file.
func compare(t *testing.T, e example, answer error, inProcess field.ErrorList) {
	t.Helper()
	if e.accepted {
		require.NoError(t, answer, "the API server refused what the file says is valid; in process: %v", inProcess)
		require.Empty(t, inProcess, "refused in process, accepted by the API server")
		return
	}
	require.Error(t, answer, "the API server accepted what the file says is invalid; in process: %v", inProcess)
	require.NotEmpty(t, inProcess, "accepted in process, refused by the API server: %v", answer)
	require.NotEmpty(t, e.field, "an invalid example names its field in a leading comment")
	require.NotEmpty(t, e.words, "an invalid example quotes the message in a leading comment")

	ours := make([]string, 0, len(inProcess))
	for _, problem := range inProcess {
		ours = append(ours, problem.Field+": "+problem.ErrorBody())
	}
	theirs, unknownFields := causes(t, answer)
	slices.Sort(ours)
	slices.Sort(theirs)
	if unknownFields {
		// Strict decoding ends before validation, so our list may go on.
		require.Subset(t, ours, theirs)
	} else {
		require.Equal(t, theirs, ours, "API server and in-process validation differ")
	}
	promised := func(problem string) bool {
		return strings.HasPrefix(problem, e.field+": ") && strings.Contains(problem, e.words)
	}
	require.True(t, slices.ContainsFunc(theirs, promised),
		"the API server does not name field %q with the words %q, but says:\n%s", e.field, e.words, strings.Join(theirs, "\n"))
}

// causes lists what the API server complains about as "field: message", and
// tells whether it is about unknown fields, which it reports in another form.
func causes(t *testing.T, answer error) ([]string, bool) {
	t.Helper()
	var status apierrors.APIStatus
	require.ErrorAs(t, answer, &status, "no answer from the API server")
	if _, unknown, found := strings.Cut(answer.Error(), "strict decoding error: "); found {
		var list []string
		for _, message := range strings.Split(unknown, ", ") {
			path := strings.Trim(strings.TrimPrefix(message, "unknown field "), `"`)
			list = append(list, field.Forbidden(field.NewPath(path), fmt.Sprintf("unknown field %q", path)).Error())
		}
		return list, true
	}
	require.True(t, apierrors.IsInvalid(answer), "the API server refused for another reason: %v", answer)
	var list []string
	for _, cause := range status.Status().Details.Causes {
		list = append(list, cause.Field+": "+cause.Message)
	}
	return list, false
}

// TestEveryKindHasExamples fails when a kind is added without examples.
func TestEveryKindHasExamples(t *testing.T) {
	seen := map[schema.GroupVersionKind]map[bool]int{}
	for _, example := range readExamples(t) {
		kind := example.objects[0].GroupVersionKind()
		if seen[kind] == nil {
			seen[kind] = map[bool]int{}
		}
		seen[kind][example.accepted]++
	}
	for _, kind := range validation.Kinds() {
		require.NotZero(t, seen[kind][true], "%s has no accepted example", kind.Kind)
		require.NotZero(t, seen[kind][false], "%s has no refused example", kind.Kind)
		delete(seen, kind)
	}
	require.Empty(t, seen, "examples of kinds that have no CRD")
}
