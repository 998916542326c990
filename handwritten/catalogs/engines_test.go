package catalogs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/catalogs"
)

// The defaults of contract/appliance.md H19 and B.4, on every pair of engine and target.
func TestShippedEngines(t *testing.T) {
	engines, err := ParseEngines(catalogs.ShippedEngineCatalogJSON())
	require.NoError(t, err)
	for _, test := range []struct {
		engine      catalogs.Engine
		target      catalogs.ComputeTarget
		cpu, memory int64
		kv          int64
		vision      string
	}{
		{catalogs.EngineVLLM, catalogs.ComputeTargetNvidiaGPU, 6000, 6144, 0, ""},
		{catalogs.EngineVLLM, catalogs.ComputeTargetAmdGPU, 6000, 6144, 0, "auto aotriton triton flash-attn-triton"},
		{catalogs.EngineVLLM, catalogs.ComputeTargetIntelGPU, 6000, 6144, 0, ""},
		{catalogs.EngineVLLM, catalogs.ComputeTargetCPU, 4000, 4096, 536870912, ""},
		{catalogs.EngineOLlama, catalogs.ComputeTargetNvidiaGPU, 2000, 2048, 0, ""},
		{catalogs.EngineOLlama, catalogs.ComputeTargetAmdGPU, 2000, 2048, 0, ""},
		{catalogs.EngineOLlama, catalogs.ComputeTargetIntelGPU, 0, 0, 0, ""},
		{catalogs.EngineOLlama, catalogs.ComputeTargetCPU, 2000, 2048, 0, ""},
		{catalogs.EngineFreeToken, catalogs.ComputeTargetNvidiaGPU, 0, 0, 0, ""},
		{catalogs.EngineFreeToken, catalogs.ComputeTargetCPU, 0, 0, 0, ""},
	} {
		t.Run(string(test.engine)+" on "+string(test.target), func(t *testing.T) {
			defaults, offered := engines.Defaults(test.engine, test.target)
			assert.Equal(t, test.cpu != 0, offered)
			assert.Equal(t, CPU{RequestMillicores: test.cpu}, defaults.CPU)
			assert.Equal(t, test.memory, defaults.MemoryMi)
			assert.Equal(t, test.kv, defaults.KVCacheMemoryBytes)
			assert.Equal(t, test.vision, strings.Join(defaults.VisionAttention, " "))
		})
	}
	assert.Equal(t, []catalogs.ComputeTarget{"nvidia-gpu", "amd-gpu", "cpu"}, engines.Offered(catalogs.EngineOLlama))
	assert.Equal(t, []catalogs.ComputeTarget{"nvidia-gpu", "amd-gpu", "intel-gpu", "cpu"}, engines.Offered(catalogs.EngineVLLM))
	assert.Equal(t, []catalogs.ComputeTarget{"nvidia-gpu"}, engines.Offered(catalogs.EngineFreeToken))
	assert.Equal(t, CPU{RequestMillicores: 4000}, engines.Direct())
	assert.Contains(t, engines.FreeToken().MemoryStrategies, DefaultMemoryStrategy)
	assert.Empty(t, engines.FreeToken().Advanced, "none is shipped (H20)")

	onCPU, _ := engines.Defaults(catalogs.EngineVLLM, catalogs.ComputeTargetCPU)
	assert.Equal(t, map[string][]string{"amd64": {"AVX512F"}}, onCPU.CPUFeatures)

	for target, want := range map[catalogs.ComputeTarget]struct{ module, resources, memory string }{
		catalogs.ComputeTargetNvidiaGPU: {"gpu", "nvidia.com/gpu", "nvidia.com/gpu.memory"},
		catalogs.ComputeTargetAmdGPU:    {"amd-gpu", "amd.com/gpu", "amd.com/gpu.vram"},
		catalogs.ComputeTargetIntelGPU:  {"intel-gpu", "gpu.intel.com/xe gpu.intel.com/i915", ""},
		catalogs.ComputeTargetCPU:       {"", "", ""},
	} {
		got, known := engines.Target(target)
		require.True(t, known, target)
		assert.Equal(t, want.module, got.Module, target)
		assert.Equal(t, want.resources, strings.Join(got.Resources, " "), target)
		assert.Equal(t, want.memory, got.MemoryLabel, target)
	}
}

// Every value that a target offers has a meaning in the shipped presets.
func TestShippedVisionAttentionIsDefined(t *testing.T) {
	engines, err := ParseEngines(catalogs.ShippedEngineCatalogJSON())
	require.NoError(t, err)
	defaults, _ := engines.Defaults(catalogs.EngineVLLM, catalogs.ComputeTargetAmdGPU)
	table := shippedPresets(t).VisionAttention()
	for _, value := range defaults.VisionAttention {
		if value != "auto" {
			assert.NotEmpty(t, table[value].Args, value)
		}
	}
}

