package activations

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/catalogs"
)

func shippedCatalogs(t testing.TB) Catalogs {
	t.Helper()
	presets, err := catalogs.ParsePresets(shipped.ShippedPresetCatalogJSON())
	require.NoError(t, err)
	engines, err := catalogs.ParseEngines(shipped.ShippedEngineCatalogJSON())
	require.NoError(t, err)
	realtime, err := catalogs.ParseRealtime(shipped.ShippedRealtimeCatalogJSON())
	require.NoError(t, err)
	return Catalogs{Presets: presets, Engines: engines, Realtime: realtime}
}

// facts makes an activation called model from the text of spec.local.
func facts(t testing.TB, local string) Facts {
	t.Helper()
	activation := &appliancev1alpha1.ModelActivation{
		ObjectMeta: metav1.ObjectMeta{Name: "model", Namespace: "ai-system"},
		Spec:       appliancev1alpha1.ModelActivationSpec{Type: appliancev1alpha1.ModelActivationSpecTypeLocal, TargetNamespace: "ai"},
	}
	if local != "" {
		activation.Spec.Local = &appliancev1alpha1.ModelActivationSpecLocal{}
		require.NoError(t, yaml.UnmarshalStrict([]byte("{"+local+"}"), activation.Spec.Local))
	}
	return Facts{Activation: activation, Catalogs: shippedCatalogs(t)}
}

func resolve(t testing.TB, local string) *Resolved {
	t.Helper()
	resolved, err := Resolve(facts(t, local))
	require.NoError(t, err)
	return resolved
}

func refuse(t testing.TB, f Facts) *Refusal {
	t.Helper()
	resolved, err := Resolve(f)
	require.Error(t, err)
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	// What is wanted is known beside the refusal when only something else is missing.
	waits := refusal.Reason == conditions.ModelActivationReasonModelNotReady || refusal.Reason == conditions.ModelActivationReasonKubeAIVersionTooOld
	small := strings.Contains(refusal.Rule, "allowMemoryRisk")
	require.Equal(t, waits || small, resolved != nil, refusal.Error())
	return refusal
}

// addressFor is an address that the engine can load.
func addressFor(engine string) string {
	if engine == "OLlama" {
		return "ollama://qwen2.5:0.5b"
	}
	return "hf://a/b"
}

var allTargets = []string{"nvidia-gpu", "amd-gpu", "intel-gpu", "cpu"}

// The engine and target matrix of contract/appliance.md B.4, and D01, S002, S003,
// S005: what each pair is called, and which modules it needs.
func TestEngineOnTarget(t *testing.T) {
	for _, test := range []struct {
		engine, target string
		modules        string // empty: refused
	}{
		{"VLLM", "", "gpu kubeai litellm model-catalog"},
		{"VLLM", "nvidia-gpu", "gpu kubeai litellm model-catalog"},
		{"VLLM", "amd-gpu", "amd-gpu kubeai litellm model-catalog"},
		{"VLLM", "intel-gpu", "intel-gpu kubeai litellm model-catalog"},
		{"VLLM", "cpu", "kubeai litellm model-catalog"},
		{"OLlama", "", "gpu kubeai litellm model-catalog"},
		{"OLlama", "nvidia-gpu", "gpu kubeai litellm model-catalog"},
		{"OLlama", "amd-gpu", "amd-gpu kubeai litellm model-catalog"},
		{"OLlama", "intel-gpu", ""},
		{"OLlama", "cpu", "kubeai litellm model-catalog"},
		{"FreeToken", "", "gpu litellm model-catalog"},
		{"FreeToken", "nvidia-gpu", "gpu litellm model-catalog"},
		{"FreeToken", "amd-gpu", ""},
		{"FreeToken", "intel-gpu", ""},
		{"FreeToken", "cpu", ""},
	} {
		t.Run(test.engine+"_on_"+test.target, func(t *testing.T) {
			local := "engine: " + test.engine + ", url: '" + addressFor(test.engine) + "'"
			if test.target != "" {
				local += ", computeTarget: " + test.target
			}
			if test.engine == "FreeToken" {
				local += ", freetoken: {gpuDevice: 'n/0000:01:00.0', gpuMemoryMi: 1000, systemMemoryMi: 1000}"
			} else {
				local += ", vram: 4Gi"
			}
			f := facts(t, local)
			if test.modules == "" {
				refusal := refuse(t, f)
				assert.Equal(t, conditions.ModelActivationReasonInvalidModelSpec, refusal.Reason)
				assert.Equal(t, "spec.local.computeTarget", refusal.Field)
				assert.Equal(t, test.target, refusal.Value)
				assert.NotContains(t, refusal.Allowed, test.target)
				assert.Contains(t, refusal.Allowed, "nvidia-gpu")
				return
			}
			resolved, err := Resolve(f)
			require.NoError(t, err)
			want := test.target
			if want == "" {
				want = "nvidia-gpu"
			}
			assert.Equal(t, want, string(resolved.Target))
			assert.Equal(t, test.engine, string(resolved.Engine))
			assert.Equal(t, test.modules, strings.Join(resolved.Modules, " "))
			assert.Equal(t, want == "cpu", resolved.Devices == 0)
			assert.Equal(t, want == "cpu", resolved.Resource == "")
		})
	}
}

