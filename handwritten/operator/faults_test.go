package operator_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/controlplane"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

var errKilled = errors.New("killed")

// Every write of a flow is once the last thing that the operator does before it
// dies, and once the first that it does not get to do. The end is the same.
func TestKilledBetweenAnyTwoWrites(t *testing.T) {
	t.Parallel()
	flows := map[string]struct {
		before func(w *world) // done with a healthy operator
		wish   func(w *world) // what the dying operators work on
		deaths int            // the least that the flow must have met
		end    func(w *world)
	}{
		"enable": {
			wish: func(w *world) {
				wanted := activation("anything-llm")
				wanted.Spec.Parameters = map[string]string{"storage": "7Gi"}
				w.create(wanted)
			},
			deaths: 4,
			end: func(w *world) {
				for _, name := range []string{"anything-llm", "litellm", "model-catalog"} {
					w.module(name, "WaitingForModules", "WaitingForModules")
				}
				k := w.kustomization("app-anything-llm", nil)
				require.True(w.t, k.Spec.Suspend)
				require.Equal(w.t, "7Gi", k.Spec.PostBuild.Substitute["AI_APPLIANCE_ANYTHING_LLM_STORAGE"])
			},
		},
		"disable": {
			before: func(w *world) {
				w.create(activation("litellm"))
				w.module("litellm", "WaitingForModules", "WaitingForModules")
			},
			wish: func(w *world) {
				change(w, &appliancev1alpha1.ModuleActivation{}, "litellm", func(a *appliancev1alpha1.ModuleActivation) { a.Spec.Enabled = ptr.To(false) })
			},
			deaths: 2,
			end: func(w *world) {
				w.module("litellm", "Disabled", "Disabled")
				w.gone(&kustomizev1.Kustomization{}, "app-litellm")
			},
		},
		"delete": {
			before: func(w *world) {
				w.create(activation("litellm"))
				w.module("litellm", "WaitingForModules", "WaitingForModules")
			},
			wish: func(w *world) {
				require.NoError(w.t, w.client.Delete(w.t.Context(), &appliancev1alpha1.ModuleActivation{ObjectMeta: metav1.ObjectMeta{Name: "litellm", Namespace: w.options.Appliance.Namespace}}))
			},
			deaths: 2,
			end: func(w *world) {
				w.gone(&appliancev1alpha1.ModuleActivation{}, "litellm")
				w.gone(&kustomizev1.Kustomization{}, "app-litellm")
			},
		},
		"seed": {
			wish:   func(w *world) { w.create(defaultAppliance("litellm", "model-catalog")) },
			deaths: 4,
			end: func(w *world) {
				w.appliance("Reconciling", "WaitingForModules")
				w.module("litellm", "WaitingForModules", "WaitingForModules")
				w.module("model-catalog", "WaitingForModules", "WaitingForModules")
			},
		},
	}
	for name, flow := range flows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Shared(t))
			if flow.before != nil {
				w.start()
				flow.before(w)
				w.stop()
			}
			flow.wish(w)
			// One more write succeeds in every life, until a life needs no more.
			deaths := 0
			for allowed := 0; w.live(allowed, allowed%2 == 0); allowed++ {
				deaths++
			}
			require.GreaterOrEqual(t, deaths, flow.deaths, "the operator died too seldom to prove anything")
			t.Logf("died %d times", deaths)
			w.start()
			flow.end(w)
		})
	}
}

// live runs an operator that dies at its write number allowed+1, before the API
// server saw it or (late) after. It reports whether the operator died; one that
// makes no write for a while has come to rest instead.
func (w *world) live(allowed int, late bool) bool {
	w.t.Helper()
	var count atomic.Int64
	died := make(chan struct{})
	w.writes.refuse(func(request *http.Request, transport http.RoundTripper) (*http.Response, error) {
		n := count.Add(1)
		if n <= int64(allowed) {
			return nil, nil
		}
		if n == int64(allowed)+1 {
			if late {
				if response, err := transport.RoundTrip(request); err == nil {
					_ = response.Body.Close()
				}
			}
			close(died)
		}
		return nil, errKilled
	})
	defer w.writes.refuse(nil)
	w.start()
	defer w.stop()
	for {
		before := count.Load()
		select {
		case <-died:
			return true
		case <-time.After(3 * time.Second):
			if count.Load() == before {
				return false
			}
		}
	}
}

