package format_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/format"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

func read(t *testing.T, config string, declared source.Declared) format.Metadata {
	t.Helper()
	metadata, err := format.SafetensorsMetadata(format.Documents{Config: []byte(config)}, declared)
	require.NoError(t, err)
	return metadata
}

func TestMetadata_E01_facts_of_config_are_public(t *testing.T) {
	t.Parallel()
	m := read(t, `{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","max_position_embeddings":32768}`, source.Declared{})
	require.Equal(t, format.Text{Value: "Qwen3ForCausalLM", Confidence: format.Exact}, m.Architecture)
	require.Equal(t, format.Text{Value: "qwen3", Confidence: format.Exact}, m.Family)
	require.Equal(t, format.Count{Value: 32768, Confidence: format.Exact}, m.ContextWindow)
	require.Equal(t, format.Text{Value: "text-generation", Confidence: format.Derived}, m.Task)
	endpoints, features := m.Supported()
	require.Equal(t, []string{"Chat", "TextGeneration"}, endpoints)
	require.Empty(t, features)
	require.Equal(t, conditions.ModelReasonModelMetadataCalculated, m.Reason())
}

func TestMetadata_E02_estimated_parameters_stay_private(t *testing.T) {
	t.Parallel()
	m := read(t, `{"hidden_size":8,"intermediate_size":16,"num_hidden_layers":2,"vocab_size":10,"num_attention_heads":4,"num_key_value_heads":2}`, source.Declared{})
	require.Equal(t, format.Count{Value: 80 + 2*(128+64+384), Confidence: format.Estimated}, m.ParameterCount)
	require.False(t, m.ParameterCount.Confidence.Public())
	require.Equal(t, conditions.ModelReasonModelMetadataPartial, m.Reason())
	m = read(t, `{"hidden_size":1e15,"intermediate_size":1e15,"num_hidden_layers":1e15,"vocab_size":1e15}`, source.Declared{})
	require.Zero(t, m.ParameterCount, "a product beyond all bounds is dropped")
}

func TestMetadata_quantization(t *testing.T) {
	t.Parallel()
	for name, test := range map[string][2]string{
		"E04":           {`{"quant_method":"gptq","bits":4}`, "gptq-4bit"},
		"E05":           {`{"load_in_4bit":true,"bnb_4bit_quant_type":"nf4"}`, "bnb-nf4"},
		"method and 8":  {`{"quant_method":"bitsandbytes","load_in_8bit":true}`, "bitsandbytes-8bit"},
		"bits":          {`{"bits":3}`, "3bit"},
		"method":        {`{"quant_method":"fp8"}`, "fp8"},
		"a wrong type ": {`{"quant_method":7}`, ""},
	} {
		require.Equal(t, test[1], read(t, `{"quantization_config":`+test[0]+`}`, source.Declared{}).Quantization.Value, name)
	}
}

func TestMetadata_tasks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config              string
		declared            source.Declared
		endpoints, features []string
	}{
		"E06": {`{"vision_config":{}}`, source.Declared{PipelineTag: "any-to-any"}, []string{"Chat", "ImageToText"}, []string{"VisionInput", "MultiModalInput"}},
		"E07": {`{}`, source.Declared{PipelineTag: "any-to-any"}, nil, nil},
		"E09": {`{}`, source.Declared{PipelineTag: "translation", TaskTypes: []string{"summarization", "text-to-speech"}}, []string{"Translation"}, nil},
		"E10": {`{}`, source.Declared{PipelineTag: "text-classification"}, nil, nil},
		"E17": {`{}`, source.Declared{TaskTypes: []string{"reranking"}}, []string{"Rerank"}, nil},
	} {
		endpoints, features := read(t, test.config, test.declared).Supported()
		require.Equal(t, test.endpoints, endpoints, name)
		require.Equal(t, test.features, features, name)
	}
}

func TestMetadata_E08_tools_of_a_chat_template(t *testing.T) {
	t.Parallel()
	for _, tokenizer := range []string{`{"chat_template":"{% if tools %}"}`, `{"chat_template":[{"name":"a","template":"x"},{"name":"tool_use","template":"<tools>"}]}`} {
		m, err := format.SafetensorsMetadata(format.Documents{Config: []byte(`{}`), TokenizerConfig: []byte(tokenizer)}, source.Declared{})
		require.NoError(t, err)
		_, features := m.Supported()
		require.Equal(t, []string{"ToolCalling"}, features)
	}
}

func TestMetadata_E11_Diffusers(t *testing.T) {
	t.Parallel()
	m, err := format.DiffusersMetadata([]byte(`{"_class_name":"StableDiffusionXLPipeline"}`), 1, source.Declared{})
	require.NoError(t, err)
	require.Equal(t, "text-to-image", m.Task.Value)
	require.Equal(t, "stable-diffusion", m.Family.Value)
	endpoints, features := m.Supported()
	require.Equal(t, []string{"ImageGeneration"}, endpoints)
	require.Equal(t, []string{"ImageOutput"}, features)
}

func TestSourceTasks_E15_are_bounded(t *testing.T) {
	t.Parallel()
	tasks := []string{strings.Repeat("x", 129), " a ", "a"}
	for i := range 200 {
		tasks = append(tasks, fmt.Sprint(i))
	}
	got := format.SourceTasks(source.Declared{TaskTypes: tasks})
	require.Len(t, got, 32)
	require.Equal(t, []string{"a", "0"}, got[:2])
}

func TestBytesPerParameter_E18(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 0.5, format.BytesPerParameter("iq4_xs", ""), 0)
	require.InDelta(t, 1, format.BytesPerParameter("q8_0", ""), 0)
	require.InDelta(t, 2, format.BytesPerParameter("", "bf16"), 0)
}
