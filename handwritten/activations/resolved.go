package activations

import (
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/handwritten/catalogs"
)

// Resolved is an activation with nothing left open: what the catalogs say and
// what the activation says on top, checked against every rule.
type Resolved struct {
	// Name of the activation, of its runtime and of the model in the index.
	Name string `json:"name"`
	// Namespace of the runtime.
	Namespace string `json:"namespace"`
	// Runtime that serves the model.
	Runtime Runtime `json:"runtime"`
	// Engine for status.engine; empty for external models.
	Engine shipped.Engine `json:"engine,omitempty"`
	// Target is the hardware; empty for external models.
	Target shipped.ComputeTarget `json:"target,omitempty"`
	// Modules that must be Ready, in the order in which they become so.
	Modules []string `json:"modules"`

	// URL of the model's files; empty for external models.
	URL string `json:"url,omitempty"`
	// Preset and Artifact that the URL came from; empty without a preset.
	Preset   string `json:"preset,omitempty"`
	Artifact string `json:"artifact,omitempty"`
	// Precision and Quantization as the catalog has them; may be empty.
	Precision    string `json:"precision,omitempty"`
	Quantization string `json:"quantization,omitempty"`
	// Prepared is the model of modelRef; nil without one.
	Prepared *PreparedModel `json:"prepared,omitempty"`

	// ModelType is chat or embedding.
	ModelType string `json:"modelType"`
	// Features that KubeAI offers.
	Features []string `json:"features,omitempty"`
	// ContextWindow, MaxOutputTokens in tokens and MaxNumSeqs; 0 when nobody says.
	ContextWindow   int64 `json:"contextWindow,omitempty"`
	MaxOutputTokens int64 `json:"maxOutputTokens,omitempty"`
	MaxNumSeqs      int64 `json:"maxNumSeqs,omitempty"`
	// MinReplicas and MaxReplicas, at least 1 for local models.
	MinReplicas int64 `json:"minReplicas,omitempty"`
	MaxReplicas int64 `json:"maxReplicas,omitempty"`

	// VRAM is the GPU budget of a replica as written; VRAMMi the same in Mi. Empty and
	// 0 where GPU memory is not planned.
	VRAM   string `json:"vram,omitempty"`
	VRAMMi int64  `json:"vramMi,omitempty"`
	// MemoryMi is the RAM request of a replica in Mi, rounded.
	MemoryMi int64 `json:"memoryMi,omitempty"`
	// MemoryLimited tells that the request is the limit too.
	MemoryLimited bool `json:"memoryLimited,omitempty"`
	// CPU time of a replica.
	CPU catalogs.CPU `json:"cpu,omitzero"`
	// MemoryFloorMi is the RAM in Mi that a replica is known to fill with its KV cache
	// or its weights, besides everything else that it needs; 0 when nothing is known
	// (see Preflight).
	MemoryFloorMi int64 `json:"memoryFloorMi,omitempty"`
	// AllowMemoryRisk waives the checks of Resolved.CoversMemory.
	AllowMemoryRisk bool `json:"allowMemoryRisk,omitempty"`

	// KVCacheType is the precision of the KV cache that the activation asks for; empty
	// when it asks for none. RequestedKVCacheType is what that amounts to.
	KVCacheType          string `json:"kvCacheType,omitempty"`
	RequestedKVCacheType string `json:"requestedKvCacheType,omitempty"`
	// KVCacheMemoryBytes is the RAM for the KV cache in bytes; 0 where it is not in RAM.
	KVCacheMemoryBytes int64 `json:"kvCacheMemoryBytes,omitempty"`
	// CPUOffloading as asked for; nil keeps what the engine does by itself.
	CPUOffloading *bool `json:"cpuOffloading,omitempty"`
	// CPUOffloadMi is the budget of weights in RAM in Mi, for VLLM with CPUOffloading.
	CPUOffloadMi int64 `json:"cpuOffloadMi,omitempty"`
	// VisionAttention is the chosen kernel; empty leaves arguments and environment alone.
	VisionAttention string `json:"visionAttention,omitempty"`

	// Resource is the extended resource of one device; empty on cpu.
	Resource string `json:"resource,omitempty"`
	// Devices is the number of whole devices of a replica; 0 on cpu.
	Devices int64 `json:"devices,omitempty"`
	// Tolerations for the nodes of the target.
	Tolerations []shipped.EngineToleration `json:"tolerations,omitempty"`
	// Args and Env of the server, final.
	Args []string          `json:"args,omitempty"`
	Env  map[string]string `json:"env,omitempty"`
	// Annotations that tell consumers the limits of the model.
	Annotations map[string]string `json:"annotations,omitempty"`

	// Profile is the KubeAI resource profile; nil for other runtimes.
	Profile *Profile `json:"profile,omitempty"`
	// Direct is the Pod of a runtime that the operator runs itself; nil for others.
	Direct *Direct `json:"direct,omitempty"`
	// External is the provider's model; nil for local models.
	External *appliancev1alpha1.ModelActivationSpecExternal `json:"external,omitempty"`

	// catalogVRAMMi and catalogMemoryMi are what the catalog plans for the artifact of
	// the preset, in Mi; 0 when it says nothing.
	catalogVRAMMi, catalogMemoryMi int64
	// memoryLabel is where nodes say how much memory a device has; may be empty.
	memoryLabel string
	// cpuFeatures are what the processor must have, by architecture; empty on devices.
	cpuFeatures map[string][]string
	// targetModule makes the devices of Target usable; empty when none is needed.
	targetModule string
}

// VRAMRequiredMi is the planned GPU memory of all replicas in Mi
// (contract/appliance.md H49).
func (r *Resolved) VRAMRequiredMi() int64 { return r.VRAMMi * max(r.MaxReplicas, 1) }

// ModelRef names the runtime for status.modelRef (contract/appliance.md H21).
func (r *Resolved) ModelRef() string { return r.Runtime.prefix() + "/" + r.Name }

// ResourceProfile is the profile as KubeAI and status.resolvedResourceProfile
// write it; empty for other runtimes.
func (r *Resolved) ResourceProfile() string {
	if r.Profile == nil {
		return ""
	}
	return r.Profile.String()
}

// offloads tells that weights are kept in RAM.
func (r *Resolved) offloads() bool { return r.CPUOffloading != nil && *r.CPUOffloading }
