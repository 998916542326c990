package catalogs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/catalogs"
)

func shippedPresets(t testing.TB) *Presets {
	t.Helper()
	presets, err := ParsePresets(catalogs.ShippedPresetCatalogJSON())
	require.NoError(t, err)
	return presets
}

// Case U022 and the table of contract/appliance.md D.3.
func TestShippedPresets(t *testing.T) {
	presets := shippedPresets(t)
	assert.Equal(t, []string{"qwen2505bcpu", "qwen352bvlembedding", "qwen359b", "qwen3635b", "qwen3827b"}, presets.IDs())
	const family = " --reasoning-parser=qwen3 --enable-auto-tool-choice --tool-call-parser=qwen3_coder"
	for id, want := range map[string]struct {
		url, vram                   string
		vramMi, context, out, nSeqs int64
		args                        string
		feature                     string
	}{
		"qwen3827b": {"hf://cyankiwi/Qwen3.8-27B-AWQ-INT4", "24062Mi", 24062, 20000, 8192, 1,
			"--tensor-parallel-size=1 --max-model-len=20000 --max-num-seqs=1" + family, "TextGeneration"},
		"qwen3635b": {"hf://cyankiwi/Qwen3.6-35B-A3B-AWQ-4bit", "15Gi", 15360, 8192, 0, 128,
			"--tensor-parallel-size=1 --max-model-len=8192 --max-num-seqs=128" + family, "TextGeneration"},
		"qwen359b": {"hf://cyankiwi/Qwen3.5-9B-AWQ-4bit", "16Gi", 16384, 8192, 0, 32,
			"--tensor-parallel-size=1 --max-num-seqs=32" + family, "TextGeneration"},
		"qwen352bvlembedding": {"hf://LifetimeMistake/Qwen3-VL-Embedding-2B-AWQ-4bit", "5Gi", 5120, 4096, 0, 0,
			`--runner=pooling --convert=embed --trust-remote-code --quantization=compressed-tensors --limit-mm-per-prompt {"image":1} --max-model-len=4096`,
			"TextEmbedding"},
	} {
		t.Run(id, func(t *testing.T) {
			preset, found := presets.Get(id)
			require.True(t, found)
			assert.Equal(t, []string{want.feature}, preset.Features)
			require.Len(t, preset.Variants, 1)
			variant, found := preset.Variant(catalogs.EngineVLLM, catalogs.ComputeTargetNvidiaGPU)
			require.True(t, found)
			assert.Equal(t, "awq-int4", variant.DefaultArtifact)
			artifact, found := variant.Artifact("")
			require.True(t, found)
			assert.Equal(t, want.url, artifact.URL)
			assert.Equal(t, want.vram, artifact.VRAM)
			assert.Equal(t, want.vramMi, artifact.VRAMMi)
			assert.Equal(t, want.context, variant.ContextWindow)
			assert.Equal(t, want.out, variant.MaxOutputTokens)
			assert.Equal(t, want.nSeqs, variant.MaxNumSeqs)
			assert.Equal(t, want.args, strings.Join(variant.Args, " "))
			_, found = preset.Variant(catalogs.EngineVLLM, catalogs.ComputeTargetCPU)
			assert.False(t, found)
		})
	}
}

// The portable preset runs on every engine and target pair that KubeAI serves,
// with the artifacts and budgets of the seed.
func TestPortablePreset(t *testing.T) {
	preset, found := shippedPresets(t).Get("qwen2505bcpu")
	require.True(t, found)
	for _, test := range []struct {
		engine    catalogs.Engine
		target    catalogs.ComputeTarget
		artifacts string
		ram, vram int64
		kv        int64
	}{
		{catalogs.EngineVLLM, catalogs.ComputeTargetCPU, "bf16", 4096, 0, 536870912},
		{catalogs.EngineVLLM, catalogs.ComputeTargetNvidiaGPU, "bf16", 0, 4096, 0},
		{catalogs.EngineVLLM, catalogs.ComputeTargetAmdGPU, "bf16", 0, 4096, 0},
		{catalogs.EngineVLLM, catalogs.ComputeTargetIntelGPU, "bf16", 0, 4096, 0},
		{catalogs.EngineOLlama, catalogs.ComputeTargetCPU, "q4-k-m fp16 q8-0", 2048, 0, 0},
		{catalogs.EngineOLlama, catalogs.ComputeTargetNvidiaGPU, "q4-k-m fp16 q8-0", 0, 2048, 0},
		{catalogs.EngineOLlama, catalogs.ComputeTargetAmdGPU, "q4-k-m fp16 q8-0", 0, 2048, 0},
		{catalogs.EngineOLlama, catalogs.ComputeTargetIntelGPU, "", 0, 0, 0},
		{catalogs.EngineFreeToken, catalogs.ComputeTargetNvidiaGPU, "", 0, 0, 0},
	} {
		t.Run(string(test.engine)+" on "+string(test.target), func(t *testing.T) {
			variant, found := preset.Variant(test.engine, test.target)
			require.Equal(t, test.artifacts != "", found)
			if !found {
				return
			}
			assert.Equal(t, test.artifacts, strings.Join(variant.ArtifactIDs(), " "))
			artifact, _ := variant.Artifact("")
			assert.Equal(t, test.ram, artifact.MemoryRequiredMi)
			assert.Equal(t, test.vram, artifact.VRAMMi)
			assert.Equal(t, test.kv, artifact.KVCacheMemoryBytes)
			assert.Equal(t, test.engine == catalogs.EngineOLlama, strings.HasPrefix(artifact.URL, "ollama://"))
			_, found = variant.Artifact("awq-int4")
			assert.False(t, found)
		})
	}
}

