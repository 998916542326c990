package source

import (
	"context"
	"io"
)

// Kinds of source, as status.source.resolvedType names them (contract/models.md B.3).
const (
	// KindHuggingFace is a repository of the Hugging Face Hub.
	KindHuggingFace = "HuggingFace"
	// KindOllama is a model of the Ollama registry.
	KindOllama = "Ollama"
	// KindUpload is a local file or folder, or what a person uploaded.
	KindUpload = "Upload"
)

// File is one file of a source at a fixed revision. It may be copied; copies
// share what was learned about the remote file.
type File struct {
	// Path is slash-separated, relative and clean; at most MaxPathBytes bytes.
	Path string
	// Size is in bytes, -1 when the source does not tell.
	Size int64
	// SHA256 is the digest that the source promises, 64 lower-case hex digits; ""
	// when it promises none.
	SHA256 string
	// GitBlob is the git object id that the source promises, 40 lower-case hex
	// digits: SHA-1 over "blob <size>\x00" and the content. "" when it promises
	// none. A Reader checks it when there is no SHA256.
	GitBlob string
	// Open reads from offset to the end, or length bytes when length >= 0. Each
	// call is its own connection; calls may run at the same time. The content is
	// the same for all calls: when the source changes it, Open fails with
	// ErrChanged. The stream is not checked against the promised digest and may
	// break: use a Reader for that. Errors are *Error.
	Open func(ctx context.Context, offset, length int64) (io.ReadCloser, error)
	// Confirm asks the source whether the file is still there with this size and
	// digest, without reading it. nil when there is nothing to ask.
	Confirm func(ctx context.Context) error
}

// Snapshot is a source pinned to one immutable revision.
type Snapshot struct {
	// Kind is KindHuggingFace, KindOllama or KindUpload.
	Kind string
	// Origin names the source for people, without credentials: "owner/repo",
	// "ollama.com/library/name:tag", the base name of a local file or folder.
	Origin string
	// Revision is what Files are pinned to: a commit of Hugging Face,
	// "<tag>@<layer digest>" of Ollama, "" of local files.
	Revision string
	// Files are sorted by Path, without duplicates.
	Files []File
	// Wanted is the path of the one file that the reference named, "" when it
	// named the whole source.
	Wanted string
	// Declared is what the source says about the model.
	Declared Declared
}

// Declared is what a provider says about a model beside its files
// (contract/models.md C.3, C.4, C.9). Empty and zero values are unknown. It is
// foreign text: bounded, but otherwise unchecked.
type Declared struct {
	// PipelineTag is the raw pipeline_tag of Hugging Face.
	PipelineTag string
	// TaskTypes are the raw task types of the model index of Hugging Face, in
	// order, without duplicates.
	TaskTypes []string
	// License is the identifier of Hugging Face, or the first line of Ollama's
	// licence text.
	License string
	// Family is Ollama's model_family, or the first of model_families.
	Family string
	// ParameterCount is from Ollama's model_type.
	ParameterCount int64
	// Quantization is Ollama's file_type.
	Quantization string
	// ContextWindowTokens is num_ctx from Ollama's params.
	ContextWindowTokens int64
	// Features are provider-specific names, such as Ollama's renderer and parser.
	Features []string
}
