package fluxstandin_test

import (
	"context"
	"os"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fluxcrds "magicstick.dev/operator/generated/external/crds"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/dev/fluxstandin"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(controlplanetest.Main(m, controlplanetest.WithCRDs(fluxcrds.FS)))
}

// patience bounds every wait.
const patience = 60 * time.Second

type world struct {
	t         *testing.T
	client    client.Client
	namespace string
}

// newWorld plays Flux on folders whose manifests have NAMESPACE in place of the test's.
func newWorld(t *testing.T, folders map[string]string) *world {
	t.Helper()
	config := controlplanetest.Shared(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, kustomizev1.AddToScheme, apiextensionsv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	w := &world{t: t, client: c, namespace: controlplanetest.Namespace(t, config)}
	texts := map[string][]byte{}
	for path, text := range folders {
		texts[path] = []byte(os.Expand(text, func(name string) string {
			if name == "NAMESPACE" {
				return w.namespace
			}
			return "${" + name + "}"
		}))
	}
	mgr, err := fluxstandin.New(config, fluxstandin.Options{Namespace: w.namespace, Folders: texts})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	return w
}

func (w *world) create(name, path string, edit func(*kustomizev1.KustomizationSpec)) *kustomizev1.Kustomization {
	w.t.Helper()
	kustomization := &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: kustomizev1.KustomizationSpec{
			Interval: metav1.Duration{Duration: time.Minute}, Path: path, Prune: true,
			SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "flux-system"},
		},
	}
	if edit != nil {
		edit(&kustomization.Spec)
	}
	require.NoError(w.t, w.client.Create(w.t.Context(), kustomization))
	return kustomization
}

// says waits until the Ready condition has the reason for the present generation.
func (w *world) says(name, reason string) *kustomizev1.Kustomization {
	w.t.Helper()
	found := &kustomizev1.Kustomization{}
	require.Eventually(w.t, func() bool {
		require.NoError(w.t, w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, found))
		ready := apimeta.FindStatusCondition(found.Status.Conditions, "Ready")
		return ready != nil && ready.Reason == reason && found.Status.ObservedGeneration == found.Generation
	}, patience, 20*time.Millisecond, "%s: want %s, have %+v", name, reason, found.Status.Conditions)
	return found
}

func (w *world) configMap(name string) map[string]string {
	w.t.Helper()
	found := &corev1.ConfigMap{}
	err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return found.Data
}

func (w *world) patch(object client.Object, text string) {
	w.t.Helper()
	require.NoError(w.t, w.client.Patch(w.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))))
}

const (
	one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: ${NAMESPACE}, name: one}\ndata: {size: '${SIZE:=1Gi}'}\n"
	two = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: ${NAMESPACE}, name: two}\n"
)

func TestFlux_applies_a_folder_prunes_what_left_it_and_removes_the_rest_at_the_end(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a/b": one + two, "less": one})
	kustomization := w.create("k", "./a/b", func(s *kustomizev1.KustomizationSpec) {
		s.PostBuild = &kustomizev1.PostBuild{Substitute: map[string]string{"OTHER": "x"}}
	})
	seen := w.says("k", "ReconciliationSucceeded")
	assert.Equal(t, map[string]string{"size": "1Gi"}, w.configMap("one"))
	assert.Equal(t, fluxstandin.Revision, seen.Status.LastAppliedRevision)
	require.Len(t, seen.Status.Inventory.Entries, 2)
	assert.Equal(t, w.namespace+"_one__ConfigMap", seen.Status.Inventory.Entries[0].ID)

	w.patch(kustomization, `{"spec":{"path":"./less","postBuild":{"substitute":{"SIZE":"2Gi"}}}}`)
	w.says("k", "ReconciliationSucceeded")
	assert.Equal(t, map[string]string{"size": "2Gi"}, w.configMap("one"))
	assert.Nil(t, w.configMap("two"))

	require.NoError(t, w.client.Delete(t.Context(), kustomization))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(w.client.Get(t.Context(), client.ObjectKeyFromObject(kustomization), kustomization))
	}, patience, 20*time.Millisecond)
	assert.Nil(t, w.configMap("one"))
}

func TestFlux_leaves_a_suspended_one_alone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a": one, "b": two})
	kustomization := w.create("k", "a", nil)
	w.says("k", "ReconciliationSucceeded")
	w.patch(kustomization, `{"spec":{"suspend":true,"path":"b"}}`)
	w.create("witness", "b", nil)
	w.says("witness", "ReconciliationSucceeded")
	seen := &kustomizev1.Kustomization{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(kustomization), seen))
	assert.Less(t, seen.Status.ObservedGeneration, seen.Generation)
	require.NoError(t, w.client.Delete(t.Context(), kustomization))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(w.client.Get(t.Context(), client.ObjectKeyFromObject(kustomization), seen))
	}, patience, 20*time.Millisecond)
	assert.NotNil(t, w.configMap("one"), "Flux forgets the objects of a suspended one, and leaves them")
}

func TestFlux_says_what_is_in_the_way(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a": one, "broken": "a: [", "untyped": "metadata: {name: x}", "crd": `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.standin.example}
spec:
  group: standin.example
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`})
	missing := w.create("base", "./nowhere", nil)
	w.create("top", "a", func(s *kustomizev1.KustomizationSpec) {
		s.DependsOn = []kustomizev1.DependencyReference{{Name: "base"}}
	})
	w.create("broken", "broken", nil)
	w.create("untyped", "untyped", nil)
	health := func(crd string) func(*kustomizev1.KustomizationSpec) {
		return func(s *kustomizev1.KustomizationSpec) {
			s.HealthChecks = []meta.NamespacedObjectKindReference{{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: crd}}
		}
	}
	w.create("crd", "crd", health("things.standin.example"))
	w.create("never", "a", health("others.standin.example"))
	assert.Contains(t, w.says("base", "ArtifactFailed").Status.Conditions[0].Message, "kustomization path not found: ./nowhere")
	assert.Contains(t, w.says("top", "DependencyNotReady").Status.Conditions[0].Message, "base' is not ready")
	w.says("broken", "BuildFailed")
	w.says("untyped", "BuildFailed")
	w.says("crd", "ReconciliationSucceeded")
	assert.Contains(t, w.says("never", "Progressing").Status.Conditions[0].Message, "others.standin.example")
	w.patch(missing, `{"spec":{"path":"a"}}`)
	w.says("top", "ReconciliationSucceeded")
}

func TestFlux_writes_nothing_when_nothing_changes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"a": one})
	first := w.create("k", "a", nil)
	seen := w.says("k", "ReconciliationSucceeded")
	w.patch(first, `{"metadata":{"annotations":{"look":"again"}}}`)
	w.create("witness", "a", nil)
	w.says("witness", "ReconciliationSucceeded")
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(seen), seen))
	assert.Equal(t, first.ResourceVersion, seen.ResourceVersion)
}
