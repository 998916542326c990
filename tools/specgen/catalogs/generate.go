// Package catalogs turns the shipped catalogs of spec/catalogs and their JSON
// Schemas into the Go package generated/catalogs: typed structs, strict parsers
// and the shipped content.
//
// A catalog is a pair <name>.yaml and <name>.schema.yaml. The schema's title
// names the Go type; every object has a name of its own under $defs.
package catalogs

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"magicstick.dev/operator/tools/specgen/catalogs/strict"
	"magicstick.dev/operator/tools/specgen/workspace"
)

const (
	specFolder   = "catalogs"
	schemaSuffix = ".schema.yaml"
	outputFolder = "catalogs"
)

//go:embed strict/strict.go
var strictSource string

// Generate writes generated/catalogs. A shipped catalog that breaks its schema,
// a schema that has no catalog and a schema node without a Go type are errors
// that name file and path.
func Generate(_ context.Context, ws *workspace.Workspace) error {
	names, err := catalogNames(filepath.Join(ws.SpecDir, specFolder))
	if err != nil {
		return err
	}
	types := newTypeSet()
	for _, name := range names {
		if err := generateOne(ws, name, types); err != nil {
			return err
		}
	}
	parser, err := parserSource()
	if err != nil {
		return err
	}
	return ws.Write(path.Join(outputFolder, "strict.go"), parser)
}

// Names lists the catalogs of a spec folder, sorted.
func Names(ws *workspace.Workspace) ([]string, error) {
	return catalogNames(filepath.Join(ws.SpecDir, specFolder))
}

func catalogNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the shipped catalogs: %w", err)
	}
	seen := map[string][2]bool{}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.Type().IsRegular() {
			return nil, fmt.Errorf("listing the shipped catalogs: spec/%s/%s is not a regular file", specFolder, name)
		}
		catalog, isSchema := strings.CutSuffix(name, schemaSuffix)
		if !isSchema {
			var isYAML bool
			if catalog, isYAML = strings.CutSuffix(name, ".yaml"); !isYAML {
				continue
			}
		}
		pair := seen[catalog]
		if isSchema {
			pair[1] = true
		} else {
			pair[0] = true
		}
		seen[catalog] = pair
	}
	var names []string
	for name, pair := range seen {
		if !pair[0] || !pair[1] {
			return nil, fmt.Errorf("listing the shipped catalogs: spec/%s needs both %s.yaml and %s%s", specFolder, name, name, schemaSuffix)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func generateOne(ws *workspace.Workspace, name string, types *typeSet) error {
	dataFile := path.Join(specFolder, name+".yaml")
	data, err := readJSON(ws, dataFile)
	if err != nil {
		return err
	}
	schemaFile := path.Join(specFolder, name+schemaSuffix)
	schemaJSON, err := readJSON(ws, schemaFile)
	if err != nil {
		return err
	}
	schema, err := LoadSchema(ws, name)
	if err != nil {
		return err
	}
	if err := strict.Check(catalogTitle(schema.Title), schemaJSON, data); err != nil {
		return fmt.Errorf("spec/%s: %w", dataFile, err)
	}
	source, err := types.render(name, schema)
	if err != nil {
		return fmt.Errorf("spec/%s: %w", schemaFile, err)
	}
	for file, content := range map[string][]byte{
		name + ".go":          source,
		name + ".json":        append(data, '\n'),
		name + ".schema.json": append(schemaJSON, '\n'),
	} {
		if err := ws.Write(path.Join(outputFolder, file), content); err != nil {
			return err
		}
	}
	return nil
}

// readJSON reads a YAML file of the spec strictly and returns it as compact
// JSON with sorted keys.
func readJSON(ws *workspace.Workspace, file string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(ws.SpecDir, filepath.FromSlash(file)))
	if err != nil {
		return nil, fmt.Errorf("reading spec/%s: %w", file, err)
	}
	if err := singleDocument(text); err != nil {
		return nil, fmt.Errorf("reading spec/%s: %w", file, err)
	}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("reading spec/%s: %w", file, err)
	}
	canonical, err := canonicalJSON(converted)
	if err != nil {
		return nil, fmt.Errorf("reading spec/%s: %w", file, err)
	}
	return canonical, nil
}

func canonicalJSON(text []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// parserSource is the strict parser as a file of the generated package.
func parserSource() ([]byte, error) {
	_, body, found := strings.Cut(strictSource, "\npackage strict\n")
	if !found {
		return nil, errors.New("copying the strict parser: its source does not declare package strict")
	}
	source := workspace.Header +
		"// Package catalogs holds the shipped catalogs: their types, strict parsers that\n" +
		"// judge a catalog by its JSON Schema, and the content that the product ships.\n" +
		"// What a schema cannot say is checked in handwritten/catalogs.\n" +
		"package catalogs\n" + body
	formatted, err := format.Source([]byte(source))
	if err != nil {
		return nil, fmt.Errorf("copying the strict parser: %w", err)
	}
	return formatted, nil
}
