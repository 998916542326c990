package activations

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/generated/conditions"
)

func preparedModel() *PreparedModel {
	return &PreparedModel{
		Kind: "ClusterModel", Name: "qwen", Ready: true, Digest: "sha256:" + strings.Repeat("a", 64),
		Image:  "registry.example.com/models/qwen@sha256:" + strings.Repeat("b", 64),
		Format: "Safetensors", EndpointTypes: []string{"Chat", "TextGeneration"}, ContextWindowTokens: 32768,
	}
}

const (
	onVLLM      = "vram: 4Gi, modelRef: {kind: ClusterModel, name: qwen}"
	onFreeToken = "engine: FreeToken, modelRef: {kind: ClusterModel, name: qwen}, freetoken: {gpuDevice: 'n/0000:01:00.0', gpuMemoryMi: 1, systemMemoryMi: 1}"
	onRealtime  = "modelRef: {kind: ClusterModel, name: qwen}, realtime: {gpuNode: worker-1, profile: omni-cuda}"
)

func withPrepared(t *testing.T, local string, change func(*PreparedModel)) Facts {
	t.Helper()
	f := facts(t, local)
	f.KubeAITakesOCI = true
	f.Prepared = preparedModel()
	if change != nil {
		change(f.Prepared)
	}
	return f
}

// The ruling on modelRef: KubeAI gets the image by its digest, direct runtimes
// mount it, and nobody asks the internet.
func TestPreparedModel(t *testing.T) {
	resolved, err := Resolve(withPrepared(t, onVLLM, nil))
	require.NoError(t, err)
	assert.Equal(t, "oci://registry.example.com/models/qwen@sha256:"+strings.Repeat("b", 64), resolved.URL)
	assert.Equal(t, "1", resolved.Env["HF_HUB_OFFLINE"])
	assert.Equal(t, "1", resolved.Env["TRANSFORMERS_OFFLINE"])
	assert.Equal(t, preparedModel(), resolved.Prepared)

	for _, local := range []string{onFreeToken, onRealtime} {
		f := withPrepared(t, local, func(prepared *PreparedModel) { prepared.PullSecret = "pull" })
		f.KubeAITakesOCI = false // has no say
		resolved, err = Resolve(f)
		require.NoError(t, err)
		assert.Empty(t, resolved.URL)
		assert.Contains(t, strings.Join(append(resolved.Args, resolved.Direct.Command...), " "), "/model")
		assert.Equal(t, "1", resolved.Env["HF_HUB_OFFLINE"])
		pod := EngineOf(resolved).Render(resolved, Settings{ModelCache: "/cache", HuggingFaceSecret: "hf"}).Deployment.Spec.Template.Spec
		assert.Equal(t, "pull", *pod.ImagePullSecrets[0].Name)
		assert.Equal(t, preparedModel().Image, *pod.Volumes[1].Image.Reference)
		assert.Len(t, pod.Volumes, 2, "no cache, no token")
		assert.True(t, *pod.Containers[0].VolumeMounts[1].ReadOnly)
	}
}

func TestPreparedModelNotReady(t *testing.T) {
	for _, local := range []string{onVLLM, onFreeToken, onRealtime} {
		f := withPrepared(t, local, nil)
		f.Prepared = nil
		refusal := refuse(t, f)
		assert.Equal(t, conditions.ModelActivationReasonModelNotReady, refusal.Reason)
		assert.EqualError(t, refusal, "resolving the activation: spec.local.modelRef: ClusterModel qwen does not exist")
		for _, change := range []func(*PreparedModel){
			func(prepared *PreparedModel) { prepared.Ready = false },
			func(prepared *PreparedModel) { prepared.Ready, prepared.Detail = false, "publishing, 40%" },
			func(prepared *PreparedModel) { prepared.Image = "" },
		} {
			f := withPrepared(t, local, change)
			refusal := refuse(t, f)
			assert.Equal(t, conditions.ModelActivationReasonModelNotReady, refusal.Reason)
			assert.Contains(t, refusal.Error(), "ClusterModel qwen is not Ready")
			assert.Contains(t, refusal.Error(), f.Prepared.Detail)
		}
	}
	waiting, err := Resolve(facts(t, "vram: 4Gi, computeTarget: amd-gpu, modelRef: {kind: Model, name: qwen}"))
	require.Error(t, err)
	assert.EqualValues(t, 4096, waiting.VRAMRequiredMi(), "the status has the plan while it waits")
	assert.Equal(t, []string{"amd-gpu", "kubeai", "litellm", "model-catalog"}, waiting.Modules)
	f := facts(t, "vram: 4Gi, modelRef: {kind: Model, name: qwen}")
	assert.Contains(t, refuse(t, f).Error(), "Model ai/qwen does not exist", "a Model is looked for in the target namespace")
}

