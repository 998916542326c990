package standin

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationFate of a Model says what becomes of its Pods: a Fate, or a Fate,
// "=" and the message of the failure.
const AnnotationFate = "standin.magicstick.dev/fate"

// Fate is what becomes of the Pods of a Model.
type Fate string

// Fates that can be chosen. The fate of a Pod that has Failed or Succeeded is
// sealed; the others change with the annotation.
const (
	// Ready is a Pod that becomes Ready after the start-up time.
	Ready Fate = "Ready"
	// Loading is a Pod that runs and never becomes Ready.
	Loading Fate = "Loading"
	// Crash is a Pod whose container ends and is started again and again.
	Crash Fate = "Crash"
	// PullFailure is a Pod whose image cannot be pulled.
	PullFailure Fate = "PullFailure"
	// Unschedulable is a Pod that no node has room for.
	Unschedulable Fate = "Unschedulable"
	// Failed is a Pod in phase Failed, as an eviction leaves it.
	Failed Fate = "Failed"
	// Succeeded is a Pod in phase Succeeded.
	Succeeded Fate = "Succeeded"
	// NoPod is a Model that KubeAI cannot make a Pod for, for example because a
	// patch of its configuration does not apply; it says so in its log only.
	NoPod Fate = "NoPod"
)

// fateOf reads the annotation of a Model.
func fateOf(annotations map[string]string, standard Fate) (Fate, string) {
	text, found := annotations[AnnotationFate]
	if !found {
		return standard, ""
	}
	fate, message, _ := strings.Cut(text, "=")
	return Fate(fate), message
}

// podStatus is what a kubelet reports of a Pod with a fate, and after which
// time it has more to say; 0 means never. Conditions carry no times yet.
func podStatus(pod *corev1.Pod, fate Fate, message string, age, startUp time.Duration) (corev1.PodStatus, time.Duration) {
	status := corev1.PodStatus{Phase: corev1.PodPending}
	container := corev1.ContainerStatus{Name: serverContainer, Image: pod.Spec.Containers[0].Image}
	started, ready, scheduled := false, false, true
	waiting := func(reason, text string) {
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: text}
	}
	after := time.Duration(0)
	switch {
	case fate == Unschedulable:
		scheduled = false
	case fate == PullFailure:
		waiting("ImagePullBackOff", cmp.Or(message, `Back-off pulling image "`+container.Image+`"`))
	case fate == Failed || fate == Succeeded:
		status.Phase = corev1.PodPhase(fate)
		status.Reason, status.Message = map[Fate]string{Failed: "Evicted"}[fate], message
		container.State.Terminated = terminated(fate == Failed, message)
	case fate == Crash:
		status.Phase = corev1.PodRunning
		waiting("CrashLoopBackOff", "back-off restarting failed container")
		container.LastTerminationState.Terminated = terminated(true, cmp.Or(message, "the server ended"))
		container.RestartCount = 1
	case age < startUp:
		waiting("ContainerCreating", "")
		after = startUp - age
	default:
		status.Phase = corev1.PodRunning
		container.State.Running = &corev1.ContainerStateRunning{}
		started, ready = true, fate != Loading
	}
	container.Started, container.Ready = &started, ready
	if scheduled {
		status.ContainerStatuses = []corev1.ContainerStatus{container}
	}
	status.Conditions = []corev1.PodCondition{
		podCondition(corev1.PodScheduled, scheduled, corev1.PodReasonUnschedulable, cmp.Or(message, "no node has room for it")),
		podCondition(corev1.ContainersReady, ready, "ContainersNotReady", "containers with unready status: ["+serverContainer+"]"),
		podCondition(corev1.PodReady, ready, "ContainersNotReady", "containers with unready status: ["+serverContainer+"]"),
	}
	return status, after
}

func terminated(failed bool, message string) *corev1.ContainerStateTerminated {
	if failed {
		return &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: message}
	}
	return &corev1.ContainerStateTerminated{Reason: "Completed"}
}

// podCondition gives the reason and the message only when the condition does not hold.
func podCondition(name corev1.PodConditionType, holds bool, reason, message string) corev1.PodCondition {
	if holds {
		return corev1.PodCondition{Type: name, Status: corev1.ConditionTrue}
	}
	return corev1.PodCondition{Type: name, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

// keepTimes dates what changed now, and keeps the dates of what did not.
func keepTimes(status, before *corev1.PodStatus, now metav1.Time) {
	status.StartTime = before.StartTime
	if status.StartTime == nil {
		status.StartTime = &now
	}
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		condition.LastTransitionTime = now
		for _, old := range before.Conditions {
			if old.Type == condition.Type && old.Status == condition.Status {
				condition.LastTransitionTime = old.LastTransitionTime
			}
		}
	}
	for i := range status.ContainerStatuses {
		container := &status.ContainerStatuses[i]
		if container.State.Running == nil {
			continue
		}
		container.State.Running.StartedAt = now
		if i < len(before.ContainerStatuses) && before.ContainerStatuses[i].State.Running != nil {
			container.State.Running.StartedAt = before.ContainerStatuses[i].State.Running.StartedAt
		}
	}
}

// isReady tells whether a Pod counts as a replica that answers.
func isReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
