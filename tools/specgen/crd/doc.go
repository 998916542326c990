// Package crd reads CustomResourceDefinitions for the generators and refuses
// everything that a generator could misread.
//
// Load, LoadDir and LoadBundle are strict: an unknown or repeated key, a second document, a
// foreign kind, a reference or a path that leaves the folder is an Error that
// names the file, the line, the JSON path and the reason. Check then asks the API
// server's own validation (structural schema, CEL compilation, CEL cost), Lint
// adds the rules of this project's spec (bounds on every string, list and map,
// a description on every field), and Costs reports what every CEL rule costs.
package crd

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Definition is one loaded CustomResourceDefinition.
type Definition struct {
	// File is the path that the definition was read from, as the caller named it.
	File string
	// Text is the file, or the document of a file of several, as it stands.
	Text []byte
	// CRD is the decoded object, defaults not filled in.
	CRD *apiextensionsv1.CustomResourceDefinition
	// lines maps a JSON path to its line in File, so that later checks can name it.
	lines map[string]int
}

// Name is the object's metadata.name.
func (d *Definition) Name() string { return d.CRD.Name }

// Copy is a definition whose object can be changed without changing d's.
func (d *Definition) Copy() *Definition {
	other := *d
	other.CRD = d.CRD.DeepCopy()
	return &other
}

// Errorf makes an Error at a JSON path of this definition.
func (d *Definition) Errorf(path, format string, args ...any) *Error {
	return &Error{File: d.File, Line: lineOf(d.lines, path), Path: path, Reason: fmt.Sprintf(format, args...)}
}

// Error is one fault of a CRD file.
type Error struct {
	// File is the file as the caller named it.
	File string
	// Line is the line in the file, 0 when unknown.
	Line int
	// Path is the JSON path of the node, in the notation of the API server:
	// spec.versions[0].schema.openAPIV3Schema.properties[spec]. Empty when the
	// fault concerns the whole file.
	Path string
	// Reason says which rule is broken and by which value.
	Reason string
	// subject is set for faults that bear on other faults, see Verify.
	subject subject
}

type subject int

const (
	// bounds: a value has no limit.
	bounds subject = iota + 1
	// costs: a rule is too dear.
	costs
)

// Error implements error: file, line, path, reason.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CRD file %q", e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ", line %d", e.Line)
	}
	if e.Path != "" {
		b.WriteString(", " + e.Path)
	}
	b.WriteString(": " + e.Reason)
	return b.String()
}

// lineOf finds the line of the path, or of its nearest known parent: API-server
// errors may name a key that the file does not have.
func lineOf(lines map[string]int, path string) int {
	for path != "" {
		if line, ok := lines[path]; ok {
			return line
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return 0
		}
		path = path[:cut]
	}
	return 0
}
