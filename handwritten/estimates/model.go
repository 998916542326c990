package estimates

import (
	"fmt"
	"slices"
	"strings"
)

// sourceConfig is the Source of problems with config.json.
const sourceConfig = "config.json"

// Files is what a Hugging Face repository publishes about a model. Whatever is
// missing is nil.
type Files struct {
	// Config is config.json, at most 4 MiB.
	Config []byte
	// Index is model.safetensors.index.json, at most 32 MiB.
	Index []byte
	// Totals come from the API (ReadTotals).
	Totals *Totals
}

// Model is what is known of the memory of a model of Hugging Face. It never
// changes and may be shared.
type Model struct {
	weights weights
	// dimensions are nil when config.json has none that can be computed with.
	dimensions *shape
	warnings   []string
}

// ReadModel reads what a repository publishes. What is missing makes the estimate
// less certain (Estimate.Confidence, Estimate.Warnings); what is there and cannot
// be right is a *Problem.
func ReadModel(files Files) (*Model, error) {
	model := &Model{}
	var indexBytes int64
	if files.Index != nil {
		var err error
		if indexBytes, err = readIndex(files.Index); err != nil {
			return nil, err
		}
	}
	stored := quantization{bits: plainBits}
	if files.Config == nil {
		model.warnings = append(model.warnings, "config.json is missing: the KV cache is unknown and counts nothing")
	} else {
		var err error
		if stored, err = model.readConfig(files.Config); err != nil {
			return nil, err
		}
	}
	model.weights = weigh(indexBytes, files.Totals, model.dimensions, stored)
	if model.weights.bytes > maxMi*bytesPerMi {
		source := sourceConfig
		if files.Totals != nil {
			source = sourceAPI
		}
		return nil, &Problem{Source: source, Rule: fmt.Sprintf("describes a model whose weights exceed %d Mi", maxMi)}
	}
	model.warnings = append(model.warnings, model.weights.warnings...)
	return model, nil
}

func (m *Model) readConfig(data []byte) (quantization, error) {
	top, err := document(sourceConfig, data, maxConfig)
	if err != nil {
		return quantization{}, err
	}
	part, missing := languageModel(top)
	stored := readQuantization(part)
	if stored.unknown {
		m.warnings = append(m.warnings, fmt.Sprintf("quantization %s is not known: each weight counts %d bits", shown(stored.method), stored.bits))
	}
	if len(missing) > 0 {
		m.warnings = append(m.warnings, fmt.Sprintf("config.json has no %s: the KV cache is unknown and counts nothing", strings.Join(missing, ", ")))
		return stored, top.err()
	}
	dimensions := readShape(part, top)
	if top.err() != nil {
		return stored, top.err()
	}
	m.dimensions = &dimensions
	m.warnings = append(m.warnings, dimensions.plan.warnings()...)
	if dimensions.latent.cached() {
		m.warnings = append(m.warnings, fmt.Sprintf(
			"latent attention: the KV cache holds one vector of %d numbers a token and layer instead of keys and values of %d heads",
			dimensions.latent.kvRank+dimensions.latent.rope, dimensions.kvHeads))
	}
	return stored, nil
}

// warnings say where the cache deviates from 2*layers*kvHeads*headDim.
func (p layerPlan) warnings() []string {
	var out []string
	if p.windowed > 0 {
		out = append(out, fmt.Sprintf("%d layers cache the last %d tokens only, %d the whole context", p.windowed, p.window, p.full))
	}
	if p.hybrid && p.recurrent > 0 {
		out = append(out, fmt.Sprintf("hybrid model: %d layers have a KV cache, %d a state of fixed size that belongs to the reserve", p.full+p.windowed, p.recurrent))
	}
	if len(p.unknownKinds) > 0 {
		slices.Sort(p.unknownKinds)
		kinds := slices.Compact(slices.Clone(p.unknownKinds))
		out = append(out, fmt.Sprintf("layers of the kinds %s are not known and count as full attention", shown(strings.Join(kinds, ", "))))
	}
	return out
}

// cacheBytes is the KV cache for sequences of a context each:
//
//	2 * layers * kvHeads * headDim * width * context * sequences
//
// width is 1 with the KV cache type fp8, else 2 (contract/appliance.md E.5): the
// cache does not follow the quantization of the weights. Layers with a sliding
// window hold no more than their window; what a prompt needs beyond it while it is
// read belongs to the reserve. Latent attention caches kv_lora_rank +
// qk_rope_head_dim numbers once instead of two vectors for each head; for
// DeepSeek V3 the plain formula would give 57 times as much.
func (s *shape) cacheBytes(context, sequences, width int64) int64 {
	token := times(2, s.kvHeads, s.headDim, width)
	if s.latent.cached() {
		token = times(plus(s.latent.kvRank, s.latent.rope), width)
	}
	token = plus(token, s.indexBytes)
	tokens := plus(times(s.plan.full, context), times(s.plan.windowed, min(context, s.plan.window)))
	return times(token, tokens, sequences)
}

// stateBytes is the state of recurrent layers for some sequences.
func (s *shape) stateBytes(sequences int64) int64 {
	return times(s.plan.recurrent, s.plan.stateBytes, sequences)
}

// pinnedBytes are the weights that vLLM keeps on the GPU whatever is offloaded:
// the embeddings, which checkpoints keep at 16 bits.
func (s *shape) pinnedBytes() int64 {
	return bytesOf(times(s.embeddings, s.vocab, s.hidden), plainBits)
}
