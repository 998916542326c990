package activations

import (
	"testing"
)

// BenchmarkResolveAndRender is what a pass over an activation costs before
// anything is compared or written.
func BenchmarkResolveAndRender(b *testing.B) {
	for name, local := range map[string]string{
		"VLLM":      "preset: qwen2505bcpu, computeTarget: nvidia-gpu",
		"OLlama":    "preset: qwen2505bcpu, engine: OLlama, computeTarget: cpu",
		"FreeToken": freeTokenBase + "}",
		"Realtime":  realtimeBase("omni-cuda") + "}",
		"refused":   "preset: qwen2505bcpu, computeTarget: cpu, kvCacheType: fp8",
	} {
		b.Run(name, func(b *testing.B) {
			f := facts(b, local)
			b.ReportAllocs()
			for b.Loop() {
				if resolved, err := Resolve(f); err == nil {
					EngineOf(resolved).Render(resolved, Settings{})
				}
			}
		})
	}
}
