package estimates

import (
	"slices"
	"strings"
)

// quantization is how a checkpoint stores its weights.
type quantization struct {
	// method is quantization_config.quant_method; empty when not quantised.
	method string
	// bits is the width of a weight, 4 to 64.
	bits int64
	// unknown tells that the method says nothing about the width.
	unknown bool
}

// quantized tells that the checkpoint is not stored in plain numbers.
func (q quantization) quantized() bool { return q.method != "" }

const (
	// minBits is the narrowest width that counts: scales and what stays at full
	// width make up for less (contract/appliance.md E.5).
	minBits = 4
	// plainBits is the width of bfloat16 and float16.
	plainBits = 16
)

// methodBits are the methods that say their width by their name
// (contract/appliance.md E.5: awq, gptq, aqlm).
var methodBits = map[string]int64{
	"awq": 4, "gptq": 4, "aqlm": 4, "mxfp4": 4, "nvfp4": 4, "bitsandbytes": 4,
	"fp8": 8, "fbgemm_fp8": 8, "int8": 8,
}

// readQuantization reads quantization_config, which older checkpoints call
// compression_config, and the type of the numbers otherwise.
func readQuantization(part fields) quantization {
	config := part.inner("quantization_config")
	if len(config.values) == 0 {
		config = part.inner("compression_config")
	}
	if len(config.values) == 0 {
		return quantization{bits: plainWidth(part.text("torch_dtype", "dtype"))}
	}
	method := strings.ToLower(config.text("quant_method"))
	if method == "" {
		method = "unnamed"
	}
	bits := declaredBits(config)
	if bits == 0 {
		bits = methodBits[method]
	}
	if bits == 0 {
		bits = bitsInWord(method)
	}
	if bits == 0 {
		return quantization{method: method, bits: plainBits, unknown: true}
	}
	return quantization{method: method, bits: max(bits, minBits)}
}

// declaredBits is the width that the configuration gives as a number or by a
// switch; 0 when it does not.
func declaredBits(config fields) int64 {
	switch {
	case config.is("load_in_4bit"), config.is("_load_in_4bit"):
		return 4
	case config.is("load_in_8bit"), config.is("_load_in_8bit"):
		return 8
	}
	if bits := config.whole(1, 64, "bits", "w_bit", "wbits"); bits > 0 {
		return bits
	}
	groups := config.inner("config_groups")
	widest := int64(0)
	for _, name := range groupNames(groups) {
		widest = max(widest, groups.inner(name).inner("weights").whole(1, 64, "num_bits"))
	}
	if widest > 0 {
		return widest
	}
	return bitsInWord(strings.ToLower(config.text("quant_algo")))
}

// groupNames sorts the names, so that the first problem is always the same.
func groupNames(groups fields) []string {
	names := make([]string, 0, len(groups.values))
	for name := range groups.values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// bitsInWord reads the width from a word like w4a16, nvfp4 or fp8_dynamic.
func bitsInWord(word string) int64 {
	for _, known := range []struct {
		part string
		bits int64
	}{{"w4", 4}, {"fp4", 4}, {"int4", 4}, {"w8", 8}, {"fp8", 8}, {"float8", 8}, {"int8", 8}} {
		if strings.Contains(word, known.part) {
			return known.bits
		}
	}
	return 0
}

// plainWidth is the width of a type of numbers (contract/appliance.md E.5):
// float32 has 32 bits, eight and four bit types theirs, everything else 16.
func plainWidth(kind string) int64 {
	kind = strings.ToLower(strings.TrimPrefix(kind, "torch."))
	if kind == "float32" || kind == "float" {
		return 32
	}
	if bits := bitsInWord(kind); bits > 0 {
		return bits
	}
	return plainBits
}
