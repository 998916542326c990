package estimates_test

import (
	"fmt"

	"magicstick.dev/operator/handwritten/estimates"
)

// What the admin API does with a reference and the files that it fetched.
func Example() {
	reference, err := estimates.ParseReference("https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct/tree/main")
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := estimates.ReadModel(estimates.Files{
		Config: []byte(`{"num_hidden_layers": 24, "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
			"intermediate_size": 4864, "vocab_size": 151936, "max_position_embeddings": 32768}`),
		Totals: &estimates.Totals{Parameters: map[string]int64{"BF16": 494032768}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	estimate, err := model.Estimate(estimates.Request{ContextWindow: 4096, MaxNumSeqs: 4, OnCPU: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s needs %d Mi of RAM, kvCacheMemoryBytes %d, confidence %s\n",
		reference.Repo(), estimate.MinimumMi, estimate.KVCacheMemoryBytes, estimate.Confidence)

	_, err = estimates.ReadModel(estimates.Files{Config: []byte(`{"num_hidden_layers": "24", "hidden_size": 896, "num_attention_heads": 14}`)})
	fmt.Println(err)
	// Output:
	// Qwen/Qwen2.5-0.5B-Instruct needs 3183 Mi of RAM, kvCacheMemoryBytes 201326592, confidence high
	// reading config.json: num_hidden_layers: must be a whole number from 1 to 1024, got "\"24\""
}
