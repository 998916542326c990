package estimates

import (
	"fmt"
	"math"
	"sort"

	gguf "github.com/gpustack/gguf-parser-go"
)

const (
	// ollamaContext is Ollama's context where nobody gives one, in tokens.
	ollamaContext = 4096
	// ollamaBatch is the number of tokens that Ollama computes at once.
	ollamaBatch = 512
	// maxOllamaTokens bounds context times sequences; wholeBounds rely on it.
	maxOllamaTokens = 1 << 24
	// maxOllamaParallel bounds the sequences at once; wholeBounds rely on it.
	maxOllamaParallel = 1 << 10
	// ollamaHostMi is what Ollama and the process of the model need in RAM before
	// they load anything.
	ollamaHostMi = 256
	// ollamaDeviceMi is what the libraries of a GPU take of its memory before
	// anything is loaded; Ollama itself sets 457 Mi aside.
	ollamaDeviceMi = 512
	// ollamaHeadroomMi is the least headroom that is recommended.
	ollamaHeadroomMi = 256
)

// OllamaRequest is what somebody wants of Ollama.
type OllamaRequest struct {
	// ContextWindow is in tokens for each sequence; 0 takes 4096, or less where the model has less.
	ContextWindow int64
	// MaxNumSeqs is the number of sequences at once (OLLAMA_NUM_PARALLEL); 0 takes 1.
	MaxNumSeqs int64
	// KVCacheType is f16, q8_0 or q4_0; empty is f16.
	KVCacheType string
	// FlashAttention is set together with a KV cache type (contract/appliance.md
	// B.4); a quantised cache needs it and has it always.
	FlashAttention bool
	// OnCPU asks for RAM of the target cpu.
	OnCPU bool
	// GPULayers is how many layers lie on the GPU, the output layer included and
	// first; nil takes all, or what fits when there is a budget.
	GPULayers *int64
	// BudgetMi is the GPU memory that the model may use (vram); 0 when not chosen yet.
	BudgetMi int64
	// Available is what the target has.
	Available Available
}

func (r OllamaRequest) check() error {
	for _, err := range []error{
		within("contextWindow", r.ContextWindow, 0, maxOllamaTokens),
		within("maxNumSeqs", r.MaxNumSeqs, 0, maxOllamaParallel),
		within("contextWindow times maxNumSeqs", times(max(r.ContextWindow, 1), max(r.MaxNumSeqs, 1)), 1, maxOllamaTokens),
		within("vramMi", r.BudgetMi, 0, maxMi),
		oneOf("kvCacheType", r.KVCacheType, "f16", "q8_0", "q4_0"),
		r.Available.check(),
	} {
		if err != nil {
			return err
		}
	}
	if r.GPULayers != nil {
		return within("gpuLayers", *r.GPULayers, 0, maxLayers+1)
	}
	return nil
}

// ollamaUse is the memory of one placement, in bytes.
type ollamaUse struct {
	hostWeights, hostCache, hostRuntime       int64
	deviceWeights, deviceCache, deviceRuntime int64
	flashAttention                            bool
}

func (u ollamaUse) host() int64 { return plus(u.hostWeights, u.hostCache, u.hostRuntime) }

func (u ollamaUse) device() int64 { return plus(u.deviceWeights, u.deviceCache, u.deviceRuntime) }

// Estimate computes what one replica needs on Ollama, with the estimator of
// gguf-parser-go. On a GPU the parts and the minimum are those of all layers on
// the GPU, Placement is what the budget or GPULayers make of it; on cpu all is
// RAM. GPU-first: as many layers as fit into the budget lie on the GPU, the
// output layer first, which is how Ollama decides for itself. The error is a
// *Problem.
func (g *GGUF) Estimate(request OllamaRequest) (*Estimate, error) {
	if err := request.check(); err != nil {
		return nil, err
	}
	out := &Estimate{
		ContextWindow: request.ContextWindow, MaxNumSeqs: max(request.MaxNumSeqs, 1), Confidence: ConfidenceHigh,
		MaximumMi: freeOf(request.Available.FreeMi, request.Available.PlannedMi), Warnings: []string{},
	}
	g.defaults(out)
	run := ollamaRun{model: g, context: out.ContextWindow * out.MaxNumSeqs, sequences: out.MaxNumSeqs, request: request}
	if request.OnCPU {
		return g.onCPU(out, run)
	}
	out.GPUAvailable = out.MaximumMi != nil
	return g.onGPU(out, run, request)
}

func (g *GGUF) defaults(out *Estimate) {
	switch known := g.ContextWindow(); {
	case out.ContextWindow == 0:
		out.ContextWindow = min(ollamaContext, known)
	case out.ContextWindow > known:
		out.warn("the model was made for a context of %d tokens", known)
	}
}

