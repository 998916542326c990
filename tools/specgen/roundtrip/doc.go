// Package roundtrip proves that generated Go types are faithful to their CRD.
//
// It makes Go types of CRDs (package gotypes) in a module of its own, gives them to
// controller-tools, and compares the schema that comes out with the one that went
// in: validation, defaults, list and map types, preserved fields, embedded
// resources, int-or-string, CEL rules, enums, formats, bounds, names, columns and
// subresources. Descriptions may be reflowed, so they are compared word by word.
//
// Foreign CRDs are read strictly but are not checked as an API server would, nor
// linted: a published CRD with a name that no server takes still has a schema.
package roundtrip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"magicstick.dev/operator/tools/specgen/crd"
)

// Verdict is the outcome for one CRD.
type Verdict string

const (
	// Same means that the schema came back as it was.
	Same Verdict = "same"
	// Differs means that it came back otherwise; Detail says where.
	Differs Verdict = "differs"
	// Refused means that no types could be made; Detail says why.
	Refused Verdict = "refused"
)

// Result is the verdict on one CRD.
type Result struct {
	// Name is the CRD's metadata.name, or the file when it could not be read.
	Name string
	// Verdict is the outcome.
	Verdict Verdict
	// Nodes counts the schema nodes of all versions.
	Nodes int
	// Detail names the first difference or the error, with its JSON path.
	Detail string
}

// ErrNotSame is returned by Run when a CRD differs or is refused.
var ErrNotSame = errors.New("not every CRD came back the same")

// Run compares every CRD of the files and folders in paths and writes one line per
// CRD, NAME same|differs|refused DETAIL, and a count. repo is the root of the
// repository, whose go.mod says against which API modules the types are read. The
// error is ErrNotSame when a line says something else than same.
func Run(ctx context.Context, repo string, paths []string, out io.Writer) error {
	definitions, unread, err := load(paths)
	if err != nil {
		return err
	}
	results, err := Compare(ctx, repo, definitions)
	if err != nil {
		return err
	}
	results = append(results, unread...)
	slices.SortStableFunc(results, func(a, b Result) int { return strings.Compare(a.Name, b.Name) })
	count := map[Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
		detail := r.Detail
		if detail == "" {
			detail = fmt.Sprintf("%d nodes", r.Nodes)
		}
		fmt.Fprintf(out, "%s %s %s\n", r.Name, r.Verdict, strings.Join(strings.Fields(detail), " "))
	}
	fmt.Fprintf(out, "%d CRDs: %d same, %d differ, %d refused\n", len(results), count[Same], count[Differs], count[Refused])
	if len(results) == 0 {
		return fmt.Errorf("looking for CRDs in %s: no file found", strings.Join(paths, ", "))
	}
	if count[Same] != len(results) {
		return ErrNotSame
	}
	return nil
}

// load reads all files; one that cannot be read becomes a refused result, so that
// one broken file does not hide the verdict on the others.
func load(paths []string) ([]*crd.Definition, []Result, error) {
	var files []string
	for _, path := range paths {
		err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return fmt.Errorf("reading %q: %w", path, err)
			}
			switch strings.ToLower(filepath.Ext(name)) {
			case ".yaml", ".yml", ".json":
				if !entry.IsDir() {
					files = append(files, name)
				}
			default:
				if name == path && !entry.IsDir() {
					files = append(files, name)
				}
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(files)
	var definitions []*crd.Definition
	var results []Result
	seen := map[string]string{}
	for _, file := range slices.Compact(files) {
		found, err := crd.LoadBundle(file)
		if err != nil {
			if _, missing := os.Stat(file); missing != nil {
				return nil, nil, err
			}
			results = append(results, Result{Name: file, Verdict: Refused, Detail: err.Error()})
		}
		for _, definition := range found {
			if other, ok := seen[definition.Name()]; ok {
				results = append(results, Result{Name: definition.Name(), Verdict: Refused, Detail: fmt.Sprintf("CRD file %q: the name is already defined in %q", file, other)})
				continue
			}
			seen[definition.Name()] = file
			definitions = append(definitions, definition)
		}
	}
	return definitions, results, nil
}
