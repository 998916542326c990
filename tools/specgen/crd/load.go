package crd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// MaxFileBytes bounds one CRD file. etcd refuses objects over 1.5 MiB, so 8 MiB of
// YAML with comments and indentation can only be a mistake.
const MaxFileBytes = 8 << 20

// LoadDir reads every .yaml, .yml and .json file below dir, in path order, and
// checks that no two of them define the same name. Links that lead out of the
// folder are refused. All faults are reported together.
func LoadDir(dir string) ([]*Definition, error) { return LoadDirAs(dir, filepath.ToSlash(dir)) }

// LoadDirAs is LoadDir for a folder that people know by another name: shown takes
// the place of dir in the names of the files.
func LoadDirAs(dir, shown string) ([]*Definition, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the CRD folder %q: %w", shown, err)
	}
	defer root.Close()
	var definitions []*Definition
	var faults []error
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading the CRD folder %q: %w", shown, err)
		}
		if entry.IsDir() || !isManifest(name) {
			return nil
		}
		definition, err := readBelow(root, name, path.Join(shown, name), entry.Type())
		if err != nil {
			faults = append(faults, err)
			return nil
		}
		definitions = append(definitions, definition)
		return nil
	})
	if err != nil {
		return nil, err
	}
	faults = append(faults, duplicates(definitions)...)
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return definitions, nil
}

// readBelow reads one file of a folder. Opening through the root is what keeps a
// link inside it; what is neither file nor link could block the reader for ever.
func readBelow(root *os.Root, name, shown string, mode fs.FileMode) (*Definition, error) {
	link := mode&fs.ModeSymlink != 0
	if !mode.IsRegular() && !link {
		return nil, &Error{File: shown, Reason: "is not a regular file"}
	}
	file, err := root.Open(filepath.FromSlash(name))
	switch {
	case err != nil && link:
		return nil, &Error{File: shown, Reason: "is a link that leads to no file of its folder, and is not followed out of it: " + err.Error()}
	case err != nil:
		return nil, &Error{File: shown, Reason: "cannot be opened: " + err.Error()}
	}
	defer file.Close()
	return read(shown, file)
}

// Load reads one file from anywhere.
func Load(name string) (*Definition, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, &Error{File: name, Reason: err.Error()}
	}
	defer file.Close()
	return read(name, file)
}

// LoadBundle reads one file from anywhere that may hold several documents, as
// published manifests do. Documents that are no CRDs are passed over when there are
// several; a single document must be a CRD.
func LoadBundle(name string) ([]*Definition, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, &Error{File: name, Reason: err.Error()}
	}
	if len(data) > MaxBundleBytes {
		return nil, &Error{File: name, Reason: fmt.Sprintf("is larger than %d bytes", MaxBundleBytes)}
	}
	documents := splitDocuments(data)
	var definitions []*Definition
	var faults []error
	for _, document := range documents {
		if len(documents) > 1 && !claimsCRD(document) {
			continue
		}
		definition, err := Parse(name, document)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		definitions = append(definitions, definition)
	}
	if len(definitions)+len(faults) == 0 {
		faults = append(faults, &Error{File: name, Reason: "holds no CustomResourceDefinition"})
	}
	return definitions, errors.Join(faults...)
}

// MaxBundleBytes bounds a file of several documents.
const MaxBundleBytes = 64 << 20

// splitDocuments cuts at the separators of YAML. Every part is preceded by as many
// empty lines as there are before it in the file, so that line numbers stay right.
func splitDocuments(data []byte) [][]byte {
	var documents [][]byte
	var part []byte
	flush := func(next int) {
		if len(bytes.TrimSpace(stripComments(part))) > 0 {
			documents = append(documents, part)
		}
		part = bytes.Repeat([]byte("\n"), next)
	}
	for i, line := range bytes.SplitAfter(data, []byte("\n")) {
		if trimmed := bytes.TrimRight(line, " \t\r\n"); bytes.Equal(trimmed, []byte("---")) || bytes.HasPrefix(trimmed, []byte("--- #")) {
			flush(i + 1)
			continue
		}
		part = append(part, line...)
	}
	flush(0)
	if len(documents) == 0 {
		return [][]byte{data}
	}
	return documents
}

// stripComments leaves what a YAML reader would see of whole-line comments: nothing.
func stripComments(part []byte) []byte {
	var out []byte
	for line := range bytes.SplitSeq(part, []byte("\n")) {
		if !bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) {
			out = append(out, line...)
		}
	}
	return out
}

// claimsCRD tells whether a document says that it is a CRD, or cannot be read at all;
// then parsing it gives the error.
func claimsCRD(document []byte) (claims bool) {
	defer func() {
		if recover() != nil {
			claims = true
		}
	}()
	var head struct {
		Kind string `json:"kind"`
	}
	return yaml.Unmarshal(document, &head) != nil || head.Kind == "CustomResourceDefinition"
}

