package activations

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/handwritten/catalogs"
)

// Cases S006, S007, S010 and the rounding of H18.
func TestMemory(t *testing.T) {
	for name, test := range map[string]struct {
		local  string
		want   int64
		kv     int64
		prefix string
	}{
		"VLLM on cpu by default":        {"computeTarget: cpu, url: hf://a/b", 4096, 536870912, "magicstick-cpu:1"},
		"OLlama on cpu by default":      {"engine: OLlama, computeTarget: cpu, url: 'ollama://x'", 2048, 0, "magicstick-cpu-"},
		"VLLM on nvidia by default":     {"url: hf://a/b, vram: 1Gi", 6144, 0, "magicstick-nvidia-gpu:1"},
		"the smallest amount":           {"computeTarget: cpu, url: hf://a/b, memoryRequiredMi: 16, kvCacheMemoryBytes: 1", 16, 1, "magicstick-cpu-"},
		"one more is the next unit":     {"computeTarget: cpu, url: hf://a/b, memoryRequiredMi: 17, kvCacheMemoryBytes: 1", 32, 1, "magicstick-cpu-"},
		"4095 is 4096":                  {"computeTarget: cpu, url: hf://a/b, memoryRequiredMi: 4095", 4096, 536870912, "magicstick-cpu:1"},
		"4097 is 4112":                  {"computeTarget: cpu, url: hf://a/b, memoryRequiredMi: 4097", 4112, 536870912, "magicstick-cpu-"},
		"the largest amount":            {"computeTarget: cpu, url: hf://a/b, memoryRequiredMi: 16777216", 16777216, 536870912, "magicstick-cpu-"},
		"the artifact's amount":         {"computeTarget: cpu, preset: qwen2505bcpu", 4096, 536870912, "magicstick-cpu:1"},
		"explicit cache":                {"computeTarget: cpu, url: hf://a/b, kvCacheMemoryBytes: 1073741824", 4096, 1073741824, "magicstick-cpu:1"},
		"cache is for cpu only":         {"url: hf://a/b, vram: 1Gi, kvCacheMemoryBytes: 1073741824", 6144, 0, "magicstick-nvidia-gpu:1"},
		"explicit on a GPU":             {"url: hf://a/b, vram: 1Gi, memoryRequiredMi: 8000", 8000, 0, "magicstick-nvidia-gpu-"},
		"two devices share whole units": {"url: hf://a/b, vram: 1Gi, memoryRequiredMi: 8000, args: [-tp, '3']", 8016, 0, "magicstick-nvidia-gpu-"},
	} {
		t.Run(name, func(t *testing.T) {
			resolved := resolve(t, test.local)
			assert.Equal(t, test.want, resolved.MemoryMi)
			assert.Equal(t, test.kv, resolved.KVCacheMemoryBytes)
			assert.False(t, resolved.MemoryLimited)
			assert.True(t, strings.HasPrefix(resolved.ResourceProfile(), test.prefix), resolved.ResourceProfile())
			assert.NotContains(t, resolved.Profile.Spec.Limits, "memory")
		})
	}
}

// vLLM's variable would win over the flag, and knows whole GiB only.
func TestKVCacheOnCPU(t *testing.T) {
	resolved := resolve(t, "computeTarget: cpu, url: hf://a/b, args: [--kv_cache_memory_bytes=1], env: {VLLM_CPU_KVCACHE_SPACE: '40'}")
	assert.Equal(t, []string{"--kv-cache-memory-bytes=536870912"}, resolved.Args)
	assert.NotContains(t, resolved.Env, "VLLM_CPU_KVCACHE_SPACE")
	assert.NotContains(t, resolved.Env, envVRAMLimit, "no VRAM on cpu")
}

