package estimates

import "strconv"

// Bounds of dimensions, well above every published model.
const (
	maxLayers    = 1024
	maxWidth     = 1 << 20
	maxHeads     = 1 << 16
	maxHeadDim   = 1 << 16
	maxVocab     = 1 << 24
	maxExperts   = 1 << 16
	maxContext   = 1 << 30
	maxSequences = 1 << 20
)

// Names of dimensions in config.json, the usual one first, then those of
// families with names of their own (GPT-2, MPT, ChatGLM, DBRX).
var (
	namesLayers       = []string{"num_hidden_layers", "n_layer", "n_layers", "num_layers"}
	namesHidden       = []string{"hidden_size", "n_embd", "d_model"}
	namesHeads        = []string{"num_attention_heads", "n_head", "n_heads"}
	namesKVHeads      = []string{"num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"}
	namesHeadDim      = []string{"head_dim", "kv_channels"}
	namesIntermediate = []string{"intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"}
	namesVocab        = []string{"vocab_size", "padded_vocab_size"}
	namesContext      = []string{
		"max_position_embeddings", "model_max_length", "max_sequence_length", "max_seq_len",
		"seq_length", "n_positions", "n_ctx",
	}
)

// nestedConfigs are the parts of config.json that hold the language model of a
// model for several kinds of input (contract/appliance.md E.5).
var nestedConfigs = []string{"text_config", "language_config", "llm_config", "model_config"}

// shape holds the dimensions of a language model.
type shape struct {
	family                 string
	layers, hidden, heads  int64
	kvHeads, headDim       int64
	vocab, intermediate    int64
	contextWindow          int64
	embeddings             int64 // matrices of vocab x hidden
	latent                 latent
	experts                experts
	plan                   layerPlan
	indexBytes             int64 // extra bytes a token and layer of the index of sparse attention
	seesOrHears, twoStacks bool
}

// languageModel finds the part of config.json with the dimensions: the top level
// or the first nested part that has layers, hidden size and heads
// (contract/appliance.md E.5). Without one, the missing names are returned.
func languageModel(top fields) (part fields, missing []string) {
	candidates := []fields{top}
	for _, name := range nestedConfigs {
		candidates = append(candidates, top.inner(name))
	}
	for _, candidate := range candidates {
		lacking := missingIn(candidate)
		if len(lacking) == 0 {
			return candidate.or(top), nil
		}
		if missing == nil || len(lacking) < len(missing) {
			missing = lacking
		}
	}
	return top, missing
}

// missingIn lists the dimensions without which nothing can be computed.
func missingIn(part fields) []string {
	var missing []string
	for _, names := range [][]string{namesLayers, namesHidden, namesHeads} {
		found := false
		for _, name := range names {
			_, present := part.raw(name)
			found = found || present
		}
		if !found {
			missing = append(missing, names[0])
		}
	}
	return missing
}

// readShape reads the dimensions of a part that has layers, hidden size and heads.
func readShape(part, top fields) shape {
	out := shape{
		family:        part.text("model_type"),
		layers:        part.whole(1, maxLayers, namesLayers...),
		hidden:        part.whole(1, maxWidth, namesHidden...),
		heads:         part.whole(1, maxHeads, namesHeads...),
		vocab:         part.whole(1, maxVocab, namesVocab...),
		contextWindow: contextOf(part),
		embeddings:    1,
		seesOrHears:   has(top, "vision_config", "visual", "audio_config", "vision_tower"),
		twoStacks:     top.is("is_encoder_decoder"),
	}
	if part.err() != nil {
		return out
	}
	attention, feedForward := part.inner("attn_config"), part.inner("ffn_config")
	out.kvHeads = part.widest(1, maxHeads, namesKVHeads...)
	if out.kvHeads == 0 {
		out.kvHeads = attention.whole(1, maxHeads, "kv_n_heads")
	}
	if part.is("multi_query") && !part.is("new_decoder_architecture") {
		out.kvHeads = 1
	}
	if out.kvHeads == 0 {
		out.kvHeads = out.heads
	}
	out.headDim = part.whole(1, maxHeadDim, namesHeadDim...)
	if out.headDim == 0 {
		out.headDim = out.hidden / out.heads
	}
	if out.headDim == 0 {
		part.refuse(namesHeads[0], "may not be larger than "+namesHidden[0], []byte(part.path))
	}
	out.intermediate = part.widest(1, maxVocab, namesIntermediate...)
	if out.intermediate == 0 {
		out.intermediate = feedForward.widest(1, maxVocab, "ffn_hidden_size")
	}
	// Two matrices only where the file says so: what it leaves out is E.5's one.
	if tied := part.truth("tie_word_embeddings"); tied != nil && !*tied {
		out.embeddings = 2
	}
	out.latent = readLatent(part, out.family)
	if out.latent.plain {
		out.headDim = out.latent.nope + out.latent.rope
	}
	out.experts = readExperts(part, feedForward, out.layers)
	out.plan = readLayers(part, out.layers, out.family)
	// Sparse attention keeps an index of its own: one byte an element, and a
	// float32 scale for each 128 of them.
	index := part.whole(0, maxHeadDim, "index_head_dim")
	out.indexBytes = index + divideUp(index, 128)*4
	return out
}

