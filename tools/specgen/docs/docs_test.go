package docs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/catalogs"
	"magicstick.dev/operator/tools/specgen/workspace"
)

const toolCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tools.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Tool, plural: tools, shortNames: [tl, tool], categories: [shed]}
  versions:
    - name: v1
      served: true
      storage: true
      additionalPrinterColumns:
        - {name: Edge, type: string, jsonPath: .spec.edge}
        - {name: Owner, type: string, jsonPath: .spec.owner, priority: 1}
      schema:
        openAPIV3Schema:
          description: Tool is a thing. It has an edge.
          type: object
          properties:
            spec:
              description: What it is like.
              type: object
              required: [edge]
              properties:
                edge: {description: 'Edge of <steel> | iron.', type: string, minLength: 1, maxLength: 8, pattern: '^a|b$'}
                size: {description: Size., type: integer, minimum: 1, maximum: 9, default: 3}
                share: {description: Share., type: number, minimum: 0, exclusiveMinimum: true, maximum: 1}
                port: {description: Port., x-kubernetes-int-or-string: true}
                free: {description: Free., type: object, x-kubernetes-preserve-unknown-fields: true}
                tags: {description: Tags., type: array, maxItems: 4, x-kubernetes-list-type: set, items: {type: string, enum: [x, z]}}
                parts:
                  description: Parts.
                  type: array
                  x-kubernetes-list-type: map
                  x-kubernetes-list-map-keys: [name]
                  items:
                    type: object
                    required: [name]
                    properties: {name: {description: Name., type: string}}
                    x-kubernetes-validations: [{rule: self.name != 'x', message: x is no name, fieldPath: .name}]
                owners:
                  description: Owners.
                  type: object
                  maxProperties: 2
                  additionalProperties:
                    type: object
                    properties: {since: {description: Since., type: string, format: date-time, nullable: true}}
              x-kubernetes-validations: [{rule: self.edge == oldSelf.edge, message: edge is immutable, fieldPath: .edge}]
            status:
              description: How it is.
              type: object
              properties:
                phase: {description: Phase., type: string, enum: [Done]}
                conditions:
                  description: Conditions.
                  type: array
                  items:
                    type: object
                    properties:
                      type: {description: Type., type: string, pattern: '^[A-Z]'}
                      reason: {description: Reason., type: string, pattern: '^[A-Z]'}
`

const toolTable = `group: example.com
kind: Tool
conditions:
  - type: Ready
    polarity: positive
    summary: true
    meaning: It works.
    reasons:
      - {reason: Reconciling, statuses: ["Unknown"], meaning: First pass.}
      - {reason: Sharp, statuses: ["True", "False"], meaning: Sharp_ness.}
phases:
  - {phase: Done, terminal: true, meaning: Finished., reasons: [Sharp]}
`

func spec(changes map[string]string) map[string]string {
	files := map[string]string{
		"crds/example.com/tool.yaml":       toolCRD,
		"conditions/example.com/tool.yaml": toolTable,
		"catalogs/nails.yaml":              "nails: {}\n",
		"catalogs/nails.schema.yaml": `title: NailCatalog
description: Nails. All of them.
type: object
additionalProperties: false
required: [nails]
properties:
  nails: {description: By name., type: object, maxProperties: 5, propertyNames: {pattern: ^n}, additionalProperties: {$ref: '#/$defs/Nail'}}
$defs:
  Nail:
    description: A nail.
    type: object
    additionalProperties: false
    properties:
      length: {description: Length., type: integer, minimum: 1, maximum: 9, default: 2}
      heads: {description: Heads., type: array, minItems: 1, maxItems: 2, uniqueItems: true, items: {$ref: '#/$defs/Head'}}
  Head: {description: Head., type: string, enum: [flat, round]}