// Case S035 for what is known without an estimate: the RAM must exceed what the
// activation itself puts into it.
func TestMemoryRisk(t *testing.T) {
	for name, local := range map[string]string{
		"KV cache on cpu": "computeTarget: cpu, url: hf://a/b, memoryRequiredMi: 512",
		"weights in RAM":  "url: hf://a/b, vram: 1Gi, cpuOffloading: true, memoryRequiredMi: 512, cpuOffloadMi: 512",
	} {
		t.Run(name, func(t *testing.T) {
			refusal := refuse(t, facts(t, local))
			assert.Equal(t, "spec.local.memoryRequiredMi", refusal.Field)
			assert.Equal(t, "512", refusal.Value)
			assert.Contains(t, refusal.Rule, "at least 513 Mi")
			wanted, _ := Resolve(facts(t, local))
			assert.EqualValues(t, 512, wanted.MemoryMi, "the status shows what was asked for")
			assert.Equal(t, refusal, refuse(t, facts(t, local+", allowMemoryRisk: false")))

			risky := resolve(t, local+", allowMemoryRisk: true")
			enough := resolve(t, strings.Replace(local, "memoryRequiredMi: 512", "memoryRequiredMi: 528", 1))
			assert.EqualValues(t, 512, risky.MemoryMi, "the request stays")
			assert.Equal(t, enough.Args, risky.Args)
			assert.Equal(t, enough.Env, risky.Env)
			assert.Equal(t, enough.MemoryLimited, risky.MemoryLimited)
		})
	}
	resolved := &Resolved{MemoryMi: 4096}
	require.NoError(t, resolved.CoversMemory(4096, "the model"))
	require.EqualError(t, resolved.CoversMemory(4097, "the model"), "resolving the activation: spec.local.memoryRequiredMi: "+
		"the model needs at least 4097 Mi of RAM; set allowMemoryRisk to try with less, got \"4096\"")
	resolved.AllowMemoryRisk = true
	require.NoError(t, resolved.CoversMemory(1<<40, "the model"))
}

// Contract/appliance.md H11 and the ruling on missing VRAM.
func TestVRAM(t *testing.T) {
	for _, target := range allTargets {
		for _, engine := range []string{"VLLM", "OLlama"} {
			if engine == "OLlama" && target == "intel-gpu" {
				continue
			}
			base := "engine: " + engine + ", computeTarget: " + target + ", url: '" + addressFor(engine) + "'"
			t.Run(engine+"_on_"+target, func(t *testing.T) {
				if target == "cpu" {
					for _, more := range []string{"", ", vram: 4Gi", ", vramMi: 5", ", vram: plenty"} {
						resolved := resolve(t, base+more)
						assert.Zero(t, resolved.VRAMMi, more)
						assert.Empty(t, resolved.VRAM, more)
					}
					return
				}
				assert.Equal(t, "spec.local.vram", refuse(t, facts(t, base)).Field)
				assert.EqualValues(t, 4096, resolve(t, base+", vram: 4Gi").VRAMMi)
				assert.EqualValues(t, 4096, resolve(t, base+", vram: 4Gi, vramMi: 5").VRAMMi, "vram wins")
				assert.EqualValues(t, 5, resolve(t, base+", vram: plenty, vramMi: 5").VRAMMi, "unreadable gives way")
				assert.EqualValues(t, 5, resolve(t, base+", vram: 0Gi, vramMi: 5").VRAMMi, "nothing gives way")
				assert.EqualValues(t, 1536, resolve(t, base+", vram: 1.5g").VRAMMi)
				assert.EqualValues(t, 700, resolve(t, base+", vram: '700'").VRAMMi)
				for _, text := range []string{"plenty", "5Ti", "-1Gi", "0", "99999999Gi"} {
					refusal := refuse(t, facts(t, base+", vram: '"+text+"'"))
					assert.Equal(t, "spec.local.vram", refusal.Field)
					assert.Equal(t, text, refusal.Value)
				}
			})
		}
	}
	t.Run("unreadable is not replaced by the preset's", func(t *testing.T) {
		assert.Equal(t, "plenty", refuse(t, facts(t, "preset: qwen3827b, vram: plenty")).Value)
	})
	t.Run("planning counts every replica (H49)", func(t *testing.T) {
		resolved := resolve(t, "url: hf://a/b, vram: 4Gi, minReplicas: 1, maxReplicas: 3")
		assert.EqualValues(t, 4096, resolved.VRAMMi)
		assert.EqualValues(t, 12288, resolved.VRAMRequiredMi())
		assert.Equal(t, "4Gi", resolved.Env[envVRAMLimit])
	})
}

