package estimates

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	gguf "github.com/gpustack/gguf-parser-go"
)

const (
	f16 = gguf.GGMLTypeF16
	f32 = gguf.GGMLTypeF32
	q40 = gguf.GGMLTypeQ4_0
	q80 = gguf.GGMLTypeQ8_0
)

// tinyLlama has the dimensions of TinyLlama 1.1B at 16 bits.
func tinyLlama() *ggufWriter {
	return newGGUF("llama").numbers(map[string]uint32{
		"block_count": 22, "embedding_length": 2048, "context_length": 2048, "feed_forward_length": 5632,
		"attention.head_count": 32, "attention.head_count_kv": 4,
	}).words(32000).
		tensor("token_embd.weight", f16, 2048, 32000).
		blocks(22, f16, 2048, 2048, 256, 5632).
		tensor("output_norm.weight", f32, 2048).
		tensor("output.weight", f16, 2048, 32000)
}

// qwenSmall has the dimensions of Qwen2.5 0.5B at eight bits; one matrix serves as
// both embeddings.
func qwenSmall() *ggufWriter {
	return newGGUF("qwen2").numbers(map[string]uint32{
		"block_count": 24, "embedding_length": 896, "context_length": 32768, "feed_forward_length": 4864,
		"attention.head_count": 14, "attention.head_count_kv": 2,
	}).words(151936).
		tensor("token_embd.weight", q80, 896, 151936).
		blocks(24, q80, 896, 896, 128, 4864).
		tensor("output_norm.weight", f32, 896)
}

// llama8B has the dimensions of Llama 3.1 8B at four bits.
func llama8B() *ggufWriter {
	return newGGUF("llama").numbers(map[string]uint32{
		"block_count": 32, "embedding_length": 4096, "context_length": 131072, "feed_forward_length": 14336,
		"attention.head_count": 32, "attention.head_count_kv": 8, "vocab_size": 128256,
	}).words(128256).
		tensor("token_embd.weight", q40, 4096, 128256).
		blocks(32, q40, 4096, 4096, 1024, 14336).
		tensor("output_norm.weight", f32, 4096).
		tensor("output.weight", q40, 4096, 128256)
}

// mixtral has the dimensions of Mixtral 8x7B at four bits.
func mixtral() *ggufWriter {
	w := newGGUF("llama").numbers(map[string]uint32{
		"block_count": 32, "embedding_length": 4096, "context_length": 32768, "feed_forward_length": 14336,
		"attention.head_count": 32, "attention.head_count_kv": 8, "expert_count": 8, "expert_used_count": 2,
	}).words(32000).tensor("token_embd.weight", q40, 4096, 32000)
	for i := range 32 {
		block := fmt.Sprintf("blk.%d.", i)
		w.tensor(block+"attn_norm.weight", f32, 4096).
			tensor(block+"attn_q.weight", q40, 4096, 4096).
			tensor(block+"attn_k.weight", q40, 4096, 1024).
			tensor(block+"attn_v.weight", q40, 4096, 1024).
			tensor(block+"attn_output.weight", q40, 4096, 4096).
			tensor(block+"ffn_norm.weight", f32, 4096).
			tensor(block+"ffn_gate_inp.weight", f32, 4096, 8).
			tensor(block+"ffn_gate_exps.weight", q40, 4096, 14336, 8).
			tensor(block+"ffn_up_exps.weight", q40, 4096, 14336, 8).
			tensor(block+"ffn_down_exps.weight", q40, 14336, 4096, 8)
	}
	return w.tensor("output_norm.weight", f32, 4096).tensor("output.weight", q40, 4096, 32000)
}

// gemma has the dimensions of Gemma 3 4B: five layers of a window of 1024 for each full one.
func gemma() *ggufWriter {
	return newGGUF("gemma3").numbers(map[string]uint32{
		"block_count": 34, "embedding_length": 2560, "context_length": 131072, "feed_forward_length": 10240,
		"attention.head_count": 8, "attention.head_count_kv": 4, "attention.key_length": 256, "attention.value_length": 256,
		"attention.sliding_window": 1024,
	}).words(262144).
		tensor("token_embd.weight", f16, 2560, 262144).
		blocks(34, f16, 2560, 2048, 1024, 10240).
		tensor("output_norm.weight", f32, 2560)
}