func TestFlatPreset(t *testing.T) {
	presets, err := ParsePresets([]byte(`{"presets":{
		"old":{"title":"Old","type":"embedding","url":"hf://a/b","resourceProfile":"magicstick-nvidia-gpu:1","vram":"1.5Gi",
			"context_window":4096,"max_output_tokens":512,"max_num_seqs":8,"args":["--x"],"env":{"A":"b"}},
		"both":{"title":"Both","url":"hf://a/b","vramMi":100,"contextWindow":1,"context_window":2},
		"ollama":{"title":"Ollama","engine":"OLlama","url":"ollama://x"}}}`))
	require.NoError(t, err)

	old, _ := presets.Get("old")
	assert.Equal(t, []string{"TextEmbedding"}, old.Features)
	assert.Equal(t, []Variant{{
		Engine:          catalogs.EngineVLLM,
		ComputeTargets:  []catalogs.ComputeTarget{catalogs.ComputeTargetNvidiaGPU},
		DefaultArtifact: "default",
		Artifacts:       map[string]Artifact{"default": {ID: "default", URL: "hf://a/b", VRAM: "1.5Gi", VRAMMi: 1536}},
		ContextWindow:   4096, MaxOutputTokens: 512, MaxNumSeqs: 8,
		Args: []string{"--x"}, Env: map[string]string{"A": "b"},
	}}, old.Variants)

	both, _ := presets.Get("both")
	assert.Equal(t, catalogs.PresetTypeChat, both.Type)
	assert.EqualValues(t, 1, both.Variants[0].ContextWindow, "camelCase wins")
	assert.EqualValues(t, 100, both.Variants[0].Artifacts["default"].VRAMMi)

	ollama, _ := presets.Get("ollama")
	_, found := ollama.Variant(catalogs.EngineOLlama, catalogs.ComputeTargetNvidiaGPU)
	assert.True(t, found)
}

