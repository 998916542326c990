package activations

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Cases S031 and S033: what omitted, false and true mean to each engine.
func TestOffloading(t *testing.T) {
	const flags = "args: [--cpu-offload-gb, '8', --seed=1], "
	t.Run("VLLM omitted leaves everything as it was", func(t *testing.T) {
		resolved := resolve(t, "url: hf://a/b, vram: 1Gi, "+flags+"cpuOffloadMi: 1024, env: {MAGICSTICK_VLLM_CPU_OFFLOAD_MI: '7'}")
		assert.Nil(t, resolved.CPUOffloading)
		assert.Equal(t, []string{"--cpu-offload-gb", "8", "--seed=1"}, resolved.Args)
		assert.Equal(t, "7", resolved.Env[envCPUOffloadMi])
		assert.Zero(t, resolved.CPUOffloadMi)
		assert.False(t, resolved.MemoryLimited)
	})
	t.Run("VLLM false asks for none", func(t *testing.T) {
		for _, target := range allTargets {
			resolved := resolve(t, "url: hf://a/b, vram: 1Gi, computeTarget: "+target+", "+flags+"cpuOffloading: false, env: {MAGICSTICK_VLLM_CPU_OFFLOAD_MI: '7'}")
			require.NotNil(t, resolved.CPUOffloading)
			assert.False(t, *resolved.CPUOffloading)
			assert.Contains(t, resolved.Args, "--cpu-offload-gb=0", target)
			assert.NotContains(t, resolved.Args, "--cpu-offload-gb", target)
			assert.NotContains(t, resolved.Env, envCPUOffloadMi, target)
			assert.False(t, resolved.MemoryLimited, target)
		}
	})
	t.Run("VLLM true hands the budget to the wrapper", func(t *testing.T) {
		resolved := resolve(t, "url: hf://a/b, vram: 1Gi, "+flags+"cpuOffloading: true, memoryRequiredMi: 32760, cpuOffloadMi: 16384")
		assert.True(t, *resolved.CPUOffloading)
		assert.Equal(t, []string{"--seed=1"}, resolved.Args)
		assert.Equal(t, "16384", resolved.Env[envCPUOffloadMi])
		assert.True(t, resolved.MemoryLimited)
		assert.EqualValues(t, 32768, resolved.MemoryMi)
		assert.Equal(t, "32768Mi", resolved.Profile.Spec.Requests["memory"])
		assert.Equal(t, "32768Mi", resolved.Profile.Spec.Limits["memory"])
		assert.EqualValues(t, 1024, resolved.VRAMMi, "the GPU budget is another matter")
	})
	t.Run("VLLM true with nothing to offload", func(t *testing.T) {
		assert.Equal(t, "0", resolve(t, "url: hf://a/b, vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 16, cpuOffloadMi: 0").Env[envCPUOffloadMi])
	})
	for _, value := range []string{"", "cpuOffloading: false", "cpuOffloading: true, memoryRequiredMi: 2048", "cpuOffloading: true, memoryRequiredMi: 2048, cpuOffloadMi: 0, ollamaGpuLayers: 12"} {
		t.Run("OLlama takes no layers and no budget: "+value, func(t *testing.T) {
			plain := resolve(t, "engine: OLlama, url: 'ollama://x', vram: 1Gi")
			resolved := resolve(t, "engine: OLlama, url: 'ollama://x', vram: 1Gi, "+value)
			assert.Equal(t, plain.Env, resolved.Env)
			assert.Equal(t, plain.Args, resolved.Args)
			assert.Equal(t, resolved.offloads(), resolved.MemoryLimited)
		})
	}
}

// Case S032 and every other refusal, none of which the risk flag lifts.
func TestOffloadingRefused(t *testing.T) {
	const vllmBase = "url: hf://a/b, vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 32768, cpuOffloadMi: 16384"
	const ollamaBase = "engine: OLlama, url: 'ollama://x', vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 2048"
	for name, test := range map[string]struct{ local, field string }{
		"VLLM on amd":            {vllmBase + ", computeTarget: amd-gpu", "spec.local.computeTarget"},
		"VLLM on intel":          {vllmBase + ", computeTarget: intel-gpu", "spec.local.computeTarget"},
		"VLLM on cpu":            {vllmBase + ", computeTarget: cpu", "spec.local.computeTarget"},
		"OLlama on amd":          {ollamaBase + ", computeTarget: amd-gpu", "spec.local.computeTarget"},
		"OLlama on cpu":          {ollamaBase + ", computeTarget: cpu", "spec.local.computeTarget"},
		"VLLM two replicas":      {vllmBase + ", maxReplicas: 2", "spec.local.maxReplicas"},
		"VLLM two at least":      {vllmBase + ", minReplicas: 2, maxReplicas: 2", "spec.local.minReplicas"},
		"OLlama two replicas":    {ollamaBase + ", maxReplicas: 2", "spec.local.maxReplicas"},
		"VLLM without RAM":       {"url: hf://a/b, vram: 1Gi, cpuOffloading: true, cpuOffloadMi: 1", "spec.local.memoryRequiredMi"},
		"OLlama without RAM":     {"engine: OLlama, url: 'ollama://x', vram: 1Gi, cpuOffloading: true", "spec.local.memoryRequiredMi"},
		"VLLM without budget":    {"url: hf://a/b, vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 32768", "spec.local.cpuOffloadMi"},
		"OLlama with a budget":   {ollamaBase + ", cpuOffloadMi: 1", "spec.local.cpuOffloadMi"},
		"VLLM without any VRAM":  {"url: hf://a/b, cpuOffloading: true, memoryRequiredMi: 32768, cpuOffloadMi: 1", "spec.local.vram"},
		"preset's RAM is no RAM": {"preset: qwen2505bcpu, cpuOffloading: true, cpuOffloadMi: 1", "spec.local.memoryRequiredMi"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, risk := range []string{"", ", allowMemoryRisk: true"} {
				assert.Equal(t, test.field, refuse(t, facts(t, test.local+risk)).Field)
			}
		})
	}
}
