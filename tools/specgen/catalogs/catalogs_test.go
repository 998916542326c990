package catalogs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// stage makes a workspace for a repository whose spec/catalogs has the given files.
func stage(t *testing.T, files map[string]string) *workspace.Workspace {
	t.Helper()
	repo := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module x\n", "go.sum": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(repo, name), []byte(text), 0o600))
	}
	dir := filepath.Join(repo, "spec", specFolder)
	require.NoError(t, os.MkdirAll(dir, 0o750))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return open(t, repo)
}

func open(t *testing.T, repo string) *workspace.Workspace {
	t.Helper()
	ws, err := workspace.New(repo)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.Close() })
	return ws
}

func generated(t *testing.T, ws *workspace.Workspace) map[string]string {
	t.Helper()
	names, err := ws.Files()
	require.NoError(t, err)
	files := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(ws.GeneratedDir(), filepath.FromSlash(name)))
		require.NoError(t, err)
		files[name] = string(text)
	}
	return files
}

// A second run over the product's own spec gives the same bytes.
func TestGenerateFromSpec(t *testing.T) {
	repo, err := filepath.Abs("../../..")
	require.NoError(t, err)
	first, second := open(t, repo), open(t, repo)
	require.NoError(t, Generate(context.Background(), first))
	require.NoError(t, Generate(context.Background(), second))
	files := generated(t, first)
	assert.Equal(t, files, generated(t, second))
	require.Contains(t, files, "catalogs/modules.go")
}

const smallSchema = `
title: ToolCatalog
description: Tools.
type: object
additionalProperties: false
required: [tools]
properties:
  tools:
    description: Tools by name.
    type: object
    additionalProperties: {$ref: '#/$defs/Tool'}
$defs:
  Tool:
    description: A tool.
    type: object
    additionalProperties: false
    required: [apiUrl]
    properties:
      apiUrl: {description: Address., type: string}
      kind: {description: Kind., type: string, enum: [drive-bay, "12V"]}
      weightKg: {description: Weight., type: integer, minimum: 0}
      lengthMm: {description: Length., type: integer, minimum: 1}
      sharp: {description: Sharp., type: boolean, default: false}
      clean: {description: Clean., type: boolean}
      parts: {description: Parts., type: array, items: {$ref: '#/$defs/Tool'}}
      share: {description: Share., type: number, minimum: 0.5}
      spare: {$ref: '#/$defs/Tool'}
      labels: {description: Labels., type: object, additionalProperties: {type: array, items: {type: string}}}
      nodeIds: {description: Nodes., type: array, items: {$ref: '#/$defs/NodeID'}}
  NodeID: {description: Node., type: string, maxLength: 8}
`

func TestGoTypes(t *testing.T) {
	ws := stage(t, map[string]string{
		"tools.schema.yaml": smallSchema,
		"tools.yaml":        "tools: {hammer: {apiUrl: 'https://x', weightKg: 0}}",
	})
	require.NoError(t, Generate(context.Background(), ws))
	files := generated(t, ws)
	source := files["catalogs/tools.go"]
	for _, want := range []string{
		"func ParseToolCatalog(data []byte) (*ToolCatalog, error)",
		"func ShippedToolCatalogJSON() []byte",
		"Tools map[string]Tool `json:\"tools\"`",
		"APIURL string `json:\"apiUrl\"`",
		"Kind ToolKind `json:\"kind,omitempty\"`",
		"ToolKindDriveBay ToolKind = \"drive-bay\"",
		"ToolKind12V ToolKind = \"12V\"",
		"WeightKg *int64 `json:\"weightKg,omitempty\"`",
		"LengthMm int64 `json:\"lengthMm,omitempty\"`",
		"Sharp bool `json:\"sharp,omitempty\"`",
		"Clean *bool `json:\"clean,omitempty\"`",
		"Parts []Tool `json:\"parts,omitempty\"`",
		"Share float64 `json:\"share,omitempty\"`",
		"Spare *Tool `json:\"spare,omitempty\"`",
		"Labels map[string][]string `json:\"labels,omitempty\"`",
		"NodeIDs []string `json:\"nodeIds,omitempty\"`",
		"// Sharp. Default: false.",
	} {
		assert.Contains(t, source, want)
	}
	assert.Equal(t, `{"tools":{"hammer":{"apiUrl":"https://x","weightKg":0}}}`+"\n", files["catalogs/tools.json"])
	assert.Contains(t, files["catalogs/strict.go"], "\npackage catalogs\n")
}

