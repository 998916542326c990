// Package format tells what a model's files are: their format, which of them
// belong to the model, and what they say about it (contract/models.md C.7, C.9).
//
// It gets the files of a pinned source.Snapshot, reads small files and headers by
// ranges, never the weights, and gives a Selection and the facts of a model.
// Everything but these reads is pure. Errors are *source.Error with reason
// UnsupportedFormat when the files are to blame.
package format
