package validate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// MaxFile is the largest file in bytes; the API server takes far less in one object.
	MaxFile = 10 << 20
	// Stdin is the file name that stands for standard input.
	Stdin = "-"
)

// extensions are the endings of manifests in a folder.
var extensions = []string{".yaml", ".yml", ".json"}

// Options say what to check.
type Options struct {
	// Files are names of files and folders, and Stdin.
	Files []string
	// Recursive descends into folders of folders.
	Recursive bool
	// SkipUnknownKinds passes over objects of other products instead of refusing them.
	SkipUnknownKinds bool
	// Input is read for Stdin.
	Input io.Reader
}

// Run checks everything that options name. An error means that the check itself
// was not possible, such as a file that does not exist; what is wrong in a file is in the report.
func Run(options Options) (Report, error) {
	names, err := expand(options)
	if err != nil {
		return Report{}, err
	}
	var report Report
	for _, name := range names {
		data, err := read(name, options.Input)
		var tooLarge *tooLargeError
		if errors.As(err, &tooLarge) {
			report.Files++
			report.Problems = append(report.Problems, Problem{File: name, Rule: RuleSize, Message: tooLarge.Error()})
			continue
		}
		if err != nil {
			return Report{}, err
		}
		report.Files++
		report.add(checkFile(name, data, options.SkipUnknownKinds))
	}
	if report.Objects == 0 && report.Skipped == 0 && report.Valid() {
		return Report{}, fmt.Errorf("checking %s: no object found", strings.Join(options.Files, ", "))
	}
	return report, nil
}

func (r *Report) add(other Report) {
	r.Objects += other.Objects
	r.Skipped += other.Skipped
	r.Problems = append(r.Problems, other.Problems...)
	r.Notes = append(r.Notes, other.Notes...)
}

// expand replaces folders by the manifests in them, sorted.
func expand(options Options) ([]string, error) {
	if len(options.Files) == 0 {
		return nil, errors.New("choosing what to check: name at least one file, folder, or - for standard input")
	}
	var names []string
	stdin := false
	for _, name := range options.Files {
		if name == Stdin {
			if stdin {
				return nil, errors.New("choosing what to check: standard input can be read once only")
			}
			stdin = true
			names = append(names, name)
			continue
		}
		if strings.Contains(name, "://") {
			return nil, fmt.Errorf("reading %q: only files can be checked, nothing is fetched from a network", name)
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", name, reason(err))
		}
		if !info.IsDir() {
			names = append(names, name)
			continue
		}
		found, err := manifests(name, options.Recursive)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("reading the folder %q: no file in it ends in %s%s", name, strings.Join(extensions, ", "),
				map[bool]string{true: "", false: "; folders in it are read with --recursive"}[options.Recursive])
		}
		names = append(names, found...)
	}
	return names, nil
}

// manifests lists the regular files of a folder that look like manifests.
// Symbolic links are not followed: they can leave the folder or form a circle.
func manifests(folder string, recursive bool) ([]string, error) {
	var names []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != folder && !recursive:
			return fs.SkipDir
		case entry.Type().IsRegular() && slices.Contains(extensions, strings.ToLower(filepath.Ext(path))):
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the folder %q: %w", folder, reason(err))
	}
	return names, nil
}

// reason is what is left of a file error without the name, which our messages have already.
func reason(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

type tooLargeError struct{}

func (*tooLargeError) Error() string {
	return fmt.Sprintf("the file is larger than %d MiB and was not read", MaxFile>>20)
}

func read(name string, input io.Reader) ([]byte, error) {
	if name != Stdin {
		file, err := os.Open(name) //nolint:gosec // reading the files that the user names is the purpose
		if err != nil {
			return nil, fmt.Errorf("reading %q: %w", name, reason(err))
		}
		defer func() { _ = file.Close() }()
		input = file
	}
	if input == nil {
		return nil, errors.New("reading standard input: there is none")
	}
	data, err := io.ReadAll(io.LimitReader(input, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", name, reason(err))
	}
	if len(data) > MaxFile {
		return nil, &tooLargeError{}
	}
	return data, nil
}
