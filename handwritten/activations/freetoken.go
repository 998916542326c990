package activations

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/catalogs"
)

// freeToken is FreeToken in a Deployment of the operator.
type freeToken struct{}

var _ = register(freeToken{})

func (freeToken) Runtime() Runtime { return RuntimeFreeToken }

func (freeToken) Reasons() APIReasons {
	return APIReasons{
		PermissionDenied: conditions.ModelActivationReasonFreeTokenPermissionDenied,
		Rejected:         conditions.ModelActivationReasonFreeTokenApiRejected,
		Unavailable:      conditions.ModelActivationReasonFreeTokenApiUnavailable,
	}
}

func (freeToken) RequiredModules(out *Resolved) []string {
	return append(targetModules(out), moduleLiteLLM, moduleModelCatalog)
}

func (freeToken) Render(out *Resolved, settings Settings) Objects { return renderDirect(out, settings) }

func (e freeToken) resolve(r *resolution) error {
	settings := r.local.Freetoken
	if settings == nil {
		return invalid("spec.local.freetoken", "required for engine FreeToken", nil)
	}
	err := steps(
		r.checkRuntimeName,
		func() error { return r.pickTarget(shipped.EngineFreeToken, shipped.ComputeTargetNvidiaGPU) },
		func() error { return e.foreignSettings(r) },
		func() error { return r.source("hf") },
		func() error { return r.oneReplica("engine FreeToken") },
		func() error { return r.cpu(r.Engines.Direct()) },
		func() error { return r.usePrepared("Safetensors") },
		r.limits,
	)
	if err != nil {
		return err
	}
	node, _, placed := strings.Cut(settings.GPUDevice, "/")
	if !placed || node == "" {
		return invalid("spec.local.freetoken.gpuDevice", "must be <nodeName>/<pciAddress>", settings.GPUDevice)
	}
	r.features(r.presetFeatures())
	r.out.Devices = int64(cmp.Or(settings.GPUCount, 1))
	r.out.VRAMMi = settings.GPUMemoryMi
	r.out.VRAM = strconv.FormatInt(settings.GPUMemoryMi, 10) + "Mi"
	r.out.MemoryMi, r.out.MemoryLimited = settings.SystemMemoryMi, true
	_, env := r.arguments()
	if r.out.Prepared != nil {
		offline(env)
	}
	r.out.Env = env
	if r.out.Args, err = e.commandLine(r); err != nil {
		return err
	}
	annotations := podAnnotations(settings.RestartNonce)
	annotations[AnnotationGPUDevice] = settings.GPUDevice
	r.out.Direct = &Direct{Node: node, Image: r.Engines.FreeToken().Image, PodAnnotations: annotations}
	return nil
}

// foreignSettings refuses settings of other engines: FreeToken's live in its own
// block (contract/appliance.md B.4, M8).
func (freeToken) foreignSettings(r *resolution) error {
	local := &r.local
	const ownBlock = "engine FreeToken takes its settings from freetoken only"
	return steps(
		func() error { return forbidden(local.Realtime != nil, "realtime", "needs engine VLLM") },
		func() error { return forbidden(local.Vllm != nil, "vllm", "only for engine VLLM") },
		func() error { return forbidden(local.KVCacheType != "", "kvCacheType", ownBlock) },
		func() error { return forbidden(local.KVCacheMemoryBytes != 0, "kvCacheMemoryBytes", ownBlock) },
		func() error { return forbidden(local.CPUOffloading != nil, "cpuOffloading", ownBlock) },
		func() error { return forbidden(local.CPUOffloadMi != nil, "cpuOffloadMi", ownBlock) },
		func() error { return forbidden(local.OllamaGPULayers != nil, "ollamaGpuLayers", ownBlock) },
		func() error { return forbidden(local.VRAM != "", "vram", ownBlock+"; use freetoken.gpuMemoryMi") },
		func() error { return forbidden(local.VRAMMi != 0, "vramMi", ownBlock+"; use freetoken.gpuMemoryMi") },
		func() error {
			return forbidden(local.MemoryRequiredMi != 0, "memoryRequiredMi", ownBlock+"; use freetoken.systemMemoryMi")
		},
		func() error { return forbidden(len(local.Args) > 0, "args", ownBlock+"; use freetoken.advanced") },
		func() error { return forbidden(len(local.Env) > 0, "env", ownBlock) },
	)
}

// commandLine is made from the catalog alone: strategies and further settings are
// what it knows, and nothing else reaches the runtime (contract/appliance.md H20).
func (freeToken) commandLine(r *resolution) ([]string, error) {
	options, settings := r.Engines.FreeToken(), r.local.Freetoken
	values := map[string]string{
		"model": modelReference(r.out), "name": r.out.Name, "port": strconv.Itoa(RuntimePort),
	}
	args := fill(options.Args, values)
	with := func(template []string, value string) {
		filled := maps.Clone(values)
		filled["value"] = value
		args = append(args, fill(template, filled)...)
	}
	if r.out.ContextWindow > 0 {
		with(options.ContextWindowArgs, strconv.FormatInt(r.out.ContextWindow, 10))
	}
	if r.out.MaxNumSeqs > 0 {
		with(options.MaxNumSeqsArgs, strconv.FormatInt(r.out.MaxNumSeqs, 10))
	}
	name := cmp.Or(settings.MemoryStrategy, catalogs.DefaultMemoryStrategy)
	strategy, known := options.MemoryStrategies[name]
	if !known {
		return nil, invalid("spec.local.freetoken.memoryStrategy", "no such strategy in the engine catalog", name,
			slices.Sorted(maps.Keys(options.MemoryStrategies))...)
	}
	with(strategy.Args, name)
	if r.variant != nil {
		args = append(args, r.variant.Args...)
	}
	for _, key := range slices.Sorted(maps.Keys(settings.Advanced)) {
		field := "spec.local.freetoken.advanced." + key
		setting, known := options.Advanced[key]
		if !known {
			return nil, invalid(field, "no such setting in the engine catalog", settings.Advanced[key], slices.Sorted(maps.Keys(options.Advanced))...)
		}
		if len(setting.Values) > 0 && !slices.Contains(setting.Values, settings.Advanced[key]) {
			return nil, invalid(field, "not a value of this setting", settings.Advanced[key], setting.Values...)
		}
		with(setting.Args, settings.Advanced[key])
	}
	return args, nil
}
