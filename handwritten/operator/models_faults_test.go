package operator_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	kubeaicrds "magicstick.dev/operator/generated/external/kubeai/crds"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// S059: what the API server answers to a direct runtime, before a Pod exists and
// after, on both engines; all of it is told, tried again and cleared.
func TestAnswersToADirectRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS, kubeaicrds.FS)))
	w.node("box", offers("256Gi", "nvidia.com/gpu", 4))
	var code atomic.Int32
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if !strings.Contains(request.URL.Path, "/deployments/") {
			return nil, nil
		}
		switch code := int(code.Load()); code {
		case 0:
			return nil, nil
		case 1:
			return nil, errors.New("connection reset by peer")
		case http.StatusBadGateway: // a proxy's page
			return &http.Response{
				StatusCode: code, Status: "502 Bad Gateway", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
				Header: http.Header{"Content-Type": []string{"text/html"}}, Body: io.NopCloser(bytes.NewBufferString("<html>no</html>")),
			}, nil
		default:
			return answer(request, code, metav1.StatusReason(http.StatusText(code)), fmt.Sprintf("answered %d on https://user:secret@host/x?token=1", code)), nil
		}
	})
	w.start()
	w.static("platform-nfd", metav1.ConditionTrue)
	w.readyModules("gpu", "litellm", "model-catalog")
	answers := []struct {
		code          int32
		phase, reason string
	}{
		{403, "Degraded", "PermissionDenied"},
		{401, "Degraded", "PermissionDenied"},
		{422, "Degraded", "ApiRejected"},
		{400, "Degraded", "ApiRejected"},
		{404, "Degraded", "ApiRejected"},
		{503, "Starting", "ApiUnavailable"},
		{500, "Starting", "ApiUnavailable"},
		{429, "Starting", "ApiUnavailable"},
		{http.StatusBadGateway, "Starting", "ApiUnavailable"},
		{1, "Starting", "ApiUnavailable"},
	}
	engines := map[string]func(nonce string) appliancev1alpha1.ModelActivationSpecLocal{
		"Realtime": onCPU,
		"FreeToken": func(nonce string) appliancev1alpha1.ModelActivationSpecLocal {
			local := appliancev1alpha1.ModelActivationSpecLocal{URL: "hf://owner/model", Engine: "FreeToken",
				Freetoken: &appliancev1alpha1.ModelActivationSpecLocalFreetoken{GPUDevice: "box/0000:01:00.0", GPUMemoryMi: 8192, SystemMemoryMi: 8192}}
			if nonce != "" {
				local.Freetoken.RestartNonce = ptr.To(nonce)
			}
			return local
		},
	}
	for engine, local := range engines {
		for _, c := range answers {
			name := fmt.Sprintf("%s-%d", strings.ToLower(engine), c.code)
			code.Store(c.code)
			w.activate(name, local(""))
			told := w.model(name, c.phase, engine+c.reason)
			require.NotContains(t, *told.Status.Message, "secret")
			require.False(t, w.in(&appsv1.Deployment{}, name+"-runtime"))
			code.Store(0)
			w.touch(name)
			w.model(name, "Starting", "WaitingForReadyReplica")
			deployment := w.deployment(name + "-runtime")

			w.directPod(deployment, name+"-1")
			code.Store(c.code)
			change(w, &appliancev1alpha1.ModelActivation{}, name, func(a *appliancev1alpha1.ModelActivation) {
				again := local("again")
				a.Spec.Local = &again
			})
			w.model(name, c.phase, engine+c.reason)
			code.Store(0)
			w.touch(name)
			w.model(name, "Starting", "WaitingForReadyReplica")
		}
	}
}

// touch makes the operator look at a model at once, which waits for its next try.
func (w *world) touch(name string) {
	w.t.Helper()
	change(w, &appliancev1alpha1.ModelActivation{}, name, func(a *appliancev1alpha1.ModelActivation) {
		if a.Annotations == nil {
			a.Annotations = map[string]string{}
		}
		a.Annotations["touched"] = time.Now().String()
	})
}

// A Model that the API server refuses is a state that a person can read, and it heals.
func TestRefusedKubeAIModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	var refusing atomic.Bool
	refusing.Store(true)
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if refusing.Load() && strings.Contains(request.URL.Path, "/kubeai.org/") {
			return answer(request, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "spec.url: not today"), nil
		}
		return nil, nil
	})
	w.start()
	w.cpuModel("chat")
	w.readyModules("kubeai", "litellm", "model-catalog")
	require.Contains(t, *w.model("chat", "Degraded", "ChangeRefused").Status.Message, "spec.url: not today")
	refusing.Store(false)
	w.touch("chat")
	w.model("chat", "WaitingForPod", "WaitingForPod")
}