func TestGenerateRefuses(t *testing.T) {
	schema := func(old, replacement string) map[string]string {
		changed := strings.Replace(smallSchema, old, replacement, 1)
		if changed == smallSchema {
			t.Fatalf("%q is not in the schema", old)
		}
		return map[string]string{"tools.schema.yaml": changed, "tools.yaml": "tools: {}"}
	}
	data := func(text string) map[string]string {
		return map[string]string{"tools.schema.yaml": smallSchema, "tools.yaml": text}
	}
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"schema without catalog":    {map[string]string{"tools.schema.yaml": smallSchema}, "spec/catalogs needs both tools.yaml and tools.schema.yaml"},
		"catalog without schema":    {map[string]string{"tools.yaml": "tools: {}"}, "spec/catalogs needs both tools.yaml and tools.schema.yaml"},
		"catalog breaks its schema": {data("tools: {hammer: {apiUrl: 5}}"), "spec/catalogs/tools.yaml: checking the tool catalog: tools.hammer.apiUrl: must be of type string, got 5"},
		"unknown key":               {data("tools: {hammer: {apiUrl: x, colour: red}}"), "tools.hammer.colour: unknown field"},
		"key twice":                 {data("tools: {}\ntools: {}"), `key "tools" already set`},
		"two documents":             {data("tools: {}\n---\ntools: {}"), "want one YAML document, found several"},
		"broken YAML":               {data("tools: [}"), "reading spec/catalogs/tools.yaml"},
		"empty file":                {data(""), "reading spec/catalogs/tools.yaml: want one YAML document"},
		"unknown keyword":           {schema("minimum: 1", "minimun: 1"), "spec/catalogs/tools.schema.yaml: $defs.Tool.properties.lengthMm.minimun: keyword not understood"},
		"unknown type":              {schema("type: boolean}", "type: bool}"), `$defs.Tool.properties.clean.type: "bool", must be one of`},
		"reference to nothing":      {schema("spare: {$ref: '#/$defs/Tool'}", "spare: {$ref: '#/$defs/Saw'}"), `$defs.Tool.properties.spare.$ref: no definition "Saw"`},
		"reference to another file": {schema("spare: {$ref: '#/$defs/Tool'}", "spare: {$ref: '../secret.yaml#/x'}"), "must point to #/$defs/<name> of the same file"},
		"reference to itself":       {schema("NodeID: {description: Node., type: string, maxLength: 8}", "NodeID: {$ref: '#/$defs/NodeID'}"), "refers to itself"},
		"open object":               {schema("additionalProperties: false\n    required: [apiUrl]", "required: [apiUrl]"), "$defs.Tool.additionalProperties: must be false beside properties"},
		"object without content":    {schema("additionalProperties: {type: array, items: {type: string}}", "maxProperties: 1"), "$defs.Tool.properties.labels: an object needs properties"},
		"nameless object":           {schema("spare: {$ref: '#/$defs/Tool'}", "spare: {description: S., type: object, additionalProperties: false, properties: {a: {description: A., type: string}}}"), "$defs.Tool.properties.spare: an object with properties needs a name; move it to $defs"},
		"list without items":        {schema("type: array, items: {$ref: '#/$defs/Tool'}", "type: array"), "$defs.Tool.properties.parts.items: required for an array"},
		"no description":            {schema("sharp: {description: Sharp., ", "sharp: {"), "$defs.Tool.properties.sharp.description: required"},
		"required without property": {schema("required: [apiUrl]", "required: [apiURL]"), `$defs.Tool.required: "apiURL" is not a property`},
		"no title":                  {schema("title: ToolCatalog\n", ""), "title: required"},
		"same Go name":              {schema("kind: {description", "api_url: {description: A., type: string}\n      kind: {description"), "has the Go name APIURL of apiUrl; set x-go-name"},
		"no Go name":                {schema("kind: {description", "_: {description: A., type: string}\n      kind: {description"), "gives no exported Go name"},
		"type name taken":           {schema("NodeID: {", "ToolCatalog: {description: T., type: string, enum: [a]}\n  NodeID: {"), "the Go name ToolCatalog is already taken"},
		"pattern does not compile":  {schema("maxLength: 8", "pattern: '['"), "compiling the schema"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := stage(t, test.files)
			require.ErrorContains(t, Generate(context.Background(), ws), test.want)
		})
	}
}

func TestGoName(t *testing.T) {
	for key, want := range map[string]string{
		"apiUrl": "APIURL", "requiredCrds": "RequiredCRDs", "vramMi": "VRAMMi", "kvCacheMemoryBytes": "KVCacheMemoryBytes",
		"nvidia-gpu": "NvidiaGPU", "OLlama": "OLlama", "VLLM": "VLLM", "keep-data": "KeepData", "nativeApiVersion": "NativeAPIVersion",
		"0s": "0s", "context_window": "ContextWindow", "ids": "IDs", "os": "OS", "": "", "--": "", "für": "Für",
	} {
		assert.Equal(t, want, goName(key), key)
	}
}

func TestComment(t *testing.T) {
	long := strings.Repeat("word ", 60)
	for _, line := range strings.Split(strings.TrimSuffix(comment("\t", long), "\n"), "\n") {
		assert.LessOrEqual(t, len(line), 100)
		assert.True(t, strings.HasPrefix(line, "\t// word"), line)
	}
	assert.Equal(t, "// a b\n", comment("", "a\n  b"))
}