// Cases S013, S014, S016 and the KV cache matrix of contract/appliance.md B.4:
// every cell, accepted and refused.
func TestKVCacheMatrix(t *testing.T) {
	accepted := map[string]string{
		"VLLM nvidia-gpu": "auto fp8", "VLLM amd-gpu": "auto fp8", "VLLM intel-gpu": "auto", "VLLM cpu": "auto",
		"OLlama nvidia-gpu": "f16 q8_0 q4_0", "OLlama amd-gpu": "f16 q8_0 q4_0", "OLlama cpu": "f16 q8_0 q4_0",
	}
	for _, engine := range []string{"VLLM", "OLlama"} {
		for _, target := range allTargets {
			cell, offered := accepted[engine+" "+target]
			if !offered {
				continue // TestEngineOnTarget
			}
			base := "engine: " + engine + ", computeTarget: " + target + ", url: '" + addressFor(engine) + "', vram: 4Gi"
			t.Run(engine+"_on_"+target+"/absent", func(t *testing.T) {
				resolved := resolve(t, base)
				assert.Empty(t, resolved.KVCacheType)
				assert.Equal(t, strings.Fields(cell)[0], resolved.RequestedKVCacheType)
				for _, arg := range resolved.Args {
					assert.NotContains(t, arg, "kv-cache-dtype")
				}
				assert.NotContains(t, resolved.Env, envOllamaKVCacheType)
				assert.NotContains(t, resolved.Env, envOllamaFlashAttention)
			})
			for _, value := range []string{"auto", "fp8", "f16", "q8_0", "q4_0"} {
				t.Run(engine+"_on_"+target+"/"+value, func(t *testing.T) {
					f := facts(t, base+", kvCacheType: "+value)
					if !slices.Contains(strings.Fields(cell), value) {
						refusal := refuse(t, f)
						assert.Equal(t, "spec.local.kvCacheType", refusal.Field)
						assert.Equal(t, value, refusal.Value)
						assert.Equal(t, strings.Fields(cell), refusal.Allowed)
						return
					}
					resolved, err := Resolve(f)
					require.NoError(t, err)
					assert.Equal(t, value, resolved.RequestedKVCacheType)
					if engine == "VLLM" {
						assert.Contains(t, resolved.Args, "--kv-cache-dtype="+value)
						assert.Equal(t, value == "fp8", slices.Contains(resolved.Args, "--calculate-kv-scales"))
						return
					}
					assert.Equal(t, value, resolved.Env[envOllamaKVCacheType])
					assert.Equal(t, "1", resolved.Env[envOllamaFlashAttention])
				})
			}
		}
	}
}

// Case U022.
func TestPresetQwen3827B(t *testing.T) {
	f := facts(t, "")
	f.Activation.Name = "qwen3827b"
	resolved, err := Resolve(f)
	require.NoError(t, err)
	assert.EqualValues(t, 24062, resolved.VRAMMi)
	assert.EqualValues(t, 24062, resolved.VRAMRequiredMi())
	assert.Equal(t, map[string]string{"ai-appliance.io/context-window": "20000", "ai-appliance.io/max-output-tokens": "8192"}, resolved.Annotations)
	assert.Equal(t, "24062Mi", resolved.Env["MAGICSTICK_VLLM_VRAM_LIMIT"])
	assert.Equal(t, []string{"--tensor-parallel-size=1", "--reasoning-parser=qwen3", "--enable-auto-tool-choice",
		"--tool-call-parser=qwen3_coder", "--max-model-len=20000", "--max-num-seqs=1"}, resolved.Args)
	assert.Equal(t, "magicstick-nvidia-gpu:1", resolved.ResourceProfile())
	assert.Equal(t, "kubeai/qwen3827b", resolved.ModelRef())
	assert.Equal(t, []string{"gpu", "kubeai", "litellm", "model-catalog"}, resolved.Modules, "U021")
	assert.Equal(t, "qwen3827b", resolved.Preset)
	assert.Equal(t, "awq-int4", resolved.Artifact)
	assert.Equal(t, "int4", resolved.Precision)
}

