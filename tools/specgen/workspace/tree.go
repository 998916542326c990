package workspace

import (
	"bytes"
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
	"slices"
	"strings"
)

// Change tells how a file of the checked-in tree differs from the generated one.
type Change string

// The three ways in which the two trees can differ.
const (
	// Missing files are generated and not checked in.
	Missing Change = "missing"
	// Extra files are checked in and no longer generated.
	Extra Change = "extra"
	// Edited files have other bytes than the generator writes.
	Edited Change = "edited"
)

// Difference is one file in which the checked-in tree differs.
type Difference struct {
	// Path starts with generated/ and has forward slashes.
	Path string
	// Change is the kind of difference.
	Change Change
}

// Differences compares the staged tree with the repository's generated/ folder
// and returns what differs, sorted by path.
func (w *Workspace) Differences() ([]Difference, error) {
	staged, err := w.Files()
	if err != nil {
		return nil, fmt.Errorf("listing the staged files: %w", err)
	}
	checkedIn, err := filesBelow(filepath.Join(w.RepoDir, "generated"))
	if err != nil {
		return nil, fmt.Errorf("listing generated/: %w", err)
	}
	var differences []Difference
	for _, name := range staged {
		if _, found := slices.BinarySearch(checkedIn, name); !found {
			differences = append(differences, Difference{path.Join("generated", name), Missing})
			continue
		}
		same, err := w.same(name)
		if err != nil {
			return nil, err
		}
		if !same {
			differences = append(differences, Difference{path.Join("generated", name), Edited})
		}
	}
	for _, name := range checkedIn {
		if _, found := slices.BinarySearch(staged, name); !found {
			differences = append(differences, Difference{path.Join("generated", name), Extra})
		}
	}
	slices.SortFunc(differences, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return differences, nil
}

func (w *Workspace) same(name string) (bool, error) {
	staged, err := fs.ReadFile(os.DirFS(w.GeneratedDir()), name)
	if err != nil {
		return false, fmt.Errorf("comparing generated/%s: %w", name, err)
	}
	checkedIn := filepath.Join(w.RepoDir, "generated", filepath.FromSlash(name))
	info, err := os.Lstat(checkedIn)
	if err != nil {
		return false, fmt.Errorf("comparing generated/%s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return false, nil
	}
	data, err := fs.ReadFile(os.DirFS(w.RepoDir), path.Join("generated", name))
	if err != nil {
		return false, fmt.Errorf("comparing generated/%s: %w", name, err)
	}
	return bytes.Equal(staged, data), nil
}

// Sync makes the repository's generated/ folder equal to the staged tree. It
// writes the files that changed, removes those that are no longer made, and
// cannot touch anything outside generated/, not even through a symbolic link.
func (w *Workspace) Sync() ([]Difference, error) {
	differences, err := w.Differences()
	if err != nil || len(differences) == 0 {
		return nil, err
	}
	target := filepath.Join(w.RepoDir, "generated")
	if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making generated/: %w", err)
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return nil, fmt.Errorf("opening generated/: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, difference := range differences {
		name := strings.TrimPrefix(difference.Path, "generated/")
		if difference.Change != Missing {
			if err := root.Remove(filepath.FromSlash(name)); err != nil {
				return nil, fmt.Errorf("removing %s: %w", difference.Path, err)
			}
			removeEmptyParents(root, name)
		}
		if difference.Change == Extra {
			continue
		}
		if err := w.copyInto(root, name); err != nil {
			return nil, fmt.Errorf("writing %s: %w", difference.Path, err)
		}
	}
	return differences, nil
}

func (w *Workspace) copyInto(root *os.Root, name string) error {
	data, err := fs.ReadFile(os.DirFS(w.GeneratedDir()), name)
	if err != nil {
		return err
	}
	local := filepath.FromSlash(name)
	if dir := filepath.Dir(local); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return root.WriteFile(local, data, 0o644)
}

// removeEmptyParents drops the folders that the last file has left. A folder
// that still holds something refuses, which ends the climb.
func removeEmptyParents(root *os.Root, name string) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if root.Remove(filepath.FromSlash(dir)) != nil {
			return
		}
	}
}

// filesBelow lists everything below dir that is not a folder, sorted. A folder
// that does not exist has no files.
func filesBelow(dir string) ([]string, error) {
	var files []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, name)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(files)
	return files, err
}

// Fingerprint hashes everything that decides whether a run would change
// anything: the spec, the generator's sources, the module versions, the Go
// release, and the generated tree itself, so that an edited or deleted
// generated file counts.
func Fingerprint(repoDir string) (string, error) {
	sum := sha256.New()
	_, _ = io.WriteString(sum, runtime.Version()+"\n") // a hash takes every byte
	for _, name := range []string{"go.mod", "go.sum", "spec", "tools/specgen", "generated"} {
		if err := hashInto(sum, repoDir, name); err != nil {
			return "", fmt.Errorf("fingerprinting %s: %w", name, err)
		}
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
