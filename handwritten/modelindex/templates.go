package modelindex

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"magicstick.dev/operator/handwritten/kube"
)

// AgentTemplateKind is KubeOpenCode's AgentTemplate. Its spec.config is OpenCode's
// configuration without a schema, so there is nothing to type.
func AgentTemplateKind() kube.OptionalKind {
	prototype := &unstructured.Unstructured{}
	prototype.SetGroupVersionKind(schema.GroupVersionKind{Group: "kubeopencode.io", Version: "v1alpha1", Kind: "AgentTemplate"})
	return kube.OptionalKind{CRD: "agenttemplates.kubeopencode.io", Version: "v1alpha1", Prototype: prototype}
}

// Template returns an AgentTemplate as it should be, or nil when it is not kept,
// or when there is no chat model to write. Everything but the models of LiteLLM
// and the choice of models stays (contract/appliance.md C.11).
func Template(template *unstructured.Unstructured, index Index, settings Settings) (*unstructured.Unstructured, error) {
	chat := index.ofType(typeChat)
	if len(chat) == 0 || index.DefaultChat == "" || !keepsTemplate(template, settings) {
		return nil, nil
	}
	wanted := template.DeepCopy()
	for _, place := range [][]string{{"spec", "config"}, {"spec", "config", "provider"}, {"spec", "config", "provider", provider}} {
		// An older form of the configuration is a text; nobody knows how to change that.
		if _, _, err := unstructured.NestedMap(wanted.Object, place...); err != nil {
			return nil, fmt.Errorf("writing the models of AgentTemplate %s: spec.config is not an object all the way to the provider", template.GetName())
		}
	}
	set := func(value any, place ...string) error {
		if err := unstructured.SetNestedField(wanted.Object, value, place...); err != nil {
			return fmt.Errorf("writing the models of AgentTemplate %s: %w", template.GetName(), err)
		}
		return nil
	}
	if err := set(openCodeModels(chat, settings, openCodeLimits), "spec", "config", "provider", provider, "models"); err != nil {
		return nil, err
	}
	for _, choice := range []string{"model", "small_model"} {
		if err := set(index.openCodeRef(), "spec", "config", choice); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// keepsTemplate: those that are named, and those that were made for an instance.
func keepsTemplate(template *unstructured.Unstructured, settings Settings) bool {
	_, ofInstance := template.GetLabels()[kube.LabelInstance]
	return template.GetDeletionTimestamp() == nil && (ofInstance || slices.Contains(settings.AgentTemplateNames, template.GetName()))
}
