package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Readiness is what a foreign object says of itself.
type Readiness struct {
	// Status is True, False or Unknown; Unknown also when it says nothing.
	Status metav1.ConditionStatus
	// Condition is the type that was read, empty for status.ready and for silence.
	Condition string
	// Reason and Message are those of the condition.
	Reason, Message string
	// Outdated is true when the answer is about an older generation of the object.
	Outdated bool
}

// Ready is true only for an answer that says so about the present generation.
func (r Readiness) Ready() bool { return r.Status == metav1.ConditionTrue && !r.Outdated }

// readinessTypes is the order in which foreign conditions are asked
// (contract/appliance.md C.2). Of two in one step, the one that is True wins.
var readinessTypes = [][]string{{"Ready"}, {"ServerReady", "ServerHealthy"}, {"Available"}}

// ReadReadiness reads a foreign object of any kind: status.ready true wins,
// then the condition Ready, then ServerReady or ServerHealthy, then Available.
func ReadReadiness(object *unstructured.Unstructured) Readiness {
	if object == nil {
		return Readiness{Status: metav1.ConditionUnknown}
	}
	observed, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	outdated := observed > 0 && observed < object.GetGeneration()
	if ready, found, err := unstructured.NestedBool(object.Object, "status", "ready"); err == nil && found && ready {
		return Readiness{Status: metav1.ConditionTrue, Outdated: outdated}
	}
	list, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
	items, _ := list.([]any)
	conditions := make([]metav1.Condition, 0, len(items))
	for _, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		condition := metav1.Condition{}
		condition.Type, _, _ = unstructured.NestedString(fields, "type")
		status, _, _ := unstructured.NestedString(fields, "status")
		condition.Status = metav1.ConditionStatus(status)
		condition.Reason, _, _ = unstructured.NestedString(fields, "reason")
		condition.Message, _, _ = unstructured.NestedString(fields, "message")
		condition.ObservedGeneration, _, _ = unstructured.NestedInt64(fields, "observedGeneration")
		conditions = append(conditions, condition)
	}
	return ConditionReadiness(conditions, object.GetGeneration(), observed)
}

// ConditionReadiness is ReadReadiness for a typed object: its conditions, its
// generation, and the generation that its controller has seen (0 = not said).
func ConditionReadiness(conditions []metav1.Condition, generation, observedGeneration int64) Readiness {
	for _, step := range readinessTypes {
		var found *metav1.Condition
		for _, conditionType := range step {
			condition := FindCondition(conditions, conditionType)
			if condition != nil && (found == nil || condition.Status == metav1.ConditionTrue) {
				found = condition
			}
		}
		if found == nil {
			continue
		}
		seen := max(found.ObservedGeneration, observedGeneration)
		status := found.Status
		if status != metav1.ConditionTrue && status != metav1.ConditionFalse {
			status = metav1.ConditionUnknown
		}
		return Readiness{
			Status: status, Condition: found.Type,
			Reason: found.Reason, Message: found.Message,
			Outdated: seen > 0 && seen < generation,
		}
	}
	return Readiness{Status: metav1.ConditionUnknown}
}