`,
		"http/admin.openapi.yaml":                "",
		"http/README.md":                         "",
		"examples/tool/valid/a-long.yaml":        "kind: Tool\n# a much longer example\n",
		"examples/tool/valid/b.yaml":             "kind: Tool\nb: 1\n",
		"examples/tool/valid/minimal-twice.yaml": "kind: Tool\n---\nkind: Tool\n",
	}
	for name, text := range changes {
		if text == "" {
			delete(files, name)
			continue
		}
		files[name] = text
	}
	return files
}

func stage(t *testing.T, files map[string]string) *workspace.Workspace {
	t.Helper()
	repo := t.TempDir()
	all := map[string]string{"go.mod": "module x\n", "go.sum": ""}
	for name, text := range files {
		all["spec/"+name] = text
	}
	for name, text := range all {
		file := filepath.Join(repo, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
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
	kinds, err := first.CRDs()
	require.NoError(t, err)
	names, err := catalogs.Names(first)
	require.NoError(t, err)
	require.Len(t, files, len(kinds)+len(names)+1, "the kinds, the catalogs and the index")
}

func TestKindPage(t *testing.T) {
	ws := stage(t, spec(nil))
	require.NoError(t, Generate(context.Background(), ws))
	page := generated(t, ws)["docs/tool.md"]
	for _, want := range []string{
		"# Tool\n\nTool is a thing. It has an edge.\n",
		"| Resource | `tools.example.com` |",
		"| Short names | `tl`, `tool` |",
		"| Columns | Edge, Owner (wide) |",
		"```yaml\nkind: Tool\nb: 1\n```",
		"| `spec.edge` | string | **required**; 1 to 8 characters; pattern `^a\\|b$` | Edge of \\<steel\\> \\| iron. |",
		"| `spec.size` | integer | ≥ 1; ≤ 9; default `3` | Size. |",
		"| `spec.share` | number | \\> 0; ≤ 1 | Share. |",
		"| `spec.port` | integer or string |  | Port. |",
		"| `spec.free` | object, any fields |  | Free. |",
		"| `spec.tags` | set of string | at most 4 items; each: one of `x`, `z` | Tags. |",
		"| `spec.parts` | list of object | unique by `name` | Parts. |",
		"| `spec.parts[].name` | string | **required** | Name. |",
		"| `spec.owners` | map of object | at most 2 entries | Owners. |",
		"| `spec.owners.*.since` | time | may be null | Since. |",
		"| `spec.parts[].name` | x is no name | always |",
		"| `spec.edge` | edge is immutable | on update |",
		"| `Done` | Finished. Final until the object changes. | `Sharp` |",
		"### Ready\n\nIt works. Good when True. Summarises the object.\n",
		"| `Sharp` | True, False | Sharp\\_ness. |",
	} {
		assert.Contains(t, page, want)
	}
	assert.True(t, strings.HasPrefix(page, "<!-- Code generated by specgen from spec/crds/example.com/tool.yaml. DO NOT EDIT. -->\n"))
}

func TestIndexAndCatalogPage(t *testing.T) {
	ws := stage(t, spec(nil))
	require.NoError(t, Generate(context.Background(), ws))
	files := generated(t, ws)
	index := files["docs/README.md"]
	assert.Contains(t, index, "## Kinds of `example.com`")
	assert.Contains(t, index, "| [Tool](tool.md) | Cluster | `tl`, `tool` | Tool is a thing. |")
	assert.Contains(t, index, "| [nails](catalog-nails.md) | Nails. |")
	assert.Contains(t, index, "* [admin](http-admin.md)\n")
	page := files["docs/catalog-nails.md"]
	assert.Contains(t, page, "| `nails` | map of [Nail](#nail) | **required**; at most 5 entries; keys: pattern `^n` | By name. |")
	assert.Contains(t, page, "| `length` | integer | ≥ 1; ≤ 9; default `2` | Length. |")
	assert.Contains(t, page, "| `heads` | list of string | 1 to 2 items; no repeated items; each: one of `flat`, `round` | Heads. |")
}

func TestExampleChoice(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"seed first":       {map[string]string{"examples/tool/valid/seed-x.yaml": "seed: 1\n", "examples/tool/valid/minimal.yaml": "minimal: 1\n"}, "seed: 1"},
		"no status":        {map[string]string{"examples/tool/valid/seed-x.yaml": "# subresource: status\nseed: 1\n", "examples/tool/valid/minimal.yaml": "minimal: 1\n"}, "minimal: 1"},
		"shortest of rest": {nil, "kind: Tool\nb: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			example, err := exampleOf(stage(t, spec(test.files)), "Tool")
			require.NoError(t, err)
			assert.Equal(t, test.want, example)
		})
	}
}

func TestGenerateRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no example":     {map[string]string{"examples/tool/valid/a-long.yaml": "", "examples/tool/valid/b.yaml": ""}, "choosing the example of Tool: spec/examples/tool/valid has no example"},
		"no description": {map[string]string{"crds/example.com/tool.yaml": strings.Replace(toolCRD, "since: {description: Since., ", "since: {", 1)}, "describing spec/crds/example.com/tool.yaml: spec.owners.*.since: a description is required"},
		"no table":       {map[string]string{"conditions/example.com/tool.yaml": "", "conditions/.keep.yaml": ""}, "reading the condition tables"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, Generate(context.Background(), stage(t, spec(test.files))), test.want)
		})
	}
}

func TestCode(t *testing.T) {
	for text, want := range map[string]string{
		"a": "`a`", "a|b": "`a\\|b`", "a`b": "`` a`b ``", "``": "``` `` ```", "": "`  `", "a\nb": "`a b`",
	} {
		assert.Equal(t, want, code(text), text)
	}
}
