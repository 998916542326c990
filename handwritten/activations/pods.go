package activations

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// Bounds of the no-Pod timer and of the recovery (contract/appliance.md C.6, C.13).
const (
	// podDeadline is how long a KubeAI Model may be without a Pod.
	podDeadline = 2 * time.Minute
	// maxRecoveries is how many Pods are replaced before somebody has to look.
	maxRecoveries = 5
	// recoveryPause lies between two of them.
	recoveryPause = 30 * time.Second
	// maxFailure is the bound of status.podRecovery.failure in bytes.
	maxFailure = 1024
	// maxTrouble leaves room in the status message for what stands around it, in bytes.
	maxTrouble = 700
)

// kubeAIModelKind is the kind of the owner of KubeAI's Pods.
const kubeAIModelKind = "Model"

// kubeAIOwner is the KubeAI Model that controls a Pod; nil when none does.
func kubeAIOwner(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != kubeAIModelKind || !strings.HasPrefix(owner.APIVersion, kubeaiv1.GroupName+"/") {
		return nil
	}
	return owner
}

// activationOf names the activation that a Pod was made for: the name of the
// KubeAI Model that controls it, or the label by which a direct runtime's
// Deployment selects its Pods. Empty for every other Pod.
//
// Direct Pods are told by that label and not by the ReplicaSet between them and
// the Deployment: the selector is what makes a Pod part of the Deployment, it
// cannot change, and the operator does nothing to these Pods but read them.
func activationOf(pod *corev1.Pod) string {
	if owner := kubeAIOwner(pod); owner != nil {
		return owner.Name
	}
	if pod.Labels[labelComponent] == componentRuntime {
		return pod.Labels[LabelActivation]
	}
	return ""
}

// podGroup are the Pods of one runtime, by what they are good for.
type podGroup struct {
	// live Pods run, or may still; terminal ones have ended for good; ending ones
	// are being deleted and count for nothing but their devices.
	live, terminal, ending []*corev1.Pod
}

func group(pods []*corev1.Pod, belongs func(*corev1.Pod) bool) podGroup {
	var found podGroup
	for _, pod := range pods {
		switch {
		case !belongs(pod):
		case pod.DeletionTimestamp != nil:
			found.ending = append(found.ending, pod)
		case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
			found.terminal = append(found.terminal, pod)
		default:
			found.live = append(found.live, pod)
		}
	}
	for _, list := range [][]*corev1.Pod{found.live, found.terminal, found.ending} {
		slices.SortFunc(list, func(a, b *corev1.Pod) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
	}
	return found
}

// all are the Pods of the group, those that count first.
func (g podGroup) all() []*corev1.Pod { return slices.Concat(g.live, g.terminal, g.ending) }

// ready are the live Pods that can be asked.
func (g podGroup) ready() []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(g.live), func(pod *corev1.Pod) bool {
		return !slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		})
	})
}

// trouble is the first failure among the Pods, empty when there is none.
func (g podGroup) trouble() string {
	for _, pod := range slices.Concat(g.live, g.terminal) {
		if text := trouble(pod); text != "" {
			return text
		}
	}
	return ""
}

// trouble says in one line what is wrong with a Pod: which container, why, and
// what it said. It is empty for a Pod that is well, or that has only begun.
func trouble(pod *corev1.Pod) string {
	problem := ""
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if problem = containerTrouble(status); problem != "" {
			problem = "container " + status.Name + " " + problem
			break
		}
	}
	if problem == "" {
		problem = podTrouble(pod)
	}
	if problem == "" {
		return ""
	}
	return kube.Truncate(fmt.Sprintf("Pod %s/%s: %s", pod.Namespace, pod.Name, problem), maxTrouble)
}

// beginning are reasons of a container that waits for nothing but its turn.
var beginning = map[string]bool{"": true, "ContainerCreating": true, "PodInitializing": true}

// crashLoop is the reason of a container that the kubelet starts again later.
const crashLoop = "CrashLoopBackOff"

