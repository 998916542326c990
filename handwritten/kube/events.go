package kube

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// maxEventNote is the bound of an Event's note in bytes (k8s.io/api/events/v1).
const maxEventNote = 1024

// Notify records an event when the condition of an object changed in status or
// reason; a changed message alone makes no event, so that progress texts do
// not flood the API server, nor does the first word about an object, which only
// says that it was seen. Failures are warnings.
func Notify(recorder events.EventRecorder, object client.Object, before, after *metav1.Condition, failed bool) {
	if recorder == nil || before == nil || after == nil || before.Status == after.Status && before.Reason == after.Reason {
		return
	}
	eventType := corev1.EventTypeNormal
	if failed {
		eventType = corev1.EventTypeWarning
	}
	recorder.Eventf(object, nil, eventType, after.Reason, "Reconcile", "%s", Truncate(after.Message, maxEventNote))
}