// Cases S018, S020 and every artifact of every variant of every shipped preset.
func TestArtifacts(t *testing.T) {
	all := shippedCatalogs(t)
	for _, id := range all.Presets.IDs() {
		preset, _ := all.Presets.Get(id)
		for _, variant := range preset.Variants {
			for _, target := range variant.ComputeTargets {
				base := "preset: " + id + ", engine: " + string(variant.Engine) + ", computeTarget: " + string(target)
				name := id + "/" + string(variant.Engine) + "_on_" + string(target) + "/"
				for artifactID, artifact := range variant.Artifacts {
					t.Run(name+artifactID, func(t *testing.T) {
						resolved := resolve(t, base+", artifact: "+artifactID)
						assert.Equal(t, artifact.URL, resolved.URL)
						assert.Equal(t, artifactID, resolved.Artifact)
						assert.Equal(t, artifact.Quantization, resolved.Quantization)
						assert.Equal(t, artifact.VRAMMi, resolved.VRAMMi)
						assert.Equal(t, string(preset.Type), resolved.ModelType)
						assert.Equal(t, preset.Features, resolved.Features)
						assert.Equal(t, variant.ContextWindow, resolved.ContextWindow)
						assert.Equal(t, variant.MaxNumSeqs, resolved.MaxNumSeqs)
						if artifact.MemoryRequiredMi > 0 {
							assert.Equal(t, artifact.MemoryRequiredMi, resolved.MemoryMi)
						}
					})
				}
				t.Run(name+"default", func(t *testing.T) {
					assert.Equal(t, variant.DefaultArtifact, resolve(t, base).Artifact)
				})
				t.Run(name+"unknown", func(t *testing.T) {
					refusal := refuse(t, facts(t, base+", artifact: no-such"))
					assert.Equal(t, "spec.local.artifact", refusal.Field)
					assert.Equal(t, "no-such", refusal.Value)
					assert.Equal(t, variant.ArtifactIDs(), refusal.Allowed)
				})
			}
		}
	}
}

