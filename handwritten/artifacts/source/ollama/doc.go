// Package ollama is the Ollama registry as a source of models (contract/models.md
// C.2, C.4).
//
// In: a reference such as https://ollama.com/library/qwen3:8b. Out: a
// source.Snapshot pinned to the digest of the layer that the tag names now: the
// GGUF file, with what the model's configuration declares.
//
// The registry speaks the protocol of OCI Distribution with media types of its own.
// Access is anonymous; when it asks for a bearer token, one is fetched from where it
// says, without credentials.
package ollama
