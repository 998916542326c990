package estimates

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// The dimensions of config(t, nil): head size 1024/16 = 64, so a token takes
// 2*4*64*2 = 1024 bytes a layer, and 1024 tokens in four layers take 4 Mi.
func cacheMi(t *testing.T, changes map[string]any) int64 {
	t.Helper()
	got, err := read(t, config(t, changes)).Estimate(Request{ContextWindow: 1024, MaxNumSeqs: 1})
	if err != nil {
		t.Fatal(err)
	}
	return got.KVCacheMi
}

func read(t testing.TB, config []byte) *Model {
	t.Helper()
	model, err := ReadModel(Files{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func TestCacheFollowsTheLayers(t *testing.T) {
	for name, test := range map[string]struct {
		changes map[string]any
		want    int64
	}{
		"dense":                        {nil, 4},
		"without KV heads, as heads":   {map[string]any{"num_key_value_heads": nil}, 16},
		"KV heads of a list":           {map[string]any{"num_key_value_heads": []int{2, 4, 4, 8}}, 8},
		"head size of its own":         {map[string]any{"head_dim": 128}, 8},
		"head size of ChatGLM":         {map[string]any{"kv_channels": 128}, 8},
		"KV heads of MPT":              {map[string]any{"num_key_value_heads": nil, "attn_config": map[string]any{"kv_n_heads": 8}}, 8},
		"one KV head for all":          {map[string]any{"multi_query": true}, 1},
		"multi_query of a new decoder": {map[string]any{"multi_query": true, "new_decoder_architecture": true}, 4},
		"numbers with a point":         {map[string]any{"num_hidden_layers": json.RawMessage("8.0"), "hidden_size": json.RawMessage("1.024e3")}, 8},

		"two of four by layer_types":      {map[string]any{"layer_types": []string{"full_attention", "linear_attention", "full_attention", "linear_attention"}}, 2},
		"layer_types longer than layers":  {map[string]any{"layer_types": slices.Repeat([]string{"full_attention"}, 9)}, 4},
		"layer_types shorter than layers": {map[string]any{"layer_types": []string{"mamba"}}, 3},
		"kinds that nobody knows count":   {map[string]any{"layer_types": slices.Repeat([]string{"new_attention"}, 4)}, 4},
		"layers_block_type":               {map[string]any{"layers_block_type": []string{"mamba", "hybrid", "mamba", "attention"}}, 2},
		"hybrid_override_pattern":         {map[string]any{"hybrid_override_pattern": "M-*E"}, 1},
		"attn_type_list":                  {map[string]any{"attn_type_list": []int{0, 0, 0, 1}}, 1},
		"attn_layer_indices":              {map[string]any{"attn_layer_indices": []int{1, 3, 99}}, 2},
		"full_attn_layers from one":       {map[string]any{"linear_attn_config": map[string]any{"full_attn_layers": []int{4, 0}}}, 1},
		"attn_layer_period":               {map[string]any{"attn_layer_period": 2, "attn_layer_offset": 1}, 2},
		"full_attention_interval":         {map[string]any{"full_attention_interval": 4}, 1},
		"attention and state in one":      {map[string]any{"model_type": "falcon_h1"}, 4},
		"layers that share a cache":       {map[string]any{"num_kv_shared_layers": 3}, 1},
		"layers that all share a cache":   {map[string]any{"num_kv_shared_layers": 4}, 0},

		"a window in every layer":             {map[string]any{"sliding_window": 512}, 2},
		"a window longer than the context":    {map[string]any{"sliding_window": 4096}, 4},
		"a window that is off":                {map[string]any{"sliding_window": 512, "use_sliding_window": false}, 4},
		"a window of Qwen that is not on":     {map[string]any{"sliding_window": 512, "model_type": "qwen2"}, 4},
		"a window from a layer on":            {map[string]any{"sliding_window": 512, "use_sliding_window": true, "max_window_layers": 2}, 3},
		"a window with a pattern":             {map[string]any{"sliding_window": 512, "sliding_window_pattern": 4}, 3}, // 1 + 3/2 = 2.5
		"windows by layer_types":              {map[string]any{"sliding_window": 256, "layer_types": []string{"sliding_attention", "sliding_attention", "full_attention", "full_attention"}}, 3},
		"chunks by layer_types":               {map[string]any{"attention_chunk_size": 512, "layer_types": slices.Repeat([]string{"chunked_attention"}, 4)}, 2},
		"windows of a length that is missing": {map[string]any{"layer_types": slices.Repeat([]string{"sliding_attention"}, 4)}, 4},

		// (512 + 64) * 2 bytes * 4 layers * 1024 tokens = 4.5 Mi
		"latent attention": {map[string]any{"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}, 5},
		// and 128 + 4 bytes of the index: 4*1024*1284 = 5.02 Mi
		"latent attention with an index": {map[string]any{"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "index_head_dim": 128}, 6},
		// 2 * 4 heads * (32 + 32) * 2 bytes: as many as the dense one
		"latent attention served without":    {map[string]any{"model_type": "minicpm3", "kv_lora_rank": 256, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 64}, 4},
		"latent attention that lacks a size": {map[string]any{"kv_lora_rank": 512}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cacheMi(t, test.changes); got != test.want {
				t.Errorf("%d Mi, want %d", got, test.want)
			}
		})
	}
}

func TestDimensionsAreFoundInside(t *testing.T) {
	for _, name := range nestedConfigs {
		var inside map[string]any
		if err := json.Unmarshal(config(t, map[string]any{"vocab_size": nil}), &inside); err != nil {
			t.Fatal(err)
		}
		outside, err := json.Marshal(map[string]any{"hidden_size": 7, "vocab_size": 5, "head_dim": nil, "vision_config": map[string]any{}, name: inside})
		if err != nil {
			t.Fatal(err)
		}
		model := read(t, outside)
		if model.dimensions == nil || model.dimensions.hidden != 1024 || model.dimensions.vocab != 5 || !model.dimensions.seesOrHears {
			t.Errorf("%s: %+v", name, model.dimensions)
		}
	}
}

func TestContextOfTheModel(t *testing.T) {
	for name, test := range map[string]struct {
		changes map[string]any
		want    int64
	}{
		"max_position_embeddings":      {nil, 8192},
		"model_max_length":             {map[string]any{"max_position_embeddings": nil, "model_max_length": 2048}, 2048},
		"the first of both":            {map[string]any{"model_max_length": 2048}, 8192},
		"n_positions":                  {map[string]any{"max_position_embeddings": nil, "n_positions": 1024}, 1024},
		"none":                         {map[string]any{"max_position_embeddings": nil}, 4096},
		"absurd length of a tokenizer": {map[string]any{"max_position_embeddings": nil, "model_max_length": json.RawMessage("1000000000000000019884624838656")}, 4096},
		"absurd, with an exponent":     {map[string]any{"max_position_embeddings": json.RawMessage("1e30"), "n_ctx": 512}, 512},
		"beyond every number":          {map[string]any{"max_position_embeddings": json.RawMessage("1e999")}, 4096},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(t, config(t, test.changes)).Estimate(Request{})
			if err != nil || got.ContextWindow != test.want {
				t.Errorf("%+v, %v, want %d", got, err, test.want)
			}
		})
	}
}

func TestQuantization(t *testing.T) {
	method := func(name string, more ...any) map[string]any {
		config := map[string]any{"quant_method": name}
		for i := 0; i < len(more); i += 2 {
			config[more[i].(string)] = more[i+1]
		}
		return map[string]any{"quantization_config": config}
	}
	groups := func(bits ...int) map[string]any {
		all := map[string]any{}
		for i, width := range bits {
			all["group_"+string(rune('0'+i))] = map[string]any{"weights": map[string]any{"num_bits": width}}
		}
		return all
	}
	for name, test := range map[string]struct {
		changes   map[string]any
		bits      int64
		quantized bool
	}{
		"nothing":                    {nil, 16, false},
		"bfloat16":                   {map[string]any{"torch_dtype": "bfloat16"}, 16, false},
		"float32":                    {map[string]any{"torch_dtype": "float32"}, 32, false},
		"float32 under its new name": {map[string]any{"dtype": "torch.float32"}, 32, false},
		"float8":                     {map[string]any{"torch_dtype": "float8_e4m3fn"}, 8, false},
		"AWQ":                        {method("awq", "bits", 4), 4, true},
		"AWQ without a width":        {method("AWQ"), 4, true},
		"AWQ with w_bit":             {method("awq", "w_bit", 4), 4, true},
		"GPTQ at eight bits":         {method("gptq", "bits", 8), 8, true},
		"GPTQ at two bits":           {method("gptq", "bits", 2), 4, true},
		"AQLM":                       {method("aqlm"), 4, true},
		"FP8":                        {method("fp8"), 8, true},
		"MXFP4":                      {method("mxfp4"), 4, true},
		"bitsandbytes at four bits":  {method("bitsandbytes", "load_in_4bit", true), 4, true},
		"bitsandbytes at eight bits": {method("bitsandbytes", "load_in_4bit", false, "load_in_8bit", true), 8, true},
		"compressed-tensors":         {method("compressed-tensors", "config_groups", groups(4)), 4, true},
		"mixed widths":               {method("compressed-tensors", "config_groups", groups(4, 8)), 8, true},
		"older compressed-tensors":   {map[string]any{"compression_config": map[string]any{"quant_method": "compressed-tensors", "config_groups": groups(8)}}, 8, true},
		"ModelOpt":                   {method("modelopt", "quant_algo", "NVFP4"), 4, true},
		"ModelOpt FP8":               {method("modelopt", "quant_algo", "FP8"), 8, true},
		"a method that nobody knows": {method("tomorrow"), 16, true},
		"no method":                  {map[string]any{"quantization_config": map[string]any{"bits": 8}}, 8, true},
		"null":                       {map[string]any{"quantization_config": json.RawMessage("null")}, 16, false},
		"a method that is no text":   {map[string]any{"quantization_config": map[string]any{"quant_method": 4}}, 16, true},
	} {
		t.Run(name, func(t *testing.T) {
			top, err := document(sourceConfig, config(t, test.changes), maxConfig)
			if err != nil {
				t.Fatal(err)
			}
			got := readQuantization(top)
			if got.bits != test.bits || got.quantized() != test.quantized || top.err() != nil {
				t.Errorf("%+v, %v, want %d bits", got, top.err(), test.bits)
			}
		})
	}
}

func TestWeightsTakeTheBestSource(t *testing.T) {
	// 32000*1024 + 4*(1024*(16*64 + 2*4*64) + 1024*1024 + 3*1024*4096) = 93585408 parameters, 178.5 Mi
	dense := config(t, nil)
	index := []byte(`{"metadata":{"total_size":1048577}}`)
	for name, test := range map[string]struct {
		files      Files
		want       int64
		confidence Confidence
	}{
		"the index":            {Files{Config: dense, Index: index, Totals: &Totals{Parameters: map[string]int64{"F32": 1}}}, 2, ConfidenceHigh},
		"an index without it":  {Files{Config: dense, Index: []byte(`{"weight_map":{}}`), Totals: &Totals{Parameters: map[string]int64{"F32": 1}}}, 1, ConfidenceHigh},
		"totals by type":       {Files{Config: dense, Totals: &Totals{Total: 5, Parameters: map[string]int64{"I32": 1 << 18, "BF16": 1 << 19, "F4": 2}}}, 3, ConfidenceHigh},
		"a type nobody knows":  {Files{Config: dense, Totals: &Totals{Total: 1 << 20, Parameters: map[string]int64{"F3": 1 << 20}}}, 2, ConfidenceEstimated},
		"a bare total":         {Files{Config: dense, Totals: &Totals{Total: 1 << 20}}, 2, ConfidenceEstimated},
		"the dimensions":       {Files{Config: dense, Totals: &Totals{}}, 179, ConfidenceEstimated},
		"no vocabulary":        {Files{Config: config(t, map[string]any{"vocab_size": nil})}, 116, ConfidenceEstimated},
		"no dimensions":        {Files{Config: []byte(`{}`)}, 0, ConfidenceFallback},
		"an index alone":       {Files{Index: index}, 2, ConfidenceFallback},
		"nothing":              {Files{}, 0, ConfidenceFallback},
		"a total at four bits": {Files{Config: config(t, map[string]any{"quantization_config": map[string]any{"quant_method": "awq"}}), Totals: &Totals{Total: 1 << 21}}, 1, ConfidenceEstimated},
	} {
		t.Run(name, func(t *testing.T) {
			model, err := ReadModel(test.files)
			if err != nil {
				t.Fatal(err)
			}
			got, err := model.Estimate(Request{})
			if err != nil || got.WeightsMi != test.want || got.Confidence != test.confidence {
				t.Errorf("%+v, %v, want %d Mi, %s", got, err, test.want, test.confidence)
			}
			if got.Confidence != ConfidenceHigh && len(got.Warnings) == 0 && test.want != 179 {
				t.Error("no word about the uncertainty")
			}
		})
	}
}

func TestExpertsCountInTheirLayers(t *testing.T) {
	// One layer of 4 experts of 512: 4*(3*1024*512 + 1024) = 6295552, of the dense mlp 12582912.
	for name, test := range map[string]struct {
		changes map[string]any
		layers  int64
	}{
		"everywhere":                  {map[string]any{"num_experts": 4}, 4},
		"a single one is dense":       {map[string]any{"num_local_experts": 1}, 0},
		"none is dense":               {map[string]any{"num_local_experts": 0}, 0},
		"from the second layer on":    {map[string]any{"n_routed_experts": 4, "first_k_dense_replace": 1}, 3},
		"every second layer":          {map[string]any{"num_experts": 4, "decoder_sparse_step": 2}, 2},
		"not in the layers of a list": {map[string]any{"num_experts": 4, "mlp_only_layers": []int{0, 1, 3}}, 1},
		"by flags":                    {map[string]any{"num_experts": 4, "moe_layer_freq": []int{0, 1, 0, 0}}, 1},
		"every third, from the first": {map[string]any{"n_routed_experts": 4, "moe_layer_freq": 3}, 2},
		"by period and offset":        {map[string]any{"num_experts": 4, "expert_layer_period": 4, "expert_layer_offset": 2}, 1},
		"of DBRX":                     {map[string]any{"ffn_config": map[string]any{"moe_num_experts": 4, "ffn_hidden_size": 512}}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			changes := map[string]any{"moe_intermediate_size": 512}
			for key, value := range test.changes {
				changes[key] = value
			}
			model := read(t, config(t, changes))
			const without = 32000*1024 + 4*(1024*(16*64+2*4*64)+1024*1024)
			want := without + test.layers*6295552 + (4-test.layers)*12582912
			if got := model.dimensions.parameters(); got != want {
				t.Errorf("%d parameters, want %d", got, want)
			}
		})
	}
}

func TestPythonsLiteralsAreRead(t *testing.T) {
	data := bytes.Replace(config(t, map[string]any{"note": `NaN "Infinity\"`}), []byte(`{`), []byte(`{"time_step_limit":[0.0,Infinity,-Infinity],"x":NaN,`), 1)
	if got := read(t, data); got.dimensions == nil || got.dimensions.hidden != 1024 {
		t.Errorf("%+v", got.dimensions)
	}
	quoted := quoteNonNumbers([]byte(`{"a":-Infinity,"b\\\"NaN":"Infinity","c":[NaN]}`))
	if want := `{"a":"-Infinity","b\\\"NaN":"Infinity","c":["NaN"]}`; string(quoted) != want {
		t.Errorf("%s, want %s", quoted, want)
	}
}

func TestBadConfigNamesTheField(t *testing.T) {
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	for name, test := range map[string]struct {
		changes map[string]any
		field   string
	}{
		"negative":                {map[string]any{"num_hidden_layers": -1}, "num_hidden_layers"},
		"zero":                    {map[string]any{"num_attention_heads": 0}, "num_attention_heads"},
		"zero KV heads":           {map[string]any{"num_key_value_heads": 0}, "num_key_value_heads"},
		"zero width":              {map[string]any{"intermediate_size": 0}, "intermediate_size"},
		"huge":                    {map[string]any{"hidden_size": 1 << 40}, "hidden_size"},
		"huger":                   {map[string]any{"hidden_size": raw("1e300")}, "hidden_size"},
		"beyond 64 bits":          {map[string]any{"vocab_size": raw("99999999999999999999")}, "vocab_size"},
		"too many layers":         {map[string]any{"num_hidden_layers": 1025}, "num_hidden_layers"},
		"a fraction":              {map[string]any{"head_dim": raw("64.5")}, "head_dim"},
		"a number in a text":      {map[string]any{"num_hidden_layers": "32"}, "num_hidden_layers"},
		"a truth value":           {map[string]any{"hidden_size": true}, "hidden_size"},
		"a list":                  {map[string]any{"hidden_size": []int{1024}}, "hidden_size"},
		"an object":               {map[string]any{"vocab_size": map[string]any{}}, "vocab_size"},
		"a list with a negative":  {map[string]any{"num_key_value_heads": []int{4, -4}}, "num_key_value_heads"},
		"more heads than width":   {map[string]any{"num_attention_heads": 2048, "num_key_value_heads": nil}, "num_attention_heads"},
		"negative context":        {map[string]any{"max_position_embeddings": -1}, "max_position_embeddings"},
		"negative window":         {map[string]any{"sliding_window": -4096}, "sliding_window"},
		"negative experts":        {map[string]any{"num_experts": -8}, "num_experts"},
		"zero bits":               {map[string]any{"quantization_config": map[string]any{"quant_method": "gptq", "bits": 0}}, "quantization_config.bits"},
		"bits in a text":          {map[string]any{"quantization_config": map[string]any{"bits": "four"}}, "quantization_config.bits"},
		"bits of a group":         {map[string]any{"quantization_config": map[string]any{"config_groups": map[string]any{"g": map[string]any{"weights": map[string]any{"num_bits": 1000}}}}}, "quantization_config.config_groups.g.weights.num_bits"},
		"inside":                  {map[string]any{"hidden_size": nil, "text_config": map[string]any{"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": -5}}, "text_config.hidden_size"},
		"outside, for the inside": {map[string]any{"hidden_size": nil, "head_dim": -1, "text_config": map[string]any{"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 64}}, "head_dim"},
		"a list that is long":     {map[string]any{"layer_types": slices.Repeat([]string{"mamba"}, 5000)}, "layer_types"},
	} {
		t.Run(name, func(t *testing.T) {
			expectProblem(t, Files{Config: config(t, test.changes)}, sourceConfig, test.field)
		})
	}
	notANumber := bytes.Replace(config(t, map[string]any{"hidden_size": nil}), []byte(`{`), []byte(`{"hidden_size":NaN,`), 1)
	expectProblem(t, Files{Config: notANumber}, sourceConfig, "hidden_size")
}

func TestBadDocumentsAreRefused(t *testing.T) {
	large := append(append([]byte(`{"a":"`), bytes.Repeat([]byte("x"), 10<<20)...), `"}`...)
	for name, test := range map[string]struct {
		files         Files
		source, field string
	}{
		"empty config":         {Files{Config: []byte{}}, sourceConfig, ""},
		"HTML":                 {Files{Config: []byte("<html>")}, sourceConfig, ""},
		"cut off":              {Files{Config: []byte(`{"hidden_size":`)}, sourceConfig, ""},
		"a list":               {Files{Config: []byte(`[1]`)}, sourceConfig, ""},
		"two documents":        {Files{Config: []byte(`{}{}`)}, sourceConfig, ""},
		"ten megabytes":        {Files{Config: large}, sourceConfig, ""},
		"deep nesting":         {Files{Config: []byte(strings.Repeat(`{"text_config":`, 200000))}, sourceConfig, ""},
		"deep lists":           {Files{Config: []byte(`{"a":` + strings.Repeat("[", 200000))}, sourceConfig, ""},
		"index: HTML":          {Files{Index: []byte("<html>")}, sourceIndex, ""},
		"index: too large":     {Files{Index: make([]byte, maxIndex+1)}, sourceIndex, ""},
		"index: negative":      {Files{Index: []byte(`{"metadata":{"total_size":-1}}`)}, sourceIndex, "metadata.total_size"},
		"index: zero":          {Files{Index: []byte(`{"metadata":{"total_size":0}}`)}, sourceIndex, "metadata.total_size"},
		"index: text":          {Files{Index: []byte(`{"metadata":{"total_size":"5"}}`)}, sourceIndex, "metadata.total_size"},
		"index: 17 TiB":        {Files{Index: []byte(`{"metadata":{"total_size":18691697672192}}`)}, sourceIndex, "metadata.total_size"},
		"totals beyond 16 TiB": {Files{Totals: &Totals{Parameters: map[string]int64{"F64": maxParameters}}}, sourceAPI, ""},
		"dimensions beyond 16 TiB": {Files{Config: config(t, map[string]any{
			"hidden_size": 1 << 20, "num_hidden_layers": 1024, "intermediate_size": 1 << 24, "num_local_experts": 65536,
		})}, sourceConfig, ""},
	} {
		t.Run(name, func(t *testing.T) { expectProblem(t, test.files, test.source, test.field) })
	}
}

func expectProblem(t *testing.T, files Files, source, field string) {
	t.Helper()
	_, err := ReadModel(files)
	var problem *Problem
	if !errors.As(err, &problem) {
		t.Fatalf("%v, want a problem with %s", err, field)
	}
	if problem.Source != source || problem.Field != field || problem.Rule == "" || len(problem.Error()) > 400 {
		t.Errorf("%+v, want one of %s with %s", problem, source, field)
	}
}

func TestTotalsOfTheAPI(t *testing.T) {
	got, err := ReadTotals([]byte(`{"id":"a/b","safetensors":{"parameters":{"BF16":7},"total":7}}`))
	if err != nil || got.Total != 7 || got.Parameters["BF16"] != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ReadTotals([]byte(`{"id":"a/b"}`)); got != nil || err != nil {
		t.Errorf("a repository without safetensors gives %+v, %v", got, err)
	}
	for answer, field := range map[string]string{
		`{"safetensors":{"total":-1}}`:                           "safetensors.total",
		`{"safetensors":{"total":"7"}}`:                          "safetensors.total",
		`{"safetensors":{"total":7,"parameters":{"BF16":1e60}}}`: "safetensors.parameters.BF16",
		`nope`: "",
	} {
		_, err := ReadTotals([]byte(answer))
		var problem *Problem
		if !errors.As(err, &problem) || problem.Field != field || problem.Source != sourceAPI {
			t.Errorf("%s: %v", answer, err)
		}
	}
}
