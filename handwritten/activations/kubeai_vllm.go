package activations

import (
	"fmt"
	"slices"
	"strconv"

	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/handwritten/catalogs"
)

// vllm is vLLM in Pods of KubeAI.
type vllm struct{ kubeAI }

var _ = register(vllm{kubeAI{shipped.EngineVLLM, []string{"hf", "pvc", "s3"}}})

// Environment and flags of vLLM that fields of the activation stand for
// (contract/appliance.md C.7).
const (
	envVRAMLimit    = "MAGICSTICK_VLLM_VRAM_LIMIT"
	envCPUOffloadMi = "MAGICSTICK_VLLM_CPU_OFFLOAD_MI"
	// envKVCacheSpace would win over flagKVCacheMemory, and counts whole GiB only.
	envKVCacheSpace = "VLLM_CPU_KVCACHE_SPACE"

	flagContext       = "max-model-len"
	flagSequences     = "max-num-seqs"
	flagKVCacheType   = "kv-cache-dtype"
	flagKVScales      = "calculate-kv-scales"
	flagKVCacheMemory = "kv-cache-memory-bytes"
	flagCPUOffload    = "cpu-offload-gb"
)

// vllmKVCacheTypes are the precisions of the KV cache on each target, the
// default first (contract/appliance.md B.4).
func vllmKVCacheTypes(target shipped.ComputeTarget) []string {
	switch target {
	case shipped.ComputeTargetNvidiaGPU, shipped.ComputeTargetAmdGPU:
		return []string{"auto", "fp8"}
	default:
		return []string{"auto"}
	}
}

func (e vllm) resolve(r *resolution) error {
	defaults, err := e.common(r)
	if err != nil {
		return err
	}
	args, env := r.arguments()
	err = steps(
		func() error { return r.kvCacheType(vllmKVCacheTypes(r.out.Target)) },
		r.replicas,
		r.offloading,
		r.vram,
		func() error { return e.devices(r, args) },
		func() error { return r.cpu(defaults.CPU) },
		func() error { return e.memory(r, defaults) },
		func() error { return e.vision(r, defaults) },
		func() error { return e.fromPrepared(r, "Safetensors") },
		r.limits,
	)
	if err != nil {
		return err
	}
	r.features(r.presetFeatures())
	r.withoutPartitions(env)
	r.out.Args, r.out.Env = e.commandLine(r, args, env), env
	r.out.Profile = profileFor(r.out, defaults, r.Engines)
	return nil
}

func (vllm) devices(r *resolution, args []string) (err error) {
	if r.onAccelerator() {
		r.out.Devices, err = deviceCount(args)
	}
	return err
}

// memory adds what vLLM keeps in RAM besides itself: weights that were taken off
// the GPU, or the KV cache on cpu.
func (vllm) memory(r *resolution, defaults catalogs.EngineDefaults) error {
	r.memory(defaults.MemoryMi)
	if r.out.offloads() {
		if r.local.CPUOffloadMi == nil {
			return invalid("spec.local.cpuOffloadMi", "required with cpuOffloading on engine VLLM: the weights in Mi to keep in RAM", nil)
		}
		r.out.CPUOffloadMi = *r.local.CPUOffloadMi
		return nil
	}
	if r.onAccelerator() {
		return nil
	}
	r.out.KVCacheMemoryBytes = r.local.KVCacheMemoryBytes
	if r.out.KVCacheMemoryBytes == 0 && r.artifact != nil {
		r.out.KVCacheMemoryBytes = r.artifact.KVCacheMemoryBytes
	}
	if r.out.KVCacheMemoryBytes == 0 {
		r.out.KVCacheMemoryBytes = defaults.KVCacheMemoryBytes
	}
	return nil
}

// vision picks the attention kernel of the vision part. The block without a value
// means triton; without the block nothing is touched (contract/appliance.md B.4).
func (vllm) vision(r *resolution, defaults catalogs.EngineDefaults) error {
	if r.local.Vllm == nil {
		return nil
	}
	value := string(r.local.Vllm.VisionAttention)
	if value == "" {
		value = "triton"
	}
	offered := defaults.VisionAttention
	if r.variant != nil && len(r.variant.VisionAttention) > 0 {
		offered = r.variant.VisionAttention
	}
	const field = "spec.local.vllm.visionAttention"
	if !slices.Contains(offered, value) {
		if len(offered) == 0 {
			return invalid(field, fmt.Sprintf("%s on %s offers no choice", r.out.Engine, r.out.Target), value)
		}
		return invalid(field, fmt.Sprintf("%s on %s does not offer it", r.out.Engine, r.out.Target), value, offered...)
	}
	if _, defined := r.Presets.VisionAttention()[value]; !defined && value != "auto" {
		return invalid(field, "the preset catalog does not say what it means to vLLM", value)
	}
	r.out.VisionAttention = value
	return nil
}

// commandLine puts what the activation's fields stand for at the end, and takes
// every other mention of the same away.
func (vllm) commandLine(r *resolution, args []string, env map[string]string) []string {
	out := r.out
	if out.Prepared != nil {
		offline(env)
	}
	if out.VRAM != "" {
		env[envVRAMLimit] = out.VRAM
	}
	args = withNumber(args, flagContext, out.ContextWindow)
	args = withNumber(args, flagSequences, out.MaxNumSeqs)
	if out.KVCacheType != "" {
		args = append(withoutSwitch(withoutFlags(args, flagKVCacheType), flagKVScales), "--"+flagKVCacheType+"="+out.KVCacheType)
		if out.KVCacheType == "fp8" {
			args = append(args, "--"+flagKVScales)
		}
	}
	if out.KVCacheMemoryBytes > 0 {
		args = withNumber(args, flagKVCacheMemory, out.KVCacheMemoryBytes)
		delete(env, envKVCacheSpace)
	}
	switch {
	case out.CPUOffloading == nil:
	case *out.CPUOffloading:
		args = withoutFlags(args, flagCPUOffload)
		env[envCPUOffloadMi] = strconv.FormatInt(out.CPUOffloadMi, 10)
	default:
		args = append(withoutFlags(args, flagCPUOffload), "--"+flagCPUOffload+"=0")
		delete(env, envCPUOffloadMi)
	}
	if out.VisionAttention != "" {
		args = withVision(args, env, r.Presets.VisionAttention(), out.VisionAttention)
	}
	return args
}
