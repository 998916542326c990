package estimates

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// published are models of Hugging Face. testdata/<name> has the dimensions that
// their authors publish; the numbers here are worked out by hand, as the comments
// show, from contract/appliance.md E.5 and the rules in the doc comments of
// parameters and cacheBytes.
func published() map[string]publishedModel {
	return map[string]publishedModel{
		"llama-2-7b": {
			rule:    "as many KV heads as heads",
			request: Request{MaxNumSeqs: 4},
			// 2*32000*4096 + 32*(4096*(32*128 + 2*32*128) + 4096*4096 + 3*4096*11008)
			// = 6738149376 parameters (published: 6738415616) of 16 bits = 13476298752 bytes
			weightsMi: 12852,
			// 2*32*32*128*2 * 4096 * 4 = 8589934592 bytes
			kvCacheMi: 8192,
			// 8 % of 12852+8192 = 1683.52
			reserveMi: 2048,
			// 12852+8192+2048
			minimumMi: 23092,
			// 15 % of 23092 = 3463.80
			headroomMi:    3464,
			recommendedMi: 26556,
			context:       4096, sequences: 4, confidence: ConfidenceEstimated,
			warnings: []string{"tie_word_embeddings"},
		},
		"llama-3.1-8b": {
			rule:    "grouped KV heads, the index counts, context of the model",
			request: Request{MaxNumSeqs: 1},
			// 16060522496 bytes (published: 8030261248 parameters of 2 bytes)
			weightsMi: 15317,
			// 2*32*8*128*2 * 131072 * 1 = 17179869184 bytes
			kvCacheMi: 16384,
			// 8 % of 15317+16384 = 2536.08
			reserveMi: 2537,
			// 15317+16384+2537
			minimumMi: 34238,
			// 15 % of 34238 = 5135.70
			headroomMi:    5136,
			recommendedMi: 39374,
			context:       131072, sequences: 1, confidence: ConfidenceHigh,
		},
		"qwen2.5-0.5b": {
			rule:    "a window that is switched off, totals by type",
			request: Request{ContextWindow: 4096, MaxNumSeqs: 4},
			// 494032768*2 = 988065536 bytes (published number of parameters)
			weightsMi: 943,
			// 2*24*2*64*2 * 4096 * 4 = 201326592 bytes (head size 896/14 = 64)
			kvCacheMi: 192,
			// 8 % of 943+192 = 90.80
			reserveMi: 2048,
			// 943+192+2048
			minimumMi: 3183,
			// 15 % of 3183 = 477.45
			headroomMi:    2048,
			recommendedMi: 5231,
			context:       4096, sequences: 4, confidence: ConfidenceHigh,
		},
		"falcon-7b": {
			rule:    "one KV head for all, whatever num_kv_heads says; no intermediate size",
			request: Request{},
			// 65024*4544 + 32*(4544*(71*64 + 2*1*64) + 4544*4544 + 8*4544*4544)
			// = 6921420800 parameters (published: 7.2e9) of 16 bits = 13842841600 bytes
			weightsMi: 13202,
			// 2*32*1*64*2 * 2048 * 32 = 536870912 bytes (head size 4544/71 = 64)
			kvCacheMi: 512,
			// 8 % of 13202+512 = 1097.12
			reserveMi: 2048,
			// 13202+512+2048
			minimumMi: 15762,
			// 15 % of 15762 = 2364.30
			headroomMi:    2365,
			recommendedMi: 18127,
			context:       2048, sequences: 32, confidence: ConfidenceEstimated,
		},
		"mixtral-8x7b": {
			rule:    "eight experts in each layer",
			request: Request{MaxNumSeqs: 2},
			// 2*32000*4096 + 32*(4096*(32*128 + 2*8*128) + 4096*4096 + 8*(3*4096*14336 + 4096))
			// = 46702526464 parameters (published: 46.7e9) of 16 bits = 93405052928 bytes
			weightsMi: 89078,
			// 2*32*8*128*2 * 32768 * 2 = 8589934592 bytes
			kvCacheMi: 8192,
			// 8 % of 89078+8192 = 7781.60
			reserveMi: 7782,
			// 89078+8192+7782
			minimumMi: 105052,
			// 15 % of 105052 = 15757.80
			headroomMi:    15758,
			recommendedMi: 120810,
			context:       32768, sequences: 2, confidence: ConfidenceEstimated,
			warnings: []string{"all 8 experts in 32 of 32 layers"},
		},
		"qwen3-30b-a3b": {
			rule:    "experts of their own width, an explicit head size",
			request: Request{ContextWindow: 32768, MaxNumSeqs: 8},
			// 2*151936*2048 + 48*(2048*(32*128 + 2*4*128) + 2048*2048 + 128*(3*2048*768 + 2048))
			// = 30330585088 parameters (published: 30.5e9) of 16 bits = 60661170176 bytes
			weightsMi: 57851,
			// 2*48*4*128*2 * 32768 * 8 = 25769803776 bytes
			kvCacheMi: 24576,
			// 8 % of 57851+24576 = 6594.16
			reserveMi: 6595,
			// 57851+24576+6595
			minimumMi: 89022,
			// 15 % of 89022 = 13353.30
			headroomMi:    13354,
			recommendedMi: 102376,
			context:       32768, sequences: 8, confidence: ConfidenceEstimated,
			warnings: []string{"all 128 experts in 48 of 48 layers"},
		},
		"qwen3-next-80b-a3b": {
			rule:    "every fourth layer has a KV cache, the others a state",
			request: Request{ContextWindow: 65536},
			// 2*151936*2048 + 48*(2048*(16*256 + 2*2*256) + 2048*2048 + 512*(3*2048*512 + 2048) + 3*2048*512)
			// = 78837710848 parameters (published: 80e9) of 16 bits = 157675421696 bytes
			weightsMi: 150371,
			// 2*12*2*256*2 * 65536 * 32 = 51539607552 bytes (48/4 = 12 layers)
			kvCacheMi: 49152,
			// 8 % of 150371+49152 = 15961.84
			reserveMi: 15962,
			// 150371+49152+15962
			minimumMi: 215485,
			// 15 % of 215485 = 32322.75
			headroomMi:    32323,
			recommendedMi: 247808,
			context:       65536, sequences: 32, confidence: ConfidenceEstimated,
			warnings: []string{"12 layers have a KV cache, 36 a state"},
		},
		"lfm2-1.2b": {
			rule:    "layer_types: convolutions keep no keys and values",
			request: Request{ContextWindow: 32768, MaxNumSeqs: 16},
			// 1170340608*2 = 2340681216 bytes (published number of parameters)
			weightsMi: 2233,
			// 2*6*8*64*2 * 32768 * 16 = 6442450944 bytes (six full_attention layers)
			kvCacheMi: 6144,
			// 8 % of 2233+6144 = 670.16
			reserveMi: 2048,
			// 2233+6144+2048
			minimumMi: 10425,
			// 15 % of 10425 = 1563.75
			headroomMi:    2048,
			recommendedMi: 12473,
			context:       32768, sequences: 16, confidence: ConfidenceHigh,
			warnings: []string{"6 layers have a KV cache, 10 a state"},
		},
		"jamba-v0.1": {
			rule:    "one attention layer in eight, experts in every second",
			request: Request{ContextWindow: 262144, MaxNumSeqs: 1},
			// 2*65536*4096 + 32*(4096*(32*128 + 2*8*128) + 4096*4096) + 16*3*4096*14336 + 16*16*(3*4096*14336 + 4096)
			// = 49795825664 parameters (published: 52e9, with the wider recurrent layers) of 16 bits = 99591651328 bytes
			weightsMi: 94978,
			// 2*4*8*128*2 * 262144 * 1 = 4294967296 bytes (layers 4, 12, 20, 28)
			kvCacheMi: 4096,
			// 8 % of 94978+4096 = 7925.92
			reserveMi: 7926,
			// 94978+4096+7926
			minimumMi: 107000,
			// 15 % of 107000 = 16050.00
			headroomMi:    16050,
			recommendedMi: 123050,
			context:       262144, sequences: 1, confidence: ConfidenceEstimated,
			warnings: []string{"all 16 experts in 16 of 32 layers", "4 layers have a KV cache, 28 a state"},
		},
		"gemma-3-27b": {
			rule:    "nested text_config, five windowed layers for each full one",
			request: Request{MaxNumSeqs: 1},
			// 27432406640*2 = 54864813280 bytes (published number of parameters)
			weightsMi: 52324,
			// 2*16*128*2 * (10*131072 + 52*1024) * 1 = 11173625856 bytes (62/6 = 10 full layers)
			kvCacheMi: 10656,
			// 8 % of 52324+10656 = 5038.40
			reserveMi: 5039,
			// 52324+10656+5039
			minimumMi: 68019,
			// 15 % of 68019 = 10202.85
			headroomMi:    10203,
			recommendedMi: 78222,
			context:       131072, sequences: 1, confidence: ConfidenceHigh,
			warnings: []string{"52 layers cache the last 1024 tokens only, 10 the whole context"},
		},
		"internvl2.5-8b": {
			rule:    "nested llm_config, without the part for images",
			request: Request{ContextWindow: 8192, MaxNumSeqs: 16},
			// 2*92553*4096 + 32*(4096*(32*128 + 2*8*128) + 4096*4096 + 3*4096*14336)
			// = 7737516032 parameters (published with images: 8.08e9) of 16 bits = 15475032064 bytes
			weightsMi: 14759,
			// 2*32*8*128*2 * 8192 * 16 = 17179869184 bytes
			kvCacheMi: 16384,
			// 8 % of 14759+16384 = 2491.44
			reserveMi: 2492,
			// 14759+16384+2492
			minimumMi: 33635,
			// 15 % of 33635 = 5045.25
			headroomMi:    5046,
			recommendedMi: 38681,
			context:       8192, sequences: 16, confidence: ConfidenceEstimated,
			warnings: []string{"language model only"},
		},
		"bge-m3": {
			rule:    "float32 and eight sequences for embeddings",
			request: Request{ModelType: "embedding"},
			// 250002*1024 + 24*(1024*(16*64 + 2*16*64) + 1024*1024 + 3*1024*4096)
			// = 658655232 parameters (published: 568e6; two matrices of the mlp instead of three) of 32 bits = 2634620928 bytes
			weightsMi: 2513,
			// 2*24*16*64*2 * 8194 * 8 = 6444023808 bytes
			kvCacheMi: 6146,
			// 8 % of 2513+6146 = 692.72
			reserveMi: 2048,
			// 2513+6146+2048
			minimumMi: 10707,
			// 15 % of 10707 = 1606.05
			headroomMi:    2048,
			recommendedMi: 12755,
			context:       8194, sequences: 8, confidence: ConfidenceEstimated,
		},
		"qwen3-embedding-0.6b": {
			rule:    "an embedding model with an explicit head size",
			request: Request{ModelType: "embedding", ContextWindow: 8192},
			// 595776512*2 = 1191553024 bytes (published number of parameters)
			weightsMi: 1137,
			// 2*28*8*128*2 * 8192 * 8 = 7516192768 bytes
			kvCacheMi: 7168,
			// 8 % of 1137+7168 = 664.40
			reserveMi: 2048,
			// 1137+7168+2048
			minimumMi: 10353,
			// 15 % of 10353 = 1552.95
			headroomMi:    2048,
			recommendedMi: 12401,
			context:       8192, sequences: 8, confidence: ConfidenceHigh,
		},
		"qwen2.5-7b-awq": {
			rule:    "AWQ at 4 bits",
			request: Request{ContextWindow: 8192, MaxNumSeqs: 32},
			// 2*152064*3584 + 28*(3584*(28*128 + 2*4*128) + 3584*3584 + 3*3584*18944)
			// = 7615283200 parameters (published: 7615616512) of 4 bits = 3807641600 bytes, with 12 % 4264558592
			weightsMi: 4067,
			// 2*28*4*128*2 * 8192 * 32 = 15032385536 bytes
			kvCacheMi: 14336,
			// 8 % of 4067+14336 = 1472.24
			reserveMi: 2048,
			// 4067+14336+2048
			minimumMi: 20451,
			// 15 % of 20451 = 3067.65
			headroomMi:    3068,
			recommendedMi: 23519,
			context:       8192, sequences: 32, confidence: ConfidenceEstimated,
			warnings: []string{"tie_word_embeddings"},
		},
		"llama-2-13b-gptq": {
			rule:    "GPTQ at 4 bits",
			request: Request{MaxNumSeqs: 8},
			// 2*32000*5120 + 40*(5120*(40*128 + 2*40*128) + 5120*5120 + 3*5120*13824)
			// = 13015449600 parameters (published: 13015864320) of 4 bits = 6507724800 bytes, with 12 % 7288651776
			weightsMi: 6951,
			// 2*40*40*128*2 * 4096 * 8 = 26843545600 bytes
			kvCacheMi: 25600,
			// 8 % of 6951+25600 = 2604.08
			reserveMi: 2605,
			// 6951+25600+2605
			minimumMi: 35156,
			// 15 % of 35156 = 5273.40
			headroomMi:    5274,
			recommendedMi: 40430,
			context:       4096, sequences: 8, confidence: ConfidenceEstimated,
		},
		"llama-3-8b-fp8": {
			rule:    "FP8 weights and an FP8 cache, each by its own setting",
			request: Request{MaxNumSeqs: 16, KVCacheType: "fp8"},
			// 2*128256*4096 + 32*(4096*(32*128 + 2*8*128) + 4096*4096 + 3*4096*14336)
			// = 8029995008 parameters (published: 8030261248) of 8 bits = 8029995008 bytes, with 12 % 8993594409
			weightsMi: 8577,
			// 2*32*8*128*1 * 8192 * 16 = 8589934592 bytes
			kvCacheMi: 8192,
			// 8 % of 8577+8192 = 1341.52
			reserveMi: 2048,
			// 8577+8192+2048
			minimumMi: 18817,
			// 15 % of 18817 = 2822.55
			headroomMi:    2823,
			recommendedMi: 21640,
			context:       8192, sequences: 16, confidence: ConfidenceEstimated,
		},
		"llama-3.1-8b-w4a16": {
			rule:    "compressed-tensors: the width of the groups",
			request: Request{ContextWindow: 16384, MaxNumSeqs: 8},
			// 2*128256*4096 + 32*(4096*(32*128 + 2*8*128) + 4096*4096 + 3*4096*14336)
			// = 8029995008 parameters (published: 8030261248) of 4 bits = 4014997504 bytes, with 12 % 4496797205
			weightsMi: 4289,
			// 2*32*8*128*2 * 16384 * 8 = 17179869184 bytes
			kvCacheMi: 16384,
			// 8 % of 4289+16384 = 1653.84
			reserveMi: 2048,
			// 4289+16384+2048
			minimumMi: 22721,
			// 15 % of 22721 = 3408.15
			headroomMi:    3409,
			recommendedMi: 26130,
			context:       16384, sequences: 8, confidence: ConfidenceEstimated,
		},
		"llama-3-8b-bnb-4bit": {
			rule:    "bitsandbytes by its switch",
			request: Request{MaxNumSeqs: 4},
			// 2*128256*4096 + 32*(4096*(32*128 + 2*8*128) + 4096*4096 + 3*4096*14336)
			// = 8029995008 parameters (published: 8030261248) of 4 bits = 4014997504 bytes, with 12 % 4496797205
			weightsMi: 4289,
			// 2*32*8*128*2 * 8192 * 4 = 4294967296 bytes
			kvCacheMi: 4096,
			// 8 % of 4289+4096 = 670.80
			reserveMi: 2048,
			// 4289+4096+2048
			minimumMi: 10433,
			// 15 % of 10433 = 1564.95
			headroomMi:    2048,
			recommendedMi: 12481,
			context:       8192, sequences: 4, confidence: ConfidenceEstimated,
		},
		"mistral-7b-v0.1": {
			rule:    "a window in every layer",
			request: Request{MaxNumSeqs: 8},
			// 14483464192 bytes (published: 7241732096 parameters of 2 bytes)
			weightsMi: 13813,
			// 2*32*8*128*2 * 4096 * 8 = 4294967296 bytes (the window, not the context of 32768)
			kvCacheMi: 4096,
			// 8 % of 13813+4096 = 1432.72
			reserveMi: 2048,
			// 13813+4096+2048
			minimumMi: 19957,
			// 15 % of 19957 = 2993.55
			headroomMi:    2994,
			recommendedMi: 22951,
			context:       32768, sequences: 8, confidence: ConfidenceHigh,
			warnings: []string{"32 layers cache the last 4096 tokens only, 0 the whole context"},
		},
		"gemma-2-9b": {
			rule:    "a window in every second layer, by family",
			request: Request{MaxNumSeqs: 4},
			// 256000*3584 + 42*(3584*(16*256 + 2*8*256) + 3584*3584 + 3*3584*14336)
			// = 9164029952 parameters (published: 9.24e9) of 16 bits = 18328059904 bytes
			weightsMi: 17479,
			// 2*8*256*2 * (21*8192 + 21*4096) * 4 = 8455716864 bytes
			kvCacheMi: 8064,
			// 8 % of 17479+8064 = 2043.44
			reserveMi: 2048,
			// 17479+8064+2048
			minimumMi: 27591,
			// 15 % of 27591 = 4138.65
			headroomMi:    4139,
			recommendedMi: 31730,
			context:       8192, sequences: 4, confidence: ConfidenceEstimated,
			warnings: []string{"21 layers cache the last 4096 tokens only, 21 the whole context"},
		},
		"gpt-oss-20b": {
			rule:    "MXFP4 experts, layer_types with windows",
			request: Request{ContextWindow: 65536, MaxNumSeqs: 8},
			// 2*201088*2880 + 24*(2880*(64*64 + 2*8*64) + 2880*2880 + 32*(3*2880*2880 + 2880))
			// = 20823736320 parameters (published: 20.9e9) of 4 bits = 10411868160 bytes, with 12 % 11661292340
			weightsMi: 11122,
			// 2*8*64*2 * (12*65536 + 12*128) * 8 = 12910067712 bytes
			kvCacheMi: 12312,
			// 8 % of 11122+12312 = 1874.72
			reserveMi: 2048,
			// 11122+12312+2048
			minimumMi: 25482,
			// 15 % of 25482 = 3822.30
			headroomMi:    3823,
			recommendedMi: 29305,
			context:       65536, sequences: 8, confidence: ConfidenceEstimated,
			warnings: []string{"12 layers cache the last 128 tokens only, 12 the whole context", "all 32 experts"},
		},
		"deepseek-v3": {
			rule:    "latent attention, experts from the fourth layer on, FP8",
			request: Request{ContextWindow: 32768, MaxNumSeqs: 16},
			// 2*129280*7168 + 61*(7168*1536 + 1536*128*(128+64) + 7168*(512+64) + 512*128*(128+128) + 128*128*7168) + 3*3*7168*18432 + 58*(256*(3*7168*2048 + 7168) + 3*7168*2048)
			// = 671025397760 parameters (published: 671e9) of 8 bits = 671025397760 bytes, with 12 % 751548445492
			weightsMi: 716733,
			// 61*(512+64)*2 * 32768 * 16 = 36842766336 bytes
			kvCacheMi: 35136,
			// 8 % of 716733+35136 = 60149.52
			reserveMi: 60150,
			// 716733+35136+60150
			minimumMi: 812019,
			// 15 % of 812019 = 121802.85
			headroomMi:    121803,
			recommendedMi: 933822,
			context:       32768, sequences: 16, confidence: ConfidenceEstimated,
			warnings: []string{"latent attention", "all 256 experts in 58 of 61 layers"},
		},
	}
}

