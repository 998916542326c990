package estimates

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func pointer(value int64) *int64 { return &value }

// The names are those of contract/appliance.md E.5 and of the seed; unknown
// maxima are null.
func TestEstimateAsJSON(t *testing.T) {
	got, err := fixture(t, "qwen2.5-0.5b").Estimate(Request{ContextWindow: 4096, MaxNumSeqs: 4})
	if err != nil {
		t.Fatal(err)
	}
	reference := Reference{"Qwen", "Qwen2.5-0.5B-Instruct"}
	got.Repo, got.SourceURL = reference.Repo(), reference.SourceURL()
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	// Weights, cache and so on: published_test.go. Embeddings: 151936*896*2 bytes
	// = 259.7 Mi stay on the GPU, 943-260 = 683 may move; the host needs 4096 more,
	// the GPU 260+192+2048.
	const want = `{
  "repo": "Qwen/Qwen2.5-0.5B-Instruct",
  "sourceUrl": "https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct",
  "minimumMi": 3183,
  "recommendedMi": 5231,
  "maximumMi": null,
  "weightsMi": 943,
  "kvCacheMi": 192,
  "reserveMi": 2048,
  "recommendedReserveMi": 2048,
  "contextWindow": 4096,
  "maxNumSeqs": 4,
  "confidence": "high",
  "gpuAvailable": false,
  "warnings": [],
  "offloading": {
    "ramMinimumMi": 4779,
    "ramRecommendedMi": 6827,
    "ramMaximumMi": null,
    "gpuMinimumMi": 2500,
    "gpuRecommendedMi": 5231,
    "fitsVram": false,
    "weightsMi": 943,
    "kvCacheMi": 192,
    "runtimeMi": 2048
  }
}`
	if string(text) != want {
		t.Errorf("%s\nwant %s", text, want)
	}
}

// Mixtral 8x7B: weights 89078, cache 8192, reserve 7782, minimum 105052, embeddings
// 2*32000*4096*2 bytes = 500 Mi (published_test.go).
func TestOffloadingAtABudget(t *testing.T) {
	model := fixture(t, "mixtral-8x7b")
	for name, test := range map[string]struct {
		budget                      int64
		available                   Available
		offload                     int64 // -1: none
		ramMinimum, ramRecommended  int64
		fits, budgetTooSmall, known bool
	}{
		"no budget, nothing known": {0, Available{}, -1,
			// 4096 + 89078 - 500, and 15 % = 13901.1
			92674, 106576, false, false, false},
		"no budget, a GPU that is large enough": {0, Available{FreeMi: pointer(110000), PlannedMi: 4000}, -1, 92674, 106576, true, false, true},
		"no budget, a GPU that is in use":       {0, Available{FreeMi: pointer(110000), PlannedMi: 5000}, -1, 92674, 106576, false, false, true},
		"the budget is the minimum": {105052, Available{}, 0,
			// 4096 + max(2048, 614.4): what the engine catalog has
			4096, 6144, true, false, false},
		"one Mi less": {105051, Available{}, 1, 4097, 6145, false, false, false},
		"half a card": {49152, Available{FreeRAMMi: pointer(131072)},
			// 105052 - 49152 = 55900; 4096 + 55900, and 15 % = 8999.4
			55900, 59996, 68996, false, false, false},
		"the least that works": {16474, Available{},
			// 105052 - (89078 - 500) = 16474
			88578, 92674, 106576, false, false, false},
		"less than works": {8192, Available{}, 88578, 92674, 106576, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := model.Estimate(Request{MaxNumSeqs: 2, BudgetMi: test.budget, Available: test.available})
			if err != nil {
				t.Fatal(err)
			}
			if test.offload < 0 != (got.CPUOffloadMi == nil) || got.CPUOffloadMi != nil && *got.CPUOffloadMi != test.offload {
				t.Errorf("cpuOffloadMi %v, want %d", got.CPUOffloadMi, test.offload)
			}
			want := Offloading{
				RAMMinimumMi: test.ramMinimum, RAMRecommendedMi: test.ramRecommended, RAMMaximumMi: test.available.FreeRAMMi,
				GPUMinimumMi: 16474, GPURecommendedMi: got.RecommendedMi, FitsVRAM: test.fits,
				WeightsMi: 89078, KVCacheMi: 8192, RuntimeMi: 7782,
			}
			if *got.Offloading != want {
				t.Errorf("%+v, want %+v", *got.Offloading, want)
			}
			warned := slices.ContainsFunc(got.Warnings, func(text string) bool { return strings.Contains(text, "cannot start") })
			if warned != test.budgetTooSmall || got.GPUAvailable != test.known {
				t.Errorf("%q, GPU known %t", got.Warnings, got.GPUAvailable)
			}
		})
	}
}