func TestSource(t *testing.T) {
	t.Run("legacy lookup by the activation's name", func(t *testing.T) {
		f := facts(t, "")
		f.Activation.Name = "qwen359b"
		resolved, err := Resolve(f)
		require.NoError(t, err)
		assert.Equal(t, "hf://cyankiwi/Qwen3.5-9B-AWQ-4bit", resolved.URL)
	})
	t.Run("url does not start from the preset of the same name", func(t *testing.T) {
		f := facts(t, "url: hf://a/b, vram: 1Gi")
		f.Activation.Name = "qwen3827b"
		resolved, err := Resolve(f)
		require.NoError(t, err)
		assert.Empty(t, resolved.Preset)
		assert.Empty(t, resolved.Annotations)
		assert.Empty(t, resolved.Args)
	})
	t.Run("flat preset is one variant for VLLM on nvidia-gpu", func(t *testing.T) {
		f := facts(t, "preset: old")
		var err error
		f.Presets, err = catalogs.ParsePresets([]byte(`{"presets":{"old":{"title":"Old","type":"embedding","url":"hf://a/b","vram":"1.5Gi",
			"resourceProfile":"mine:9","context_window":4096,"max_output_tokens":512,"max_num_seqs":8,"args":["--x"],"env":{"A":"b"}}}}`))
		require.NoError(t, err)
		resolved, err := Resolve(f)
		require.NoError(t, err)
		assert.Equal(t, "default", resolved.Artifact)
		assert.Equal(t, []string{"--x", "--max-model-len=4096", "--max-num-seqs=8"}, resolved.Args)
		assert.Equal(t, "b", resolved.Env["A"])
		assert.Equal(t, "1.5Gi", resolved.Env[envVRAMLimit])
		assert.EqualValues(t, 1536, resolved.VRAMMi)
		assert.Equal(t, []string{"TextEmbedding"}, resolved.Features)
		assert.Equal(t, "magicstick-nvidia-gpu:1", resolved.ResourceProfile())

		f.Activation.Spec.Local.ComputeTarget = "cpu"
		assert.Equal(t, []string{"VLLM on nvidia-gpu"}, refuse(t, f).Allowed)
	})
	for name, test := range map[string]struct {
		local, field, value, words string
	}{
		"no preset of the activation's name": {"", "spec.local.preset", "", `no preset is called "model"`},
		"unknown preset":                     {"preset: no-such", "spec.local.preset", "no-such", "no such preset"},
		"preset without the pair":            {"preset: qwen3827b, computeTarget: cpu", "spec.local.preset", "qwen3827b", "no variant for VLLM on cpu"},
		"preset without the engine":          {"preset: qwen3827b, engine: OLlama", "spec.local.preset", "qwen3827b", "no variant for OLlama on nvidia-gpu"},
		"ollama address on VLLM":             {"url: ollama://x, vram: 1Gi", "spec.local.url", "ollama://x", "cannot load"},
		"Hugging Face on OLlama":             {"engine: OLlama, url: hf://a/b, vram: 1Gi", "spec.local.url", "hf://a/b", "cannot load"},
		"a bucket that needs a cache":        {"url: gs://a/b, vram: 1Gi", "spec.local.url", "gs://a/b", "cannot load"},
		"oci goes through modelRef":          {"url: oci://a/b, vram: 1Gi", "spec.local.url", "oci://a/b", "cannot load"},
		"revision that KubeAI cannot read":   {"url: hf://a/b@main, vram: 1Gi", "spec.local.url", "hf://a/b@main", "must consist of"},
		"nothing behind the scheme":          {"url: 'hf://', vram: 1Gi", "spec.local.url", "hf://", "must consist of"},
	} {
		t.Run(name, func(t *testing.T) {
			refusal := refuse(t, facts(t, test.local))
			assert.Equal(t, conditions.ModelActivationReasonInvalidModelSpec, refusal.Reason)
			assert.Equal(t, test.field, refusal.Field)
			assert.Equal(t, test.value, refusal.Value)
			assert.Contains(t, refusal.Error(), test.words)
			assert.True(t, strings.HasPrefix(refusal.Error(), "resolving the activation: "+test.field+": "), refusal.Error())
		})
	}
}

func TestType(t *testing.T) {
	f := facts(t, "")
	f.Activation.Spec.Type = "remote"
	refusal := refuse(t, f)
	assert.Equal(t, conditions.ModelActivationReasonUnsupportedType, refusal.Reason)
	assert.EqualError(t, refusal, `resolving the activation: spec.type: no such type, got "remote"; allowed: local, external`)

	f = facts(t, "engine: TensorRT, url: hf://a/b")
	assert.Equal(t, "spec.local.engine", refuse(t, f).Field)
}

// Explicit values win over those of preset and artifact, one by one.
func TestMerge(t *testing.T) {
	const base = "preset: qwen3827b"
	for name, test := range map[string]struct {
		local string
		check func(t *testing.T, resolved *Resolved)
	}{
		"contextWindow": {"contextWindow: 1000", func(t *testing.T, resolved *Resolved) {
			assert.EqualValues(t, 1000, resolved.ContextWindow)
			assert.Contains(t, resolved.Args, "--max-model-len=1000")
			assert.NotContains(t, resolved.Args, "--max-model-len=20000")
			assert.Equal(t, "1000", resolved.Annotations[AnnotationContextWindow])
		}},
		"maxNumSeqs": {"maxNumSeqs: 7", func(t *testing.T, resolved *Resolved) {
			assert.Equal(t, []string{"--max-model-len=20000", "--max-num-seqs=7"}, resolved.Args[len(resolved.Args)-2:])
		}},
		"maxOutputTokens": {"maxOutputTokens: 5", func(t *testing.T, resolved *Resolved) {
			assert.Equal(t, "5", resolved.Annotations[AnnotationMaxOutputTokens])
		}},
		"modelType decides on features": {"modelType: embedding", func(t *testing.T, resolved *Resolved) {
			assert.Equal(t, "embedding", resolved.ModelType)
			assert.Equal(t, []string{"TextEmbedding"}, resolved.Features)
		}},
		"features": {"features: [Reranking, TextEmbedding]", func(t *testing.T, resolved *Resolved) {
			assert.Equal(t, "chat", resolved.ModelType)
			assert.Equal(t, []string{"Reranking", "TextEmbedding"}, resolved.Features)
		}},
		"args replace those of the preset": {"args: [--max_model_len, '5', --seed=1]", func(t *testing.T, resolved *Resolved) {
			assert.Equal(t, []string{"--seed=1", "--max-model-len=20000", "--max-num-seqs=1"}, resolved.Args)
		}},
		"env": {"env: {HF_ENDPOINT: 'https://x'}", func(t *testing.T, resolved *Resolved) {
			assert.Equal(t, "https://x", resolved.Env["HF_ENDPOINT"])
		}},
		"vramMi": {"vramMi: 100", func(t *testing.T, resolved *Resolved) {
			assert.Equal(t, "100", resolved.Env[envVRAMLimit])
			assert.EqualValues(t, 100, resolved.VRAMMi)
		}},
	} {
		t.Run(name, func(t *testing.T) { test.check(t, resolve(t, base+", "+test.local)) })
	}
}