// deepSeekLite has the dimensions of DeepSeek V2 Lite with latent attention, its
// experts left out.
func deepSeekLite() *ggufWriter {
	w := newGGUF("deepseek2").numbers(map[string]uint32{
		"block_count": 27, "embedding_length": 2048, "context_length": 163840, "feed_forward_length": 10944,
		"attention.head_count": 16, "attention.head_count_kv": 1, "attention.kv_lora_rank": 512,
		"attention.key_length": 576, "attention.value_length": 512,
		"attention.key_length_mla": 192, "attention.value_length_mla": 128, "rope.dimension_count": 64,
	}).words(102400).tensor("token_embd.weight", q80, 2048, 102400)
	for i := range 27 {
		block := fmt.Sprintf("blk.%d.", i)
		w.tensor(block+"attn_norm.weight", f32, 2048).
			tensor(block+"attn_q.weight", q80, 2048, 3072).
			tensor(block+"attn_kv_a_mqa.weight", q80, 2048, 576).
			tensor(block+"attn_k_b.weight", q80, 128, 512, 16).
			tensor(block+"attn_v_b.weight", q80, 512, 128, 16).
			tensor(block+"attn_output.weight", q80, 2048, 2048).
			tensor(block+"ffn_norm.weight", f32, 2048).
			tensor(block+"ffn_gate.weight", q80, 2048, 10944).
			tensor(block+"ffn_up.weight", q80, 2048, 10944).
			tensor(block+"ffn_down.weight", q80, 10944, 2048)
	}
	return w.tensor("output_norm.weight", f32, 2048).tensor("output.weight", q80, 2048, 102400)
}

// nomic has the dimensions of nomic-embed-text: it sees the whole text at once.
func nomic() *ggufWriter {
	return newGGUF("nomic-bert").numbers(map[string]uint32{
		"block_count": 12, "embedding_length": 768, "context_length": 2048, "feed_forward_length": 3072,
		"attention.head_count": 12, "pooling_type": 1,
	}).set("nomic-bert.attention.causal", false).words(30522).
		tensor("token_embd.weight", f16, 768, 30522).
		blocks(12, f16, 768, 768, 768, 3072)
}