func TestKubeAITooOld(t *testing.T) {
	f := withPrepared(t, onVLLM, nil)
	f.KubeAITakesOCI = false
	refusal := refuse(t, f)
	assert.Equal(t, conditions.ModelActivationReasonKubeAIVersionTooOld, refusal.Reason)
	assert.Contains(t, refusal.Error(), "June 2026")
}

// What each engine says to each format of the files.
func TestPreparedFormats(t *testing.T) {
	accepted := map[string]string{onVLLM: "Safetensors", onFreeToken: "Safetensors", onRealtime: "Safetensors GGUF Diffusers Newer "}
	for local, formats := range accepted {
		for _, format := range []string{"Safetensors", "GGUF", "Diffusers", "Newer", ""} {
			f := withPrepared(t, local, func(prepared *PreparedModel) { prepared.Format = format })
			if strings.Contains(formats, format) && (format != "" || local == onRealtime) {
				_, err := Resolve(f)
				assert.NoError(t, err, "%s with %q", local, format)
				continue
			}
			refusal := refuse(t, f)
			assert.Equal(t, "spec.local.modelRef", refusal.Field)
			assert.Equal(t, []string{"Safetensors"}, refusal.Allowed)
		}
	}
	refusal := refuse(t, withPrepared(t, "engine: OLlama, vram: 4Gi, modelRef: {kind: ClusterModel, name: qwen}",
		func(prepared *PreparedModel) { prepared.Format = "GGUF" }))
	assert.Equal(t, conditions.ModelActivationReasonInvalidModelSpec, refusal.Reason)
	assert.Contains(t, refusal.Rule, "OLlama cannot serve prepared models")
}

func TestPreparedEndpoints(t *testing.T) {
	for _, test := range []struct {
		wanted, can, want string // want empty: refused
	}{
		{"", "", "chat"},
		{"chat", "", "chat"},
		{"embedding", "", "embedding"},
		{"", "Chat", "chat"},
		{"", "TextGeneration Embeddings", "chat"},
		{"", "Embeddings", "embedding"},
		{"chat", "Embeddings", ""},
		{"embedding", "Chat", ""},
		{"embedding", "Embeddings Chat", "embedding"},
		{"", "ImageGeneration", ""},
		{"chat", "SomethingNew", ""},
	} {
		local := onVLLM
		if test.wanted != "" {
			local += ", modelType: " + test.wanted
		}
		f := withPrepared(t, local, func(prepared *PreparedModel) { prepared.EndpointTypes = strings.Fields(test.can) })
		if test.want == "" {
			assert.Contains(t, refuse(t, f).Rule, "does not serve models of type", test)
			continue
		}
		resolved, err := Resolve(f)
		require.NoError(t, err, test)
		assert.Equal(t, test.want, resolved.ModelType, test)
		assert.Equal(t, map[string]string{"chat": "TextGeneration", "embedding": "TextEmbedding"}[test.want], resolved.Features[0], test)
	}
	// Nobody judges what a realtime profile is given.
	_, err := Resolve(withPrepared(t, onRealtime, func(prepared *PreparedModel) { prepared.EndpointTypes = []string{"ImageGeneration"} }))
	require.NoError(t, err)
}

func TestPreparedContext(t *testing.T) {
	for _, local := range []string{onVLLM, onFreeToken, onRealtime} {
		resolved, err := Resolve(withPrepared(t, local+", contextWindow: 32768", nil))
		require.NoError(t, err)
		assert.EqualValues(t, 32768, resolved.ContextWindow)
		refusal := refuse(t, withPrepared(t, local+", contextWindow: 32769", nil))
		assert.Equal(t, "spec.local.contextWindow", refusal.Field)
		assert.Equal(t, "32769", refusal.Value)
		_, err = Resolve(withPrepared(t, local+", contextWindow: 32769", func(prepared *PreparedModel) { prepared.ContextWindowTokens = 0 }))
		require.NoError(t, err, "unknown is no bound")
	}
}

// A prepared model has no artifact that would say how much memory it needs.
func TestPreparedNeedsVRAM(t *testing.T) {
	assert.Equal(t, "spec.local.vram", refuse(t, withPrepared(t, "modelRef: {kind: ClusterModel, name: qwen}", nil)).Field)
}