// A write that meets a newer object is made again from fresh facts.
func TestConflictOnEveryFirstWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	met := map[string]bool{}
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		key := request.Method + request.URL.Path
		if request.Method == http.MethodPost || met[key] {
			return nil, nil
		}
		met[key] = true
		return answer(request, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified"), nil
	})
	w.create(defaultAppliance("litellm"))
	w.start()
	w.module("litellm", "WaitingForModules", "WaitingForModules")
	w.appliance("Reconciling", "WaitingForModules")
	w.kustomization("app-litellm", nil)
}

// A Kustomization that the API server refuses is a state that a person can
// read, not a line in a log, and it heals.
func TestRefusedKustomization(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.options.FluxNamespace = "not-made-yet-" + w.options.Appliance.Namespace
	w.create(activation("litellm"))
	w.create(defaultAppliance())
	w.start()
	refused := w.module("litellm", "Degraded", "KustomizationRefused")
	require.Contains(t, *refused.Status.Message, w.options.FluxNamespace)
	require.Contains(t, *refused.Status.Message, "not found")
	w.appliance("Degraded", "Degraded")
	require.NoError(t, w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.options.FluxNamespace}}))
	w.module("litellm", "WaitingForModules", "WaitingForModules")
}

// Somebody took the finalizer off by force.
func TestLeftOverKustomizationIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.create(activation("litellm"))
	w.start()
	w.module("litellm", "WaitingForModules", "WaitingForModules")
	w.stop()
	change(w, &appliancev1alpha1.ModuleActivation{}, "litellm", func(a *appliancev1alpha1.ModuleActivation) { a.Finalizers = nil })
	require.NoError(t, w.client.Delete(t.Context(), &appliancev1alpha1.ModuleActivation{ObjectMeta: metav1.ObjectMeta{Name: "litellm", Namespace: w.options.Appliance.Namespace}}))
	w.gone(&appliancev1alpha1.ModuleActivation{}, "litellm")
	// One of a module that the catalog does not know stays: the catalog may be wrong.
	stray := w.kustomization("app-litellm", nil).DeepCopy()
	stray.ObjectMeta = metav1.ObjectMeta{Name: "app-stray", Labels: map[string]string{
		"app.kubernetes.io/managed-by": "magicstick-operator", "appliance.magicstick.dev/module": "stray"}}
	w.create(stray)
	w.start()
	w.gone(&kustomizev1.Kustomization{}, "app-litellm")
	require.True(t, w.get(&kustomizev1.Kustomization{}, "app-stray"))
}

// H38: a catalog that is gone or broken changes nothing that runs.
func TestCatalogOutage(t *testing.T) {
	t.Parallel()
	outages := map[string]func(w *world, name, key string){
		"missing": func(w *world, name, _ string) {
			require.NoError(w.t, w.client.Delete(w.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.options.Appliance.Namespace}}))
		},
		"broken": func(w *world, name, key string) {
			change(w, &corev1.ConfigMap{}, name, func(c *corev1.ConfigMap) { c.Data[key] = `{"modules": [}` })
		},
		"without key": func(w *world, name, key string) {
			change(w, &corev1.ConfigMap{}, name, func(c *corev1.ConfigMap) { delete(c.Data, key) })
		},
	}
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Shared(t))
			w.static("infrastructure-basis", metav1.ConditionTrue)
			w.create(defaultAppliance("litellm"))
			w.start()
			w.kustomization("app-litellm", running)
			w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
			w.module("litellm", "Ready", "KustomizationReady")
			before := w.appliance("Ready", "Ready").Status.Modules
			uid := w.kustomization("app-litellm", running).UID

			outage(w, "magicstick-module-catalog", "modules.json")
			lost := w.module("litellm", "Ready", "CatalogUnavailable")
			require.Contains(t, meta.FindStatusCondition(lost.Status.Conditions, "Ready").Message, "magicstick-module-catalog")
			require.Equal(t, ptr.To("app-litellm"), lost.Status.Kustomization)
			state := w.appliance("Ready", "CatalogUnavailable")
			require.Equal(t, before, state.Status.Modules, "the rest of the status stays")
			w.create(activation("gpu")) // cannot be judged now, and says so
			w.eventually(func() string {
				gpu := &appliancev1alpha1.ModuleActivation{}
				w.get(gpu, "gpu")
				if c := meta.FindStatusCondition(gpu.Status.Conditions, "Ready"); c == nil || c.Reason != "CatalogUnavailable" {
					return "no word about gpu: " + show(gpu.Status)
				}
				return ""
			})
			w.stop()
			w.start() // with no memory of the good catalog
			w.appliance("Ready", "CatalogUnavailable")
			require.Equal(t, uid, w.kustomization("app-litellm", running).UID, "nothing was deleted")

			w.restoreCatalogs()
			w.module("litellm", "Ready", "KustomizationReady")
			w.module("gpu", "WaitingForModules", "WaitingForModules")
			w.appliance("Reconciling", "WaitingForModules")
		})
	}
}

