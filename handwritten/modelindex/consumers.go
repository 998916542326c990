package modelindex

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// consumerSelectors find Pods that read the index without saying so.
var consumerSelectors = []labels.Set{
	{"app": "anything-llm"},
	{"app.kubernetes.io/instance": "hermes", "app.kubernetes.io/name": "hermes-agent"},
	{"app.kubernetes.io/instance": "openclaw", "app.kubernetes.io/name": "openclaw"},
	{"app.kubernetes.io/instance": "paperclip", "app.kubernetes.io/component": "server"},
}

// Consumers are the Pods that must start again to read an index that changed at
// that time: they read it once, when they start. Those that were made later have
// read it, and those that are going need nothing.
func Consumers(pods []corev1.Pod, changed time.Time) []*corev1.Pod {
	var found []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		// Times of Pods are cut to the second.
		stale := !pod.CreationTimestamp.After(changed)
		if pod.DeletionTimestamp == nil && stale && consumes(pod) {
			found = append(found, pod)
		}
	}
	return found
}

func consumes(pod *corev1.Pod) bool {
	if pod.Labels[AnnotationConsumer] == "true" || pod.Annotations[AnnotationConsumer] == "true" {
		return true
	}
	for _, selector := range consumerSelectors {
		if selector.AsSelector().Matches(labels.Set(pod.Labels)) {
			return true
		}
	}
	return false
}
