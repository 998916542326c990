package activations

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is kept in memory is what is read, and a second time around it stays so.
func TestStripPodKeepsNoSecret(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"model": "m"}, Annotations: map[string]string{"token": "secret"}},
		Spec: corev1.PodSpec{NodeName: "box", Containers: []corev1.Container{{
			Name: "server", Args: []string{"--api-key=secret", "--kv-cache-dtype", "fp8"},
			Env: []corev1.EnvVar{{Name: "HF_TOKEN", Value: "secret"}, {Name: "OLLAMA_KV_CACHE_TYPE", Value: "q8_0"}},
		}}},
		Status: corev1.PodStatus{PodIP: "10.0.0.7", Phase: corev1.PodRunning},
	}
	for range 2 {
		stripped, err := StripPod(pod)
		require.NoError(t, err)
		raw, err := stripped.(*corev1.Pod).Marshal() //nolint:forcetypeassert // StripPod gives Pods back
		require.NoError(t, err)
		require.NotContains(t, string(raw), "secret")
		require.Equal(t, "10.0.0.7", pod.Status.PodIP)
		require.Equal(t, "box", pod.Spec.NodeName)
		require.Equal(t, "m", pod.Labels["model"])
		require.Equal(t, []string{"--kv-cache-dtype=fp8"}, pod.Spec.Containers[0].Args)
		require.Equal(t, []corev1.EnvVar{{Name: "OLLAMA_KV_CACHE_TYPE", Value: "q8_0"}}, pod.Spec.Containers[0].Env)
	}
}

func TestStripNodeKeepsWhatAPreflightReads(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "box", UID: "u", Labels: map[string]string{
			"kubernetes.io/arch": "amd64", "feature.node.kubernetes.io/cpu-cpuid.AVX512F": "true", "nvidia.com/gpu.memory": "24576", "team": "a",
		}},
		Spec: corev1.NodeSpec{Unschedulable: true, ProviderID: "x"},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2"), "memory": resource.MustParse("64Gi")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}, {Type: corev1.NodeDiskPressure}},
			Images:      []corev1.ContainerImage{{Names: []string{"x"}}},
		},
	}
	want := nodeFrom(node.DeepCopy())
	for range 2 {
		_, err := StripNode(node)
		require.NoError(t, err)
		require.Equal(t, want, nodeFrom(node))
		require.Empty(t, node.Status.Images)
		require.NotContains(t, node.Labels, "team")
		require.Equal(t, map[string]int64{"nvidia.com/gpu": 2}, PublishedResources([]corev1.Node{*node}, []string{"nvidia.com/gpu"}))
	}
}

func TestStripCRDRemembersOCI(t *testing.T) {
	answers := map[bool]bool{}
	for _, rule := range []string{
		`self.startsWith("hf://") || self.startsWith("s3://")`,
		`self.startsWith("hf://") || self.startsWith("s3://") || self.startsWith("oci://")`,
	} {
		url := apiextensionsv1.JSONSchemaProps{XValidations: apiextensionsv1.ValidationRules{{Rule: rule}}}
		spec := apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"url": url}}
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "models.kubeai.org"}}
		definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}},
		}}}
		want := TakesOCI(definition)
		for range 2 {
			_, err := StripCRD(definition)
			require.NoError(t, err)
			require.Nil(t, definition.Spec.Versions[0].Schema)
			require.Equal(t, want, definition.Annotations[annotationTakesOCI] == "true", rule)
		}
		answers[want] = true
	}
	require.Len(t, answers, 2, "one of each")
}
