package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
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
