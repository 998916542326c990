package activations

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// replicas is what runs of an activation, whatever it asks for now.
type replicas struct {
	// pods of the runtime that exists.
	pods podGroup
	// ready and expected replicas.
	ready, expected int64
	// problem says why there is no Pod, where Kubernetes tells; empty otherwise.
	problem string
}

// trouble is what keeps replicas from being ready, empty when nothing is known.
func (r replicas) trouble() string {
	if trouble := r.pods.trouble(); trouble != "" {
		return trouble
	}
	return r.problem
}

// runtimeState counts the replicas of the runtime that the operator made.
func runtimeState(o Observed) replicas {
	switch {
	case ours(o.Model, o.Activation.Name):
		return kubeAIState(o.Model, o.Pods)
	case ours(o.Deployment, o.Activation.Name):
		return directState(o.Deployment, o.Pods)
	}
	return replicas{}
}

// kubeAIState believes KubeAI's count of ready replicas only as far as there are
// ready Pods: while KubeAI is away its count stands still.
func kubeAIState(model *kubeaiv1.Model, pods []*corev1.Pod) replicas {
	state := replicas{pods: group(pods, func(pod *corev1.Pod) bool {
		owner := kubeAIOwner(pod)
		return owner != nil && owner.UID == model.UID
	})}
	counted := ptr.Deref(model.Status.Replicas, kubeaiv1.ModelStatusReplicas{})
	state.ready = min(int64(counted.Ready), int64(len(state.pods.ready())))
	least := int32(0)
	if model.Spec != nil {
		least = ptr.Deref(model.Spec.MinReplicas, 0)
	}
	state.expected = max(1, state.ready, int64(counted.All), int64(least))
	return state
}

// directState counts a replica when the Deployment has seen its present
// generation and says that a Pod of it is ready.
func directState(deployment *appsv1.Deployment, pods []*corev1.Pod) replicas {
	state := replicas{pods: group(pods, func(pod *corev1.Pod) bool { return kubeAIOwner(pod) == nil }), expected: 1}
	if len(state.pods.live) > 0 {
		// Their successor is there already, and Kubernetes clears them away later.
		state.pods.terminal = nil
	}
	status := deployment.Status
	if status.ObservedGeneration >= deployment.Generation {
		state.ready = int64(min(status.ReadyReplicas, status.UpdatedReplicas))
	}
	for _, condition := range status.Conditions {
		// A quota or a policy of the namespace keeps Pods from being made.
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			state.problem = kube.Truncate(title(deployment)+": "+reasonAnd(condition.Reason, condition.Message), maxTrouble)
		}
	}
	return state
}

// ours tells the objects that the operator made for the activation from those of
// people and other programs, which are never changed or deleted, whatever their
// name. The labels decide; where a hand took them off, the fields that the
// operator applied do.
func ours(object client.Object, activation string) bool {
	if none(object) {
		return false
	}
	labels := object.GetLabels()
	switch labels[LabelActivation] {
	case activation:
		return labels[kube.LabelManagedBy] == kube.ManagedByOperator || kube.Applied(object)
	case "":
		return kube.Applied(object)
	}
	return false
}

// none tells a nil pointer inside an interface, too.
func none(object client.Object) bool {
	switch object := object.(type) {
	case nil:
		return true
	case *kubeaiv1.Model:
		return object == nil
	case *appsv1.Deployment:
		return object == nil
	case *corev1.Service:
		return object == nil
	}
	return false
}

// whose says who an object of somebody else belongs to, as far as it tells.
func whose(object client.Object) string {
	labels := object.GetLabels()
	if other := labels[LabelActivation]; other != "" {
		return "belongs to ModelActivation " + other
	}
	for _, owner := range object.GetOwnerReferences() {
		return "belongs to " + owner.Kind + " " + owner.Name
	}
	if release := object.GetAnnotations()["meta.helm.sh/release-name"]; release != "" {
		return "belongs to Helm release " + release
	}
	if manager := labels[kube.LabelManagedBy]; manager != "" && manager != kube.ManagedByOperator {
		return "is managed by " + kube.Truncate(manager, maxShown)
	}
	return "was not made by the operator"
}

// annotationsOf reads the annotations of an object that may not exist.
func annotationsOf(object client.Object) map[string]string {
	if none(object) {
		return nil
	}
	return object.GetAnnotations()
}

// effectiveKVCacheType reads from a Pod with which precision its server was
// started; fallback is what the engine does when nothing is said
// (contract/appliance.md B.4). It is the Pod that tells, not the Model, which may
// have changed since.
func effectiveKVCacheType(pod *corev1.Pod, fallback string) string {
	for _, container := range pod.Spec.Containers {
		for _, variable := range container.Env {
			if variable.Name == envOllamaKVCacheType && variable.Value != "" {
				return variable.Value
			}
		}
		if value, found := flagValue(container.Args, flagKVCacheType, ""); found {
			return strings.TrimSpace(value)
		}
	}
	return fallback
}

// maxShown cuts what others wrote in messages, in bytes.
const maxShown = 80
