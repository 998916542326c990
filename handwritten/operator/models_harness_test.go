package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

// moduleKustomizations are the Kustomizations of modules that models need.
var moduleKustomizations = map[string]string{
	"kubeai": "platform-kubeai", "litellm": "app-litellm", "model-catalog": "app-model-catalog",
	"gpu": "platform-gpu", "amd-gpu": "platform-amd-gpu", "intel-gpu": "platform-intel-gpu",
}

// readyModules plays Flux for modules that models need until they are Ready.
func (w *world) readyModules(names ...string) {
	w.t.Helper()
	if !w.get(&kustomizev1.Kustomization{}, "infrastructure-basis") {
		w.static("infrastructure-basis", metav1.ConditionTrue)
	}
	for _, name := range names {
		if !w.get(&appliancev1alpha1.ModuleActivation{}, name) {
			// The operator may do it at the same moment.
			if err := w.client.Create(w.t.Context(), w.inAppliance(activation(name))); !apierrors.IsAlreadyExists(err) {
				require.NoError(w.t, err)
			}
		}
		w.kustomization(moduleKustomizations[name], running)
		w.flux(moduleKustomizations[name], metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
		w.module(name, "Ready", "KustomizationReady")
	}
}

func (w *world) inAppliance(activation *appliancev1alpha1.ModuleActivation) *appliancev1alpha1.ModuleActivation {
	activation.Namespace = w.options.Appliance.Namespace
	return activation
}

// cpuModel is the portable preset on cpu.
func (w *world) cpuModel(name string) *appliancev1alpha1.ModelActivation {
	return w.activate(name, appliancev1alpha1.ModelActivationSpecLocal{
		Preset: "qwen2505bcpu", ComputeTarget: "cpu", Engine: "VLLM",
	})
}

// activate makes an activation of a local model in the namespace of this world.
func (w *world) activate(name string, local appliancev1alpha1.ModelActivationSpecLocal) *appliancev1alpha1.ModelActivation {
	w.t.Helper()
	activation := &appliancev1alpha1.ModelActivation{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appliancev1alpha1.ModelActivationSpec{Type: "local", TargetNamespace: w.options.ModelNamespace, Local: &local},
	}
	w.create(activation)
	return activation
}

// inAI lets models run in the namespace ai, which external models need. The API
// server belongs to this world alone.
func (w *world) inAI() {
	w.t.Helper()
	w.options.ModelNamespace = "ai"
	require.NoError(w.t, w.client.Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ai"}}))
}

// external makes an activation of a provider's model.
func (w *world) external(name string) {
	w.t.Helper()
	w.create(&appliancev1alpha1.ModelActivation{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appliancev1alpha1.ModelActivationSpec{
			Type: "external", TargetNamespace: w.options.ModelNamespace,
			External: &appliancev1alpha1.ModelActivationSpecExternal{Model: "openai/gpt-4o-mini"},
		},
	})
}

// model waits until an activation has phase and reason, and returns it.
func (w *world) model(name, phase, reason string) *appliancev1alpha1.ModelActivation {
	w.t.Helper()
	found := &appliancev1alpha1.ModelActivation{}
	w.eventually(func() string {
		found = &appliancev1alpha1.ModelActivation{}
		if !w.get(found, name) {
			return "ModelActivation " + name + " does not exist"
		}
		condition := meta.FindStatusCondition(found.Status.Conditions, "Ready")
		if condition == nil || string(found.Status.Phase) != phase || condition.Reason != reason || condition.ObservedGeneration != found.Generation {
			return fmt.Sprintf("ModelActivation %s: want %s/%s, have %s", name, phase, reason, show(found.Status))
		}
		return ""
	})
	return found
}

// says waits until the message of an activation has all the words.
func (w *world) says(name string, has func(string) bool) string {
	w.t.Helper()
	message := ""
	w.eventually(func() string {
		found := &appliancev1alpha1.ModelActivation{}
		require.True(w.t, w.get(found, name))
		message = ptr.Deref(found.Status.Message, "")
		if !has(message) {
			return fmt.Sprintf("ModelActivation %s says %q", name, message)
		}
		return ""
	})
	return message
}

// in reads an object of the namespace of the models; false when it does not exist.
func (w *world) in(object client.Object, name string) bool {
	w.t.Helper()
	err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.options.ModelNamespace, Name: name}, object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false
	}
	require.NoError(w.t, err)
	return true
}

// kubeAIModel waits until there is a Model that passes the check.
func (w *world) kubeAIModel(name string, check func(*kubeaiv1.Model) string) *kubeaiv1.Model {
	w.t.Helper()
	found := &kubeaiv1.Model{}
	w.eventually(func() string {
		found = &kubeaiv1.Model{}
		if !w.in(found, name) {
			return "Model " + name + " does not exist"
		}
		if check == nil {
			return ""
		}
		return check(found)
	})
	return found
}

// deployment waits until there is a Deployment.
func (w *world) deployment(name string) *appsv1.Deployment {
	w.t.Helper()
	found := &appsv1.Deployment{}
	w.eventually(func() string {
		found = &appsv1.Deployment{}
		if !w.in(found, name) {
			return "Deployment " + name + " does not exist"
		}
		return ""
	})
	return found
}

