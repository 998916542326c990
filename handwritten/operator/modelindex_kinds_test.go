package operator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	kubeaicrds "magicstick.dev/operator/generated/external/kubeai/crds"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// KubeOpenCode comes later, goes, and comes back; its AgentTemplates get the
// models and keep everything else (U037).
func TestModelIndexKeepsAgentTemplates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS, kubeaicrds.FS)))
	w.litellm()
	w.served("chat", 1)
	w.start()
	w.lists([]string{"chat"})
	require.NoError(t, w.client.Create(t.Context(), agentTemplateCRD()))
	template := func(name string, labels map[string]any, config any) {
		object := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": name, "namespace": w.options.ModelNamespace, "labels": labels},
			"spec":     map[string]any{"executorImage": "image", "config": config},
		}}
		object.SetGroupVersionKind(templateKind)
		w.eventually(func() string { // the API server needs a moment for a new kind
			if err := w.client.Create(t.Context(), object.DeepCopy()); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	template("litellm-default", nil, map[string]any{"theme": "dark", "provider": map[string]any{"litellm": map[string]any{"models": map[string]any{"old": map[string]any{}}}}})
	template("demo", map[string]any{"appliance.magicstick.dev/appinstance": "kubeopencode-demo"}, map[string]any{})
	template("of-a-person", nil, map[string]any{"model": "x/y"})
	config := func(name string, check func(map[string]any) string) {
		w.eventually(func() string {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(templateKind)
			require.NoError(t, w.client.Get(t.Context(), types.NamespacedName{Namespace: w.options.ModelNamespace, Name: name}, object))
			found, _, _ := unstructured.NestedMap(object.Object, "spec", "config")
			return check(found)
		})
	}
	has := func(models string) func(map[string]any) string {
		return func(config map[string]any) string {
			if text := fmt.Sprint(config); !strings.Contains(text, models) || !strings.Contains(text, "small_model:litellm/chat") || !strings.Contains(text, " model:litellm/chat") && !strings.Contains(text, "[model:litellm/chat") {
				return "the configuration is " + text
			}
			return ""
		}
	}
	const chat = "models:map[chat:map[limit:map[context:20000 output:8192] name:chat]]"
	config("litellm-default", has(chat))
	config("litellm-default", has("theme:dark"))
	config("demo", has(chat))
	config("of-a-person", func(config map[string]any) string {
		if fmt.Sprint(config) != "map[model:x/y]" {
			return "changed: " + fmt.Sprint(config)
		}
		return ""
	})
	// Changed by hand.
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(templateKind)
	require.NoError(t, w.client.Get(t.Context(), types.NamespacedName{Namespace: w.options.ModelNamespace, Name: "demo"}, object))
	require.NoError(t, unstructured.SetNestedField(object.Object, "x/y", "spec", "config", "model"))
	require.NoError(t, w.client.Update(t.Context(), object))
	config("demo", has(chat))
	w.rested()
	// Without a chat model nothing is written.
	w.counts("chat", 1, 0)
	w.lists([]string{})
	w.rested()
	config("demo", has(chat))
	require.NoError(t, w.client.Delete(t.Context(), agentTemplateCRD()))
	w.served("more", 1)
	w.lists([]string{"more"})
}

var templateKind = schema.GroupVersionKind{Group: "kubeopencode.io", Version: "v1alpha1", Kind: "AgentTemplate"}

// agentTemplateCRD is as much of KubeOpenCode's definition as matters here.
func agentTemplateCRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "agenttemplates.kubeopencode.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: templateKind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "agenttemplates", Singular: "agenttemplate", Kind: templateKind.Kind, ListKind: "AgentTemplateList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: templateKind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
						Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"executorImage": {Type: "string"}, "config": {XPreserveUnknownFields: ptr.To(true)},
						},
					}},
				}},
			}},
		},
	}
}

// KubeAI's definition is deleted under the operator: its models are gone, and
// nobody else's.
func TestModelIndexWithoutKubeAI(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS)))
	server := w.litellm()
	w.secret("good", "api-key", indexProviderKey)
	w.provider("good", "good")
	w.start()
	w.lists([]string{"good"})
	controlplanetest.InstallCRDs(t, w.config, kubeaicrds.FS)
	w.served("chat", 1)
	w.lists([]string{"chat", "good"})
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "models.kubeai.org"}}
	require.NoError(t, w.client.Delete(t.Context(), crd))
	w.lists([]string{"good"})
	w.gatewayHas(server, "good")
}
