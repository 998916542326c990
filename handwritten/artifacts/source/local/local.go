// Package local is a file or a folder on this machine as a source of models.
//
// In: a path. Out: a source.Snapshot without promised digests and without a
// revision. Every file is opened through os.Root, so no link leads out of the
// folder, also when somebody exchanges a part of the path meanwhile; and it is
// compared with what was listed, so that a file that is written to while it is read
// is refused instead of mixed.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// Resolve lists a file, or all files of a folder in the order of their paths.
// Files and folders whose names begin with a dot are left out, as everywhere
// (contract/models.md C.7). Links are followed as long as they stay in the folder;
// links to folders, and what is no regular file, are refused. Errors are
// *source.Error.
func Resolve(name string) (source.Snapshot, error) {
	absolute, err := filepath.Abs(name)
	if err != nil {
		return source.Snapshot{}, fail(err, "opening %q", name)
	}
	info, err := os.Stat(absolute)
	if err != nil {
		return source.Snapshot{}, fail(err, "opening %q", name)
	}
	snapshot := source.Snapshot{Kind: source.KindUpload, Origin: filepath.Base(absolute)}
	if !info.IsDir() {
		file, err := describe(filepath.Dir(absolute), filepath.Base(absolute))
		if err != nil {
			return source.Snapshot{}, err
		}
		snapshot.Files = []source.File{file}
		return snapshot, nil
	}
	names, err := list(absolute)
	if err != nil {
		return source.Snapshot{}, err
	}
	for _, relative := range names {
		file, err := describe(absolute, relative)
		if err != nil {
			return source.Snapshot{}, err
		}
		snapshot.Files = append(snapshot.Files, file)
	}
	snapshot.Files, err = source.Arrange(snapshot.Files)
	return snapshot, err
}

// fail makes an error of the file system one of a source.
func fail(err error, format string, arguments ...any) error {
	var known *source.Error
	if errors.As(err, &known) {
		return known
	}
	reason := conditions.ModelReasonPublicationFailed
	if errors.Is(err, fs.ErrNotExist) {
		reason, err = conditions.ModelReasonSourceNotFound, errors.Join(source.ErrNotFound)
	}
	return source.Fail(reason, err, format, arguments...)
}

// list returns the paths of everything in a folder that is no folder.
func list(folder string) ([]string, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fail(err, "opening %q", folder)
	}
	defer root.Close()
	var names []string
	err = fs.WalkDir(root.FS(), ".", func(relative string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case relative != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		case len(names) >= source.MaxFiles:
			return source.Fail(conditions.ModelReasonUnsupportedSource, source.ErrTooLarge, "listing %q: it has more than %d files", folder, source.MaxFiles)
		}
		names = append(names, relative)
		return nil
	})
	if err != nil {
		return nil, fail(err, "listing %q", folder)
	}
	return names, nil
}

// open opens a file below a folder and tells what it is.
func open(folder, relative string) (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, nil, fail(err, "opening %q", folder)
	}
	defer root.Close()
	// A pipe would block the opening; its kind is known before.
	if info, err := root.Stat(filepath.FromSlash(relative)); err != nil {
		return nil, nil, fail(err, "opening %q", relative)
	} else if !info.Mode().IsRegular() {
		return nil, nil, source.Fail(conditions.ModelReasonUnsupportedFormat, nil, "opening %q: it is no regular file", relative)
	}
	file, err := root.Open(filepath.FromSlash(relative))
	if err != nil {
		return nil, nil, fail(err, "opening %q", relative)
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return nil, nil, fail(err, "opening %q", relative)
	}
	return file, info, nil
}

func describe(folder, relative string) (source.File, error) {
	opened, listed, err := open(folder, relative)
	if err != nil {
		return source.File{}, err
	}
	if err := opened.Close(); err != nil {
		return source.File{}, fail(err, "closing %q", relative)
	}
	same := func(now fs.FileInfo) error {
		if os.SameFile(listed, now) && now.Size() == listed.Size() && now.ModTime().Equal(listed.ModTime()) {
			return nil
		}
		return source.Broken(source.ErrChanged, "opening %q", relative)
	}
	made := source.File{Path: path.Clean(filepath.ToSlash(relative)), Size: listed.Size()}
	made.Open = func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
		if offset < 0 || offset > made.Size {
			return nil, fail(fmt.Errorf("byte %d is outside of its %d bytes", offset, made.Size), "opening %q", relative)
		}
		if length < 0 || length > made.Size-offset {
			length = made.Size - offset
		}
		file, now, err := open(folder, relative)
		if err != nil {
			return nil, err
		}
		if err := same(now); err != nil {
			_ = file.Close()
			return nil, err
		}
		if _, err := file.Seek(offset, io.SeekStart); err != nil {
			_ = file.Close()
			return nil, fail(err, "opening %q", relative)
		}
		return &body{file: file, same: same, left: length, name: relative}, nil
	}
	return made, nil
}

// body is a part of a file. Behind its last byte it looks whether the file is still
// the one that was listed.
type body struct {
	file *os.File
	same func(fs.FileInfo) error
	left int64
	name string
}

// Read reads on.
func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.file.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case errors.Is(err, io.EOF): // before the end that was listed
		return n, source.Broken(source.ErrChanged, "reading %q: it ends too early", b.name)
	case err != nil:
		return n, fail(err, "reading %q", b.name)
	case b.left > 0:
		return n, nil
	}
	now, err := b.file.Stat()
	if err != nil {
		return n, fail(err, "reading %q", b.name)
	}
	return n, b.same(now)
}

// Close closes the file.
func (b *body) Close() error { return b.file.Close() }
