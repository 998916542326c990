package codegen

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// informerResource is the line in which informer-gen v0.37.2 spells the resource
// of an informer's identity as lower(kind)+"s", whatever the plural is
// (cmd/informer-gen/generators/informer.go, line 114).
var informerResource = regexp.MustCompile(`(gvr := schema\.GroupVersionResource\{Group: "[^"]*", Version: "[^"]*", Resource: ")([^"]*)("\})`)

// genericResource is the case of a kind in the generic informer lookup, whose
// plural lacks the dashes that a Go name cannot have.
var genericResource = regexp.MustCompile(`(\.WithResource\(")([^"]*)("\))`)

// repairInformers puts the CRD's plural into the generated informers. A file of
// a kind without the expected line is an error, so that a new version of the
// generator cannot bring the fault back unnoticed.
func repairInformers(dir string, plurals Plurals) error {
	byFile := map[string]string{}
	byGoPlural := map[string]string{}
	for kind, plural := range plurals {
		byFile[strings.ToLower(kind)+".go"] = plural
		byGoPlural[strings.ToLower(plurals.goName(kind))] = plural
	}
	repaired := map[string]bool{}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("setting the plurals of the informers: %w", err)
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		source, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		var changed []byte
		if plural, ok := byFile[entry.Name()]; ok {
			if !informerResource.Match(source) {
				return fmt.Errorf("%s: no GroupVersionResource to set to %q; informer-gen has changed", entry.Name(), plural)
			}
			repaired[plural] = true
			changed = informerResource.ReplaceAll(source, []byte("${1}"+plural+"${3}"))
		} else if entry.Name() == "generic.go" {
			changed = genericResource.ReplaceAllFunc(source, func(match []byte) []byte {
				parts := genericResource.FindSubmatch(match)
				return []byte(string(parts[1]) + byGoPlural[string(parts[2])] + string(parts[3]))
			})
		} else {
			return nil
		}
		return root.WriteFile(name, changed, 0o600)
	})
	if err != nil {
		return fmt.Errorf("setting the plurals of the informers: %w", err)
	}
	for kind, plural := range plurals {
		if !repaired[plural] {
			return fmt.Errorf("setting the plurals of the informers: no informer was made for %s", kind)
		}
	}
	return nil
}
