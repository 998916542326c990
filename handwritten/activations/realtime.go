package activations

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"

	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/catalogs"
)

// realtime is vLLM-Omni in a Deployment of the operator. Nothing looks at the
// model's files: whether they suit the profile is seen when the runtime starts
// (contract/appliance.md B.4).
type realtime struct{}

var _ = register(realtime{})

func (realtime) Runtime() Runtime { return RuntimeRealtime }

func (realtime) Reasons() APIReasons {
	return APIReasons{
		PermissionDenied: conditions.ModelActivationReasonRealtimePermissionDenied,
		Rejected:         conditions.ModelActivationReasonRealtimeApiRejected,
		Unavailable:      conditions.ModelActivationReasonRealtimeApiUnavailable,
	}
}

func (realtime) RequiredModules(out *Resolved) []string {
	return append(targetModules(out), moduleLiteLLM, moduleModelCatalog)
}

func (realtime) Render(out *Resolved, settings Settings) Objects { return renderDirect(out, settings) }

// repositoryURL is the canonical reference of a Hugging Face repository.
var repositoryURL = regexp.MustCompile(`^hf://[0-9A-Za-z_][0-9A-Za-z_.-]*/[0-9A-Za-z_][0-9A-Za-z_.-]*$`)

func (e realtime) resolve(r *resolution) error {
	settings := r.local.Realtime
	profile, known := r.Realtime.Get(settings.Profile)
	if !known {
		return invalid("spec.local.realtime.profile", "no such profile in the realtime catalog", settings.Profile, r.Realtime.IDs()...)
	}
	if settings.GPUNode == "" {
		return invalid("spec.local.realtime.gpuNode", "required: the node that runs the model", nil)
	}
	var plan shipped.RealtimePlan
	err := steps(
		r.checkRuntimeName,
		func() error { return e.target(r, profile) },
		func() error { return e.foreignSettings(r) },
		func() (err error) { plan, err = e.plan(r, profile); return err },
		func() error { return e.source(r) },
		func() error { return r.oneReplica("a realtime profile") },
		func() error { return r.cpu(r.Engines.Direct()) },
		// No formats: nobody judges the files.
		func() error { return r.usePrepared() },
	)
	if err != nil {
		return err
	}
	// What a preset says of the ordinary engine does not leak in.
	r.variant = nil
	if err := r.limits(); err != nil {
		return err
	}
	r.features(nil)
	r.out.Devices = plan.GPUCount
	if !r.onAccelerator() {
		ordinary, _ := r.Engines.Defaults(r.out.Engine, r.out.Target)
		r.out.cpuFeatures = ordinary.CPUFeatures
	}
	r.out.MemoryMi, r.out.MemoryLimited = plan.SystemMemoryMi, true
	if settings.SystemMemoryMi > 0 {
		r.out.MemoryMi = settings.SystemMemoryMi
	}
	r.out.Env = map[string]string{}
	maps.Copy(r.out.Env, profile.Env)
	if r.out.Prepared != nil {
		offline(r.out.Env)
	}
	r.out.Direct = &Direct{
		Node: settings.GPUNode, Image: profile.Image, PodAnnotations: podAnnotations(settings.RestartNonce),
		Command: []string{"vllm", "serve", modelReference(r.out), "--omni"},
	}
	r.out.Args, err = e.commandLine(r, profile, plan)
	if err != nil {
		return err
	}
	if settings.RuntimeImage != nil && *settings.RuntimeImage != "" {
		// The patch belongs to the sources of the catalog's image.
		r.out.Direct.Image = *settings.RuntimeImage
	} else if patch := profile.SourcePatch; patch != nil {
		e.patch(r.out.Direct, *patch)
	}
	return nil
}

// target follows from the profile's backend.
func (realtime) target(r *resolution, profile catalogs.RealtimeProfile) error {
	if engine := r.local.Engine; engine != "" && string(engine) != string(shipped.EngineVLLM) {
		return invalid("spec.local.engine", "a realtime profile keeps its engine", engine, string(shipped.EngineVLLM))
	}
	if given := shipped.ComputeTarget(r.local.ComputeTarget); given != "" && given != profile.Target {
		return invalid("spec.local.computeTarget", fmt.Sprintf("realtime profile %s has the backend %s", profile.ID, profile.Backend), given, string(profile.Target))
	}
	r.out.Engine, r.out.Target = shipped.EngineVLLM, profile.Target
	target, known := r.Engines.Target(profile.Target)
	if !known {
		return invalid("spec.local.realtime.profile", fmt.Sprintf("the engine catalog does not offer %s", profile.Target), profile.ID)
	}
	r.useTarget(target)
	return nil
}

// foreignSettings refuses settings of the ordinary engine (contract/appliance.md
// M2 with the rulings).
func (realtime) foreignSettings(r *resolution) error {
	local := &r.local
	const notHere = "a realtime profile does not take it"
	return steps(
		func() error { return forbidden(local.Freetoken != nil, "freetoken", "only for engine FreeToken") },
		func() error { return forbidden(local.Vllm != nil, "vllm", notHere) },
		func() error { return forbidden(local.KVCacheType != "", "kvCacheType", notHere) },
		func() error { return forbidden(local.KVCacheMemoryBytes != 0, "kvCacheMemoryBytes", notHere) },
		func() error {
			return forbidden(local.CPUOffloading != nil, "cpuOffloading", notHere+"; use realtime.thinkerCpuOffloadGiB")
		},
		func() error {
			return forbidden(local.CPUOffloadMi != nil, "cpuOffloadMi", notHere+"; use realtime.thinkerCpuOffloadGiB")
		},
		func() error { return forbidden(local.OllamaGPULayers != nil, "ollamaGpuLayers", notHere) },
		func() error { return forbidden(local.VRAM != "", "vram", notHere+"; use realtime.gpuMemoryFraction") },
		func() error {
			return forbidden(local.VRAMMi != 0, "vramMi", notHere+"; use realtime.gpuMemoryFraction")
		},
		func() error {
			return forbidden(local.MemoryRequiredMi != 0, "memoryRequiredMi", notHere+"; use realtime.systemMemoryMi")
		},
		func() error { return forbidden(len(local.Args) > 0, "args", notHere) },
		func() error { return forbidden(len(local.Env) > 0, "env", notHere) },
		func() error { return forbidden(local.CPUResources != nil, "cpuResources", notHere) },
	)
}