func TestApplicationCatalogOutageIsNamedOnTheAppliance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.create(defaultAppliance())
	w.start()
	w.appliance("Ready", "Ready")
	require.NoError(t, w.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "magicstick-app-catalog", Namespace: w.options.Appliance.Namespace}}))
	state := w.appliance("Ready", "CatalogUnavailable")
	require.Contains(t, meta.FindStatusCondition(state.Status.Conditions, "Ready").Message, "magicstick-app-catalog does not exist")
	w.restoreCatalogs()
	w.appliance("Ready", "Ready")
}

func (w *world) restoreCatalogs() {
	w.t.Helper()
	for _, shipped := range catalogs.ShippedConfigMaps() {
		shipped.Namespace = w.options.Appliance.Namespace
		err := w.client.Create(w.t.Context(), shipped.DeepCopy())
		if apierrors.IsAlreadyExists(err) {
			change(w, &corev1.ConfigMap{}, shipped.Name, func(c *corev1.ConfigMap) { c.Data = shipped.Data })
			continue
		}
		require.NoError(w.t, err)
	}
}

// Flux comes after the operator, goes away under it, and comes back.
func TestFluxAppearsVanishesAndReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS)))
	w.create(activation("model-catalog"))
	w.create(defaultAppliance())
	w.start()
	missing := w.module("model-catalog", "Reconciling", "WaitingForCRDs")
	require.Contains(t, *missing.Status.Message, "kustomizations.kustomize.toolkit.fluxcd.io is not installed")
	w.module("litellm", "Reconciling", "WaitingForCRDs")
	w.appliance("Reconciling", "WaitingForModules")

	for range 2 {
		controlplanetest.InstallCRDs(t, w.config, fluxcrds.FS)
		w.static("infrastructure-basis", metav1.ConditionTrue)
		w.kustomization("app-litellm", running)
		w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
		w.module("litellm", "Ready", "KustomizationReady")
		w.kustomization("app-model-catalog", running)

		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "kustomizations.kustomize.toolkit.fluxcd.io"}}
		require.NoError(t, w.client.Delete(t.Context(), crd))
		w.module("litellm", "Reconciling", "WaitingForCRDs")
		w.module("model-catalog", "Reconciling", "WaitingForCRDs")
		w.eventually(func() string {
			if err := w.client.Get(t.Context(), types.NamespacedName{Name: crd.Name}, crd); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("the CRD is still there: %v", err)
			}
			return ""
		})
	}
	// Without Flux an activation can be deleted.
	require.NoError(t, w.client.Delete(t.Context(), missing))
	w.gone(&appliancev1alpha1.ModuleActivation{}, "model-catalog")
}

// The API server is killed with SIGKILL and started again with the same data.
func TestAPIServerRestart(t *testing.T) {
	t.Parallel()
	plane, err := controlplane.Start(t.Context(), controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = plane.Stop() }) // it knows that its API server died
	require.NoError(t, controlplane.InstallCRDs(t.Context(), plane.RESTConfig(), crds.FS, fluxcrds.FS))
	w := newWorld(t, plane.RESTConfig())
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.create(defaultAppliance("litellm"))
	w.start()
	w.kustomization("app-litellm", running)

	pid := plane.PIDs()["kube-apiserver"]
	require.NotZero(t, pid)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	require.NoError(t, err)
	arguments := strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	time.Sleep(2 * time.Second)
	// #nosec G204 -- the command line of our own child.
	again := exec.Command(arguments[0], arguments[1:]...)
	again.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, again.Start())
	t.Cleanup(func() { _ = again.Process.Kill(); _ = again.Wait() })
	w.eventually(func() string {
		if err := w.client.Get(t.Context(), types.NamespacedName{Name: "default"}, &corev1.Namespace{}); err != nil {
			return err.Error()
		}
		return ""
	})

	w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.module("litellm", "Ready", "KustomizationReady")
	w.appliance("Ready", "Ready")
	w.create(activation("kubeai"))
	w.kustomization("platform-kubeai", running)
}

// answer is an error as the API server words it.
func answer(request *http.Request, code int, reason metav1.StatusReason, message string) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: io.NopCloser(bytes.NewBufferString(body)),
	}
}