// finish adds the parts of one side up.
func (out *Estimate) finish(run ollamaRun, use ollamaUse, weights, cache, total int64) {
	out.WeightsMi, out.KVCacheMi = toMi(weights), toMi(cache)
	out.MinimumMi = toMi(total)
	out.ReserveMi = max(out.MinimumMi-out.WeightsMi-out.KVCacheMi, 0)
	out.MinimumMi = out.WeightsMi + out.KVCacheMi + out.ReserveMi
	out.recommend(ollamaHeadroomMi)
	if run.wantsFlash() && !use.flashAttention {
		out.warn("the architecture %s cannot use flash attention: its KV cache stays at 16 bits", run.model.Architecture())
	}
}

func (g *GGUF) onCPU(out *Estimate, run ollamaRun) (*Estimate, error) {
	use, err := run.with(0)
	if err != nil {
		return nil, err
	}
	out.finish(run, use, use.hostWeights, use.hostCache, use.host())
	out.Placement = &Placement{Layers: g.Layers(), RAMMi: out.MinimumMi}
	return out, nil
}

func (g *GGUF) onGPU(out *Estimate, run ollamaRun, request OllamaRequest) (*Estimate, error) {
	all, err := run.with(g.Layers())
	if err != nil {
		return nil, err
	}
	out.finish(run, all, all.deviceWeights, all.deviceCache, all.device())
	layers := g.Layers()
	switch {
	case request.GPULayers != nil:
		layers = min(*request.GPULayers, layers)
	case request.BudgetMi > 0:
		if layers, err = run.fitting(request.BudgetMi); err != nil {
			return nil, err
		}
	}
	placed, err := run.with(layers)
	if err != nil {
		return nil, err
	}
	out.Placement = &Placement{Layers: g.Layers(), GPULayers: layers, RAMMi: toMi(placed.host()), VRAMMi: toMi(placed.device())}
	return out, g.offload(out, run, request, placed)
}

// offload adds what the host needs: at the budget, or, without one, with no more
// than one block and the output layer on the GPU.
func (g *GGUF) offload(out *Estimate, run ollamaRun, request OllamaRequest, placed ollamaUse) error {
	fewest, err := run.with(min(2, g.Layers()))
	if err != nil {
		return err
	}
	chosen := fewest
	if request.BudgetMi > 0 || request.GPULayers != nil {
		chosen = placed
	}
	if request.BudgetMi > 0 {
		out.CPUOffloadMi = new(int64)
	}
	least := toMi(chosen.host())
	out.Offloading = &Offloading{
		RAMMinimumMi: least, RAMRecommendedMi: least + headroomOf(least, ollamaHeadroomMi),
		RAMMaximumMi: request.Available.FreeRAMMi,
		GPUMinimumMi: min(toMi(fewest.device()), out.MinimumMi), GPURecommendedMi: out.RecommendedMi,
		FitsVRAM:  out.fits(request.BudgetMi),
		WeightsMi: toMi(g.weightsBytes), KVCacheMi: out.KVCacheMi, RuntimeMi: out.ReserveMi,
	}
	if request.BudgetMi > 0 && out.Placement.GPULayers == 0 {
		out.warn("the GPU budget of %d Mi holds no layer: the model runs on the CPU", request.BudgetMi)
	}
	return nil
}

// ollamaRun asks the estimator about one way to run a model.
type ollamaRun struct {
	model              *GGUF
	context, sequences int64
	request            OllamaRequest
}

// wantsFlash tells that flash attention is switched on.
func (r ollamaRun) wantsFlash() bool {
	return r.request.FlashAttention || r.request.KVCacheType != "" && r.request.KVCacheType != "f16"
}

// fitting is the largest number of layers on the GPU that a budget holds. More
// layers take more, except that all of them need no room to hand over to the host.
func (r ollamaRun) fitting(budgetMi int64) (int64, error) {
	all, failed := r.with(r.model.Layers())
	if failed == nil && toMi(all.device()) <= budgetMi {
		return r.model.Layers(), nil
	}
	tooMany := sort.Search(int(r.model.Layers()), func(below int) bool {
		use, err := r.with(int64(below) + 1)
		if err != nil {
			failed = err
			return true
		}
		return toMi(use.device()) > budgetMi
	})
	return int64(tooMany), failed
}