// smallEngines is a valid engine catalog with as little as possible.
const smallEngines = `{"targets":{"cpu":{"title":"CPU"},"nvidia-gpu":{"title":"NVIDIA","resources":["nvidia.com/gpu"]}},
	"engines":{"OLlama":{"title":"Ollama","targets":{
		"cpu":{"imageName":"default","requestMillicores":2000,"memoryMi":2048},
		"nvidia-gpu":{"imageName":"default","requestMillicores":2000,"limitMillicores":4000,"memoryMi":2048}}}},
	"direct":{"requestMillicores":4000},
	"freetoken":{"image":"freetoken:v1","args":[],"memoryStrategies":{"auto":{"title":"Automatic"}}}}`

func TestParseEnginesRefuses(t *testing.T) {
	_, err := ParseEngines([]byte(smallEngines))
	require.NoError(t, err)
	for name, test := range map[string]struct{ old, replacement, want string }{
		"unknown target":        {`"cpu":{"title":"CPU"},`, ``, `engines.OLlama.targets.cpu: no such target in targets, got "cpu"`},
		"resources on cpu":      {`"cpu":{"title":"CPU"}`, `"cpu":{"title":"CPU","resources":["a/b"]}`, `targets.cpu.resources: not for cpu, got "a/b"`},
		"GPU without resources": {`,"resources":["nvidia.com/gpu"]`, ``, `targets.nvidia-gpu.resources: required for a target with devices`},
		"memory label on cpu":   {`"cpu":{"title":"CPU"}`, `"cpu":{"title":"CPU","memoryLabel":"a/b"}`, `targets.cpu.memoryLabel: not for cpu, got "a/b"`},
		"CPU features on a GPU": {`"memoryMi":2048}}`, `"memoryMi":2048,"cpuFeatures":{"amd64":["AVX2"]}}}`, `engines.OLlama.targets.nvidia-gpu.cpuFeatures: only for cpu, got "nvidia-gpu"`},
		"bare resource":         {`["nvidia.com/gpu"]`, `["gpu"]`, `targets.nvidia-gpu.resources[0]: must match the pattern`},
		"ollama on intel": {`"engines":{"OLlama":{"title":"Ollama","targets":{`, `"engines":{"OLlama":{"title":"Ollama","targets":{"intel-gpu":{"imageName":"x","requestMillicores":1,"memoryMi":16},`,
			`engines.OLlama.targets.intel-gpu: OLlama does not run there, got "intel-gpu"`},
		"limit below request": {`"limitMillicores":4000`, `"limitMillicores":1000`, `engines.OLlama.targets.nvidia-gpu.limitMillicores: must be 0 or at least requestMillicores, which is 2000, got 1000`},
		"direct limit":        {`"direct":{"requestMillicores":4000}`, `"direct":{"requestMillicores":4000,"limitMillicores":1}`, `direct.limitMillicores: must be 0 or at least`},
		"two images of a name": {`{"imageName":"default","requestMillicores":2000,"limitMillicores"`, `{"imageName":"default","image":"a:b","requestMillicores":2000,"limitMillicores"`,
			`engines.OLlama.targets.nvidia-gpu.image: default stands for another image on another target, got "a:b"`},
		"vision on ollama":       {`"memoryMi":2048},`, `"memoryMi":2048,"visionAttention":["auto"]},`, `engines.OLlama.targets.cpu.visionAttention: only for engine VLLM, got "OLlama"`},
		"no auto":                {`"auto":{"title"`, `"fast":{"title"`, `freetoken.memoryStrategies.auto: required, activations default to it`},
		"argument without value": {`"args":[],`, `"args":[],"contextWindowArgs":["--long"],`, `freetoken.contextWindowArgs: must carry {value}, got "--long"`},
		"setting without value": {`"args":[],`, `"args":[],"advanced":{"k":{"title":"K","args":["--k"]}},`,
			`freetoken.advanced.k.args: must carry {value}, got "--k"`},
		"FreeToken under KubeAI": {`"OLlama":{`, `"FreeToken":{`, `key must be one of VLLM, OLlama, got "FreeToken"`},
		"memory too small":       {`"memoryMi":2048}}`, `"memoryMi":15}}`, `engines.OLlama.targets.nvidia-gpu.memoryMi: must be at least 16, got 15`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(smallEngines, test.old, test.replacement, 1)
			require.NotEqual(t, smallEngines, text)
			_, err := ParseEngines([]byte(text))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func FuzzParseEngines(f *testing.F) {
	f.Add(string(catalogs.ShippedEngineCatalogJSON()))
	f.Add(smallEngines)
	f.Fuzz(func(t *testing.T, text string) {
		engines, err := ParseEngines([]byte(text))
		if err != nil {
			return
		}
		for _, engine := range []catalogs.Engine{catalogs.EngineVLLM, catalogs.EngineOLlama} {
			for _, target := range engines.Offered(engine) {
				defaults, offered := engines.Defaults(engine, target)
				if !offered || !supported(engine, target) || defaults.MemoryMi < 16 || defaults.RequestMillicores < 1 {
					t.Fatalf("%s on %s: %+v", engine, target, defaults)
				}
				if _, known := engines.Target(target); !known {
					t.Fatalf("%s on %s: target without entry", engine, target)
				}
			}
		}
	})
}
