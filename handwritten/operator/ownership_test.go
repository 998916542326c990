package operator_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/operator"
)

// personal is a Kustomization as a person writes it, under a name that a module uses.
func personal(name string, labels map[string]string) *kustomizev1.Kustomization {
	return &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: kustomizev1.KustomizationSpec{
			Interval: metav1.Duration{Duration: time.Hour}, Path: "./mine", Prune: true,
			SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "mine"},
		},
	}
}

func labelledFor(module string) map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": "magicstick-operator", "appliance.magicstick.dev/module": module}
}

// D15: whatever the operator did not make for a module stays as it is, through
// on, off and deletion, and the module goes on when it is gone or handed over.
func TestKustomizationOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		labels map[string]string
		says   string
	}{
		"a person's":       {nil, "was not made by the operator"},
		"another tool's":   {map[string]string{"app.kubernetes.io/managed-by": "terraform"}, "was not made by the operator"},
		"another module's": {labelledFor("gpu"), "belongs to module gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Shared(t))
			w.static("infrastructure-basis", metav1.ConditionTrue)
			if c.labels["appliance.magicstick.dev/module"] == "gpu" {
				off := activation("gpu")
				off.Name = "my-gpu"
				w.create(off) // without it the Kustomization would be a leftover
			}
			mine := personal("app-litellm", c.labels)
			w.create(mine)
			w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
			untouched := func() {
				t.Helper()
				now := w.kustomization("app-litellm", nil)
				require.Equal(t, mine.UID, now.UID)
				require.Equal(t, int64(1), now.Generation)
				require.Equal(t, c.labels, now.Labels)
				require.Nil(t, now.DeletionTimestamp)
			}
			w.create(activation("litellm"))
			w.create(activation("model-catalog"))
			w.start()
			conflict := w.module("litellm", "Degraded", "KustomizationConflict")
			require.Contains(t, *conflict.Status.Message, w.options.FluxNamespace+"/app-litellm")
			require.Contains(t, *conflict.Status.Message, c.says)
			require.Nil(t, conflict.Status.Kustomization)
			waiting := w.module("model-catalog", "WaitingForModules", "WaitingForModules")
			require.Contains(t, *waiting.Status.Message, "was made by somebody else")
			untouched()

			change(w, &appliancev1alpha1.ModuleActivation{}, "litellm", func(a *appliancev1alpha1.ModuleActivation) { a.Spec.Enabled = ptr.To(false) })
			w.module("litellm", "Disabled", "Disabled")
			untouched()
			change(w, &appliancev1alpha1.ModuleActivation{}, "litellm", func(a *appliancev1alpha1.ModuleActivation) { a.Spec.Enabled = ptr.To(true) })
			again := w.module("litellm", "Degraded", "KustomizationConflict")
			// While it waits it would switch litellm on again.
			require.NoError(t, w.client.Delete(t.Context(), waiting))
			w.gone(&appliancev1alpha1.ModuleActivation{}, "model-catalog")
			require.NoError(t, w.client.Delete(t.Context(), again))
			w.gone(&appliancev1alpha1.ModuleActivation{}, "litellm")
			untouched()
		})
	}
}

func TestKustomizationConflictEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world){
		"deleted": func(w *world) {
			require.NoError(w.t, w.client.Delete(w.t.Context(), w.kustomization("app-litellm", nil)))
		},
		"handed over by its labels": func(w *world) {
			change(w, &kustomizev1.Kustomization{}, "app-litellm", func(k *kustomizev1.Kustomization) { k.Labels = labelledFor("litellm") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Shared(t))
			w.static("infrastructure-basis", metav1.ConditionTrue)
			w.create(personal("app-litellm", nil))
			w.create(activation("litellm"))
			w.start()
			w.module("litellm", "Degraded", "KustomizationConflict")
			end(w)
			w.kustomization("app-litellm", func(k *kustomizev1.Kustomization) string {
				if k.Spec.Path != "./magic-cluster/apps/ai/litellm/base" || k.Labels["appliance.magicstick.dev/module"] != "litellm" {
					return "not the module's: " + show(k)
				}
				return ""
			})
			w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
			w.module("litellm", "Ready", "KustomizationReady")
		})
	}
}

// The person is faster by a blink: the cache of the operator has not shown their
// Kustomization when it applies its own.
func TestKustomizationMadeInTheLastMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	var once sync.Once
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/kustomizations/app-litellm") {
			once.Do(func() { w.create(personal("app-litellm", nil)) })
		}
		return nil, nil
	})
	w.create(activation("litellm"))
	w.start()
	w.module("litellm", "Degraded", "KustomizationConflict")
	now := w.kustomization("app-litellm", nil)
	require.Equal(t, "./mine", now.Spec.Path)
	require.Empty(t, now.Labels)
}

