package estimates

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

// BenchmarkReadModel is what a Hugging Face model costs once per cache life: its
// config.json, and the index of a large model (90 000 tensors, 8 MB).
func BenchmarkReadModel(b *testing.B) {
	files := fixtureFiles(b, "deepseek-v3")
	tensors := map[string]string{}
	for i := range 90000 {
		tensors[fmt.Sprintf("model.layers.%d.mlp.experts.%d.down_proj.weight_scale_inv", i/1500, i%1500)] = "model-00001-of-000163.safetensors"
	}
	index, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": 688586727753}, "weight_map": tensors})
	if err != nil {
		b.Fatal(err)
	}
	for name, given := range map[string]Files{"config": files, "index": {Config: files.Config, Index: index}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(given.Config) + len(given.Index)))
			for b.Loop() {
				if _, err := ReadModel(given); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEstimate is what a move of a slider costs.
func BenchmarkEstimate(b *testing.B) {
	model := fixture(b, "gemma-3-27b")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := model.Estimate(Request{ContextWindow: 32768, BudgetMi: 24576}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadGGUF is what a GGUF model costs once per cache life, with the
// vocabulary of Llama 3 (128256 words) and the most tensors that are accepted.
func BenchmarkReadGGUF(b *testing.B) {
	for name, file := range map[string]*ggufWriter{"Llama 3.1 8B": llama8B(), "most tensors": mostTensors()} {
		b.Run(name, func(b *testing.B) {
			from, size := file.file()
			b.ReportAllocs()
			b.SetBytes(int64(len(from.data)))
			for b.Loop() {
				if _, err := ReadGGUF(from, size); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// mostTensors is the worst that is accepted.
func mostTensors() *ggufWriter {
	most := llama8B()
	for i := len(most.tensors); i < maxTensors; i++ {
		most.tensor(fmt.Sprintf("blk.%d.x%d.weight", i%32, i), f32, 1)
	}
	return most
}

// BenchmarkScanGGUF is our part of BenchmarkReadGGUF.
func BenchmarkScanGGUF(b *testing.B) {
	from, size := llama8B().file()
	b.ReportAllocs()
	b.SetBytes(int64(len(from.data)))
	for b.Loop() {
		header, err := scanGGUF(from, size)
		if err != nil || header.check() != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOllamaEstimate is what a move of a slider costs: one placement on CPU,
// about nine to find what fits into a budget.
func BenchmarkOllamaEstimate(b *testing.B) {
	model := llama8B().read(b)
	for name, run := range map[string]struct {
		model   *GGUF
		request OllamaRequest
	}{
		"CPU": {model, OllamaRequest{OnCPU: true}}, "GPU": {model, OllamaRequest{}},
		"budget":       {model, OllamaRequest{BudgetMi: 3000, KVCacheType: "q8_0"}},
		"most tensors": {mostTensors().read(b), OllamaRequest{BudgetMi: 3000, KVCacheType: "q8_0"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := run.model.Estimate(run.request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkQuoteNonNumbers is the walk over a document with Python's literals.
func BenchmarkQuoteNonNumbers(b *testing.B) {
	data := append(bytes.Repeat([]byte(`"some text",`), 1000), "NaN"...)
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		quoteNonNumbers(data)
	}
}