func TestParsePresetsRefuses(t *testing.T) {
	preset := func(body string) string { return `{"presets":{"p":{"title":"P",` + body + `}}}` }
	variant := func(body string) string { return preset(`"variants":[` + body + `]`) }
	const cpu = `{"engine":"VLLM","computeTargets":["cpu"],"defaultArtifact":"a","artifacts":{"a":{"url":"hf://a/b"}}`
	for name, test := range map[string]struct{ text, want string }{
		"neither shape":         {preset(`"type":"chat"`), "presets.p.url: required"},
		"both shapes":           {preset(`"url":"hf://a/b","variants":[` + cpu + `}]`), `presets.p.url: not allowed here, got "hf://a/b"`},
		"twin beside variants":  {preset(`"max_num_seqs":1,"variants":[` + cpu + `}]`), `presets.p.max_num_seqs: not allowed here, got 1`},
		"no variants":           {variant(``), `presets.p.variants: must have at least 1 items, got []`},
		"unknown engine":        {preset(`"url":"hf://a/b","engine":"Ollama"`), `presets.p.engine: must be one of VLLM, OLlama, FreeToken, got "Ollama"`},
		"default artifact":      {variant(`{"engine":"VLLM","computeTargets":["cpu"],"defaultArtifact":"b","artifacts":{"a":{"url":"hf://a/b"}}}`), `presets.p.variants[0].defaultArtifact: no such artifact, got "b"`},
		"pair twice":            {variant(cpu + `},` + cpu + `}`), `presets.p.variants[1].computeTargets[0]: VLLM on cpu is already covered by variants[0], got "cpu"`},
		"ollama on intel":       {variant(`{"engine":"OLlama","computeTargets":["intel-gpu"],"defaultArtifact":"a","artifacts":{"a":{"url":"ollama://a"}}}`), `presets.p.variants[0].computeTargets[0]: OLlama does not run there, got "intel-gpu"`},
		"freetoken on cpu":      {variant(`{"engine":"FreeToken","computeTargets":["cpu"],"defaultArtifact":"a","artifacts":{"a":{"url":"hf://a/b"}}}`), `FreeToken does not run there`},
		"ollama with hf":        {variant(`{"engine":"OLlama","computeTargets":["cpu"],"defaultArtifact":"a","artifacts":{"a":{"url":"hf://a/b"}}}`), `presets.p.variants[0].artifacts.a.url: OLlama cannot load this kind of address, got "hf://a/b"`},
		"vllm with ollama":      {preset(`"url":"ollama://a"`), `presets.p.url: VLLM cannot load this kind of address, got "ollama://a"`},
		"vram and vramMi":       {preset(`"url":"hf://a/b","vram":"1Gi","vramMi":1000`), `presets.p.vramMi: must equal vram, which is 1024, got 1000`},
		"vram zero":             {preset(`"url":"hf://a/b","vram":"0Gi"`), `presets.p.vram: must be between 1Mi and 16777216Mi, got "0Gi"`},
		"vram too large":        {preset(`"url":"hf://a/b","vram":"99999999999Gi"`), `presets.p.vram: must be between`},
		"vram unit":             {preset(`"url":"hf://a/b","vram":"5Ti"`), `presets.p.vram: must match the pattern`},
		"vision on ollama":      {variant(`{"engine":"OLlama","visionAttention":["auto"],"computeTargets":["cpu"],"defaultArtifact":"a","artifacts":{"a":{"url":"ollama://a"}}}`), `presets.p.variants[0].visionAttention: only for engine VLLM, got "OLlama"`},
		"vision without table":  {variant(cpu + `,"visionAttention":["auto","triton"]}`), `presets.p.variants[0].visionAttention[1]: has no entry in the catalog's visionAttention table, got "triton"`},
		"artifact id with dots": {variant(`{"engine":"OLlama","computeTargets":["cpu"],"defaultArtifact":"a.b","artifacts":{"a.b":{"url":"hf://a/b"}}}`), `presets.p.variants[0].artifacts["a.b"].url: OLlama cannot`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParsePresets([]byte(test.text))
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestVisionAttentionTable(t *testing.T) {
	presets, err := ParsePresets([]byte(`{"visionAttention":{"triton":{"args":["--t"],"env":{"T":"1"}}},
		"presets":{"p":{"title":"P","variants":[{"engine":"VLLM","computeTargets":["amd-gpu"],"visionAttention":["auto","triton"],
			"defaultArtifact":"a","artifacts":{"a":{"url":"hf://a/b"}}}]}}}`))
	require.NoError(t, err)
	preset, _ := presets.Get("p")
	assert.Equal(t, []string{"auto", "triton"}, preset.Variants[0].VisionAttention)
	assert.Equal(t, []string{"--t"}, presets.VisionAttention()["triton"].Args)
}

func TestParseSizeMi(t *testing.T) {
	for text, want := range map[string]int64{
		"5Gi": 5120, "24062Mi": 24062, "1024": 1024, "1g": 1024, "2GB": 2048, "3gib": 3072, "7m": 7, "7MB": 7, "7MiB": 7,
		"1.5Gi": 1536, "1.9Mi": 1, "0": 0, " 5 Gi ": 5120,
	} {
		got, readable := ParseSizeMi(text)
		assert.True(t, readable, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "Gi", "5Ti", "5k", "-1Gi", "+1Gi", "1.5", "1..5Gi", ".5Gi", "5.Gi", "1e3Gi", "0x10", "true", "5Gi5", "NaNGi", "99999999999999999999Gi",
	} {
		_, readable := ParseSizeMi(text)
		assert.False(t, readable, text)
	}
}

func FuzzParsePresets(f *testing.F) {
	f.Add(string(catalogs.ShippedPresetCatalogJSON()))
	f.Add(`{"presets":{"old":{"title":"Old","url":"hf://a/b","vram":"1.5Gi","context_window":4096,"args":["--x"],"env":{"A":"b"}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		presets, err := ParsePresets([]byte(text))
		if err != nil {
			return
		}
		for _, id := range presets.IDs() {
			preset, _ := presets.Get(id)
			for _, variant := range preset.Variants {
				for _, target := range variant.ComputeTargets {
					if _, found := preset.Variant(variant.Engine, target); !found {
						t.Fatalf("preset %q: no variant for %s on %s", id, variant.Engine, target)
					}
				}
				if artifact, found := variant.Artifact(""); !found || artifact.VRAMMi < 0 || artifact.VRAMMi > maxMemoryMi {
					t.Fatalf("preset %q: default artifact %+v, %v", id, artifact, found)
				}
			}
		}
	})
}