// Every write of a flow is once the last thing that the operator does before it
// dies, and once the first that it does not get to do. The end is the same,
// nothing exists twice, and a model in service stays there.
func TestModelsKilledBetweenAnyTwoWrites(t *testing.T) {
	t.Parallel()
	serving := func(w *world) {
		w.cpuModel("chat")
		pod := w.pod(w.kubeAIModel("chat", nil), "chat-1")
		w.reports(pod, isReady)
		w.counts("chat", 1, 1)
		w.index("chat")
		w.model("chat", "Ready", "CatalogReady")
	}
	flows := map[string]struct {
		before func(w *world)
		wish   func(w *world)
		deaths int
		end    func(w *world)
	}{
		"enable": {
			wish:   func(w *world) { w.cpuModel("chat") },
			deaths: 4,
			end: func(w *world) {
				w.kubeAIModel("chat", nil)
				w.model("chat", "WaitingForPod", "WaitingForPod")
			},
		},
		"change what serves": {
			before: serving,
			wish:   func(w *world) { w.changeContext("chat", 1024) },
			deaths: 2,
			end: func(w *world) {
				w.model("chat", "Ready", "CatalogReady")
				model := w.kubeAIModel("chat", func(m *kubeaiv1.Model) string {
					if !strings.Contains(strings.Join(m.Spec.Args, " "), "--max-model-len=1024") {
						return "not changed: " + show(m.Spec.Args)
					}
					return ""
				})
				pod := &corev1.Pod{}
				require.True(w.t, w.in(pod, "chat-1"))
				require.Equal(w.t, pod.OwnerReferences[0].UID, model.UID, "the healthy model was never withdrawn")
			},
		},
		"disable": {
			before: serving,
			wish: func(w *world) {
				change(w, &appliancev1alpha1.ModelActivation{}, "chat", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
				require.NoError(w.t, w.client.Delete(w.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: "chat-1"}}))
			},
			deaths: 2,
			end: func(w *world) {
				w.model("chat", "Disabled", "Disabled")
				w.vanished(&kubeaiv1.Model{}, "chat")
			},
		},
		"delete": {
			before: serving,
			wish: func(w *world) {
				require.NoError(w.t, w.client.Delete(w.t.Context(), &appliancev1alpha1.ModelActivation{ObjectMeta: metav1.ObjectMeta{Name: "chat", Namespace: w.options.Appliance.Namespace}}))
			},
			deaths: 2,
			end: func(w *world) {
				w.gone(&appliancev1alpha1.ModelActivation{}, "chat")
				w.vanished(&kubeaiv1.Model{}, "chat")
			},
		},
		"direct": {
			wish:   func(w *world) { w.activate("omni", onCPU("")) },
			deaths: 5,
			end: func(w *world) {
				w.model("omni", "Starting", "WaitingForReadyReplica")
				w.deployment("omni-runtime")
				require.True(w.t, w.in(&corev1.Service{}, "omni-runtime"))
			},
		},
		"replace a Pod": {
			before: func(w *world) {
				w.cpuModel("chat")
				w.kubeAIModel("chat", nil)
				w.model("chat", "WaitingForPod", "WaitingForPod")
			},
			wish:   func(w *world) { w.reports(w.pod(w.kubeAIModel("chat", nil), "chat-1"), evicted) },
			deaths: 3,
			end: func(w *world) {
				w.vanished(&corev1.Pod{}, "chat-1")
				w.eventually(func() string {
					found := &appliancev1alpha1.ModelActivation{}
					w.get(found, "chat")
					if recovery := found.Status.PodRecovery; recovery == nil || recovery.Attempts != 1 {
						return "one Pod is one attempt: " + show(found.Status)
					}
					return ""
				})
			},
		},
		"another engine": {
			before: serving,
			wish: func(w *world) {
				change(w, &appliancev1alpha1.ModelActivation{}, "chat", func(a *appliancev1alpha1.ModelActivation) {
					local := onCPU("")
					a.Spec.Local = &local
				})
				require.NoError(w.t, w.client.Delete(w.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: "chat-1"}}))
			},
			deaths: 4,
			end: func(w *world) {
				w.deployment("chat-runtime")
				w.vanished(&kubeaiv1.Model{}, "chat")
				w.model("chat", "Starting", "WaitingForReadyReplica")
			},
		},
	}
	for name, flow := range flows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Shared(t))
			w.start()
			w.readyModules("kubeai", "litellm", "model-catalog")
			if flow.before != nil {
				flow.before(w)
			}
			w.stop()
			flow.wish(w)
			deaths := 0
			// Every life ends with its first write: once before the API server sees
			// it, then after.
			for w.live(0, false) {
				deaths++
				w.live(0, true)
			}
			require.GreaterOrEqual(t, deaths, flow.deaths, "the operator died too seldom to prove anything")
			t.Logf("died %d times", deaths)
			w.start()
			flow.end(w)
			list := &appliancev1alpha1.ModelActivationList{}
			require.NoError(t, w.client.List(t.Context(), list, client.InNamespace(w.options.Appliance.Namespace)))
			models := &kubeaiv1.ModelList{}
			require.NoError(t, w.client.List(t.Context(), models, client.InNamespace(w.options.ModelNamespace)))
			deployments := &appsv1.DeploymentList{}
			require.NoError(t, w.client.List(t.Context(), deployments, client.InNamespace(w.options.ModelNamespace)))
			require.LessOrEqual(t, len(models.Items)+len(deployments.Items), 1, "one runtime at most")
		})
	}
}

