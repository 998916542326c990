package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// openLocal is a file, or all regular files below a folder, as a source. Nothing
// vouches for the bytes; a file that changes its size or time while it is read is refused.
func openLocal(name string) (source.Snapshot, error) {
	name = filepath.Clean(name)
	info, err := os.Stat(name)
	if err != nil {
		return source.Snapshot{}, source.Fail(conditions.ModelReasonUnsupportedSource, source.ErrNotFound, "opening %s", name)
	}
	snapshot := source.Snapshot{Kind: source.KindUpload, Origin: filepath.Base(name)}
	if absolute, err := filepath.Abs(name); err == nil {
		snapshot.Origin = filepath.Base(absolute)
	}
	dir := name
	if !info.IsDir() {
		dir = filepath.Dir(name)
		file, err := localFile(dir, filepath.Base(name))
		snapshot.Files = []source.File{file}
		return snapshot, err
	}
	err = filepath.WalkDir(dir, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return source.Fail(conditions.ModelReasonUnsupportedSource, err, "listing %s", dir)
		}
		if entry.IsDir() {
			return nil
		}
		relative, err := filepath.Rel(dir, at)
		if err != nil {
			return fmt.Errorf("listing %s: %w", dir, err)
		}
		file, err := localFile(dir, relative)
		snapshot.Files = append(snapshot.Files, file)
		return err
	})
	if err != nil {
		return source.Snapshot{}, err
	}
	snapshot.Files, err = source.Arrange(snapshot.Files)
	return snapshot, err
}

// localFile is one regular file. Links are refused: where they lead is no part of the folder.
func localFile(dir, relative string) (source.File, error) {
	name := filepath.Join(dir, relative)
	info, err := os.Lstat(name)
	if err != nil {
		return source.File{}, source.Fail(conditions.ModelReasonUnsupportedSource, err, "opening %s", name)
	}
	if !info.Mode().IsRegular() {
		return source.File{}, source.Fail(conditions.ModelReasonUnsupportedSource, nil, "opening %s: it is not a regular file", name)
	}
	open := func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
		file, err := os.Open(name) //nolint:gosec // the person named the folder
		if err != nil {
			return nil, source.Fail(conditions.ModelReasonUnsupportedSource, err, "opening %s", name)
		}
		now, err := file.Stat()
		if err != nil || now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime()) || !os.SameFile(now, info) {
			return nil, errors.Join(source.Fail(conditions.ModelReasonUnsupportedSource, source.ErrChanged, "reading %s", name), file.Close())
		}
		if length < 0 {
			length = info.Size() - offset
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(file, offset, length), file}, nil
	}
	return source.File{Path: path.Clean(filepath.ToSlash(relative)), Size: info.Size(), Open: open}, nil
}
