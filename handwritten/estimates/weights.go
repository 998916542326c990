package estimates

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Totals is what the Hugging Face API says about the tensors of a repository.
type Totals struct {
	// Total is the number of parameters.
	Total int64
	// Parameters is the number of parameters of each type, as in BF16.
	Parameters map[string]int64
}

// sourceAPI and sourceIndex are the Sources of problems with these documents.
const (
	sourceAPI   = "the model API"
	sourceIndex = "model.safetensors.index.json"
)

// maxParameters bounds numbers of parameters: four times what 16 TiB hold at four bits.
const maxParameters = 1 << 47

// ReadTotals reads safetensors.total and safetensors.parameters from the answer
// of https://huggingface.co/api/models/<owner>/<model>; nil when it has none. The
// error is a *Problem.
func ReadTotals(answer []byte) (*Totals, error) {
	top, err := document(sourceAPI, answer, maxConfig)
	if err != nil {
		return nil, err
	}
	part := top.inner("safetensors")
	if len(part.values) == 0 {
		return nil, nil
	}
	totals := &Totals{Total: part.whole(0, maxParameters, "total"), Parameters: map[string]int64{}}
	byType := part.inner("parameters")
	for _, name := range groupNames(byType) {
		if len(totals.Parameters) < maxItems {
			totals.Parameters[name] = byType.whole(0, maxParameters, name)
		}
	}
	return totals, part.err()
}

// readIndex reads metadata.total_size, the bytes of all weights; 0 when the index
// has none.
func readIndex(data []byte) (int64, error) {
	if len(data) > maxIndex {
		return 0, &Problem{Source: sourceIndex, Rule: fmt.Sprintf("may not be larger than %d bytes", maxIndex), Value: fmt.Sprint(len(data))}
	}
	// The list of tensors is most of the file: it is skipped, not kept.
	var index struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return 0, &Problem{Source: sourceIndex, Rule: "must be a JSON object: " + err.Error()}
	}
	metadata := fields{source: sourceIndex, path: "metadata.", values: index.Metadata, problem: new(*Problem)}
	size := metadata.whole(1, maxMi*bytesPerMi, "total_size")
	return size, metadata.err()
}

// tensorBits are the widths of the types that safetensors files know.
var tensorBits = map[string]int64{
	"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32,
	"F16": 16, "BF16": 16, "I16": 16, "U16": 16,
	"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8, "F4": 4,
}

// weights is the memory for the parameters of a model.
type weights struct {
	bytes      int64
	confidence Confidence
	warnings   []string
}

// weigh takes the best source for the weights (contract/appliance.md E.5): the
// index, else the totals of the API, else the dimensions, else nothing.
//
// Totals by type are as good as the index: a packed checkpoint counts its packed
// numbers there. A bare total is a number of parameters, so it is estimated.
func weigh(indexBytes int64, totals *Totals, dimensions *shape, stored quantization) weights {
	if indexBytes > 0 {
		return weights{bytes: indexBytes, confidence: ConfidenceHigh}
	}
	if totals != nil {
		if sum, complete := bytesByType(totals.Parameters); complete {
			return weights{bytes: sum, confidence: ConfidenceHigh}
		}
		if totals.Total > 0 {
			return weights{bytes: bytesOf(totals.Total, stored.bits), confidence: ConfidenceEstimated, warnings: []string{
				fmt.Sprintf("the weights are %d parameters of %d bits each", totals.Total, stored.bits),
			}}
		}
	}
	if dimensions == nil {
		return weights{confidence: ConfidenceFallback, warnings: []string{"the size of the weights is unknown and counts nothing"}}
	}
	return weighDimensions(*dimensions, stored)
}

func bytesByType(parameters map[string]int64) (sum int64, complete bool) {
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		bits, known := tensorBits[name]
		if !known {
			return 0, false
		}
		sum = plus(sum, bytesOf(parameters[name], bits))
	}
	return sum, sum > 0
}

// bytesOf is the memory of parameters of some width.
func bytesOf(parameters, bits int64) int64 { return divideUp(times(parameters, bits), 8) }

// weighDimensions estimates the weights from the dimensions. Quantised weights
// get 12 % for scales and for what stays at full width (contract/appliance.md E.5).
func weighDimensions(dimensions shape, stored quantization) weights {
	out := weights{bytes: bytesOf(dimensions.parameters(), stored.bits), confidence: ConfidenceEstimated}
	if stored.quantized() {
		out.bytes = divideUp(times(out.bytes, 112), 100)
		if plain := plainBits - stored.bits; plain > 0 && dimensions.vocab > 0 {
			out.warnings = append(out.warnings, fmt.Sprintf("embeddings that are not quantised take %d Mi more",
				toMi(bytesOf(times(dimensions.embeddings, dimensions.vocab, dimensions.hidden), plain))))
		}
	}
	if dimensions.vocab == 0 {
		out.warnings = append(out.warnings, "vocab_size is missing: the weights are without embeddings")
	}
	if dimensions.embeddings > 1 {
		out.warnings = append(out.warnings, "input and output embeddings are counted separately: tie_word_embeddings is false")
	}
	if dimensions.experts.count > 0 {
		out.warnings = append(out.warnings, fmt.Sprintf("the weights are those of all %d experts in %d of %d layers",
			dimensions.experts.count, dimensions.experts.layers, dimensions.layers))
	}
	if dimensions.seesOrHears {
		out.warnings = append(out.warnings, "the weights are those of the language model only, without its parts for images and sound")
	}
	if dimensions.twoStacks {
		out.warnings = append(out.warnings, "encoder and decoder: the weights are those of one of them")
	}
	return out
}

// parameters estimates how many parameters the dimensions make:
//
//	vocab*h + L*(h*(H*d + 2*KV*d) + h*h + mlp), mlp = 3*h*intermediate or 8*h*h
//
// (contract/appliance.md E.5). Three families deviate, because the formula misses
// most of them or a large part:
//   - a mixture of experts has as many mlp as it has experts, in the layers that
//     have them, each of the experts' own width, and a router of h a expert;
//   - latent attention has small matrices instead of those for all heads;
//   - a file that says that embeddings are not tied has vocab*h twice (up to 8 %
//     of a small model).
func (s shape) parameters() int64 {
	mlp := times(8, s.hidden, s.hidden)
	if s.intermediate > 0 {
		mlp = times(3, s.hidden, s.intermediate)
	}
	layers := times(s.layers-s.experts.layers, mlp)
	if s.experts.layers > 0 {
		one := times(3, s.hidden, s.experts.width)
		sparse := plus(times(s.experts.count, plus(one, s.hidden)), times(3, s.hidden, s.experts.sharedWidth))
		layers = plus(layers, times(s.experts.layers, sparse))
	}
	return plus(times(s.embeddings, s.vocab, s.hidden), layers, times(s.layers, s.attention()))
}

// attention counts the parameters of the attention of one layer.
func (s shape) attention() int64 {
	l := s.latent
	if l.kvRank == 0 {
		queriesKeysValues := plus(times(s.heads, s.headDim), times(2, s.kvHeads, s.headDim))
		return plus(times(s.hidden, queriesKeysValues), times(s.hidden, s.hidden))
	}
	queries := times(s.hidden, s.heads, l.nope+l.rope)
	if l.queryRank > 0 {
		queries = plus(times(s.hidden, l.queryRank), times(l.queryRank, s.heads, l.nope+l.rope))
	}
	return plus(queries,
		times(s.hidden, l.kvRank+l.rope),
		times(l.kvRank, s.heads, l.nope+l.value),
		times(s.heads, l.value, s.hidden))
}
