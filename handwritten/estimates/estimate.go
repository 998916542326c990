package estimates

// Confidence says where the weights come from (contract/appliance.md E.5).
type Confidence string

const (
	// ConfidenceHigh says that the sizes of the weights are published.
	ConfidenceHigh Confidence = "high"
	// ConfidenceEstimated says that the weights are computed from the dimensions of the model.
	ConfidenceEstimated Confidence = "estimated"
	// ConfidenceFallback says that the weights or the KV cache are unknown and count nothing.
	ConfidenceFallback Confidence = "fallback"
)

// Estimate is what one replica of a model needs on its target: GPU memory on an
// accelerator, RAM on cpu. JSON names: contract/appliance.md E.5.
type Estimate struct {
	// Repo and SourceURL name the model; the caller fills them in.
	Repo string `json:"repo"`
	// SourceURL is where a person reads about the model.
	SourceURL string `json:"sourceUrl"`
	// MinimumMi is weights, KV cache and reserve.
	MinimumMi int64 `json:"minimumMi"`
	// RecommendedMi is the minimum with headroom.
	RecommendedMi int64 `json:"recommendedMi"`
	// MaximumMi is what the target has left; nil when unknown.
	MaximumMi *int64 `json:"maximumMi"`
	// WeightsMi are the parameters.
	WeightsMi int64 `json:"weightsMi"`
	// KVCacheMi is the KV cache for all sequences at full context.
	KVCacheMi int64 `json:"kvCacheMi"`
	// ReserveMi is what the runtime needs besides.
	ReserveMi int64 `json:"reserveMi"`
	// RecommendedReserveMi is RecommendedMi without MinimumMi.
	RecommendedReserveMi int64 `json:"recommendedReserveMi"`
	// ContextWindow is the context in tokens that was counted with.
	ContextWindow int64 `json:"contextWindow"`
	// MaxNumSeqs is the number of sequences at once that was counted with.
	MaxNumSeqs int64 `json:"maxNumSeqs"`
	// Confidence says how far to trust the numbers.
	Confidence Confidence `json:"confidence"`
	// GPUAvailable tells that the GPU memory is known.
	GPUAvailable bool `json:"gpuAvailable"`
	// Warnings say what the numbers do not cover, or where they deviate from the plain formula.
	Warnings []string `json:"warnings"`
	// KVCacheMemoryBytes is spec.local.kvCacheMemoryBytes, for vLLM on cpu only; 0
	// when the dimensions of the model are unknown.
	KVCacheMemoryBytes int64 `json:"kvCacheMemoryBytes,omitempty"`
	// CPUOffloadMi is spec.local.cpuOffloadMi at the budget that was asked for; nil
	// without a budget and on cpu. Ollama has 0.
	CPUOffloadMi *int64 `json:"cpuOffloadMi,omitempty"`
	// Offloading is about weights in RAM; nil on cpu.
	Offloading *Offloading `json:"offloading,omitempty"`
	// Placement is where Ollama puts the layers; nil for vLLM.
	Placement *Placement `json:"placement,omitempty"`
}

// Offloading tells what a model needs when a part of its weights stays in RAM
// (seed 000, CPU offloading fields; contract/rulings.md 2, estimator).
type Offloading struct {
	// RAMMinimumMi is the host RAM at the budget that was asked for; without a
	// budget, that at GPUMinimumMi.
	RAMMinimumMi int64 `json:"ramMinimumMi"`
	// RAMRecommendedMi is RAMMinimumMi with headroom for the start.
	RAMRecommendedMi int64 `json:"ramRecommendedMi"`
	// RAMMaximumMi is the host RAM that is left; nil when unknown.
	RAMMaximumMi *int64 `json:"ramMaximumMi"`
	// GPUMinimumMi is the smallest budget with which the model can start at all.
	GPUMinimumMi int64 `json:"gpuMinimumMi"`
	// GPURecommendedMi is the budget at which nothing has to stay in RAM, with headroom.
	GPURecommendedMi int64 `json:"gpuRecommendedMi"`
	// FitsVRAM tells that nothing has to stay in RAM: at the budget, or, without
	// one, in what the GPU is known to have left.
	FitsVRAM bool `json:"fitsVram"`
	// WeightsMi, KVCacheMi and RuntimeMi are the parts, wherever they lie.
	WeightsMi int64 `json:"weightsMi"`
	// KVCacheMi is the KV cache.
	KVCacheMi int64 `json:"kvCacheMi"`
	// RuntimeMi is what the runtime needs besides.
	RuntimeMi int64 `json:"runtimeMi"`
}

// Placement is where Ollama puts the layers of a model.
type Placement struct {
	// Layers is how many there are, the output layer included.
	Layers int64 `json:"layers"`
	// GPULayers is how many of them lie on the GPU.
	GPULayers int64 `json:"gpuLayers"`
	// RAMMi and VRAMMi are what that takes of host and GPU.
	RAMMi int64 `json:"ramMi"`
	// VRAMMi is 0 without layers on the GPU.
	VRAMMi int64 `json:"vramMi"`
}

// Available is what a target has for the model. The zero value knows nothing.
type Available struct {
	// FreeMi is the memory of the target that is not in use; nil when unknown.
	FreeMi *int64
	// PlannedMi is how much of it has been promised (Planned).
	PlannedMi int64
	// FreeRAMMi is the host RAM that is left for the model; nil when unknown.
	FreeRAMMi *int64
}

// check bounds what the caller knows.
func (a Available) check() error {
	for _, amount := range []struct {
		field string
		value *int64
	}{{"freeMi", a.FreeMi}, {"plannedMi", &a.PlannedMi}, {"freeRamMi", a.FreeRAMMi}} {
		if amount.value == nil {
			continue
		}
		if err := within(amount.field, *amount.value, 0, maxMi); err != nil {
			return err
		}
	}
	return nil
}
