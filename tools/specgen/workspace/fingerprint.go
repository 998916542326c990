package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// Fingerprint hashes everything that decides whether a run would change
// anything: the spec, the generator's sources, the module versions, the Go
// release, and the generated tree itself, so that an edited or deleted
// generated file counts.
func Fingerprint(repoDir string) (string, error) {
	read, err := inputs(repoDir, repoDir)
	if err != nil {
		return "", err
	}
	return withGenerated(read, repoDir)
}

// Fingerprint is the fingerprint of a repository in which generated/ is what this
// run has staged, made from what the run has read. It is of what the run knows,
// not of the repository as it is by now: an edit in between must not count as done.
func (w *Workspace) Fingerprint() (string, error) { return withGenerated(w.inputs, w.ModuleDir) }

// InputsChanged tells whether spec, generator or module versions of the repository
// are no longer what the run began with.
func (w *Workspace) InputsChanged() (bool, error) {
	now, err := inputs(w.RepoDir, w.RepoDir)
	return now != w.inputs, err
}

// inputs hashes what a run reads; the generator's own sources may lie elsewhere.
func inputs(moduleDir, sourceDir string) (string, error) {
	sum := sha256.New()
	_, _ = io.WriteString(sum, runtime.Version()+"\n") // a hash takes every byte
	for _, part := range []struct{ dir, name string }{
		{moduleDir, "go.mod"}, {moduleDir, "go.sum"}, {moduleDir, "spec"}, {sourceDir, "tools/specgen"},
	} {
		if err := hashInto(sum, part.dir, part.name); err != nil {
			return "", fmt.Errorf("fingerprinting %s: %w", part.name, err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func withGenerated(read, dir string) (string, error) {
	sum := sha256.New()
	_, _ = io.WriteString(sum, read+"\n")
	if err := hashInto(sum, dir, "generated"); err != nil {
		return "", fmt.Errorf("fingerprinting generated: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func hashInto(sum hash.Hash, repoDir, name string) error {
	repo := os.DirFS(repoDir)
	info, err := fs.Lstat(repo, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	files := []string{"."}
	if info.IsDir() {
		if files, err = filesBelow(filepath.Join(repoDir, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") && name == "tools/specgen" {
			continue
		}
		if err := hashFile(sum, repo, path.Join(name, file)); err != nil {
			return err
		}
	}
	return nil
}

func hashFile(sum hash.Hash, repo fs.FS, name string) error {
	info, err := fs.Lstat(repo, name)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(sum, "%s %s %d\n", name, info.Mode().Type(), info.Size())
	if !info.Mode().IsRegular() {
		return nil
	}
	content, err := repo.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	_, err = io.Copy(sum, content)
	return err
}