// vanished waits until an object of the namespace of the models is gone.
func (w *world) vanished(object client.Object, name string) {
	w.t.Helper()
	w.eventually(func() string {
		if w.in(object, name) {
			return fmt.Sprintf("%T %s still exists", object, name)
		}
		return ""
	})
}

// pod makes a Pod of a KubeAI Model, as KubeAI would.
func (w *world) pod(model *kubeaiv1.Model, name string, args ...string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: model.Namespace, Name: name, Labels: map[string]string{"model": model.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "kubeai.org/v1", Kind: "Model", Name: model.Name, UID: model.UID,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers:                    []corev1.Container{{Name: "server", Image: "vllm", Args: args}},
		},
	}
	require.NoError(w.t, w.client.Create(w.t.Context(), pod))
	return pod
}

// directPod makes a Pod of a Deployment, as the controllers of Kubernetes would.
func (w *world) directPod(deployment *appsv1.Deployment, name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: name, Labels: deployment.Spec.Template.Labels},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers:                    []corev1.Container{{Name: "server", Image: "omni"}},
		},
	}
	require.NoError(w.t, w.client.Create(w.t.Context(), pod))
	return pod
}

// reports writes the status of a Pod, as a kubelet would.
func (w *world) reports(pod *corev1.Pod, edit func(*corev1.PodStatus)) {
	w.t.Helper()
	edit(&pod.Status)
	require.NoError(w.t, w.client.Status().Update(w.t.Context(), pod))
}

// isReady is what a kubelet says of a Pod that answers.
func isReady(status *corev1.PodStatus) {
	status.Phase = corev1.PodRunning
	status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	status.ContainerStatuses = []corev1.ContainerStatus{{Name: "server", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
}

// counts writes KubeAI's count of replicas.
func (w *world) counts(model string, all, ready int32) {
	w.t.Helper()
	for {
		found := w.kubeAIModel(model, nil)
		found.Status.Replicas = &kubeaiv1.ModelStatusReplicas{All: all, Ready: ready}
		err := w.client.Status().Update(w.t.Context(), found)
		if apierrors.IsConflict(err) {
			continue
		}
		require.NoError(w.t, err)
		return
	}
}

// rolledOut writes the status of a Deployment whose only Pod is ready, or not.
func (w *world) rolledOut(name string, ready int32) {
	w.t.Helper()
	for {
		found := w.deployment(name)
		found.Status = appsv1.DeploymentStatus{ObservedGeneration: found.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: ready}
		err := w.client.Status().Update(w.t.Context(), found)
		if apierrors.IsConflict(err) {
			continue
		}
		require.NoError(w.t, err)
		return
	}
}

// index writes the generated catalog with these models.
func (w *world) index(models ...string) {
	w.t.Helper()
	entries := []map[string]string{}
	for _, model := range models {
		entries = append(entries, map[string]string{"id": model, "name": model})
	}
	raw, err := json.Marshal(map[string]any{"models": entries})
	require.NoError(w.t, err)
	w.rawIndex(string(raw))
}

func (w *world) rawIndex(text string) {
	w.t.Helper()
	index := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: w.options.ModelIndex},
		Data:       map[string]string{"catalog.json": text},
	}
	err := w.client.Create(w.t.Context(), index)
	if apierrors.IsAlreadyExists(err) {
		err = w.client.Update(w.t.Context(), index)
	}
	require.NoError(w.t, err)
}

// node makes a node that offers devices; nodes belong to all worlds of an API server.
func (w *world) node(name string, offers corev1.ResourceList) {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/arch": "amd64"}}}
	require.NoError(w.t, w.client.Create(w.t.Context(), node))
	w.t.Cleanup(func() { _ = w.client.Delete(context.Background(), node) })
	node.Status.Capacity, node.Status.Allocatable = offers, offers
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(w.t, w.client.Status().Update(w.t.Context(), node))
}

func offers(memory, device string, count int64) corev1.ResourceList {
	list := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourceCPU: resource.MustParse("16")}
	if device != "" {
		list[corev1.ResourceName(device)] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return list
}

// testClock is the operator's clock, which a test may set forward.
type testClock struct{ ahead atomic.Int64 }

func (c *testClock) forward(by time.Duration) { c.ahead.Add(int64(by)) }

// clock gives the operator a clock of the test. Call it before start.
func (w *world) clock() *testClock {
	clock := &testClock{}
	w.options.Now = func() time.Time { return time.Now().Add(time.Duration(clock.ahead.Load())) }
	return clock
}

// poke makes the operator look at a model again: what waits for a time wakes up
// by the clock of the machine only.
func (w *world) poke(pod *corev1.Pod) {
	w.t.Helper()
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations["poked"] = time.Now().String()
	require.NoError(w.t, w.client.Update(w.t.Context(), pod))
}

// evicted is what a kubelet leaves of a Pod that it had no room for.
func evicted(status *corev1.PodStatus) {
	status.Phase, status.Reason, status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
}
