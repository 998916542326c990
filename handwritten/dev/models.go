package dev

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

const (
	// indexKind holds the model index.
	indexKind = "ConfigMap"
	// indexRow is the kind that the table shows for each model of the index.
	indexRow = "ModelIndex"
)

// startingPhases are those of a model that is on its way.
var startingPhases = map[string]bool{
	string(appliancev1alpha1.ModelActivationStatusPhaseWaitingForCRDs): true,
	string(appliancev1alpha1.ModelActivationStatusPhaseWaitingForPod):  true,
	string(appliancev1alpha1.ModelActivationStatusPhaseStarting):       true,
	string(appliancev1alpha1.ModelActivationStatusPhaseReconciling):    true,
	string(appliancev1alpha1.ModelActivationStatusPhaseRemoving):       true,
}

// modelDetail says what serves a model, and on which hardware: as the operator
// found out, or else as it was asked for.
func modelDetail(object *unstructured.Unstructured) string {
	if model, external, _ := unstructured.NestedString(object.Object, "spec", "external", "model"); external {
		return model + ": "
	}
	first := func(paths ...[]string) string {
		for _, path := range paths {
			if text, _, _ := unstructured.NestedString(object.Object, path...); text != "" {
				return text
			}
		}
		return ""
	}
	engine := first([]string{"status", "engine"}, []string{"spec", "local", "engine"})
	target := first([]string{"status", "computeTarget"}, []string{"spec", "local", "computeTarget"})
	switch {
	case engine != "" && target != "":
		return engine + " on " + target + ": "
	case engine+target != "":
		return engine + target + ": "
	}
	return ""
}

// indexRows are the models that applications are offered.
func indexRows(object *unstructured.Unstructured) []row {
	text, _, _ := unstructured.NestedString(object.Object, "data", "catalog.json")
	var index struct {
		Models []struct {
			ID            string `json:"id"`
			Type          string `json:"type"`
			ModelRef      string `json:"modelRef"`
			ContextWindow int64  `json:"contextWindow"`
		} `json:"models"`
		DefaultChatModel      string `json:"defaultChatModel"`
		DefaultEmbeddingModel string `json:"defaultEmbeddingModel"`
	}
	if err := json.Unmarshal([]byte(text), &index); err != nil {
		return []row{{kind: indexRow, name: object.GetName(), phase: "Unreadable", message: "catalog.json: " + err.Error()}}
	}
	var rows []row
	for _, model := range index.Models {
		r := row{kind: indexRow, name: model.ID, phase: "Listed", message: fmt.Sprintf("%s model %s", model.Type, model.ModelRef)}
		if model.ContextWindow > 0 {
			r.message += fmt.Sprintf(", %d tokens of context", model.ContextWindow)
		}
		if model.ID == index.DefaultChatModel || model.ID == index.DefaultEmbeddingModel {
			r.message += fmt.Sprintf("; the default for %s", model.Type)
		}
		rows = append(rows, r)
	}
	return rows
}