// Environment that divides a GPU is dropped, and what the fields stand for wins
// (contract/appliance.md C.7, H09).
func TestEnvironment(t *testing.T) {
	resolved := resolve(t, `url: hf://a/b, vram: 4Gi, env: {MAGICSTICK_VLLM_ACTIVE_THREAD_PERCENTAGE: '50', MAGICSTICK_MPS_DEVICE: '0',
		CUDA_MPS_ACTIVE_THREAD_PERCENTAGE: '50', CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: '0=1G', CUDA_MPS_PIPE_DIRECTORY: /x,
		MAGICSTICK_VLLM_VRAM_LIMIT: 99Gi, MAGICSTICK_ENGINE: mine, KEPT: kept}`)
	assert.Equal(t, map[string]string{"KEPT": "kept", "MAGICSTICK_VLLM_VRAM_LIMIT": "4Gi", "MAGICSTICK_ENGINE": "VLLM",
		"MAGICSTICK_COMPUTE_TARGET": "nvidia-gpu"}, resolved.Env)

	resolved = resolve(t, `engine: OLlama, computeTarget: cpu, url: 'ollama://x', contextWindow: 8192, maxNumSeqs: 2,
		env: {CUDA_MPS_PIPE_DIRECTORY: /x, OLLAMA_CONTEXT_LENGTH: '1', OLLAMA_NUM_PARALLEL: '9', OLLAMA_KV_CACHE_TYPE: q4_0}`)
	assert.Equal(t, map[string]string{"OLLAMA_CONTEXT_LENGTH": "8192", "OLLAMA_NUM_PARALLEL": "2", "OLLAMA_KV_CACHE_TYPE": "q4_0",
		"MAGICSTICK_ENGINE": "OLlama", "MAGICSTICK_COMPUTE_TARGET": "cpu"}, resolved.Env)
}

// Case S032 for replicas, and contract/appliance.md M11 with merged values.
func TestReplicas(t *testing.T) {
	for local, want := range map[string][2]int64{
		"": {1, 1}, "minReplicas: 1": {1, 1}, "maxReplicas: 3": {1, 3}, "minReplicas: 2, maxReplicas: 2": {2, 2}, "minReplicas: 1, maxReplicas: 100": {1, 100},
	} {
		resolved := resolve(t, "url: hf://a/b, vram: 1Gi, "+local)
		assert.Equal(t, want, [2]int64{resolved.MinReplicas, resolved.MaxReplicas}, local)
	}
	for local, words := range map[string]string{
		"minReplicas: 2":                 "may not exceed maxReplicas, which is 1 when left out",
		"minReplicas: 3, maxReplicas: 2": "may not exceed maxReplicas, which is 2",
	} {
		refusal := refuse(t, facts(t, "url: hf://a/b, vram: 1Gi, "+local))
		assert.Equal(t, "spec.local.minReplicas", refusal.Field)
		assert.Equal(t, words, refusal.Rule)
	}
}

// Contract/appliance.md H48.
func TestNameLimit(t *testing.T) {
	f := facts(t, "url: hf://a/b, vram: 1Gi")
	f.Activation.Name = strings.Repeat("n", 40)
	_, err := Resolve(f)
	require.NoError(t, err)
	f.Activation.Name += "n"
	refusal := refuse(t, f)
	assert.Equal(t, "metadata.name", refusal.Field)
	assert.Equal(t, f.Activation.Name, refusal.Value)
	f.Activation.Spec.Local.Engine, f.Activation.Spec.Local.URL = "OLlama", "ollama://x"
	assert.Equal(t, "metadata.name", refuse(t, f).Field)
}

