// Package huggingface is the Hugging Face Hub as a source of models
// (contract/models.md C.2, C.3).
//
// In: a reference such as https://huggingface.co/owner/repo/tree/main and a token.
// Out: a source.Snapshot pinned to one commit, with every file's size and promised
// digest: SHA-256 for large files, the git object id for small ones.
//
// The list of files comes from the tree API, so that no file has to be asked for
// its size. Files are read through "resolve", which leads large files to another
// host; that host never sees the token.
package huggingface