func (w *world) changeContext(name string, tokens int32) {
	w.t.Helper()
	change(w, &appliancev1alpha1.ModelActivation{}, name, func(a *appliancev1alpha1.ModelActivation) { a.Spec.Local.ContextWindow = tokens })
}

// A write that meets a newer object is made again from fresh facts.
func TestModelsConflictOnEveryFirstWrite(t *testing.T) {
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
	w.start()
	w.cpuModel("chat")
	w.activate("omni", onCPU(""))
	w.readyModules("kubeai", "litellm", "model-catalog")
	w.model("omni", "Starting", "WaitingForReadyReplica")
	w.model("chat", "WaitingForPod", "WaitingForPod")
	w.reports(w.pod(w.kubeAIModel("chat", nil), "chat-1"), evicted)
	w.vanished(&corev1.Pod{}, "chat-1")
}

// H38: a catalog of models that is gone or broken takes no model out of service:
// the last good one holds; after a restart, with nothing good to go by, everything
// stays as it was.
func TestModelCatalogOutage(t *testing.T) {
	t.Parallel()
	outages := map[string]func(w *world){
		"presets missing": func(w *world) {
			require.NoError(w.t, w.client.Delete(w.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: w.options.ModelPresets.Name, Namespace: w.options.Appliance.Namespace}}))
		},
		"presets are no JSON": func(w *world) {
			change(w, &corev1.ConfigMap{}, w.options.ModelPresets.Name, func(c *corev1.ConfigMap) { c.Data["presets.json"] = `{"presets": [}` })
		},
		"engines break their schema": func(w *world) {
			change(w, &corev1.ConfigMap{}, w.options.EngineCatalog.Name, func(c *corev1.ConfigMap) { c.Data["engines.json"] = `{"engines": {"VLLM": 7}}` })
		},
		"profiles without their key": func(w *world) {
			change(w, &corev1.ConfigMap{}, w.options.RealtimeProfiles.Name, func(c *corev1.ConfigMap) { delete(c.Data, "realtime.json") })
		},
	}
	for name, outage := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Shared(t))
			w.start()
			w.readyModules("kubeai", "litellm", "model-catalog")
			w.cpuModel("chat")
			pod := w.pod(w.kubeAIModel("chat", nil), "chat-1")
			w.reports(pod, isReady)
			w.counts("chat", 1, 1)
			w.index("chat")
			w.model("chat", "Ready", "CatalogReady")
			model := w.kubeAIModel("chat", nil)

			outage(w)
			w.model("chat", "Ready", "CatalogUnavailable")
			// The last good catalog still works: drift is taken back, pods are seen.
			w.counts("chat", 1, 0)
			w.model("chat", "Starting", "CatalogUnavailable")
			w.counts("chat", 1, 1)
			w.model("chat", "Ready", "CatalogUnavailable")
			w.stop()
			w.start()
			w.cpuModel("second")
			w.model("second", "Reconciling", "CatalogUnavailable")
			w.model("chat", "Ready", "CatalogUnavailable")
			found := w.kubeAIModel("chat", nil)
			require.Equal(t, model.UID, found.UID)
			require.Equal(t, model.Generation, found.Generation)
			// What is not wanted can be switched off all the same.
			change(w, &appliancev1alpha1.ModelActivation{}, "second", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
			w.model("second", "Disabled", "Disabled")

			w.restoreCatalogs()
			w.model("chat", "Ready", "CatalogReady")
		})
	}
}

