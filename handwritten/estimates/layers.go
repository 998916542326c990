package estimates

import "strings"

// layerKind is what a layer keeps of the tokens before.
type layerKind int

const (
	// layerFull keeps keys and values of the whole context.
	layerFull layerKind = iota
	// layerWindowed keeps those of the last window tokens.
	layerWindowed
	// layerRecurrent keeps a state of fixed size a sequence.
	layerRecurrent
	// layerBoth is an attention layer with a state beside it.
	layerBoth
	// layerNone keeps nothing.
	layerNone
)

// layerPlan counts the layers of each kind.
type layerPlan struct {
	full, windowed, recurrent int64
	// window is that of windowed layers, in tokens.
	window int64
	// stateBytes is the state of one recurrent layer and sequence; 0 when unknown.
	stateBytes int64
	// hybrid tells that the file says what each layer is.
	hybrid bool
	// unknownKinds are words for layers that are not known; they count as full attention.
	unknownKinds []string
}

// layerKinds are the words for layers in layer_types and layers_block_type.
var layerKinds = map[string]layerKind{
	"full_attention": layerFull, "attention": layerFull, "hybrid": layerBoth,
	"sliding_attention": layerWindowed, "chunked_attention": layerWindowed,
	"linear_attention": layerRecurrent, "mamba": layerRecurrent, "mamba2": layerRecurrent, "conv": layerRecurrent,
	"recurrent": layerRecurrent,
	"moe":       layerNone, "mlp": layerNone,
}

// readLayers finds out what each layer keeps. Hybrid models count their
// full_attention layers only (contract/appliance.md E.5); beyond that formula,
// layers with a sliding window count up to their window, where it counts either
// nothing (layer_types) or the whole context (no layer_types).
func readLayers(part fields, layers int64, family string) layerPlan {
	plan := layerPlan{window: part.whole(0, maxContext, "sliding_window", "attention_chunk_size")}
	kinds := make([]layerKind, layers)
	plan.hybrid = plan.fromLists(part, kinds) || plan.fromPeriods(part, kinds)
	switch {
	case family == "falcon_h1":
		fill(kinds, layerBoth)
		plan.hybrid = true
	case !plan.hybrid && plan.window > 0:
		plan.fromWindow(part, kinds, family)
	}
	if shared := part.whole(0, layers, "num_kv_shared_layers"); shared > 0 {
		// The last layers read the caches of earlier ones (Gemma 3n and later).
		fill(kinds[layers-shared:], layerNone)
	}
	for _, kind := range kinds {
		switch kind {
		case layerWindowed:
			plan.windowed++
		case layerRecurrent:
			plan.recurrent++
		case layerBoth:
			plan.full++
			plan.recurrent++
		case layerFull:
			plan.full++
		}
	}
	if plan.windowed > 0 && plan.window == 0 {
		// A window that nobody gives is the whole context.
		plan.full, plan.windowed = plan.full+plan.windowed, 0
	}
	if plan.recurrent > 0 {
		plan.stateBytes = stateBytes(part)
	}
	return plan
}

func fill(kinds []layerKind, kind layerKind) {
	for i := range kinds {
		kinds[i] = kind
	}
}

// fromLists reads the ways in which files name every layer.
func (p *layerPlan) fromLists(part fields, kinds []layerKind) bool {
	for _, name := range []string{"layer_types", "layers_block_type"} {
		if words := part.texts(name); len(words) > 0 {
			for i, word := range words[:min(len(words), len(kinds))] {
				kind, known := layerKinds[word]
				if !known {
					p.unknownKinds = append(p.unknownKinds, word)
				}
				kinds[i] = kind
			}
			return true
		}
	}
	if pattern := part.text("hybrid_override_pattern"); pattern != "" {
		letters := map[rune]layerKind{'*': layerFull, 'M': layerRecurrent, '-': layerNone, 'E': layerNone}
		for i, letter := range []rune(pattern) {
			if i < len(kinds) {
				kinds[i] = letters[letter]
			}
		}
		return true
	}
	if flags := part.numbers("attn_type_list"); len(flags) > 0 {
		for i, flag := range flags[:min(len(flags), len(kinds))] {
			if flag == 0 {
				kinds[i] = layerRecurrent
			}
		}
		return true
	}
	return p.fromIndices(part, kinds)
}

// fromIndices reads lists of the layers with full attention, the others have a state.
func (*layerPlan) fromIndices(part fields, kinds []layerKind) bool {
	indices, first := part.numbers("attn_layer_indices"), int64(0)
	if len(indices) == 0 {
		// Kimi counts from one.
		indices, first = part.inner("linear_attn_config").numbers("full_attn_layers"), 1
	}
	if len(indices) == 0 {
		return false
	}
	fill(kinds, layerRecurrent)
	for _, index := range indices {
		if at := index - first; at >= 0 && at < int64(len(kinds)) {
			kinds[at] = layerFull
		}
	}
	return true
}

// fromPeriods reads "every n-th layer has full attention, the others a state".
func (*layerPlan) fromPeriods(part fields, kinds []layerKind) bool {
	period, offset := part.whole(0, maxLayers, "attn_layer_period"), part.whole(0, maxLayers, "attn_layer_offset")
	if period == 0 {
		period = part.whole(0, maxLayers, "full_attention_interval")
		offset = period - 1
	}
	if period == 0 {
		return false
	}
	for i := range kinds {
		if int64(i)%period != offset%period {
			kinds[i] = layerRecurrent
		}
	}
	return true
}

// windowPeriods are families in which every n-th layer sees everything and the
// file does not say so.
var windowPeriods = map[string]int64{"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}

// fromWindow spreads a sliding window over the layers.
func (*layerPlan) fromWindow(part fields, kinds []layerKind, family string) {
	period := part.whole(0, maxLayers, "sliding_window_pattern", "_sliding_window_pattern")
	if period == 0 {
		period = windowPeriods[family]
	}
	used := part.truth("use_sliding_window")
	switch {
	case used != nil && !*used, used == nil && strings.HasPrefix(family, "qwen"):
		// Qwen publishes a window that is off unless it says otherwise.
	case period > 0:
		for i := range kinds {
			if (int64(i)+1)%period != 0 {
				kinds[i] = layerWindowed
			}
		}
	default:
		firstWindowed := int64(0)
		if used != nil {
			firstWindowed = part.whole(0, maxLayers, "max_window_layers")
		}
		for i := range kinds {
			if int64(i) >= firstWindowed {
				kinds[i] = layerWindowed
			}
		}
	}
}

// stateBytes is the state of one recurrent layer and sequence: float32 for the
// state itself, two bytes for the last inputs of its convolution.
func stateBytes(part fields) int64 {
	read := func(names ...string) int64 { return part.whole(0, maxWidth, names...) }
	if valueHeads := read("linear_num_value_heads"); valueHeads > 0 {
		keyDim, valueDim := read("linear_key_head_dim"), read("linear_value_head_dim")
		inputs := plus(times(2, read("linear_num_key_heads"), keyDim), times(valueHeads, valueDim))
		return plus(times(4, valueHeads, keyDim, valueDim), times(2, read("linear_conv_kernel_dim")-1, inputs))
	}
	if heads := read("mamba_n_heads", "mamba_num_heads"); heads > 0 {
		width, state := times(heads, read("mamba_d_head", "mamba_head_dim")), read("mamba_d_state", "ssm_state_size")
		inputs := plus(width, times(2, read("mamba_n_groups", "n_groups"), state))
		return plus(times(4, width, state), times(2, read("mamba_d_conv", "conv_kernel")-1, inputs))
	}
	return 0
}
