package estimates

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	gguf "github.com/gpustack/gguf-parser-go"
)

// wholeBounds are the whole numbers below the name of the architecture that the
// estimator of gguf-parser-go computes with. It multiplies them without looking,
// loops over some and allocates by others; within these bounds no product
// overflows 64 bits at maxOllamaTokens and maxOllamaParallel. They lie well above
// every published model.
var wholeBounds = map[string][2]int64{
	"block_count":                       {1, maxLayers},
	"embedding_length":                  {1, maxWidth},
	"context_length":                    {1, maxContext},
	"feed_forward_length":               {0, maxVocab},
	"expert_feed_forward_length":        {0, maxVocab},
	"expert_shared_feed_forward_length": {0, maxVocab},
	"expert_count":                      {0, maxExperts},
	"expert_used_count":                 {0, maxExperts},
	"expert_shared_count":               {0, maxExperts},
	"attention.head_count":              {0, 1 << 12},
	"attention.head_count_kv":           {0, 1 << 12},
	"attention.key_length":              {0, 1 << 13},
	"attention.value_length":            {0, 1 << 13},
	"attention.key_length_mla":          {0, 1 << 13},
	"attention.value_length_mla":        {0, 1 << 13},
	"attention.key_length_swa":          {0, 1 << 13},
	"attention.value_length_swa":        {0, 1 << 13},
	"attention.sliding_window":          {0, maxContext},
	"attention.sliding_window_pattern":  {0, maxLayers},
	"attention.shared_kv_layers":        {0, maxLayers},
	"attention.q_lora_rank":             {0, maxWidth},
	"attention.kv_lora_rank":            {0, maxWidth},
	"nextn_predict_layers":              {0, maxLayers},
	"full_attention_interval":           {0, maxLayers},
	"pooling_type":                      {0, 16},
	"rope.dimension_count":              {0, maxWidth},
	"rope.scaling.original_context_length": {
		0, maxContext,
	},
	"ssm.conv_kernel":    {0, 1 << 10},
	"ssm.inner_size":     {0, maxWidth},
	"ssm.state_size":     {0, 1 << 16},
	"ssm.time_step_rank": {0, maxWidth},
	"ssm.group_count":    {0, 1 << 13},
	"shortconv.l_cache":  {1, 1 << 10},
	"kda.head_dim":       {0, 1 << 13},
	"wkv.head_size":      {0, 1 << 13},
	"rescale_every_n_layers": {
		0, maxLayers,
	},
	"time_mix_extra_dim":   {0, maxWidth},
	"time_decay_extra_dim": {0, maxWidth},
	"token_shift_count":    {0, 1 << 10},
	"vocab_size":           {0, maxVocab},
}

// perLayer are the numbers that may be lists with an item for each layer; the
// parser reads the lists whole, whatever is in front of the name.
var perLayer = []string{"feed_forward_length", "attention.head_count", "attention.head_count_kv", "attention.sliding_window_pattern"}

// notModels are the architectures of files that only go with a model.
var notModels = []string{"clip", "controlvector", "diffusion", "imatrix"}

// check judges the header by rules that span several values. The parser relies on
// all of them.
func (h *ggufHeader) check() error {
	for _, rule := range []func() error{h.checkKind, h.checkSplit, h.checkNumbers, h.checkLists, h.checkTensors} {
		if err := rule(); err != nil {
			return err
		}
	}
	return nil
}

func (h *ggufHeader) refuse(field, rule, value string) error {
	return &Problem{Source: sourceGGUF, Field: field, Rule: rule, Value: value}
}

// keys are sorted, so that the first problem is always the same.
func (h *ggufHeader) keys() []string { return slices.Sorted(maps.Keys(h.values)) }

// architecture is the name in front of the model's numbers.
func (h *ggufHeader) architecture() string { return h.values["general.architecture"].text }

// number is a whole number below the architecture; 0 when absent.
func (h *ggufHeader) number(name string) int64 {
	value := h.values[h.architecture()+"."+name]
	if !value.isWhole() {
		return 0
	}
	return value.whole
}

// checkKind makes sure that the file is a language model.
func (h *ggufHeader) checkKind() error {
	architecture := h.values["general.architecture"]
	if architecture.kind != typeString || architecture.text == "" {
		return h.refuse("general.architecture", "must name the architecture", "")
	}
	if slices.Contains(notModels, architecture.text) {
		return h.refuse("general.architecture", "must be a language model", shown(architecture.text))
	}
	if kind, given := h.values["general.type"]; given && kind.text != "model" {
		return h.refuse("general.type", "must be model", shown(kind.text))
	}
	for _, name := range []string{"block_count", "embedding_length", "context_length"} {
		if value, given := h.values[architecture.text+"."+name]; !given || !value.isWhole() {
			return h.refuse(architecture.text+"."+name, "must be a whole number", "")
		}
	}
	return nil
}