// A preset that the catalog loses leaves the model that was made from it alone.
func TestPresetRemovedWhileInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.readyModules("kubeai", "litellm", "model-catalog")
	w.cpuModel("chat")
	before := w.kubeAIModel("chat", nil)
	w.model("chat", "WaitingForPod", "WaitingForPod")
	presets := &corev1.ConfigMap{}
	change(w, presets, w.options.ModelPresets.Name, func(c *corev1.ConfigMap) {
		c.Data["presets.json"] = strings.ReplaceAll(c.Data["presets.json"], `"qwen2505bcpu"`, `"renamed"`)
	})
	refused := w.model("chat", "Degraded", "InvalidModelSpec")
	require.Contains(t, *refused.Status.Message, `no such preset, got "qwen2505bcpu"`)
	require.Contains(t, *refused.Status.Message, "stays as it is")
	found := w.kubeAIModel("chat", nil)
	require.Equal(t, before.UID, found.UID)
	require.Equal(t, before.Generation, found.Generation)
	w.restoreCatalogs()
	w.model("chat", "WaitingForPod", "WaitingForPod")
}

// A module that Flux merely looks at again takes no model back to waiting; one
// that fails is told, and what serves goes on.
func TestModelAndItsModules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.readyModules("kubeai", "litellm", "model-catalog")
	w.cpuModel("chat")
	w.reports(w.pod(w.kubeAIModel("chat", nil), "chat-1"), isReady)
	w.counts("chat", 1, 1)
	w.index("chat")
	w.model("chat", "Ready", "CatalogReady")
	version := w.model("chat", "Ready", "CatalogReady").ResourceVersion
	w.flux("platform-kubeai", metav1.ConditionUnknown, "Progressing", "Reconciliation in progress")
	w.module("kubeai", "Reconciling", "WaitingForKustomization")
	w.flux("platform-kubeai", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.module("kubeai", "Ready", "KustomizationReady")
	require.Equal(t, version, w.model("chat", "Ready", "CatalogReady").ResourceVersion, "nothing was written")
	w.flux("platform-kubeai", metav1.ConditionFalse, "BuildFailed", "no such path")
	w.model("chat", "WaitingForModules", "WaitingForModules")
	w.says("chat", has("kubeai", "no such path"))
	w.kubeAIModel("chat", nil)
	w.flux("platform-kubeai", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.model("chat", "Ready", "CatalogReady")
}

// Whatever the schema lets through, the operator answers with a state that
// spec/conditions knows, and goes on.
func TestEveryAcceptedModelActivationGetsAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS, kubeaicrds.FS)))
	w.inAI()
	for i, device := range []string{"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe"} {
		w.node(fmt.Sprintf("node-%d", i), offers("256Gi", device, 8))
	}
	w.start()
	w.static("platform-nfd", metav1.ConditionTrue)
	w.readyModules("gpu", "amd-gpu", "intel-gpu", "kubeai", "litellm", "model-catalog")
	names := map[string]string{}
	for file, documents := range examples[appliancev1alpha1.ModelActivation](t, "modelactivation") {
		name := "x-" + strings.ReplaceAll(file, ".", "-")
		first := documents[0].DeepCopy()
		first.ObjectMeta = metav1.ObjectMeta{Name: name}
		status := first.Status
		w.create(first)
		names[file] = name
		for _, document := range documents[1:] {
			change(w, &appliancev1alpha1.ModelActivation{}, name, func(a *appliancev1alpha1.ModelActivation) { a.Spec = *document.Spec.DeepCopy() })
		}
		if status.Phase != "" {
			changeStatus(w, &appliancev1alpha1.ModelActivation{}, name, func(a *appliancev1alpha1.ModelActivation) { a.Status = status })
		}
	}
	for file, name := range names {
		w.eventually(func() string {
			activation := &appliancev1alpha1.ModelActivation{}
			require.True(t, w.get(activation, name))
			condition := meta.FindStatusCondition(activation.Status.Conditions, conditions.ModelActivationConditionReady)
			if condition == nil || condition.ObservedGeneration != activation.Generation || condition.Reason == conditions.ModelActivationReasonReconciling {
				return file + ": no answer: " + show(activation.Status)
			}
			for _, phase := range conditions.ModelActivation.Phases {
				if phase.Phase != string(activation.Status.Phase) {
					continue
				}
				for _, reason := range phase.Reasons {
					if reason == condition.Reason {
						return ""
					}
				}
			}
			return fmt.Sprintf("%s: %s/%s is not in the table", file, activation.Status.Phase, condition.Reason)
		})
	}
	list := &appliancev1alpha1.ModelActivationList{}
	require.NoError(t, w.client.List(t.Context(), list, client.InNamespace(w.options.Appliance.Namespace)))
	for i := range list.Items {
		require.NoError(t, w.client.Delete(t.Context(), &list.Items[i]))
	}
	for _, name := range names {
		w.gone(&appliancev1alpha1.ModelActivation{}, name)
	}
	models := &kubeaiv1.ModelList{}
	require.NoError(t, w.client.List(t.Context(), models))
	require.Empty(t, models.Items)
	deployments := &appsv1.DeploymentList{}
	require.NoError(t, w.client.List(t.Context(), deployments))
	require.Empty(t, deployments.Items)
}
