package estimates

import (
	"fmt"
	"io"

	gguf "github.com/gpustack/gguf-parser-go"
)

// GGUF is what is known of the memory of a model in a GGUF file. It never changes
// and may be shared.
type GGUF struct {
	header *ggufHeader
	file   *gguf.GGUFFile
	// weightsBytes is the sum of all tensors.
	weightsBytes int64
}

// ReadGGUF reads the header of a GGUF file of a size in bytes, at most the first
// 32 MiB, in pieces that grow from 1 MiB. from is as a rule a file on another
// machine of which ranges can be read; its errors are wrapped, all others are a
// *Problem.
//
// The header is bounded before the parser of gguf-parser-go sees it: on its own
// that loops, allocates and nests as the file says, and its panics are not all
// recoverable. The parser only reads files by name, and compares the tensors with
// the size of the file: so it gets a file in memory with the header and a hole.
func ReadGGUF(from io.ReaderAt, size int64) (*GGUF, error) {
	header, err := scanGGUF(from, size)
	if err != nil {
		return nil, err
	}
	if err := header.check(); err != nil {
		return nil, err
	}
	memory, path, err := memoryFile(header.bytes, size)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	out := &GGUF{header: header}
	err = recovered(func() (err error) {
		// Mapped, because the parser makes a system call for each word of the vocabulary otherwise.
		out.file, err = gguf.ParseGGUFFile(path, gguf.SkipLargeMetadata(), gguf.UseMMap())
		return err
	})
	if err != nil {
		return nil, err
	}
	out.weightsBytes = int64(min(out.file.TensorInfos.Bytes(), maxGGUF))
	header.bytes, header.tensors = nil, nil
	return out, nil
}

// recovered calls the library and turns a panic into an error.
func recovered(call func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = &Problem{Source: sourceGGUF, Rule: "cannot be understood: " + shown(fmt.Sprint(panicked))}
		}
	}()
	if err := call(); err != nil {
		return &Problem{Source: sourceGGUF, Rule: "cannot be understood: " + shown(err.Error())}
	}
	return nil
}

// Architecture is the architecture that the file names, as in llama or qwen2.
func (g *GGUF) Architecture() string { return g.header.architecture() }

// ContextWindow is the context in tokens that the model was made for.
func (g *GGUF) ContextWindow() int64 { return g.header.number("context_length") }

// Layers is the number of layers that can lie on a GPU, the output layer included.
func (g *GGUF) Layers() int64 { return g.header.number("block_count") + 1 }
