package activations

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"magicstick.dev/operator/handwritten/kube"
)

func TestParseIndex(t *testing.T) {
	index := func(text string, annotations map[string]string) *corev1.ConfigMap {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: "ai-model-catalog", Annotations: annotations}}
		if text != "" {
			made.Data = map[string]string{IndexKey: text}
		}
		return made
	}
	told := map[string]string{
		kube.AnnotationIndexError:   "LiteLLM answered 500.",
		kube.AnnotationIndexLeftOut: `{"keyless": "Secret ai/gone has no key k."}`,
	}
	for name, test := range map[string]struct {
		from *corev1.ConfigMap
		want generated
	}{
		"bootstrap_lists_nothing": {index("", nil), generated{listed: map[string]bool{}}},
		"ids_and_names": {
			index(`{"models": [{"id": "a", "name": "b"}, {"id": "c"}]}`, nil),
			generated{listed: map[string]bool{"a": true, "b": true, "c": true}},
		},
		"H31_says_why_a_model_is_left_out": {index(`{"models": []}`, told), generated{
			listed: map[string]bool{}, leftOut: map[string]string{"keyless": "Secret ai/gone has no key k."}, problem: "LiteLLM answered 500.",
		}},
		"edited_explanation_does_no_harm": {
			index(`{"models": [{"id": "a"}]}`, map[string]string{kube.AnnotationIndexLeftOut: `{"a": 1`}),
			generated{listed: map[string]bool{"a": true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseIndex(test.from)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
	_, err := parseIndex(index("<html>", nil))
	assert.ErrorContains(t, err, "catalog.json of ConfigMap ai/ai-model-catalog")
}