// checkSplit refuses parts of a model: one part does not tell the weights of the
// others, and Ollama serves single files only. The number of tensors sizes an
// allocation.
func (h *ggufHeader) checkSplit() error {
	if parts, given := h.values["split.count"]; given && parts.whole != 0 && parts.whole != 1 {
		return h.refuse("split.count", "must be 1: Ollama serves models in a single file only", fmt.Sprint(parts.whole))
	}
	if tensors, given := h.values["split.tensors.count"]; given && (!tensors.isWhole() || tensors.whole != int64(len(h.tensors))) {
		return h.refuse("split.tensors.count", fmt.Sprintf("must be %d, the number of tensors", len(h.tensors)), fmt.Sprint(tensors.whole))
	}
	return nil
}

// checkNumbers bounds the numbers that the estimator computes with.
func (h *ggufHeader) checkNumbers() error {
	prefix := h.architecture() + "."
	for _, key := range h.keys() {
		value := h.values[key]
		name, ours := strings.CutPrefix(key, prefix)
		bounds, used := wholeBounds[name]
		if !ours || !used {
			continue
		}
		numbers := []int64{value.whole}
		switch {
		case value.kind == typeArray && slices.Contains(perLayer, name):
			numbers = value.numbers
		case !value.isWhole():
			return h.refuse(key, "must be a whole number", "")
		}
		for _, number := range numbers {
			if number < bounds[0] || number > bounds[1] {
				return h.refuse(key, fmt.Sprintf("must be from %d to %d", bounds[0], bounds[1]), shownWhole(number))
			}
		}
	}
	if alignment, given := h.values["general.alignment"]; given {
		number := alignment.whole
		if alignment.kind != typeUint32 || number < 8 || number > maxAlign || number&(number-1) != 0 {
			return h.refuse("general.alignment", fmt.Sprintf("must be a power of two from 8 to %d", maxAlign), shownWhole(number))
		}
	}
	return nil
}

func shownWhole(number int64) string {
	if number == math.MinInt64 {
		return "something else"
	}
	return fmt.Sprint(number)
}

// checkLists bounds the lists that the parser reads whole.
func (h *ggufHeader) checkLists() error {
	for _, key := range h.keys() {
		value := h.values[key]
		if value.kind != typeArray || !slices.ContainsFunc(perLayer, func(name string) bool { return strings.HasSuffix(key, "."+name) }) {
			continue
		}
		if value.length < 1 || value.length > maxLayers || !isWholeKind(value.item) && value.item != typeBool {
			return h.refuse(key, fmt.Sprintf("must have from 1 to %d numbers", maxLayers), fmt.Sprint(value.length))
		}
	}
	return nil
}

// dataStart is where the weights begin, in bytes.
func (h *ggufHeader) dataStart() int64 {
	alignment := int64(defaultAlign)
	if value, given := h.values["general.alignment"]; given {
		alignment = value.whole
	}
	return divideUp(int64(len(h.bytes)), alignment) * alignment
}

// checkTensors makes sure that the weights lie inside of the file.
func (h *ggufHeader) checkTensors() error {
	start, total := h.dataStart(), int64(0)
	for _, tensor := range h.tensors {
		trait, known := gguf.GGMLType(tensor.kind).Trait()
		if !known || trait.BlockSize == 0 {
			return h.refuse(tensor.name+" type", "must be a type of weights that is in use", fmt.Sprint(tensor.kind))
		}
		block := int64(trait.BlockSize) // #nosec G115 -- a constant of the library, at most 256
		if tensor.dimensions[0]%block != 0 {
			return h.refuse(tensor.name+" dimension 0", fmt.Sprintf("must be a multiple of %d", block), fmt.Sprint(tensor.dimensions[0]))
		}
		size := times(times(tensor.dimensions...)/block, int64(trait.TypeSize)) // #nosec G115 -- likewise, at most 292
		if plus(start, tensor.offset, size) > h.size {
			return h.refuse(tensor.name, fmt.Sprintf("must end inside of the file of %d bytes", h.size), fmt.Sprint(plus(start, tensor.offset, size)))
		}
		total = plus(total, size)
	}
	if plus(start, total) > h.size {
		return h.refuse("tensors", fmt.Sprintf("must fit into the file of %d bytes", h.size), fmt.Sprint(plus(start, total)))
	}
	return nil
}