// Cases S022, S024, S025 and contract/appliance.md H19.
func TestCPU(t *testing.T) {
	for name, test := range map[string]struct {
		local          string
		request, limit int64
	}{
		"VLLM on nvidia":    {"url: hf://a/b, vram: 1Gi", 6000, 0},
		"VLLM on amd":       {"url: hf://a/b, vram: 1Gi, computeTarget: amd-gpu", 6000, 0},
		"VLLM on intel":     {"url: hf://a/b, vram: 1Gi, computeTarget: intel-gpu", 6000, 0},
		"VLLM on cpu":       {"url: hf://a/b, computeTarget: cpu", 4000, 0},
		"OLlama on nvidia":  {"engine: OLlama, url: 'ollama://x', vram: 1Gi", 2000, 0},
		"OLlama on amd":     {"engine: OLlama, url: 'ollama://x', vram: 1Gi, computeTarget: amd-gpu", 2000, 0},
		"OLlama on cpu":     {"engine: OLlama, url: 'ollama://x', computeTarget: cpu", 2000, 0},
		"empty block":       {"url: hf://a/b, computeTarget: cpu, cpuResources: {}", 4000, 0},
		"request alone":     {"url: hf://a/b, computeTarget: cpu, cpuResources: {requestMillicores: 1}", 1, 0},
		"limit equal":       {"url: hf://a/b, computeTarget: cpu, cpuResources: {limitMillicores: 4000}", 4000, 4000},
		"limit zero":        {"url: hf://a/b, computeTarget: cpu, cpuResources: {requestMillicores: 9000, limitMillicores: 0}", 9000, 0},
		"both":              {"url: hf://a/b, computeTarget: cpu, cpuResources: {requestMillicores: 500, limitMillicores: 1000}", 500, 1000},
		"spread on devices": {"url: hf://a/b, vram: 1Gi, args: [--tensor-parallel-size=4], cpuResources: {requestMillicores: 6001, limitMillicores: 7001}", 6004, 7004},
	} {
		t.Run(name, func(t *testing.T) {
			resolved := resolve(t, test.local)
			assert.Equal(t, catalogs.CPU{RequestMillicores: test.request, LimitMillicores: test.limit}, resolved.CPU)
			_, limited := resolved.Profile.Spec.Limits["cpu"]
			assert.Equal(t, test.limit > 0, limited)
		})
	}
	t.Run("limit below the inherited request", func(t *testing.T) {
		refusal := refuse(t, facts(t, "url: hf://a/b, computeTarget: cpu, cpuResources: {limitMillicores: 3999}"))
		assert.Equal(t, "spec.local.cpuResources.limitMillicores", refusal.Field)
		assert.Equal(t, "3999", refusal.Value)
		assert.Contains(t, refusal.Rule, "inherited request of 4000 millicores")
	})
	t.Run("limit below the given request", func(t *testing.T) {
		refusal := refuse(t, facts(t, "url: hf://a/b, computeTarget: cpu, cpuResources: {requestMillicores: 2, limitMillicores: 1}"))
		assert.Equal(t, "spec.local.cpuResources.limitMillicores", refusal.Field)
		assert.NotContains(t, refusal.Rule, "inherited")
	})
	t.Run("request above the inherited limit", func(t *testing.T) {
		f := facts(t, "url: hf://a/b, computeTarget: cpu, cpuResources: {requestMillicores: 9000}")
		var err error
		f.Engines, err = catalogs.ParseEngines([]byte(strings.Replace(string(shipped.ShippedEngineCatalogJSON()),
			`"memoryMi":4096,"requestMillicores":4000`, `"limitMillicores":8000,"memoryMi":4096,"requestMillicores":4000`, 1)))
		require.NoError(t, err)
		refusal := refuse(t, f)
		assert.Equal(t, "spec.local.cpuResources.requestMillicores", refusal.Field)
		assert.Contains(t, refusal.Rule, "inherited limit of 8000")
	})
	t.Run("memory, VRAM and offloading do not move with it", func(t *testing.T) {
		plain, changed := resolve(t, "url: hf://a/b, vram: 1Gi"), resolve(t, "url: hf://a/b, vram: 1Gi, cpuResources: {requestMillicores: 1}")
		assert.Equal(t, plain.MemoryMi, changed.MemoryMi)
		assert.Equal(t, plain.VRAMMi, changed.VRAMMi)
		assert.Equal(t, plain.Args, changed.Args)
		assert.Equal(t, plain.Env, changed.Env)
	})
}
