package activations

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// custom are two profiles that no default is.
func custom(t *testing.T) (onCPU, onAMD *Profile) {
	t.Helper()
	onCPU = resolve(t, "computeTarget: cpu, url: hf://a/b, memoryRequiredMi: 8192").Profile
	onAMD = resolve(t, "engine: OLlama, computeTarget: amd-gpu, url: 'ollama://x', vram: 1Gi, memoryRequiredMi: 8192").Profile
	require.NotEqual(t, onCPU.Name, onAMD.Name)
	return onCPU, onAMD
}

// What was written comes back, and what a hand made of it does not.
func TestParseProfiles(t *testing.T) {
	onCPU, onAMD := custom(t)
	text, err := KubeAIValues(append(DefaultProfiles(shippedCatalogs(t).Engines), onCPU, onAMD))
	require.NoError(t, err)
	parsed := parseProfiles(string(text))
	require.Contains(t, parsed, onCPU.Name)
	assert.Equal(t, onCPU.Spec.hash(), parsed[onCPU.Name].Spec.hash())
	assert.Equal(t, onAMD.Spec.hash(), parsed[onAMD.Name].Spec.hash())
	assert.Equal(t, onAMD.Image, parsed[onAMD.Name].Image)
	assert.Equal(t, onAMD.Engine, parsed[onAMD.Name].Engine)
	assert.NotContains(t, parsed, "magicstick-cpu", "a default says nothing of its content in its name")

	for name, broken := range map[string]string{
		"nothing": "", "no YAML": "a: [", "a list": "[]", "a text": "hello", "other types": "resourceProfiles: 7",
		"a changed amount": "resourceProfiles:\n  " + onCPU.Name + ":\n    imageName: cpu\n    requests: {cpu: 4000m, memory: 1Mi}\n    limits: {}\n",
	} {
		assert.Empty(t, parseProfiles(broken), name)
	}
}

// Names that end in hexadecimal digits are in one order only, or KubeAI would start
// again with nothing changed.
func TestKubeAIValuesAreTheSameEveryTime(t *testing.T) {
	var profiles []*Profile
	for i := range 200 {
		profiles = append(profiles, resolve(t, fmt.Sprintf("computeTarget: cpu, url: hf://a/b, memoryRequiredMi: %d", 5000+16*i)).Profile)
	}
	first, err := KubeAIValues(profiles)
	require.NoError(t, err)
	for range 20 {
		rand.Shuffle(len(profiles), func(i, j int) { profiles[i], profiles[j] = profiles[j], profiles[i] })
		again, err := KubeAIValues(profiles)
		require.NoError(t, err)
		require.Equal(t, string(first), string(again))
	}
	assert.Len(t, parseProfiles(string(first)), 200)
	var values kubeAIValues
	require.NoError(t, yaml.UnmarshalStrict(first, &values))
	empty, err := KubeAIValues(nil)
	require.NoError(t, err)
	assert.Contains(t, string(empty), "resourceProfiles: {}\n")
}

// A profile stays as long as a Model names it, whatever became of the document.
func TestProfilesLeft(t *testing.T) {
	onCPU, onAMD := custom(t)
	set := CatalogSet{Catalogs: shippedCatalogs(t)}
	text, err := KubeAIValues([]*Profile{onCPU, onAMD})
	require.NoError(t, err)
	naming := func(names ...string) func(string) bool {
		return func(name string) bool {
			for _, each := range names {
				if each == name {
					return true
				}
			}
			return false
		}
	}
	fresh := &Profiles{}
	kept := left(fresh.known(string(text)), set, nil, naming(onCPU.Name))
	require.Len(t, kept, 1)
	assert.Equal(t, onCPU.Spec.hash(), kept[0].Spec.hash())
	assert.Empty(t, left(fresh.known(string(text)), set, []*Profile{onCPU}, naming(onCPU.Name)), "it is in use anyway")
	assert.Empty(t, left(fresh.known(string(text)), set, nil, naming("magicstick-cpu", "cpu")), "defaults, and KubeAI's own")
	assert.Len(t, left(fresh.known(string(text)), set, nil, func(string) bool { return true }), 2, "while nobody knows the Models")

	t.Run("the catalog's image wins", func(t *testing.T) {
		kept := left(fresh.known(string(text)), set, nil, naming(onAMD.Name))
		require.Len(t, kept, 1)
		assert.Empty(t, kept[0].Image)
	})
	t.Run("by hand emptied", func(t *testing.T) {
		known := &Profiles{}
		known.remember([]*Profile{onCPU})
		kept := left(known.known("garbage: ["), set, nil, naming(onCPU.Name))
		require.Len(t, kept, 1)
		assert.Equal(t, onCPU.Spec, kept[0].Spec)
		kept[0].Image = "changed"
		assert.Empty(t, known.known("")[onCPU.Name].Image, "a copy")
		assert.Empty(t, left(fresh.known(""), set, nil, naming(onCPU.Name)), "after a start nobody knows")
	})
}

func TestConfigMapSays(t *testing.T) {
	document := WrapperDocument("ai")
	current := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"more": "label"}}, Data: map[string]string{"more": "data"}}
	assert.False(t, says(current, document))
	for key, value := range document.Data {
		current.Data[key] = value
	}
	assert.False(t, says(current, document))
	for key, value := range document.Labels {
		current.Labels[key] = value
	}
	assert.True(t, says(current, document))
	current.Data[WrapperKey] += "\n"
	assert.False(t, says(current, document))
}
