package activations

import (
	"strconv"

	shipped "magicstick.dev/operator/generated/catalogs"
)

// ollama is Ollama in Pods of KubeAI.
type ollama struct{ kubeAI }

var _ = register(ollama{kubeAI{shipped.EngineOLlama, []string{"ollama", "pvc"}}})

// Environment of Ollama that fields of the activation stand for
// (contract/appliance.md C.7).
const (
	envOllamaContext        = "OLLAMA_CONTEXT_LENGTH"
	envOllamaParallel       = "OLLAMA_NUM_PARALLEL"
	envOllamaKVCacheType    = "OLLAMA_KV_CACHE_TYPE"
	envOllamaFlashAttention = "OLLAMA_FLASH_ATTENTION"
)

// ollamaKVCacheTypes are the precisions of the KV cache on every target, the
// default first (contract/appliance.md B.4).
func ollamaKVCacheTypes() []string { return []string{"f16", "q8_0", "q4_0"} }

func (e ollama) resolve(r *resolution) error {
	if r.local.ModelRef != nil {
		return invalid("spec.local.modelRef", "engine OLlama cannot serve prepared models", nil)
	}
	defaults, err := e.common(r)
	if err != nil {
		return err
	}
	if r.onAccelerator() {
		r.out.Devices = 1
	}
	err = steps(
		func() error { return forbidden(r.local.Vllm != nil, "vllm", "only for engine VLLM") },
		func() error { return r.kvCacheType(ollamaKVCacheTypes()) },
		r.replicas,
		r.offloading,
		r.vram,
		func() error { return r.cpu(defaults.CPU) },
		func() error { return e.offloadBudget(r) },
		r.limits,
	)
	if err != nil {
		return err
	}
	r.memory(defaults.MemoryMi)
	r.features(r.presetFeatures())
	args, env := r.arguments()
	r.withoutPartitions(env)
	setNumber(env, envOllamaContext, r.out.ContextWindow)
	setNumber(env, envOllamaParallel, r.out.MaxNumSeqs)
	if r.out.KVCacheType != "" {
		env[envOllamaKVCacheType] = r.out.KVCacheType
		// Without it Ollama falls back to f16 without a word.
		env[envOllamaFlashAttention] = "1"
	}
	r.out.Args, r.out.Env = args, env
	r.out.Profile = profileFor(r.out, defaults, r.Engines)
	return nil
}

// offloadBudget refuses a budget: Ollama fills the GPU first and decides itself.
// ollamaGpuLayers is ignored (contract/appliance.md B.4).
func (ollama) offloadBudget(r *resolution) error {
	if r.out.offloads() && r.local.CPUOffloadMi != nil && *r.local.CPUOffloadMi != 0 {
		return invalid("spec.local.cpuOffloadMi", "engine OLlama decides itself how much it offloads; leave it out or 0", *r.local.CPUOffloadMi)
	}
	return nil
}

func setNumber(env map[string]string, key string, number int64) {
	if number > 0 {
		env[key] = strconv.FormatInt(number, 10)
	}
}