func TestOffloadingOfAnUnknownModelCountsAllWeights(t *testing.T) {
	model, err := ReadModel(Files{Index: []byte(`{"metadata":{"total_size":10737418240}}`)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := model.Estimate(Request{BudgetMi: 4096})
	// 10240 + 2048 - 4096
	if err != nil || *got.CPUOffloadMi != 8192 || got.Offloading.GPUMinimumMi != 2048 || got.Confidence != ConfidenceFallback {
		t.Errorf("%+v, %v", got, err)
	}
}

// The preset qwen2505bcpu of the shipped catalog asks for 4096 Mi.
func TestVLLMOnCPU(t *testing.T) {
	free := int64(16384)
	got, err := fixture(t, "qwen2.5-0.5b").Estimate(Request{
		ContextWindow: 4096, MaxNumSeqs: 4, OnCPU: true, Available: Available{FreeMi: &free, PlannedMi: 6144},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.MinimumMi != 3183 || got.KVCacheMemoryBytes != 192<<20 || *got.MaximumMi != 10240 {
		t.Errorf("%+v", got)
	}
	if got.GPUAvailable || got.Offloading != nil || got.CPUOffloadMi != nil {
		t.Errorf("a word about a GPU: %+v", got)
	}
}

func TestKVCacheBytesAreWholeMi(t *testing.T) {
	// 1024 bytes a layer and token, 4 layers, 100 tokens: 409600 bytes.
	got, err := read(t, config(t, nil)).Estimate(Request{ContextWindow: 100, MaxNumSeqs: 1, OnCPU: true})
	if err != nil || got.KVCacheMemoryBytes != 1<<20 {
		t.Errorf("%+v, %v", got, err)
	}
	unknown, err := read(t, []byte(`{}`)).Estimate(Request{OnCPU: true})
	if err != nil || unknown.KVCacheMemoryBytes != 0 {
		t.Errorf("an unknown cache has %d bytes", unknown.KVCacheMemoryBytes)
	}
}

func TestReserveHoldsTheStateOfRecurrentLayers(t *testing.T) {
	// 32*128*128*4 + 2*3*(2*16*128 + 32*128) = 2146304 bytes a layer and sequence;
	// 36 layers, 256 sequences: 18864 Mi, and 1024 beside.
	got, err := fixture(t, "qwen3-next-80b-a3b").Estimate(Request{ContextWindow: 256, MaxNumSeqs: 256})
	if err != nil || got.ReserveMi != 18864+1024 {
		t.Errorf("%+v, %v", got, err)
	}
	// Mamba 2: 8 heads of 64 and 128: 4*512*128 + 2*3*(512 + 2*1*128) = 266752 bytes
	// in 2 layers for 4096 sequences: 2084 Mi.
	mamba := config(t, map[string]any{
		"hybrid_override_pattern": "MM**", "mamba_num_heads": 8, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 1, "conv_kernel": 4,
	})
	got, err = read(t, mamba).Estimate(Request{ContextWindow: 1, MaxNumSeqs: 4096})
	if err != nil || got.ReserveMi != 2084+1024 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDefaultsOfTheRequest(t *testing.T) {
	model := read(t, config(t, nil))
	for name, test := range map[string]struct {
		request            Request
		context, sequences int64
	}{
		"chat":      {Request{}, 8192, 32},
		"embedding": {Request{ModelType: "embedding"}, 8192, 8},
		"given":     {Request{ModelType: "embedding", ContextWindow: 7, MaxNumSeqs: 3}, 7, 3},
		"one":       {Request{ContextWindow: 1, MaxNumSeqs: 1, ModelType: "chat", KVCacheType: "auto"}, 1, 1},
	} {
		got, err := model.Estimate(test.request)
		if err != nil || got.ContextWindow != test.context || got.MaxNumSeqs != test.sequences {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	for name, test := range map[string]struct {
		changes map[string]any
		request Request
		want    string
	}{
		"more context than the model has": {nil, Request{ContextWindow: 8193}, "made for a context of 8192"},
		// 1024 bytes * 4 layers * 8192 tokens is 32 Mi a sequence, weights are 179 Mi.
		"a cache larger than the weights": {nil, Request{MaxNumSeqs: 8}, "8 sequences of full length at once; one takes 32 Mi"},
		"an unknown quantization":         {map[string]any{"quantization_config": map[string]any{"quant_method": "tomorrow"}}, Request{}, `"tomorrow" is not known`},
		"an unknown kind of layer":        {map[string]any{"layer_types": []string{"new", "new"}}, Request{}, `"new" are not known`},
		"missing dimensions":              {map[string]any{"hidden_size": nil, "num_hidden_layers": nil}, Request{}, "config.json has no num_hidden_layers, hidden_size:"},
		"encoder and decoder":             {map[string]any{"is_encoder_decoder": true}, Request{}, "encoder and decoder"},
		// 32000*1024*(16-4)/8 bytes
		"embeddings beside AWQ": {map[string]any{"quantization_config": map[string]any{"quant_method": "awq"}}, Request{}, "not quantised take 47 Mi more"},
	} {
		got, err := read(t, config(t, test.changes)).Estimate(test.request)
		if err != nil || !slices.ContainsFunc(got.Warnings, func(text string) bool { return strings.Contains(text, test.want) }) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	plain, err := read(t, config(t, nil)).Estimate(Request{ContextWindow: 8192, MaxNumSeqs: 1})
	if err != nil || len(plain.Warnings) != 0 || plain.Warnings == nil {
		t.Errorf("warnings without a reason: %q, %v", plain.Warnings, err)
	}
}

func TestEstimatesOfOneModelAreIndependent(t *testing.T) {
	model := fixture(t, "gpt-oss-20b")
	first, err := model.Estimate(Request{ContextWindow: 999999})
	if err != nil {
		t.Fatal(err)
	}
	first.Warnings[0] = "changed"
	second, err := model.Estimate(Request{ContextWindow: 1})
	if err != nil || slices.Contains(second.Warnings, "changed") || len(second.Warnings) >= len(first.Warnings) {
		t.Errorf("%q", second.Warnings)
	}
}

func TestBadRequestNamesTheField(t *testing.T) {
	model := read(t, config(t, nil))
	for field, request := range map[string]Request{
		"contextWindow":   {ContextWindow: -1},
		"maxNumSeqs":      {MaxNumSeqs: 1<<20 + 1},
		"vramMi":          {BudgetMi: -1},
		"modelType":       {ModelType: "reranking"},
		"kvCacheType":     {KVCacheType: "q8_0"},
		"freeMi":          {Available: Available{FreeMi: pointer(-1)}},
		"plannedMi":       {Available: Available{PlannedMi: math.MaxInt64}},
		"freeRamMi":       {Available: Available{FreeRAMMi: pointer(math.MaxInt64)}},
		"contextWindow ":  {ContextWindow: math.MaxInt64},
		"contextWindow  ": {ContextWindow: 1 << 30, MaxNumSeqs: 1 << 20}, // 4 EiB of cache
		"kvCacheType ":    {OnCPU: true, KVCacheType: "fp8"},
	} {
		_, err := model.Estimate(request)
		var problem *Problem
		if !errors.As(err, &problem) || problem.Source != sourceRequest || problem.Field != strings.TrimSpace(field) || problem.Value == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}