// Our Kustomization is replaced by a person's while a change to ours is on its way.
func TestKustomizationReplacedInTheLastMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.create(activation("litellm"))
	w.start()
	w.kustomization("app-litellm", running)
	w.module("litellm", "Reconciling", "WaitingForKustomization")
	var once sync.Once
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/kustomizations/app-litellm") {
			once.Do(func() {
				if err := w.client.Delete(t.Context(), &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Name: "app-litellm", Namespace: w.options.FluxNamespace}}); err != nil {
					t.Error(err)
				}
				w.create(personal("app-litellm", nil))
			})
		}
		return nil, nil
	})
	change(w, &appliancev1alpha1.ModuleActivation{}, "litellm", func(a *appliancev1alpha1.ModuleActivation) {
		a.Spec.Parameters = map[string]string{"postgresStorage": "9Gi"}
	})
	w.module("litellm", "Degraded", "KustomizationConflict")
	require.Equal(t, "./mine", w.kustomization("app-litellm", nil).Spec.Path)
}

// rename gives a module of the catalog another Kustomization name.
func (w *world) rename(module, kustomization string) {
	w.t.Helper()
	change(w, &corev1.ConfigMap{}, "magicstick-module-catalog", func(c *corev1.ConfigMap) {
		var catalog map[string]any
		require.NoError(w.t, json.Unmarshal([]byte(c.Data["modules.json"]), &catalog))
		modules, _ := catalog["modules"].(map[string]any)
		entry, _ := modules[module].(map[string]any)
		require.NotNil(w.t, entry)
		entry["kustomizationName"] = kustomization
		text, err := json.Marshal(catalog)
		require.NoError(w.t, err)
		c.Data["modules.json"] = string(text)
	})
}

// The catalog gives a running module another Kustomization name. At no time are
// two Kustomizations at work on its objects, the former one is deleted after the
// new one is Ready, and Flux cannot apply it once more on the way out.
func TestRenamedKustomizationIsHandedOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.create(activation("litellm"))
	w.start()
	w.kustomization("app-litellm", running)
	w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.module("litellm", "Ready", "KustomizationReady")
	change(w, &kustomizev1.Kustomization{}, "app-litellm", func(k *kustomizev1.Kustomization) { k.Finalizers = []string{"finalizers.fluxcd.io"} })

	w.flux("app-litellm", metav1.ConditionUnknown, "Progressing", "Reconciliation in progress")
	w.module("litellm", "Reconciling", "WaitingForKustomization")
	w.rename("litellm", "app-litellm-2026")
	w.eventually(func() string {
		state := w.module("litellm", "Reconciling", "WaitingForKustomization")
		if !strings.Contains(*state.Status.Message, "finished its work on Kustomization "+w.options.FluxNamespace+"/app-litellm,") {
			return *state.Status.Message
		}
		return ""
	})
	require.False(t, w.get(&kustomizev1.Kustomization{}, "app-litellm-2026"), "not while Flux is at work on the former one")

	w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.kustomization("app-litellm-2026", running)
	require.True(t, w.kustomization("app-litellm", nil).Spec.Suspend, "suspended before the new one exists")
	w.eventually(func() string {
		state := w.module("litellm", "Reconciling", "WaitingForKustomization")
		if !strings.Contains(*state.Status.Message, "the former Kustomization "+w.options.FluxNamespace+"/app-litellm stays") {
			return *state.Status.Message
		}
		return ""
	})
	w.flux("app-litellm-2026", metav1.ConditionFalse, "BuildFailed", "kustomization path not found")
	w.module("litellm", "Degraded", "BuildFailed")
	require.Nil(t, w.kustomization("app-litellm", nil).DeletionTimestamp, "stays while the new one fails")

	w.flux("app-litellm-2026", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	going := w.kustomization("app-litellm", func(k *kustomizev1.Kustomization) string {
		if k.DeletionTimestamp == nil {
			return "not being deleted"
		}
		return ""
	})
	require.False(t, going.Spec.Suspend, "Flux prunes only what is not suspended")
	require.Equal(t, []kustomizev1.DependencyReference{{Name: "app-litellm"}}, going.Spec.DependsOn, "and applies nothing that waits for itself")
	w.eventually(func() string {
		state := w.module("litellm", "Ready", "KustomizationReady")
		if !strings.Contains(*state.Status.Message, "the former Kustomization "+w.options.FluxNamespace+"/app-litellm is being removed") {
			return *state.Status.Message
		}
		return ""
	})
	change(w, &kustomizev1.Kustomization{}, "app-litellm", func(k *kustomizev1.Kustomization) { k.Finalizers = nil })
	w.gone(&kustomizev1.Kustomization{}, "app-litellm")
	w.eventually(func() string {
		state := w.module("litellm", "Ready", "KustomizationReady")
		if want := "Kustomization " + w.options.FluxNamespace + "/app-litellm-2026 is ready."; *state.Status.Message != want {
			return *state.Status.Message
		}
		return ""
	})
	require.Equal(t, ptr.To("app-litellm-2026"), w.module("litellm", "Ready", "KustomizationReady").Status.Kustomization)
	w.kustomization("app-litellm-2026", running)
}

