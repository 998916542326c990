package activations

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/catalogs"
)

// Cases S027, S028, S030 on every pair of engine and target.
func TestVisionAttention(t *testing.T) {
	for _, target := range allTargets {
		for _, value := range []string{"", "auto", "aotriton", "triton", "flash-attn-triton"} {
			t.Run("VLLM_on_"+target+"/"+value, func(t *testing.T) {
				block := "vllm: {}"
				if value != "" {
					block = "vllm: {visionAttention: " + value + "}"
				}
				f := facts(t, "computeTarget: "+target+", url: hf://a/b, vram: 1Gi, "+block)
				if target != "amd-gpu" {
					refusal := refuse(t, f)
					assert.Equal(t, "spec.local.vllm.visionAttention", refusal.Field)
					assert.Empty(t, refusal.Allowed)
					return
				}
				resolved, err := Resolve(f)
				require.NoError(t, err)
				if value == "" {
					value = "triton"
				}
				assert.Equal(t, value, resolved.VisionAttention)
				backend := map[string]string{"auto": "", "aotriton": "TORCH_SDPA", "triton": "TRITON_ATTN", "flash-attn-triton": "FLASH_ATTN"}[value]
				got, found := flagValue(resolved.Args, "mm-encoder-attn-backend", "")
				assert.Equal(t, backend != "", found)
				assert.Equal(t, backend, got)
				assert.Equal(t, value == "aotriton", resolved.Env["TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"] == "1")
				assert.Equal(t, value == "flash-attn-triton", resolved.Env["FLASH_ATTENTION_TRITON_AMD_ENABLE"] == "TRUE")
			})
		}
	}
	const own = `computeTarget: amd-gpu, url: hf://a/b, vram: 1Gi, args: [--mm_encoder_attn_backend, MINE, --seed=1], env: {FLASH_ATTENTION_TRITON_AMD_ENABLE: 'FALSE'}`
	t.Run("omitted leaves arguments and environment alone", func(t *testing.T) {
		resolved := resolve(t, own)
		assert.Equal(t, []string{"--mm_encoder_attn_backend", "MINE", "--seed=1"}, resolved.Args)
		assert.Equal(t, "FALSE", resolved.Env["FLASH_ATTENTION_TRITON_AMD_ENABLE"])
	})
	t.Run("auto removes every override", func(t *testing.T) {
		resolved := resolve(t, own+", vllm: {visionAttention: auto}")
		assert.Equal(t, []string{"--seed=1"}, resolved.Args)
		assert.NotContains(t, resolved.Env, "FLASH_ATTENTION_TRITON_AMD_ENABLE")
	})
	t.Run("a value replaces every override", func(t *testing.T) {
		assert.Equal(t, []string{"--seed=1", "--mm-encoder-attn-backend=TRITON_ATTN"}, resolve(t, own+", vllm: {}").Args)
	})
	t.Run("unknown value", func(t *testing.T) {
		refusal := refuse(t, facts(t, "computeTarget: amd-gpu, url: hf://a/b, vram: 1Gi, vllm: {visionAttention: fast}"))
		assert.Equal(t, []string{"auto", "aotriton", "triton", "flash-attn-triton"}, refusal.Allowed)
	})
	t.Run("OLlama", func(t *testing.T) {
		assert.Equal(t, "spec.local.vllm", refuse(t, facts(t, "engine: OLlama, computeTarget: amd-gpu, url: 'ollama://x', vram: 1Gi, vllm: {}")).Field)
	})
	t.Run("a preset may offer less", func(t *testing.T) {
		f := facts(t, "preset: p, computeTarget: amd-gpu, vllm: {visionAttention: triton}")
		var err error
		f.Presets, err = catalogs.ParsePresets([]byte(`{"visionAttention":{"aotriton":{"args":["--t"]}},"presets":{"p":{"title":"P","variants":[
			{"engine":"VLLM","computeTargets":["amd-gpu"],"visionAttention":["auto","aotriton"],"defaultArtifact":"a","artifacts":{"a":{"url":"hf://a/b","vramMi":1}}}]}}}`))
		require.NoError(t, err)
		assert.Equal(t, []string{"auto", "aotriton"}, refuse(t, f).Allowed)
		f.Activation.Spec.Local.Vllm.VisionAttention = "aotriton"
		resolved, err := Resolve(f)
		require.NoError(t, err)
		assert.Equal(t, []string{"--t"}, resolved.Args)
	})
	t.Run("a value without a meaning", func(t *testing.T) {
		f := facts(t, "computeTarget: amd-gpu, url: hf://a/b, vram: 1Gi, vllm: {}")
		var err error
		f.Presets, err = catalogs.ParsePresets([]byte(`{"presets":{}}`))
		require.NoError(t, err)
		assert.Contains(t, refuse(t, f).Rule, "does not say what it means")
	})
}