// with places some layers on the GPU.
func (r ollamaRun) with(layers int64) (ollamaUse, error) {
	var estimate gguf.LLaMACppRunEstimate
	err := recovered(func() error {
		estimate = r.model.file.EstimateLLaMACppRun(r.options(layers)...)
		return nil
	})
	if err != nil {
		return ollamaUse{}, err
	}
	if len(estimate.Devices) != 2 || estimate.Type != "model" {
		return ollamaUse{}, &Problem{Source: sourceGGUF, Rule: "must be a language model", Value: shown(estimate.Type)}
	}
	use := r.divide(estimate, layers)
	if toMi(use.host()) > maxMi || toMi(use.device()) > maxMi {
		return ollamaUse{}, &Problem{
			Source: sourceRequest, Field: "contextWindow", Value: fmt.Sprint(r.context),
			Rule: fmt.Sprintf("the model would need more than %d Mi", maxMi),
		}
	}
	return use, nil
}

func (r ollamaRun) options(layers int64) []gguf.GGUFRunEstimateOption {
	cache := map[string]gguf.GGMLType{"": gguf.GGMLTypeF16, "f16": gguf.GGMLTypeF16, "q8_0": gguf.GGMLTypeQ8_0, "q4_0": gguf.GGMLTypeQ4_0}[r.request.KVCacheType]
	options := []gguf.GGUFRunEstimateOption{
		gguf.WithLLaMACppContextSize(int32(min(r.context, math.MaxInt32))), // #nosec G115 -- bounded
		gguf.WithParallelSize(int32(min(r.sequences, math.MaxInt32))),      // #nosec G115 -- bounded
		gguf.WithLLaMACppOffloadLayers(uint64(max(layers, 0))),
		gguf.WithLLaMACppLogicalBatchSize(ollamaBatch),
		gguf.WithLLaMACppPhysicalBatchSize(ollamaBatch),
		gguf.WithLLaMACppCacheKeyType(cache),
		gguf.WithLLaMACppCacheValueType(cache),
	}
	if r.wantsFlash() {
		options = append(options, gguf.WithFlashAttention())
	}
	return options
}

// divide sums the estimator's parts up, host and GPU.
//
// It differs from the estimator's own summary, which is about processes that map
// the file: a limit of the container counts what is mapped, too. The output
// matrix counts where it lies and not on both sides; without a GPU, embeddings
// that serve as output matrix count once. Without a GPU the graph is computed in
// RAM, so that what the estimator sets aside on the GPU for it is RAM.
func (r ollamaRun) divide(estimate gguf.LLaMACppRunEstimate, layers int64) ollamaUse {
	host, device := estimate.Devices[0], estimate.Devices[1]
	use := ollamaUse{
		hostWeights: bytesOfScalar(host.Weight.Input + host.Weight.Compute),
		hostCache:   bytesOfScalar(host.KVCache.Sum()),
		hostRuntime: plus(ollamaHostMi*bytesPerMi, bytesOfScalar(host.Footprint)),

		flashAttention: estimate.FlashAttention,
	}
	if layers == 0 {
		use.hostWeights = r.model.weightsBytes
		use.hostCache = max(use.hostCache, r.latentCache(0, r.model.Layers()))
		use.hostRuntime = plus(use.hostRuntime, bytesOfScalar(max(host.Computation.Sum(), device.Computation.Sum())))
		return use
	}
	use.hostRuntime = plus(use.hostRuntime, bytesOfScalar(host.Computation.Sum()))
	use.hostCache = max(use.hostCache, r.latentCache(0, r.model.Layers()-layers))
	use.deviceWeights = bytesOfScalar(device.Weight.Sum())
	use.deviceCache = max(bytesOfScalar(device.KVCache.Sum()), r.latentCache(r.model.Layers()-layers, r.model.Layers()))
	use.deviceRuntime = plus(ollamaDeviceMi*bytesPerMi, bytesOfScalar(device.Footprint+device.Computation.Sum()))
	return use
}

func bytesOfScalar(amount gguf.GGUFBytesScalar) int64 {
	// Far beyond maxMi, and far enough from overflow to be added up.
	return int64(min(uint64(amount), 1<<58))
}

// latentCache is the cache of latent attention for the blocks from first up to
// and without last. llama.cpp keeps key_length numbers a token as keys and
// value_length as values, for one head; the estimator takes the lengths before
// the compression, which are less (DeepSeek V3: 320 instead of 1088). 0 for other
// models.
func (r ollamaRun) latentCache(first, last int64) int64 {
	header := r.model.header
	if header.number("attention.key_length_mla") == 0 || header.number("attention.value_length_mla") == 0 {
		return 0
	}
	blocks := clamp(last, 0, header.number("block_count")) - clamp(first, 0, header.number("block_count"))
	numbers := times(blocks, r.context, header.number("attention.head_count_kv"),
		header.number("attention.key_length")+header.number("attention.value_length"))
	switch r.request.KVCacheType {
	case "q8_0":
		// 32 numbers and their scale in 34 bytes.
		return divideUp(times(numbers, 34), 32)
	case "q4_0":
		return divideUp(times(numbers, 18), 32)
	default:
		return bytesOf(numbers, plainBits)
	}
}
