package estimates

import "fmt"

// Model types of activations (contract/appliance.md B.4).
const (
	typeChat      = "chat"
	typeEmbedding = "embedding"
)

// Defaults of vLLM's request (contract/appliance.md E.5).
const (
	defaultContext             = 4096
	defaultSequences           = 32
	defaultSequencesEmbeddings = 8
)

// Shares and floors of what comes on top (contract/appliance.md E.5).
const (
	reservePercent   = 8
	headroomPercent  = 15
	reserveFloorMi   = 2048
	headroomFloorMi  = 2048
	stateHeadroomMi  = 1024
	vllmHostMemoryMi = 4096
)

// Request is what somebody wants of vLLM.
type Request struct {
	// ContextWindow is in tokens; 0 takes the model's, else 4096.
	ContextWindow int64
	// MaxNumSeqs is the number of sequences at once; 0 takes 32, for embeddings 8.
	MaxNumSeqs int64
	// ModelType is chat or embedding; empty is chat.
	ModelType string
	// KVCacheType is auto or fp8; empty is auto.
	KVCacheType string
	// OnCPU asks for RAM of the target cpu instead of GPU memory.
	OnCPU bool
	// BudgetMi is the GPU memory that the model may use (vram); 0 when not chosen yet.
	BudgetMi int64
	// Available is what the target has.
	Available Available
}

func (r Request) check() error {
	for _, err := range []error{
		within("contextWindow", r.ContextWindow, 0, maxContext),
		within("maxNumSeqs", r.MaxNumSeqs, 0, maxSequences),
		within("vramMi", r.BudgetMi, 0, maxMi),
		oneOf("modelType", r.ModelType, typeChat, typeEmbedding),
		oneOf("kvCacheType", r.KVCacheType, "auto", "fp8"),
		r.Available.check(),
	} {
		if err != nil {
			return err
		}
	}
	if r.OnCPU && r.KVCacheType == "fp8" {
		return &Problem{Source: sourceRequest, Field: "kvCacheType", Rule: "must be auto on cpu", Value: shown(r.KVCacheType)}
	}
	return nil
}

// Estimate computes what one replica needs on vLLM (contract/appliance.md E.5):
//
//	reserve     = max(2048, 8 % of weights + KV cache)
//	minimum     = weights + KV cache + reserve
//	recommended = minimum + max(2048, 15 % of minimum)
//	maximum     = free - planned, at least 0, nil when free is unknown
//
// The same holds for RAM on cpu, where the minimum is what the pre-flight asks
// for. Beyond the formula, the reserve of a hybrid model covers the state of its
// recurrent layers and 1024 Mi: 36 such layers of a large model keep 2 GiB for 32
// sequences. The error is a *Problem.
func (m *Model) Estimate(request Request) (*Estimate, error) {
	if err := request.check(); err != nil {
		return nil, err
	}
	out := &Estimate{
		ContextWindow: request.ContextWindow, MaxNumSeqs: request.MaxNumSeqs,
		WeightsMi: toMi(m.weights.bytes), Confidence: m.weights.confidence,
		MaximumMi: freeOf(request.Available.FreeMi, request.Available.PlannedMi),
		Warnings:  append([]string{}, m.warnings...),
	}
	out.GPUAvailable = out.MaximumMi != nil && !request.OnCPU
	m.defaults(out, request)
	if err := m.cache(out, request); err != nil {
		return nil, err
	}
	out.add(reserveFloorMi, headroomFloorMi, m.stateMi(out.MaxNumSeqs))
	if request.OnCPU {
		return out, nil
	}
	m.offload(out, request)
	return out, nil
}

// defaults fills in context and sequences.
func (m *Model) defaults(out *Estimate, request Request) {
	known := int64(0)
	if m.dimensions != nil {
		known = m.dimensions.contextWindow
	}
	switch {
	case out.ContextWindow == 0 && known > 0:
		out.ContextWindow = known
	case out.ContextWindow == 0:
		out.ContextWindow = defaultContext
	case known > 0 && out.ContextWindow > known:
		out.warn("the model was made for a context of %d tokens: vLLM refuses more unless it is told otherwise", known)
	}
	if out.MaxNumSeqs == 0 {
		out.MaxNumSeqs = defaultSequences
		if request.ModelType == typeEmbedding {
			out.MaxNumSeqs = defaultSequencesEmbeddings
		}
	}
}

// cache adds the KV cache.
func (m *Model) cache(out *Estimate, request Request) error {
	if m.dimensions == nil {
		out.Confidence = ConfidenceFallback
		return nil
	}
	width := int64(2)
	if request.KVCacheType == "fp8" {
		width = 1
	}
	size := m.dimensions.cacheBytes(out.ContextWindow, out.MaxNumSeqs, width)
	out.KVCacheMi = toMi(size)
	if out.KVCacheMi > maxMi {
		return &Problem{
			Source: sourceRequest, Field: "contextWindow", Value: fmt.Sprint(out.ContextWindow),
			Rule: fmt.Sprintf("the KV cache for %d sequences of this length exceeds %d Mi", out.MaxNumSeqs, maxMi),
		}
	}
	if request.OnCPU {
		// Whole Mi, so that what is planned is what vLLM is told.
		out.KVCacheMemoryBytes = out.KVCacheMi * bytesPerMi
	}
	if out.MaxNumSeqs > 1 && out.KVCacheMi > out.WeightsMi {
		out.warn("the KV cache is for %d sequences of full length at once; one takes %d Mi, and vLLM starts with room for one",
			out.MaxNumSeqs, toMi(m.dimensions.cacheBytes(out.ContextWindow, 1, width)))
	}
	return nil
}

// stateMi is what the reserve has to hold for recurrent layers.
func (m *Model) stateMi(sequences int64) int64 {
	if m.dimensions == nil || m.dimensions.plan.recurrent == 0 {
		return 0
	}
	return min(plus(toMi(m.dimensions.stateBytes(sequences)), stateHeadroomMi), maxMi)
}

// add computes reserve, minimum and recommendation from the parts.
func (e *Estimate) add(reserveFloor, headroomFloor, leastReserve int64) {
	e.ReserveMi = max(reserveFloor, percentOf(reservePercent, e.WeightsMi+e.KVCacheMi), leastReserve)
	e.MinimumMi = e.WeightsMi + e.KVCacheMi + e.ReserveMi
	e.recommend(headroomFloor)
}

// recommend puts headroom on top of the minimum.
func (e *Estimate) recommend(floor int64) {
	e.RecommendedReserveMi = headroomOf(e.MinimumMi, floor)
	e.RecommendedMi = e.MinimumMi + e.RecommendedReserveMi
}

// headroomOf is what is recommended beside a minimum.
func headroomOf(minimum, floor int64) int64 { return max(floor, percentOf(headroomPercent, minimum)) }

func (e *Estimate) warn(format string, values ...any) {
	e.Warnings = append(e.Warnings, fmt.Sprintf(format, values...))
}
