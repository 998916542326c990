package activations

import (
	"encoding/json"
	"errors"
	"testing"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

// Whatever an activation says, it is answered: with a refusal that names a field,
// or with a request that keeps its promises.
func FuzzResolve(f *testing.F) {
	for _, spec := range []string{
		`{"type":"local","local":{"preset":"qwen3827b"}}`,
		`{"type":"local","local":{"preset":"qwen2505bcpu","artifact":"q8-0","engine":"OLlama","computeTarget":"cpu","memoryRequiredMi":17}}`,
		`{"type":"local","local":{"url":"hf://a/b","vram":"1.5Gi","args":["-tp","3","--max-model-len"],"vllm":{},"computeTarget":"amd-gpu"}}`,
		`{"type":"local","local":{"url":"hf://a/b","vramMi":1,"cpuOffloading":true,"memoryRequiredMi":100,"cpuOffloadMi":7}}`,
		`{"type":"local","local":{"url":"hf://a/b","engine":"FreeToken","freetoken":{"gpuDevice":"n/0000:01:00.0","gpuMemoryMi":1,"systemMemoryMi":1}}}`,
		`{"type":"local","local":{"url":"hf://a/b","realtime":{"profile":"omni-cuda","gpuNode":"n","gpuCount":2,"thinkerCpuOffloadGiB":3}}}`,
		`{"type":"local","local":{"modelRef":{"kind":"ClusterModel","name":"qwen"},"vramMi":1}}`,
		`{"type":"external","external":{"model":"openai/x"}}`,
		`{"type":"other"}`,
	} {
		f.Add(spec, true, false)
	}
	all := shippedCatalogs(f)
	f.Fuzz(func(t *testing.T, spec string, oci, shared bool) {
		activation := &appliancev1alpha1.ModelActivation{}
		activation.Name = "model"
		if json.Unmarshal([]byte(spec), &activation.Spec) != nil {
			return
		}
		resolved, err := Resolve(Facts{Activation: activation, Catalogs: all, Prepared: preparedModel(), KubeAITakesOCI: oci, SharedDevice: shared})
		var refusal *Refusal
		switch {
		case err != nil && !errors.As(err, &refusal):
			t.Fatalf("%s: untyped error %v", spec, err)
		case err != nil && (refusal.Reason == "" || refusal.Field == "" || refusal.Rule == ""):
			t.Fatalf("%s: %+v names too little", spec, refusal)
		case err != nil:
			return
		case len(resolved.Modules) < 2:
			t.Fatalf("%s: modules %v", spec, resolved.Modules)
		}
		objects := EngineOf(resolved).Render(resolved, Settings{})
		if resolved.Runtime == RuntimeExternal {
			return
		}
		if (objects.Model == nil) == (objects.Deployment == nil) {
			t.Fatalf("%s: %+v", spec, objects)
		}
		if resolved.MinReplicas < 1 || resolved.MinReplicas > resolved.MaxReplicas {
			t.Fatalf("%s: replicas %d to %d", spec, resolved.MinReplicas, resolved.MaxReplicas)
		}
		if profile := resolved.Profile; profile != nil && (resolved.MemoryMi%(memoryUnitMi*profile.Count) != 0 || resolved.CPU.RequestMillicores%profile.Count != 0) {
			t.Fatalf("%s: %d Mi and %d millicores on %d devices", spec, resolved.MemoryMi, resolved.CPU.RequestMillicores, profile.Count)
		}
	})
}
