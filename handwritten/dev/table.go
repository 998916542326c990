package dev

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// row is one line of the table.
type row struct {
	kind, name, phase, reason, message string
}

// controlled lists the kinds that the operator in this process reconciles.
var controlled = map[string]bool{"Appliance": true, "ModuleActivation": true, "AppInstance": true, "ModelActivation": true}

// listed keeps releases, routes and policies of somebody else, as an existing
// cluster may have them, out of the table.
func listed(object *unstructured.Unstructured) bool {
	switch object.GetKind() {
	case "HelmRelease", "HTTPRoute", "SecurityPolicy":
		return object.GetLabels()["appliance.magicstick.dev/appinstance"] != ""
	}
	return true
}

// makeRow reads what people look at from any of our kinds, or of Flux's and
// the gateway's.
func makeRow(object *unstructured.Unstructured) (made row) {
	r := row{kind: object.GetKind(), name: object.GetName()}
	switch r.kind {
	case "HTTPRoute":
		return routeRow(r, object)
	case "SecurityPolicy":
		return policyRow(r, object)
	case "ModelActivation":
		defer func() { made.message = strings.TrimSuffix(modelDetail(object)+made.message, ": ") }()
	}
	r.phase, _, _ = unstructured.NestedString(object.Object, "status", "phase")
	if message, found, _ := unstructured.NestedString(object.Object, "status", "message"); found {
		r.message = message
	}
	if ready := readyCondition(object); ready != nil {
		r.reason, _ = ready["reason"].(string)
		if message, _ := ready["message"].(string); message != "" {
			r.message = message
		}
		if r.phase == "" {
			status, _ := ready["status"].(string)
			r.phase = map[string]string{"True": "Ready", "False": "Not ready", "Unknown": "Unknown"}[status]
		}
	}
	if suspended, _, _ := unstructured.NestedBool(object.Object, "spec", "suspend"); suspended {
		r.phase = "Suspended"
	}
	if object.GetDeletionTimestamp() != nil && r.phase == "" {
		r.phase = "Deleting"
	}
	if r.phase == "" && r.message == "" && !controlled[r.kind] && !isFlux(object) {
		r.message = "accepted; its controller does not run here"
	}
	return r
}

// routeRow tells whether a route leads to its application: without a backend
// the gateway answers every request itself, with an error.
func routeRow(r row, object *unstructured.Unstructured) row {
	hosts, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "hostnames")
	r.message = strings.Join(hosts, ", ")
	r.phase = "Closed"
	rules, _, _ := unstructured.NestedSlice(object.Object, "spec", "rules")
	for _, entry := range rules {
		rule, _ := entry.(map[string]any)
		if backends, _ := rule["backendRefs"].([]any); len(backends) > 0 {
			r.phase = "Open"
		}
	}
	return r
}

// policyRow passes on what the gateway says of a guard.
func policyRow(r row, object *unstructured.Unstructured) row {
	ancestors, _, _ := unstructured.NestedSlice(object.Object, "status", "ancestors")
	for _, entry := range ancestors {
		ancestor, _ := entry.(map[string]any)
		conditions, _, _ := unstructured.NestedSlice(ancestor, "conditions")
		accepted := findCondition(conditions, "Accepted")
		if accepted == nil {
			continue
		}
		r.phase = map[any]string{"True": "Accepted", "False": "Refused"}[accepted["status"]]
		r.reason, _ = accepted["reason"].(string)
		r.message, _ = accepted["message"].(string)
	}
	if len(ancestors) == 0 {
		r.message = "no gateway has looked at it yet"
	}
	return r
}

func isFlux(object *unstructured.Unstructured) bool {
	return object.GetKind() == "Kustomization" || object.GetKind() == "GitRepository"
}

func readyCondition(object *unstructured.Unstructured) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return findCondition(conditions, "Ready")
}

func findCondition(conditions []any, name string) map[string]any {
	for _, entry := range conditions {
		if condition, ok := entry.(map[string]any); ok && condition["type"] == name {
			return condition
		}
	}
	return nil
}

// makeRows sorts the objects the way a person looks for them: the appliance
// first, then kind by kind.
func makeRows(objects []*unstructured.Unstructured) []row {
	var rows []row
	for _, object := range objects {
		if object.GetKind() == indexKind {
			rows = append(rows, indexRows(object)...)
			continue
		}
		rows = append(rows, makeRow(object))
	}
	order := map[string]int{}
	for i, kind := range tableKinds {
		order[kind.Kind] = i
	}
	order[indexRow] = order[indexKind]
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(order[a.kind], order[b.kind]), cmp.Compare(a.name, b.name))
	})
	return rows
}

func cells(rows []row) [][]string {
	table := [][]string{{"KIND", "NAME", "PHASE", "REASON", "MESSAGE"}}
	for _, r := range rows {
		table = append(table, []string{r.kind, r.name, orDash(r.phase), orDash(r.reason), r.message})
	}
	return table
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// pending names the objects that the operator has not brought to rest. Where
// somebody makes Kustomizations ready, a module rests when it is Ready, Degraded
// or Disabled, and a model when it does not start any more; elsewhere, they rest
// when their generation was seen.
func pending(objects []*unstructured.Unstructured, settles bool) []string {
	var names []string
	for _, object := range objects {
		if !controlled[object.GetKind()] {
			continue
		}
		r := makeRow(object)
		observed, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
		rests := observed >= object.GetGeneration() && r.reason != "" && object.GetDeletionTimestamp() == nil
		if settles && r.kind == "ModuleActivation" {
			rests = rests && (r.phase == "Ready" || r.phase == "Degraded" || r.phase == "Disabled")
		}
		if settles && r.kind == "ModelActivation" {
			rests = rests && !startingPhases[r.phase]
		}
		if !rests {
			names = append(names, fmt.Sprintf("%s/%s (%s)", r.kind, r.name, orDash(r.phase)))
		}
	}
	slices.Sort(names)
	return names
}