// The name that an automatic activation would get is taken: whoever waits says
// so, and goes on when it is free.
func TestNameOfAnActivationIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	wrong := activation("gpu")
	wrong.Name = "litellm"
	w.create(wrong)
	w.create(activation("model-catalog"))
	w.create(defaultAppliance("litellm"))
	w.start()
	waiting := w.module("model-catalog", "WaitingForModules", "WaitingForModules")
	require.Contains(t, *waiting.Status.Message, "ModuleActivation litellm exists but is for module gpu")
	var state *appliancev1alpha1.Appliance
	w.eventually(func() string {
		state = w.appliance("Degraded", "Degraded")
		if _, listed := state.Status.Modules["litellm"]; !listed {
			return "no row for litellm: " + show(state.Status)
		}
		return ""
	})
	require.Contains(t, meta.FindStatusCondition(state.Status.Conditions, "Ready").Message, "module litellm is degraded: spec.modules: ModuleActivation litellm exists but is for module gpu")
	require.Contains(t, *state.Status.Modules["litellm"].Message, "ModuleActivation litellm exists but is for module gpu")

	require.NoError(t, w.client.Delete(t.Context(), wrong))
	w.kustomization("app-litellm", running)
	w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.kustomization("app-model-catalog", running)
	w.flux("app-model-catalog", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.appliance("Ready", "Ready")
}

// The finalizer, the first write of all, is refused: that is a state to read, too.
func TestRefusedFinalizer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	var healed atomic.Bool
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, "/moduleactivations/litellm") && !healed.Load() {
			return answer(request, http.StatusForbidden, metav1.StatusReasonForbidden, "a policy forbids finalizers"), nil
		}
		return nil, nil
	})
	w.create(activation("litellm"))
	w.start()
	require.Contains(t, *w.module("litellm", "Degraded", "KustomizationRefused").Status.Message, "a policy forbids finalizers")
	require.False(t, w.get(&kustomizev1.Kustomization{}, "app-litellm"), "nothing is made without the finalizer")
	healed.Store(true)
	w.module("litellm", "WaitingForModules", "WaitingForModules")
}

// A default that cannot be switched on hides nothing of the rest.
func TestRefusedSeedIsToldAndTheRestIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	var healed atomic.Bool
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/moduleactivations") && !healed.Load() {
			return answer(request, http.StatusForbidden, metav1.StatusReasonForbidden, "exceeded quota"), nil
		}
		return nil, nil
	})
	w.create(activation("kubeai"))
	w.create(defaultAppliance("litellm"))
	w.start()
	w.flux("platform-kubeai", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.eventually(func() string {
		state := w.appliance("Degraded", "Degraded")
		if row := state.Status.Modules["kubeai"]; row.Phase != "Ready" {
			return "kubeai is not told: " + show(state.Status)
		}
		if row := state.Status.Modules["litellm"]; row.Phase != "Degraded" || !strings.Contains(*row.Message, "exceeded quota") {
			return "litellm is not told: " + show(state.Status)
		}
		return ""
	})
	healed.Store(true)
	w.kustomization("app-litellm", running)
	w.appliance("Reconciling", "WaitingForModules")
}

// U012: references to objects of other programs become the URLs of their APIs.
func TestObjectsOfOthersAreAskedForAtTheirURLs(t *testing.T) {
	t.Parallel()
	var asked atomic.Value
	config := rest.CopyConfig(controlplanetest.Shared(t))
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			asked.Store(request.URL.Path)
			return next.RoundTrip(request)
		})
	})
	scheme, err := operator.Scheme()
	require.NoError(t, err)
	direct, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	for want, object := range map[string]client.Object{
		"/api/v1/namespaces/n/configmaps/o":                                  &corev1.ConfigMap{},
		"/apis/helm.toolkit.fluxcd.io/v2/namespaces/n/helmreleases/o":        &helmv2.HelmRelease{},
		"/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/n/kustomizations/o": &kustomizev1.Kustomization{},
		"/apis/gateway.networking.k8s.io/v1/namespaces/n/httproutes/o":       &gatewayv1.HTTPRoute{},
		"/apis/networking.k8s.io/v1/namespaces/n/networkpolicies/o":          &networkingv1.NetworkPolicy{},
	} {
		require.NoError(t, client.IgnoreNotFound(direct.Get(t.Context(), types.NamespacedName{Namespace: "n", Name: "o"}, object)))
		require.Equal(t, want, asked.Load())
	}
}