// Case S021 and the choice between xe and i915 of S003.
func TestResourceProfileIsTheServers(t *testing.T) {
	resolved := resolve(t, "url: hf://a/b, vram: 1Gi, resourceProfile: 'mine:8'")
	assert.Equal(t, "magicstick-nvidia-gpu:1", resolved.ResourceProfile())
	for name, test := range map[string]struct {
		published      map[string]int64
		resource, want string
	}{
		"nothing is published": {nil, "gpu.intel.com/xe", "magicstick-intel-gpu-xe:1"},
		"xe":                   {map[string]int64{"gpu.intel.com/xe": 1}, "gpu.intel.com/xe", "magicstick-intel-gpu-xe:1"},
		"i915":                 {map[string]int64{"gpu.intel.com/i915": 2}, "gpu.intel.com/i915", "magicstick-intel-gpu-i915:1"},
		"both":                 {map[string]int64{"gpu.intel.com/i915": 2, "gpu.intel.com/xe": 1}, "gpu.intel.com/xe", "magicstick-intel-gpu-xe:1"},
		"another vendor's":     {map[string]int64{"nvidia.com/gpu": 2}, "gpu.intel.com/xe", "magicstick-intel-gpu-xe:1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(t, "computeTarget: intel-gpu, url: hf://a/b, vram: 1Gi")
			f.Published = test.published
			resolved, err := Resolve(f)
			require.NoError(t, err)
			assert.Equal(t, test.resource, resolved.Resource)
			assert.Equal(t, test.want, resolved.ResourceProfile())
			assert.Equal(t, "1", resolved.Profile.Spec.Limits[test.resource])
		})
	}
}

// Case U023.
func TestPublishedResources(t *testing.T) {
	node := func(allocatable, capacity string) corev1.Node {
		list := func(text string) corev1.ResourceList {
			if text == "" {
				return nil
			}
			return corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(text), "cpu": resource.MustParse("8")}
		}
		return corev1.Node{Status: corev1.NodeStatus{Allocatable: list(allocatable), Capacity: list(capacity)}}
	}
	nodes := []corev1.Node{node("2", "4"), node("", "1"), node("", "")}
	assert.Equal(t, map[string]int64{"nvidia.com/gpu": 3}, PublishedResources(nodes, []string{"nvidia.com/gpu", "amd.com/gpu"}))
	assert.Empty(t, PublishedResources([]corev1.Node{node("0", "4")}, []string{"nvidia.com/gpu"}), "nothing is allocatable")
	assert.Empty(t, PublishedResources(nil, []string{"nvidia.com/gpu"}))
}

// Cases U020 and U030: an external model reads no hardware and runs nothing.
func TestExternal(t *testing.T) {
	f := facts(t, "")
	f.Activation.Spec.Type = appliancev1alpha1.ModelActivationSpecTypeExternal
	assert.Equal(t, "spec.external", refuse(t, f).Field)
	f.Activation.Spec.External = &appliancev1alpha1.ModelActivationSpecExternal{}
	assert.Equal(t, "spec.external.model", refuse(t, f).Field)
	f.Activation.Spec.External = &appliancev1alpha1.ModelActivationSpecExternal{
		Model: "openai/gpt-4o-mini", ContextWindow: 128000, MaxOutputTokens: 4096,
	}
	resolved, err := Resolve(f)
	require.NoError(t, err)
	assert.Equal(t, []string{"litellm", "model-catalog"}, resolved.Modules)
	assert.Equal(t, "litellm/model", resolved.ModelRef())
	assert.Equal(t, "chat", resolved.ModelType)
	assert.EqualValues(t, 128000, resolved.ContextWindow)
	assert.Empty(t, resolved.ResourceProfile())
	assert.Equal(t, Objects{}, EngineOf(resolved).Render(resolved, Settings{}))

	f.Activation.Spec.TargetNamespace = "other"
	assert.Equal(t, "spec.targetNamespace", refuse(t, f).Field, "H32")
	f.Activation.Spec.TargetNamespace = ""
	f.Activation.Spec.Local = &appliancev1alpha1.ModelActivationSpecLocal{}
	assert.Equal(t, "spec.local", refuse(t, f).Field)
}

// A refusal is the only kind of error that Resolve gives.
func TestRefusalIsTyped(t *testing.T) {
	_, err := Resolve(facts(t, "preset: none"))
	var refusal *Refusal
	require.True(t, errors.As(err, &refusal))
	assert.NotEmpty(t, refusal.Allowed)
}