type publishedModel struct {
	rule                                          string
	request                                       Request
	weightsMi, kvCacheMi, reserveMi, minimumMi    int64
	headroomMi, recommendedMi, context, sequences int64
	confidence                                    Confidence
	// warnings are parts of what has to be said.
	warnings []string
}

func TestPublishedModels(t *testing.T) {
	for name, want := range published() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := fixture(t, name).Estimate(want.request)
			if err != nil {
				t.Fatal(err)
			}
			for _, number := range []struct {
				name      string
				got, want int64
			}{
				{"weights", got.WeightsMi, want.weightsMi},
				{"KV cache", got.KVCacheMi, want.kvCacheMi},
				{"reserve", got.ReserveMi, want.reserveMi},
				{"minimum", got.MinimumMi, want.minimumMi},
				{"recommended reserve", got.RecommendedReserveMi, want.headroomMi},
				{"recommended", got.RecommendedMi, want.recommendedMi},
				{"context window", got.ContextWindow, want.context},
				{"sequences", got.MaxNumSeqs, want.sequences},
			} {
				if number.got != number.want {
					t.Errorf("%s: %s is %d, want %d", want.rule, number.name, number.got, number.want)
				}
			}
			if got.Confidence != want.confidence {
				t.Errorf("confidence %s, want %s", got.Confidence, want.confidence)
			}
			for _, part := range want.warnings {
				if !slices.ContainsFunc(got.Warnings, func(warning string) bool { return strings.Contains(warning, part) }) {
					t.Errorf("no warning with %q in %q", part, got.Warnings)
				}
			}
		})
	}
}

func TestEveryFixtureIsAPublishedModel(t *testing.T) {
	folders, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	known := published()
	for _, folder := range folders {
		if _, used := known[folder.Name()]; !used && folder.Name() != "fuzz" {
			t.Errorf("testdata/%s is not in the table", folder.Name())
		}
	}
}