// contextOf is the longest context that the model was made for; absurd numbers
// count as absent (contract/models.md C.9).
func contextOf(part fields) int64 {
	for _, name := range namesContext {
		value, present := part.raw(name)
		if !present {
			continue
		}
		if value[0] >= '0' && value[0] <= '9' {
			// Beyond every float64 is beyond the bound as well: the error says no more.
			if number, _ := strconv.ParseFloat(string(value), 64); number > maxContext {
				continue
			}
		}
		return part.whole(1, maxContext, name)
	}
	return 0
}

// has tells that one of the names is present.
func has(part fields, names ...string) bool {
	for _, name := range names {
		if _, present := part.raw(name); present {
			return true
		}
	}
	return false
}

// latent holds the dimensions of multi-head latent attention (DeepSeek V2 and
// later, Kimi): one compressed vector a token stands for the keys and values of
// all heads.
type latent struct {
	kvRank, queryRank, rope, nope, value int64
	// plain tells that vLLM serves the family without the compressed cache.
	plain bool
}

// cached tells that the cache holds compressed vectors.
func (l latent) cached() bool { return l.kvRank > 0 && !l.plain }

func readLatent(part fields, family string) latent {
	out := latent{kvRank: part.whole(0, maxWidth, "kv_lora_rank")}
	if out.kvRank == 0 {
		return latent{}
	}
	out.queryRank = part.whole(0, maxWidth, "q_lora_rank")
	out.rope = part.whole(1, maxHeadDim, "qk_rope_head_dim")
	out.nope = part.whole(1, maxHeadDim, "qk_nope_head_dim")
	out.value = part.whole(1, maxHeadDim, "v_head_dim")
	if out.rope == 0 || out.nope == 0 || out.value == 0 {
		// Not enough to compute with: the plain formula counts more, never less.
		return latent{}
	}
	out.plain = family == "minicpm3"
	return out
}

// experts holds the dimensions of a mixture of experts.
type experts struct {
	// count is the number of routed experts, 0 for a dense model; layers is in how
	// many layers they are.
	count, layers int64
	// width and sharedWidth are the intermediate sizes of one routed expert and of
	// everything that every token passes.
	width, sharedWidth int64
}

func readExperts(part, feedForward fields, layers int64) experts {
	out := experts{count: part.whole(0, maxExperts, "n_routed_experts", "num_local_experts", "num_experts")}
	if out.count == 0 {
		out.count = feedForward.whole(0, maxExperts, "moe_num_experts")
	}
	if out.count <= 1 {
		return experts{}
	}
	out.width = part.whole(0, maxVocab, "moe_intermediate_size", "expert_ffn_hidden_size")
	if out.width == 0 {
		out.width = part.widest(1, maxVocab, namesIntermediate...)
	}
	if out.width == 0 {
		out.width = feedForward.whole(0, maxVocab, "ffn_hidden_size")
	}
	out.sharedWidth = part.whole(0, maxVocab, "shared_expert_intermediate_size", "shared_intermediate_size")
	if out.sharedWidth == 0 {
		out.sharedWidth = times(part.whole(0, maxExperts, "n_shared_experts"), out.width)
	}
	out.layers = expertLayers(part, layers)
	return out
}

// expertLayers counts the layers that have experts. Families say it in four ways.
func expertLayers(part fields, layers int64) int64 {
	if flags := part.numbers("moe_layer_freq"); flags != nil {
		return min(layers, int64(len(flags)-countOf(flags, 0)))
	}
	firstDense := part.whole(0, maxLayers, "first_k_dense_replace")
	dense := map[int64]bool{}
	for _, layer := range part.numbers("mlp_only_layers") {
		dense[layer] = true
	}
	every := max(part.whole(0, maxLayers, "decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "expert_layer_period"), 1)
	// Every second layer means the second, the fourth: only two families count otherwise.
	first := every - 1
	if has(part, "expert_layer_period") {
		first = part.whole(0, maxLayers, "expert_layer_offset")
	} else if has(part, "moe_layer_freq") {
		first = 0
	}
	count := int64(0)
	for layer := firstDense; layer < layers; layer++ {
		if layer%every == first%every && !dense[layer] {
			count++
		}
	}
	return count
}

// countOf counts an item in a list.
func countOf[T comparable](list []T, item T) int {
	count := 0
	for _, next := range list {
		if next == item {
			count++
		}
	}
	return count
}