// Weights and KV cache are exact to the Mi that they are rounded up to; the
// reserve is what the library thinks of the graph, and has a range.
func TestPublishedGGUF(t *testing.T) {
	for name, test := range map[string]struct {
		file                      *ggufWriter
		request                   OllamaRequest
		weightsMi, kvCacheMi      int64
		leastReserve, mostReserve int64
	}{
		"TinyLlama on CPU": {
			tinyLlama(), OllamaRequest{OnCPU: true},
			// 2*(2*32000*2048 + 22*(2*2048*2048 + 2*2048*256 + 3*2048*5632)) + 4*(22*2*2048 + 2048) = 2200281088 bytes
			2099,
			// 2*22*4*64*2 * 2048 = 46137344 bytes
			44,
			// 256, and the logits of 512 tokens: (2048 + 32000)*512*4 bytes = 67 Mi at least
			323, 550,
		},
		"TinyLlama on a GPU": {
			tinyLlama(), OllamaRequest{},
			// without 32000*2048*2 bytes of embeddings
			1974, 44,
			// 512, and 2048*512*32*4 bytes of attention scores = 128 Mi at least
			640, 700,
		},
		"Qwen2.5 0.5B on CPU": {
			qwenSmall(), OllamaRequest{OnCPU: true},
			// 34/32*(151936*896 + 24*(2*896*896 + 2*896*128 + 3*896*4864)) + 4*(24*2*896 + 896) = 525009408 bytes, embeddings once
			501,
			// 2*24*2*64*2 * 4096 = 50331648 bytes
			48,
			// 256, and 152832*512*4 bytes of logits = 299 Mi, as buffer and in the graph
			555, 1000,
		},
		"Qwen2.5 0.5B on a GPU": {
			qwenSmall(), OllamaRequest{},
			// embeddings on both sides: all on the GPU
			501, 48, 512, 700,
		},
		"Llama 3.1 8B": {
			llama8B(), OllamaRequest{ContextWindow: 8192},
			// 18/32*(128256*4096 + 32*(2*4096*4096 + 2*4096*1024 + 3*4096*14336)) + 4*(32*2*4096 + 4096) = 4222435328 bytes, output matrix only
			4027,
			// 2*32*8*128*2 * 8192
			1024,
			// 512, and 8192*512*32*4 bytes of attention scores = 512 Mi; llama.cpp reports 560
			1024, 1120,
		},
		"Llama 3.1 8B with a cache of eight bits": {
			llama8B(), OllamaRequest{ContextWindow: 8192, KVCacheType: "q8_0"},
			// 1024/16*8.5; flash attention keeps no scores
			4027, 544, 512, 900,
		},
		"Llama 3.1 8B with a cache of four bits": {
			llama8B(), OllamaRequest{ContextWindow: 8192, KVCacheType: "q4_0"},
			// 1024/16*4.5
			4027, 288, 512, 900,
		},
		"Llama 3.1 8B, four sequences": {
			llama8B(), OllamaRequest{ContextWindow: 2048, MaxNumSeqs: 4},
			// as one of 8192
			4027, 1024, 1024, 1120,
		},
		"Mixtral 8x7B on CPU": {
			mixtral(), OllamaRequest{OnCPU: true},
			// 18/32*(2*32000*4096 + 32*(2*4096*4096 + 2*4096*1024 + 8*3*4096*14336)) + 4*(32*(2*4096 + 8*4096) + 4096) = 26274840576 bytes
			25058,
			// 2*32*8*128*2 * 4096
			512, 256, 1024,
		},
		"Gemma 3 4B": {
			gemma(), OllamaRequest{ContextWindow: 8192},
			// 2*(262144*2560 + 34*(2*2560*2048 + 2*2560*1024 + 3*2560*10240)) + 4*(34*2*2560 + 2560) = 7760168960 bytes
			7401,
			// 2*4*256*2 = 4096 bytes a token and layer: 5 layers of 8192 and 29 of 1024+512 tokens: 160 + 174 Mi
			334, 512, 1400,
		},
		"DeepSeek V2 Lite": {
			deepSeekLite(), OllamaRequest{ContextWindow: 4096},
			// 34/32*(102400*2048 + 27*(2048*3072 + 2048*576 + 2*128*512*16 + 2048*2048 + 3*2048*10944)) + 4*(27*2*2048 + 2048) = 2547032064 bytes
			2430,
			// (576 + 512)*2*27 * 4096 = 240648192 bytes
			230, 512, 1000,
		},
		"nomic-embed-text keeps no cache": {
			nomic(), OllamaRequest{OnCPU: true},
			// 2*(30522*768 + 12*(4*768*768 + 3*768*3072)) + 4*12*2*768 = 273447936 bytes
			261, 0, 256, 400,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := test.file.read(t).Estimate(test.request)
			if err != nil {
				t.Fatal(err)
			}
			if got.WeightsMi != test.weightsMi || got.KVCacheMi != test.kvCacheMi {
				t.Errorf("weights %d, cache %d, want %d and %d", got.WeightsMi, got.KVCacheMi, test.weightsMi, test.kvCacheMi)
			}
			if got.ReserveMi < test.leastReserve || got.ReserveMi > test.mostReserve {
				t.Errorf("reserve %d, want from %d to %d", got.ReserveMi, test.leastReserve, test.mostReserve)
			}
			if got.MinimumMi != got.WeightsMi+got.KVCacheMi+got.ReserveMi || got.RecommendedMi != got.MinimumMi+got.RecommendedReserveMi {
				t.Errorf("the parts do not add up: %+v", got)
			}
			if got.Confidence != ConfidenceHigh || got.Warnings == nil {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The presets ask for 2048 Mi of RAM for Qwen2.5 0.5B, whatever the precision.
func TestShippedOllamaPresetsFit(t *testing.T) {
	got, err := qwenSmall().read(t).Estimate(OllamaRequest{OnCPU: true})
	if err != nil || got.RecommendedMi > 2048 {
		t.Errorf("%+v, %v", got, err)
	}
	if got.Placement == nil || *got.Placement != (Placement{Layers: 25, RAMMi: got.MinimumMi}) || got.Offloading != nil {
		t.Errorf("%+v", got)
	}
}

func TestLayersGoToTheGPUAsTheBudgetAllows(t *testing.T) {
	model := llama8B().read(t)
	full, err := model.Estimate(OllamaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	previous := Placement{RAMMi: math.MaxInt64}
	for budget := int64(256); budget <= full.MinimumMi+256; budget += 256 {
		got, err := model.Estimate(OllamaRequest{BudgetMi: budget, Available: Available{FreeRAMMi: pointer(65536)}})
		if err != nil {
			t.Fatal(err)
		}
		placed := *got.Placement
		if placed.VRAMMi > budget {
			t.Errorf("%d Mi hold %+v", budget, placed)
		}
		if placed.GPULayers < previous.GPULayers {
			t.Errorf("%d Mi hold fewer layers than less: %+v, %+v", budget, placed, previous)
		}
		if fits := budget >= full.MinimumMi; got.Offloading.FitsVRAM != fits || fits != (placed.GPULayers == 33) {
			t.Errorf("%d Mi: %+v, %+v", budget, placed, got.Offloading)
		}
		if (placed.GPULayers == 0) != (len(got.Warnings) == 1) {
			t.Errorf("%d Mi: %+v, %q", budget, placed, got.Warnings)
		}
		if *got.CPUOffloadMi != 0 || got.Offloading.RAMMinimumMi != placed.RAMMi || *got.Offloading.RAMMaximumMi != 65536 {
			t.Errorf("%d Mi: %+v, %+v", budget, placed, got.Offloading)
		}
		previous = placed
	}
	if previous.GPULayers != 33 {
		t.Errorf("the last budget holds %+v", previous)
	}
}

// Half of the layers: 17 of 33, that is 16 of 32 blocks and the output.
func TestChosenLayers(t *testing.T) {
	model := llama8B().read(t)
	got, err := model.Estimate(OllamaRequest{ContextWindow: 8192, GPULayers: pointer(17)})
	if err != nil {
		t.Fatal(err)
	}
	// A block has 18/32*(2*4096*4096 + 2*4096*1024 + 3*4096*14336) + 2*4*4096 bytes =
	// 117.03 Mi, embeddings and output matrix 281.81 Mi each, half of the cache is 512 Mi.
	const blocks, matrix, cache = 1873, 282, 512
	if least := int64(blocks + matrix + cache); got.Placement.VRAMMi < least+512 || got.Placement.VRAMMi > least+512+1800 {
		t.Errorf("%+v, want %d Mi and the graph", got.Placement, least+512)
	}
	if least := int64(blocks + matrix + cache); got.Placement.RAMMi < least+256 || got.Placement.RAMMi > least+256+1200 {
		t.Errorf("%+v, want %d Mi and the runtime", got.Placement, least+256)
	}
	if got.Offloading.RAMMinimumMi != got.Placement.RAMMi || got.CPUOffloadMi != nil {
		t.Errorf("%+v", got.Offloading)
	}
	more, err := model.Estimate(OllamaRequest{GPULayers: pointer(1000)})
	if err != nil || more.Placement.GPULayers != 33 {
		t.Errorf("%+v, %v", more, err)
	}
	none, err := model.Estimate(OllamaRequest{GPULayers: pointer(0)})
	if err != nil || none.Placement.VRAMMi != 0 || none.Placement.RAMMi < 4300 {
		t.Errorf("%+v, %v", none.Placement, err)
	}
}

func TestOllamaWithoutABudget(t *testing.T) {
	got, err := llama8B().read(t).Estimate(OllamaRequest{Available: Available{FreeMi: pointer(24576), PlannedMi: 1024}})
	if err != nil {
		t.Fatal(err)
	}
	o := got.Offloading
	if *got.MaximumMi != 23552 || !got.GPUAvailable || !o.FitsVRAM || o.RAMMaximumMi != nil || got.CPUOffloadMi != nil {
		t.Errorf("%+v, %+v", got, o)
	}
	// One block and the output matrix on the GPU, 31 blocks and the embeddings in RAM.
	if o.GPUMinimumMi < 117+282+512 || o.GPUMinimumMi > 117+282+512+1100 || o.RAMMinimumMi < 31*117+282+256 || o.RAMMinimumMi > 31*117+282+256+1500 {
		t.Errorf("%+v", o)
	}
	if o.GPURecommendedMi != got.RecommendedMi || o.WeightsMi <= got.WeightsMi {
		t.Errorf("%+v", o)
	}
}

func TestOllamaDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		file     *ggufWriter
		request  OllamaRequest
		context  int64
		warnings int
	}{
		"4096":                       {llama8B(), OllamaRequest{}, 4096, 0},
		"less where the model has":   {tinyLlama(), OllamaRequest{}, 2048, 0},
		"more than the model has":    {tinyLlama(), OllamaRequest{ContextWindow: 4096}, 4096, 1},
		"no flash attention on grok": {newGGUF("grok").numbers(map[string]uint32{"block_count": 1, "embedding_length": 64, "context_length": 64, "attention.head_count": 2}).tensor("token_embd.weight", f16, 64, 64).blocks(1, f16, 64, 64, 64, 64), OllamaRequest{KVCacheType: "q8_0"}, 64, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.file.read(t).Estimate(test.request)
			if err != nil || got.ContextWindow != test.context || got.MaxNumSeqs != 1 || len(got.Warnings) != test.warnings {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestFlashAttentionSavesTheScores(t *testing.T) {
	model := llama8B().read(t)
	plain, err := model.Estimate(OllamaRequest{ContextWindow: 32768})
	if err != nil {
		t.Fatal(err)
	}
	flash, err := model.Estimate(OllamaRequest{ContextWindow: 32768, FlashAttention: true})
	// 32768*512*32*4 bytes = 2048 Mi, of which the rest of the graph may use a part
	if err != nil || plain.ReserveMi-flash.ReserveMi < 1500 || plain.KVCacheMi != flash.KVCacheMi {
		t.Errorf("%+v, %+v, %v", plain, flash, err)
	}
}

func TestBadOllamaRequestNamesTheField(t *testing.T) {
	model := tinyLlama().read(t)
	for field, request := range map[string]OllamaRequest{
		"contextWindow":                  {ContextWindow: -1},
		"contextWindow ":                 {ContextWindow: math.MaxInt64},
		"maxNumSeqs":                     {MaxNumSeqs: 1025},
		"contextWindow times maxNumSeqs": {ContextWindow: 1 << 24, MaxNumSeqs: 2},
		"kvCacheType":                    {KVCacheType: "auto"},
		"gpuLayers":                      {GPULayers: pointer(-1)},
		"vramMi":                         {BudgetMi: math.MaxInt64},
		"plannedMi":                      {Available: Available{PlannedMi: -1}},
	} {
		_, err := model.Estimate(request)
		var problem *Problem
		if !errors.As(err, &problem) || problem.Source != sourceRequest || problem.Field != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestOneModelServesManyQuestionsAtOnce(t *testing.T) {
	model := tinyLlama().read(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			if _, err := model.Estimate(OllamaRequest{ContextWindow: int64(i+1) * 128, BudgetMi: 1500}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}