func containerTrouble(status corev1.ContainerStatus) string {
	last := status.LastTerminationState.Terminated
	if waiting := status.State.Waiting; waiting != nil && !beginning[waiting.Reason] {
		if waiting.Reason == crashLoop && last != nil {
			// The message of the back-off changes with every try and says less.
			return crashLoop + ", it " + ended(last)
		}
		return "is waiting: " + reasonAnd(waiting.Reason, waiting.Message)
	}
	if terminated := status.State.Terminated; terminated != nil && terminated.ExitCode != 0 {
		return ended(terminated)
	}
	if last != nil && last.ExitCode != 0 && !status.Ready && status.RestartCount > 0 {
		return ended(last) + " and was started again"
	}
	return ""
}

func ended(state *corev1.ContainerStateTerminated) string {
	return fmt.Sprintf("ended with exit code %d: %s", state.ExitCode, reasonAnd(cmp.Or(state.Reason, "Error"), state.Message))
}

// podTrouble is what no container can tell: that the Pod has failed as a whole,
// or finds no node.
func podTrouble(pod *corev1.Pod) string {
	switch pod.Status.Phase {
	case corev1.PodFailed:
		return reasonAnd(cmp.Or(pod.Status.Reason, "Failed"), pod.Status.Message)
	case corev1.PodSucceeded:
		return "it has ended although a model server never should"
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return "it finds no node: " + reasonAnd(condition.Reason, condition.Message)
		}
	}
	return ""
}

// reasonAnd joins a reason with its message, on one line and without secrets.
func reasonAnd(reason, message string) string {
	if message = strings.Join(strings.Fields(kube.Sanitize(message)), " "); message == "" {
		return reason
	}
	return reason + ": " + message
}

// revisionOf is what the timer and the recovery belong to.
func revisionOf(model *kubeaiv1.Model, activation *appliancev1alpha1.ModelActivation) string {
	return fmt.Sprintf("%s.%d.%d", model.UID, model.Generation, activation.Generation)
}

// podCreation is the no-Pod timer: since when, and how long it may still take;
// nothing left means that it has run out.
func podCreation(before *appliancev1alpha1.ModelActivationStatusPodCreation, revision string, now time.Time) (*appliancev1alpha1.ModelActivationStatusPodCreation, time.Duration) {
	creation := before.DeepCopy()
	if creation == nil || creation.Revision != revision {
		creation = &appliancev1alpha1.ModelActivationStatusPodCreation{Revision: revision, Since: second(now)}
	}
	return creation, podDeadline - now.Sub(creation.Since.Time)
}

// recovery is what to do about Pods that have ended for good.
type recovery struct {
	// status to keep; nil when there is nothing to keep.
	status *appliancev1alpha1.ModelActivationStatusPodRecovery
	// remove is the Pod to delete now.
	remove *corev1.Pod
	// exhausted tells that all attempts are spent and a further Pod has ended.
	exhausted bool
	// wait is how long until the next attempt; 0 when none is waited for.
	wait time.Duration
}

// recover decides over the Pods that have ended for good. healthy tells that all
// replicas are ready.
//
// An attempt is written into the status before it is made: the pass that finds
// its Pod's UID there deletes that Pod. A process that is killed in between makes
// the same attempt again instead of one more.
func recoverPods(before *appliancev1alpha1.ModelActivationStatusPodRecovery, revision string, terminal []*corev1.Pod, healthy bool, now time.Time) recovery {
	status := before.DeepCopy()
	if status != nil && status.Revision != revision {
		status = nil
	}
	if len(terminal) == 0 {
		if healthy {
			status = nil
		}
		return recovery{status: status}
	}
	if status != nil {
		for _, pod := range terminal {
			if string(pod.UID) == ptr.Deref(status.PodUID, "") {
				return recovery{status: status, remove: pod}
			}
		}
		if status.Attempts >= maxRecoveries {
			return recovery{status: status, exhausted: true}
		}
		if status.LastAttemptAt != nil {
			if wait := recoveryPause - now.Sub(status.LastAttemptAt.Time); wait > 0 {
				return recovery{status: status, wait: wait}
			}
		}
	} else {
		status = &appliancev1alpha1.ModelActivationStatusPodRecovery{
			Revision: revision, Failure: ptr.To(kube.Truncate(trouble(terminal[0]), maxFailure)),
		}
	}
	status.Attempts++
	status.PodUID = ptr.To(string(terminal[0].UID))
	at := second(now)
	status.LastAttemptAt = &at
	return recovery{status: status}
}

// second is a time as the API keeps it.
func second(now time.Time) metav1.Time { return metav1.NewTime(now.UTC().Truncate(time.Second)) }
