// Package estimates tells how much memory a model needs before a byte of its
// weights is downloaded (contract/appliance.md E.5).
//
// In: what a model publishes about itself - config.json, the metadata of
// model.safetensors.index.json, the totals of the Hugging Face API, or the header
// of a GGUF file that the caller reads by ranges - and what somebody wants of it:
// context, sequences, precision of the KV cache, a GPU budget.
// Out: an Estimate with the parts (weights, KV cache, reserve), minimum,
// recommended and maximum, how far to trust it, and warnings; for models that
// may keep weights in RAM, an Offloading; for bad input a Problem that names
// file, field, rule and value.
//
// For: the person who picks a model and must learn in time that it cannot fit,
// and the admin API, which derives kvCacheMemoryBytes and cpuOffloadMi from it.
//
//   - reference.go: which repository a reference means.
//   - model.go, shape.go, layers.go, weights.go, quantization.go: what the files
//     of a Hugging Face repository say. fields.go reads their JSON.
//   - vllm.go, offloading.go: vLLM on a GPU and on CPU.
//   - gguf_scan.go, gguf_check.go, gguf.go: the header of a GGUF file.
//   - ollama.go: Ollama on a GPU and on CPU.
//   - planning.go: what activations have been promised already.
//
// Everything here is pure: no network, no clock. All foreign bytes are bounded
// before they are kept, and all arithmetic on foreign numbers saturates. Amounts
// of memory are in Mi (2^20 bytes) and round up, unless a name says bytes.
package estimates
