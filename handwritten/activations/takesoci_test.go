package activations

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"magicstick.dev/operator/handwritten/controlplane"
)

func TestTakesOCI(t *testing.T) {
	for name, source := range kubeAICRDs(t) {
		definitions, err := controlplane.ReadCRDs(source)
		require.NoError(t, err)
		require.Len(t, definitions, 1)
		assert.Equal(t, name == "our part of it", TakesOCI(definitions[0]), name)
		if name == "our part of it" {
			continue
		}
		// What pull request 661 of KubeAI adds to the rule.
		spec := definitions[0].Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		url := spec.Properties["url"]
		url.XValidations[0].Rule = strings.Replace(url.XValidations[0].Rule, "self.startsWith", `self.startsWith("oci://") || self.startsWith`, 1)
		assert.True(t, TakesOCI(definitions[0]))
		definitions[0].Spec.Versions[0].Name = "v2"
		assert.False(t, TakesOCI(definitions[0]), "no version that we write")
	}
	assert.False(t, TakesOCI(&apiextensionsv1.CustomResourceDefinition{}))
}
