package format

import (
	"encoding/json"
	"math"
	"strings"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// Confidence says how reliable a fact is (contract/models.md C.9).
type Confidence int

// Confidences from weak to strong. Those from Declared on are public.
const (
	Unknown Confidence = iota
	// Hint is read off a name.
	Hint
	// Estimated is computed from sizes.
	Estimated
	// Declared is what the source says.
	Declared
	// Derived follows from an exact fact.
	Derived
	// Exact is in the files.
	Exact
)

// Public tells whether a fact may be shown.
func (c Confidence) Public() bool { return c >= Declared }

// Text is a fact in words, at most 256 bytes.
type Text struct {
	Value      string
	Confidence Confidence
}

// Count is a positive fact in numbers.
type Count struct {
	Value      int64
	Confidence Confidence
}

// Metadata are the facts of a model, also those that are not public.
type Metadata struct {
	// Format is Safetensors, GGUF or Diffusers.
	Format string
	// Task is the word of the provider's vocabulary, such as text-generation.
	Task, Architecture, Family, Quantization Text
	// ParameterCount counts weights, ContextWindow tokens.
	ParameterCount, ContextWindow Count
	// ToolCalling tells that the chat template knows tools.
	ToolCalling bool
	// License is what the source declares, foreign text.
	License string
	// BytesPerParameter and WeightsBytes size the model; they are private.
	BytesPerParameter float64
	WeightsBytes      int64
}

const (
	anyToAny = "any-to-any"
	// maxFact bounds what goes into the status.
	maxFact = 256
	// maxContext is the largest context that is believed, in tokens.
	maxContext = 1_000_000_000
)

func text(value string, confidence Confidence) Text {
	value = strings.TrimSpace(value)
	if value == "" || len(value) > maxFact {
		return Text{}
	}
	return Text{value, confidence}
}

func count(value int64, confidence Confidence) Count {
	if value <= 0 {
		return Count{}
	}
	return Count{value, confidence}
}

// Reason is that of the condition MetadataResolved: partial when a fact is known
// but not reliably.
func (m Metadata) Reason() string {
	for _, fact := range []Text{m.Task, m.Architecture, m.Family, m.Quantization} {
		if fact.Value != "" && !fact.Confidence.Public() {
			return conditions.ModelReasonModelMetadataPartial
		}
	}
	for _, fact := range []Count{m.ParameterCount, m.ContextWindow} {
		if fact.Value > 0 && !fact.Confidence.Public() {
			return conditions.ModelReasonModelMetadataPartial
		}
	}
	return conditions.ModelReasonModelMetadataCalculated
}

// Supported are the endpoint types and features of a model.
func (m Metadata) Supported() (endpoints, features []string) {
	if m.Task.Confidence.Public() {
		endpoints, features = Capabilities(m.Task.Value)
	}
	if m.ToolCalling {
		features = append(features, "ToolCalling")
	}
	return endpoints, features
}

// WorkingSetGiB is the memory that the weights need with a quarter on top, in GiB,
// at least 1 (contract/models.md C.9, Sizing).
func (m Metadata) WorkingSetGiB() int64 {
	return max(int64(math.Ceil(float64(m.WeightsBytes)*1.25/(1<<30))), 1)
}

// BytesPerParameter is the size of a weight in bytes.
func BytesPerParameter(quantization, precision string) float64 {
	quantization, precision = strings.ToLower(quantization), strings.ToLower(precision)
	has := func(words ...string) bool {
		for _, word := range words {
			if strings.Contains(quantization, word) {
				return true
			}
		}
		return false
	}
	switch {
	case has("nf4", "fp4", "4bit", "int4") || strings.HasPrefix(quantization, "q4") || strings.HasPrefix(quantization, "iq4"):
		return 0.5
	case has("8bit", "int8") || strings.HasPrefix(quantization, "q8"):
		return 1
	}
	switch strings.TrimPrefix(precision, "torch.") {
	case "int4":
		return 0.5
	case "int8":
		return 1
	case "fp32", "float32":
		return 4
	}
	return 2
}

// object is a JSON object of foreign origin: values of the wrong type are unknown.
type object map[string]json.RawMessage

// parseObject reads the JSON of a configuration.
func parseObject(name string, content []byte) (object, error) {
	var out object
	if err := json.Unmarshal(content, &out); err != nil || out == nil {
		return nil, unsupported("reading %.200q: it must be a JSON object", name)
	}
	return out, nil
}

func value[T any](o object, key string) T {
	var out T
	if raw, given := o[key]; given && json.Unmarshal(raw, &out) != nil {
		var none T
		return none
	}
	return out
}

// whole is a positive whole number, 0 for anything else.
func (o object) whole(keys ...string) int64 {
	for _, key := range keys {
		if number := value[float64](o, key); number >= 1 && number <= 1<<53 && number == math.Trunc(number) {
			return int64(number)
		}
	}
	return 0
}

// withDeclared adds what the source says where the files do not tell, and decides
// the task: declared before derived; any-to-any only with eyes.
func (m *Metadata) withDeclared(declared source.Declared, vision bool) {
	m.License = declared.License
	switch task := declaredTask(declared.PipelineTag, declared.TaskTypes); {
	case task == anyToAny && vision:
		m.Task = text("image-text-to-text", Derived)
	case task != "" && task != anyToAny:
		m.Task = text(task, Declared)
	}
	fill := func(fact *Text, said string) {
		if !fact.Confidence.Public() && said != "" {
			*fact = text(said, Declared)
		}
	}
	fill(&m.Family, strings.ToLower(declared.Family))
	fill(&m.Quantization, declared.Quantization)
	if !m.ParameterCount.Confidence.Public() && declared.ParameterCount > 0 {
		m.ParameterCount = count(declared.ParameterCount, Declared)
	}
	if m.ContextWindow.Value == 0 {
		m.ContextWindow = count(declared.ContextWindowTokens, Declared)
	}
}
