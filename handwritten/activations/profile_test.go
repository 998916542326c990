package activations

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// KubeAI multiplies by the number of devices; the replica still gets what it was
// promised (contract/appliance.md C.7, H17).
func TestCountNeverMultipliesMemory(t *testing.T) {
	for _, devices := range []string{"1", "2", "3", "4", "7", "16"} {
		resolved := resolve(t, `url: hf://a/b, vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 32768, cpuOffloadMi: 1,
			cpuResources: {requestMillicores: 6500, limitMillicores: 9000}, args: [--tensor-parallel-size=`+devices+`]`)
		profile := resolved.Profile
		total := func(list map[string]string, name string) int64 {
			quantity, err := resource.ParseQuantity(list[name])
			require.NoError(t, err)
			quantity.Mul(profile.Count)
			if name == "cpu" {
				return quantity.MilliValue()
			}
			return quantity.Value()
		}
		assert.Equal(t, devices, resource.NewQuantity(profile.Count, resource.DecimalSI).String())
		assert.Equal(t, resolved.MemoryMi<<20, total(profile.Spec.Requests, "memory"))
		assert.Equal(t, resolved.MemoryMi<<20, total(profile.Spec.Limits, "memory"))
		assert.Equal(t, resolved.CPU.RequestMillicores, total(profile.Spec.Requests, "cpu"))
		assert.Equal(t, resolved.CPU.LimitMillicores, total(profile.Spec.Limits, "cpu"))
		assert.Equal(t, resolved.Devices, total(profile.Spec.Requests, "nvidia.com/gpu"))
		assert.GreaterOrEqual(t, resolved.MemoryMi, int64(32768))
		assert.Less(t, resolved.MemoryMi, 32768+16*resolved.Devices)
		assert.GreaterOrEqual(t, resolved.CPU.RequestMillicores, int64(6500))
	}
	assert.EqualValues(t, 1, resolve(t, "computeTarget: cpu, url: hf://a/b, args: [-tp, '2']").Profile.Count, "1 on cpu")
}

var generatedName = regexp.MustCompile(`^magicstick-(nvidia-gpu|amd-gpu|intel-gpu-(xe|i915)|cpu)-[0-9a-f]{8}$`)

// The same content has the same name, and other content another one.
func TestProfileNames(t *testing.T) {
	byName := map[string]ProfileSpec{}
	for _, local := range []string{
		"computeTarget: cpu, url: hf://a/b, memoryRequiredMi: 4112",
		"computeTarget: cpu, url: hf://a/b, memoryRequiredMi: 4128",
		"computeTarget: cpu, url: hf://a/b, cpuResources: {requestMillicores: 1}",
		"computeTarget: cpu, url: hf://a/b, cpuResources: {limitMillicores: 4000}",
		"computeTarget: cpu, engine: OLlama, url: 'ollama://x'",
		"computeTarget: cpu, engine: OLlama, url: 'ollama://x', memoryRequiredMi: 4096, cpuResources: {requestMillicores: 4000}",
		"url: hf://a/b, vram: 1Gi, memoryRequiredMi: 4096",
		"url: hf://a/b, vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 4096, cpuOffloadMi: 1",
		"url: hf://a/b, vram: 1Gi, args: [-tp, '2']",
		"url: hf://a/b, vram: 1Gi, computeTarget: intel-gpu, memoryRequiredMi: 4096",
		"url: hf://a/b, vram: 1Gi, computeTarget: amd-gpu, memoryRequiredMi: 4096",
	} {
		first, second := resolve(t, local).Profile, resolve(t, local).Profile
		assert.Equal(t, first, second)
		assert.Regexp(t, generatedName, first.Name, local)
		assert.NotContains(t, byName, first.Name, local)
		byName[first.Name] = first.Spec
	}
	plain := resolve(t, "url: hf://a/b, vram: 1Gi").Profile
	assert.Equal(t, plain, resolve(t, "url: hf://other/model, vram: 7Gi, contextWindow: 5, memoryRequiredMi: 6144, cpuResources: {requestMillicores: 6000}").Profile,
		"a model of its own is no reason for a profile of its own")
	assert.Equal(t, ProfileSpec{
		ImageName: "magicstick-vllm", Requests: map[string]string{"cpu": "6000m", "memory": "6144Mi", "nvidia.com/gpu": "1"},
		Limits:      map[string]string{"nvidia.com/gpu": "1"},
		Tolerations: []ProfileToleration{{"nvidia.com/gpu", "Equal", "present", "NoSchedule"}},
	}, plain.Spec)
}

// Models that change nothing about resources find their profile in KubeAI's
// configuration, which therefore stays as it is when they come and go.
func TestDefaultProfilesCoverDefaults(t *testing.T) {
	all := shippedCatalogs(t)
	var names []string
	for _, profile := range DefaultProfiles(all.Engines) {
		assert.NotContains(t, names, profile.Name)
		names = append(names, profile.Name)
	}
	for _, name := range []string{"magicstick-nvidia-gpu", "magicstick-amd-gpu", "magicstick-intel-gpu-xe", "magicstick-intel-gpu-i915", "magicstick-cpu"} {
		assert.Contains(t, names, name)
	}
	for _, engine := range []string{"VLLM", "OLlama"} {
		for _, target := range allTargets {
			if engine == "OLlama" && target == "intel-gpu" {
				continue
			}
			resolved := resolve(t, "vram: 1Gi, engine: "+engine+", computeTarget: "+target+", url: '"+addressFor(engine)+"'")
			assert.True(t, slices.Contains(names, resolved.Profile.Name), "%s on %s", engine, target)
		}
	}
}

func TestKubeAIValues(t *testing.T) {
	all := shippedCatalogs(t)
	own := resolve(t, "computeTarget: intel-gpu, url: hf://a/b, vram: 1Gi, memoryRequiredMi: 8192").Profile
	profiles := append(DefaultProfiles(all.Engines), own)
	text, err := KubeAIValues(profiles)
	require.NoError(t, err)
	slices.Reverse(profiles)
	again, err := KubeAIValues(append(profiles, own))
	require.NoError(t, err)
	assert.Equal(t, string(text), string(again), "order and repetition do not matter")

	var values struct {
		ModelRollouts struct {
			Surge *int `json:"surge"`
		} `json:"modelRollouts"`
		ResourceProfiles map[string]ProfileSpec `json:"resourceProfiles"`
		ModelServers     map[string]struct {
			Images map[string]string `json:"images"`
		} `json:"modelServers"`
	}
	require.NoError(t, yaml.UnmarshalStrict(text, &values))
	assert.Equal(t, own.Spec, values.ResourceProfiles[own.Name])
	require.NotNil(t, values.ModelRollouts.Surge)
	assert.Zero(t, *values.ModelRollouts.Surge, "no Pod more than wanted, which would wait for the GPU of the old one for ever (D6)")
	assert.Equal(t, map[string]string{"intel-gpu": "intel/vllm:0.17.0-xpu"}, values.ModelServers["VLLM"].Images)
	assert.Equal(t, map[string]string{"amd-gpu": "ollama/ollama:0.12.6-rocm"}, values.ModelServers["OLlama"].Images)

	document, err := ProfilesDocument("flux-system", all.Engines, []*Profile{own})
	require.NoError(t, err)
	assert.Equal(t, string(text), document.Data[ProfilesKey])
	assert.Equal(t, "flux-system", *document.Namespace)
	assert.Equal(t, ProfilesConfigMap, *document.Name)
}