// plan picks the profile's plan for the number of devices. A shared device is one
// device (contract/appliance.md C.8).
func (realtime) plan(r *resolution, profile catalogs.RealtimeProfile) (shipped.RealtimePlan, error) {
	const field = "spec.local.realtime.gpuCount"
	counts := profile.DeviceCounts()
	wanted := counts[0]
	if r.SharedDevice && r.onAccelerator() {
		wanted = 1
	}
	given := r.local.Realtime.GPUCount
	if given != nil {
		wanted = int64(*given)
		if r.SharedDevice && r.onAccelerator() && wanted != 1 {
			return shipped.RealtimePlan{}, invalid(field, "the devices of this node are shared, which gives a model one", wanted, "1")
		}
	}
	plan, planned := profile.Plan(wanted)
	if !planned {
		var allowed []string
		for _, count := range counts {
			allowed = append(allowed, strconv.FormatInt(count, 10))
		}
		return shipped.RealtimePlan{}, invalid(field, fmt.Sprintf("realtime profile %s has no plan for this number of devices", profile.ID), wanted, allowed...)
	}
	return plan, nil
}

// source takes canonical repositories only.
func (realtime) source(r *resolution) error {
	if err := r.source("hf"); err != nil {
		return err
	}
	if r.out.URL != "" && !repositoryURL.MatchString(r.out.URL) {
		return invalid("spec.local.url", "must be hf://<owner>/<repo> with a realtime profile", r.out.URL)
	}
	return nil
}

func (realtime) commandLine(r *resolution, profile catalogs.RealtimeProfile, plan shipped.RealtimePlan) ([]string, error) {
	settings := r.local.Realtime
	args := []string{"--host=0.0.0.0", "--port=" + strconv.Itoa(RuntimePort), "--served-model-name=" + r.out.Name}
	args = append(args, profile.Args...)
	args = append(args, plan.Args...)
	args = withNumber(args, flagContext, r.out.ContextWindow)
	args = withNumber(args, flagSequences, r.out.MaxNumSeqs)

	fraction := profile.GPUMemoryFraction
	if settings.GPUMemoryFraction != 0 {
		fraction = settings.GPUMemoryFraction
		if !r.onAccelerator() {
			return nil, invalid("spec.local.realtime.gpuMemoryFraction", "not for a profile on cpu", fraction)
		}
		if !(fraction > 0 && fraction <= 1) {
			return nil, invalid("spec.local.realtime.gpuMemoryFraction", "must be above 0 and at most 1", fraction)
		}
	}
	if fraction > 0 {
		args = append(args, "--gpu-memory-utilization="+strconv.FormatFloat(fraction, 'f', -1, 64))
	}
	var offload int64
	if settings.ThinkerCPUOffloadGiB != nil {
		offload = int64(*settings.ThinkerCPUOffloadGiB)
	}
	if offload > 0 && !r.onAccelerator() {
		return nil, invalid("spec.local.realtime.thinkerCpuOffloadGiB", "not for a profile on cpu, where all weights are in RAM", offload)
	}
	overrides, err := stageOverrides(plan.StageDevices, offload)
	if err != nil {
		return nil, err
	}
	return append(args, overrides...), nil
}

// stageOverride is what a stage gets instead of the model's own configuration.
type stageOverride struct {
	Devices      string `json:"devices,omitempty"`
	CPUOffloadGB int64  `json:"cpu_offload_gb,omitempty"`
}

// stageOverrides places the stages, the thinker first, and keeps offload GiB of
// the thinker's weights in RAM.
func stageOverrides(devices []string, offload int64) ([]string, error) {
	stages := map[string]stageOverride{}
	for i, list := range devices {
		stages[strconv.Itoa(i)] = stageOverride{Devices: list}
	}
	if offload > 0 {
		thinker := stages["0"]
		thinker.CPUOffloadGB = offload
		stages["0"] = thinker
	}
	if len(stages) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(stages)
	if err != nil {
		return nil, fmt.Errorf("writing the overrides of %d stages: %w", len(stages), err)
	}
	return []string{"--stage-overrides=" + string(text)}, nil
}

// patchScript corrects the sources and becomes the server. A correction that does
// not fit stops the Pod instead of running something unknown.
const patchScript = `patch --batch --forward -p1 -d "$MAGICSTICK_SOURCE_ROOT" -i "$MAGICSTICK_SOURCE_PATCH" && exec "$@"`

// patch lets the server start through patchScript.
func (realtime) patch(direct *Direct, patch shipped.RealtimeSourcePatch) {
	direct.Patch = &SourcePatch{ConfigMap: patch.ConfigMap, Key: patch.Key, Root: patch.Root}
	direct.Command = append([]string{"/bin/sh", "-c",
		`MAGICSTICK_SOURCE_ROOT='` + patch.Root + `' MAGICSTICK_SOURCE_PATCH='` + patchFolder + "/" + patch.Key + `'; ` + patchScript, "sh"},
		direct.Command...)
}
