package publish

import (
	"context"
	"io"

	"magicstick.dev/operator/handwritten/artifacts/layout"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/transfer"
)

const (
	// allConnections is how many ranges are read at once from a remote source, of
	// all files together; every file has at least minConnections.
	allConnections, minConnections = 8, 2
	// ahead is the size in bytes of one range. Each connection and one more range per
	// file are in memory: at most 24 MiB with four layers under way.
	ahead = 2 << 20
	// parallel is how many layers are under way when nobody says.
	parallel = 4
)

// opener opens the files of a source for the engine.
type opener struct {
	local       bool
	connections int
	// spare are buffers that no file uses now.
	spare chan *source.Buffers
}

func newOpener(plan Plan, layers int) *opener {
	if layers <= 0 {
		layers = parallel
	}
	own := 0
	for _, layer := range plan.Layers {
		if layer.Size >= layout.OwnLayerSize {
			own++
		}
	}
	layers = max(min(layers, own), 1)
	return &opener{
		local:       plan.Snapshot.Kind == source.KindUpload,
		connections: max(allConnections/layers, minConnections),
		spare:       make(chan *source.Buffers, layers),
	}
}

// file is a file of the source as the engine reads it. The engine compares the
// promised digest, because it can go on in the middle of it.
func (o *opener) file(file source.File) *transfer.File {
	out := &transfer.File{Path: file.Path, Size: file.Size}
	switch {
	case file.SHA256 != "":
		out.Algorithm, out.Promise = transfer.SHA256, file.SHA256
	case file.GitBlob != "":
		out.Algorithm, out.Promise = transfer.GitBlob, file.GitBlob
	}
	out.Open = func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		if o.local || length <= ahead || offset+length != file.Size {
			reader, err := file.Open(ctx, offset, length)
			if err != nil {
				return nil, wrap(err)
			}
			return &openFile{Reader: reader, close: reader.Close}, nil
		}
		return o.ranges(ctx, file, offset)
	}
	return out
}

// ranges reads the rest of a file over several connections.
func (o *opener) ranges(ctx context.Context, file source.File, offset int64) (io.ReadCloser, error) {
	var buffers *source.Buffers
	select {
	case buffers = <-o.spare:
	default:
		buffers = source.NewBuffers(o.connections+1, ahead)
	}
	file.SHA256, file.GitBlob = "", ""
	reader, err := source.NewReader(ctx, file, source.ReadOptions{Offset: offset, Connections: o.connections, Buffers: buffers})
	if err != nil {
		return nil, wrap(err)
	}
	return &openFile{Reader: reader, close: func() error {
		err := reader.Close()
		select {
		case o.spare <- buffers:
		default:
		}
		return err
	}}, nil
}

// openFile gives the errors of a source to the engine.
type openFile struct {
	io.Reader
	close func() error
}

func (r *openFile) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	return n, wrap(err)
}

func (r *openFile) Close() error { return r.close() }

// sourceError tells the engine whether reading may be tried again.
type sourceError struct{ err *source.Error }

func (e *sourceError) Error() string   { return e.err.Error() }
func (e *sourceError) Unwrap() error   { return e.err }
func (e *sourceError) Retryable() bool { return e.err.Temporary }

func wrap(err error) error {
	if failed, ok := err.(*source.Error); ok { //nolint:errorlint // a wrapped one has been given words already
		return &sourceError{failed}
	}
	return err
}
