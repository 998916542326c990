package format

import (
	"fmt"
	"math"
	"strings"

	"magicstick.dev/operator/handwritten/artifacts/source"
)

// Documents are the small files that tell about a Safetensors model. Empty is absent.
type Documents struct {
	// Config is config.json, TokenizerConfig tokenizer_config.json, ChatTemplate
	// chat_template.jinja.
	Config, TokenizerConfig, ChatTemplate []byte
	// ParametersInHeaders is the sum of all elements when every tensor is plain
	// floating point, 0 when unknown or packed.
	ParametersInHeaders int64
	// WeightsBytes is the size of the files with weights.
	WeightsBytes int64
}

// contextKeys name the context window, most trusted first.
var contextKeys = []string{
	"max_position_embeddings", "model_max_length", "max_sequence_length", "max_seq_len", "seq_length", "n_positions", "n_ctx",
}

// SafetensorsMetadata reads the facts of a Safetensors model (contract/models.md C.9).
func SafetensorsMetadata(documents Documents, declared source.Declared) (Metadata, error) {
	config, err := parseObject("config.json", documents.Config)
	if err != nil {
		return Metadata{}, err
	}
	m := Metadata{Format: Safetensors, WeightsBytes: documents.WeightsBytes}
	inner := value[object](config, "text_config")
	architecture := ""
	for _, name := range value[[]string](config, "architectures") {
		if architecture = strings.TrimSpace(name); architecture != "" {
			break
		}
	}
	m.Architecture = text(architecture, Exact)
	m.Family = text(strings.ToLower(value[string](config, "model_type")), Exact)
	if m.Family.Value == "" {
		m.Family = text(familyOf(architecture), Derived)
	}
	for _, key := range contextKeys {
		if tokens := inner.whole(key); tokens > 0 && tokens <= maxContext {
			m.ContextWindow = count(tokens, Exact)
			break
		}
		if tokens := config.whole(key); tokens > 0 && tokens <= maxContext {
			m.ContextWindow = count(tokens, Exact)
			break
		}
	}
	m.Quantization = text(quantizationOf(value[object](config, "quantization_config")), Exact)
	precision := value[string](config, "torch_dtype")
	if precision == "" {
		precision = value[string](config, "dtype")
	}
	m.BytesPerParameter = BytesPerParameter(m.Quantization.Value, precision)
	m.ParameterCount = parameters(config, inner, documents, m)
	m.Task = text(taskOf(architecture), Derived)
	m.withDeclared(declared, seesImages(config, architecture))
	m.ToolCalling = knowsTools(string(documents.ChatTemplate)) || templateKnowsTools(documents.TokenizerConfig)
	return m, nil
}

// architectureSuffixes are removed one after the other to find the family.
var architectureSuffixes = []string{
	"ForCausalLM", "ForConditionalGeneration", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "Model",
}

func familyOf(architecture string) string {
	for _, suffix := range architectureSuffixes {
		architecture = strings.TrimSuffix(architecture, suffix)
	}
	return strings.ToLower(architecture)
}

// taskBySuffix are the tasks that the end of an architecture's name tells.
var taskBySuffix = [][2]string{
	{"ForCausalLM", "text-generation"}, {"ForConditionalGeneration", "text2text-generation"},
	{"ForSequenceClassification", "text-classification"}, {"ForTokenClassification", "token-classification"},
	{"ForQuestionAnswering", "question-answering"}, {"ForMaskedLM", "fill-mask"},
}

// textFamilies are architectures, without suffix, that write text.
const textFamilies = " qwen3 qwen2 qwen2moe llama mistral mixtral phi3 phi gemma gptneox falcon "

func taskOf(architecture string) string {
	if strings.Contains(textFamilies, " "+familyOf(architecture)+" ") && !strings.Contains(architecture, "Classification") {
		return "text-generation"
	}
	for _, row := range taskBySuffix {
		if strings.HasSuffix(architecture, row[0]) {
			return row[1]
		}
	}
	return ""
}

func seesImages(config object, architecture string) bool {
	for _, key := range []string{"vision_config", "visual_config", "vision_tower", "image_token_index"} {
		if raw, given := config[key]; given && string(raw) != "null" {
			return true
		}
	}
	return strings.Contains(strings.ToLower(architecture), "vision")
}

// quantizationOf names what quantization_config says.
func quantizationOf(config object) string {
	method := strings.ToLower(strings.TrimSpace(value[string](config, "quant_method")))
	bits := config.whole("bits")
	four, eight := value[bool](config, "load_in_4bit"), value[bool](config, "load_in_8bit")
	kind := strings.ToLower(value[string](config, "bnb_4bit_quant_type"))
	switch {
	case method != "" && bits > 0:
		return fmt.Sprintf("%s-%dbit", method, bits)
	case method != "" && four:
		return method + "-4bit"
	case method != "" && eight:
		return method + "-8bit"
	case bits > 0:
		return fmt.Sprintf("%dbit", bits)
	case kind != "" && four:
		return "bnb-" + kind
	case four:
		return "4bit"
	case eight:
		return "8bit"
	}
	return method
}

// parameters takes the number that the files give, else computes one from the
// shape of the network, else from the bytes.
func parameters(config, inner object, documents Documents, m Metadata) Count {
	if given := config.whole("num_parameters", "parameter_count"); given > 0 {
		return count(given, Exact)
	}
	if documents.ParametersInHeaders > 0 && m.Quantization.Value == "" {
		return count(documents.ParametersInHeaders, Exact)
	}
	shape := config
	if inner.whole("hidden_size") > 0 {
		shape = inner
	}
	number := func(key string) float64 { return float64(shape.whole(key)) }
	hidden, wide, layers, words := number("hidden_size"), number("intermediate_size"), number("num_hidden_layers"), number("vocab_size")
	if hidden > 0 && wide > 0 && layers > 0 && words > 0 {
		kv := hidden
		if heads, shared := number("num_attention_heads"), number("num_key_value_heads"); heads > 0 && shared > 0 {
			kv = shared * math.Floor(hidden/heads)
		}
		if sum := words*hidden + layers*(2*hidden*hidden+2*hidden*kv+3*hidden*wide); sum < 1<<53 {
			return count(int64(sum), Estimated)
		}
		return Count{}
	}
	return count(int64(float64(documents.WeightsBytes)/m.BytesPerParameter), Estimated)
}

// knowsTools looks for tools in a chat template.
func knowsTools(template string) bool {
	template = strings.ToLower(template)
	for _, mark := range []string{"{% if tools", "{%- if tools", "for tool in tools", "<tools>", "tool_call"} {
		if strings.Contains(template, mark) {
			return true
		}
	}
	return false
}

// templateKnowsTools reads the templates of a tokenizer_config.json: a text or a
// list of named ones.
func templateKnowsTools(tokenizerConfig []byte) bool {
	config, err := parseObject("tokenizer_config.json", tokenizerConfig)
	if err != nil {
		return false
	}
	if knowsTools(value[string](config, "chat_template")) {
		return true
	}
	for _, named := range value[[]object](config, "chat_template") {
		if knowsTools(value[string](named, "template")) {
			return true
		}
	}
	return false
}
