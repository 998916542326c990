// Package source says what a source of model files is: files with sizes and
// promised digests at one immutable revision, opened by ranges.
//
// In: what a provider lists (huggingface, ollama, a local file or folder; the
// packages below this one). Out: a Snapshot, whose files a Reader turns into
// checked bytes in order, over several connections, with bounded memory, going on
// at the last byte when a connection breaks.
//
// For: the publishing of models (contract/models.md C.1 to C.4), which must
// never accept a byte that the source did not promise, and must not fetch one
// twice. Every failure is an *Error that carries the reason for the status.
package source