// isManifest tells whether a file of the folder is meant to hold a CRD.
func isManifest(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// read reads at most MaxFileBytes and parses them.
func read(name string, file io.Reader) (*Definition, error) {
	data, err := io.ReadAll(io.LimitReader(file, MaxFileBytes+1))
	if err != nil {
		return nil, &Error{File: name, Reason: "cannot be read: " + err.Error()}
	}
	if len(data) > MaxFileBytes {
		return nil, &Error{File: name, Reason: fmt.Sprintf("is larger than %d bytes", MaxFileBytes)}
	}
	return Parse(name, data)
}

// Parse decodes the one CRD in data. name only appears in errors, which are
// *Error values, joined when there are several.
func Parse(name string, data []byte) (definition *Definition, err error) {
	// The YAML libraries have panicked on hostile input before; a broken file must
	// be an error of that file, not the end of the run.
	defer func() {
		if fault := recover(); fault != nil {
			definition, err = nil, &Error{File: name, Reason: fmt.Sprintf("cannot be parsed: %v", fault)}
		}
	}()
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, &Error{File: name, Reason: "is not text in UTF-8"}
	}
	lines, err := scan(name, data)
	if err != nil {
		return nil, err
	}
	// The conversion of sigs.k8s.io/yaml is the one kubectl uses: what counts as a
	// boolean or a number is decided here exactly as on the way to the API server.
	raw, err := yaml.YAMLToJSON(data)
	if err != nil {
		return nil, &Error{File: name, Reason: "is not valid YAML: " + err.Error()}
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, &Error{File: name, Reason: "is not a YAML mapping"}
	}
	if object["apiVersion"] != apiextensionsv1.SchemeGroupVersion.String() || object["kind"] != "CustomResourceDefinition" {
		return nil, &Error{File: name, Line: lineOf(lines, "kind"), Path: "kind", Reason: fmt.Sprintf(
			"is apiVersion %v, kind %v; only %s, kind CustomResourceDefinition is read",
			object["apiVersion"], object["kind"], apiextensionsv1.SchemeGroupVersion)}
	}
	walk := &keywordWalk{file: name, lines: lines}
	walk.schemas(object)
	if len(walk.faults) > 0 {
		return nil, errors.Join(walk.faults...)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	strict, err := kjson.UnmarshalStrict(raw, crd)
	if err == nil {
		err = errors.Join(locate(name, lines, strict)...)
	} else {
		err = &Error{File: name, Reason: "does not decode as a CustomResourceDefinition: " + err.Error()}
	}
	if err != nil {
		return nil, err
	}
	if fault := climbs(crd); fault != nil {
		fault.File, fault.Line = name, lineOf(lines, fault.Path)
		return nil, fault
	}
	if crd.Name == "" {
		return nil, &Error{File: name, Path: "metadata.name", Reason: "is empty"}
	}
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			at := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema").String()
			return nil, &Error{File: name, Line: lineOf(lines, at), Path: at, Reason: "is missing; types cannot be made without a schema"}
		}
	}
	if len(crd.Spec.Versions) == 0 {
		return nil, &Error{File: name, Line: lineOf(lines, "spec"), Path: "spec.versions", Reason: "is empty"}
	}
	return &Definition{File: name, Text: data, CRD: crd, lines: lines}, nil
}

// climbs finds a name that would lead out of the folder which the generators make
// for it: group, version and kind become folders and files.
func climbs(crd *apiextensionsv1.CustomResourceDefinition) *Error {
	names := map[string]string{"spec.group": crd.Spec.Group, "spec.names.kind": crd.Spec.Names.Kind}
	for i, version := range crd.Spec.Versions {
		names[field.NewPath("spec", "versions").Index(i).Child("name").String()] = version.Name
	}
	for _, at := range sortedKeys(names) {
		// A local path of one segment cannot lead anywhere else.
		if name := names[at]; name != "" && (!filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, `/\`)) {
			return &Error{Path: at, Reason: fmt.Sprintf(
				"%q would lead out of the folder that its files are written to; a name holds no slash and is not . or ..", name)}
		}
	}
	return nil
}

// locate turns the strict decoder's findings (unknown field "spec.x") into Errors.
func locate(name string, lines map[string]int, strict []error) []error {
	var faults []error
	for _, err := range strict {
		text := err.Error()
		reason, at := text, ""
		if before, rest, ok := strings.Cut(text, ` "`); ok {
			reason, at = before, strings.TrimSuffix(rest, `"`)
		}
		faults = append(faults, &Error{File: name, Line: lineOf(lines, at), Path: at, Reason: reason})
	}
	return faults
}

// duplicates reports definitions that claim the same object name, or the same
// group and kind.
func duplicates(definitions []*Definition) []error {
	sort.SliceStable(definitions, func(i, j int) bool { return definitions[i].File < definitions[j].File })
	var faults []error
	names, kinds := map[string]string{}, map[string]string{}
	for _, d := range definitions {
		if other, ok := names[d.CRD.Name]; ok {
			faults = append(faults, d.Errorf("metadata.name", "%q is already defined in %q", d.CRD.Name, other))
			continue
		}
		names[d.CRD.Name] = d.File
		kind := d.CRD.Spec.Names.Kind + "." + d.CRD.Spec.Group
		if other, ok := kinds[kind]; ok {
			faults = append(faults, d.Errorf("spec.names.kind", "%q of group %q is already defined in %q", d.CRD.Spec.Names.Kind, d.CRD.Spec.Group, other))
			continue
		}
		kinds[kind] = d.File
	}
	return faults
}
