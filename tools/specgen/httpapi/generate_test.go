package httpapi

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/workspace"
)

const repoDir = "../../.."

// stage makes a workspace whose spec is the test document with edits applied to
// the files named by the keys, each a list of old and new strings.
func stage(t *testing.T, edits map[string][]string) *workspace.Workspace {
	t.Helper()
	ws, err := workspace.New(repoDir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ws.Close()) })
	ws.SpecDir = filepath.Join(t.TempDir(), "spec")
	require.NoError(t, os.CopyFS(ws.SpecDir, os.DirFS("testdata/spec")))
	conventions, err := os.ReadFile(filepath.Join(repoDir, "spec/http", conventionsFile))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(ws.SpecDir, "http", conventionsFile), conventions, 0o600))
	for name, pairs := range edits {
		file := filepath.Join(ws.SpecDir, filepath.FromSlash(name))
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		text := string(data)
		for i := 0; i < len(pairs); i += 2 {
			require.Contains(t, text, pairs[i], "the edit of %s does not match", name)
			text = strings.Replace(text, pairs[i], pairs[i+1], 1)
		}
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return ws
}

func content(t *testing.T, ws *workspace.Workspace) map[string]string {
	t.Helper()
	names, err := ws.Files()
	require.NoError(t, err)
	files := map[string]string{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(ws.GeneratedDir(), filepath.FromSlash(name)))
		require.NoError(t, err)
		files[name] = string(data)
	}
	return files
}

// TestRepositoryDocuments generates from the documents of the repository, twice.
func TestRepositoryDocuments(t *testing.T) {
	var runs []map[string]string
	for range 2 {
		ws, err := workspace.New(repoDir)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ws.Close()) })
		require.NoError(t, Generate(t.Context(), ws))
		runs = append(runs, content(t, ws))
	}
	require.Contains(t, runs[0], "httpapi/admin/openapi.json")
	require.Len(t, runs[1], len(runs[0]))
	for name, text := range runs[0] {
		assert.True(t, text == runs[1][name], "%s differs between two runs", name)
	}
	document := runs[0]["httpapi/admin/openapi.json"]
	assert.NotContains(t, document, ".yaml#", "the bundle still refers to other files")
	assert.NotContains(t, document, "x-go-type", "the bundle mentions Go types, which clients in other languages do not have")
	doc, err := openapi3.NewLoader().LoadFromData([]byte(document))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
	assert.Contains(t, doc.Components.Schemas["ModuleActivation"].Value.Properties, "spec")
}

func TestGeneratedFiles(t *testing.T) {
	ws := stage(t, nil)
	require.NoError(t, Generate(t.Context(), ws))
	files := content(t, ws)
	for _, name := range []string{"httpapi/models.go", "httpapi/route.go", "httpapi/shop/models.go", "httpapi/shop/server.go",
		"httpapi/shop/client.go", "httpapi/shop/routes.go", "httpapi/shop/openapi.json", "httpapi/shop/openapi.yaml", "docs/http-shop.md"} {
		assert.NotEmpty(t, files[name], name)
	}
	assert.Contains(t, files["httpapi/shop/models.go"], `shopv1alpha1 "magicstick.dev/operator/generated/apis/shop/v1alpha1"`)
	assert.Contains(t, files["httpapi/shop/models.go"], "type Widget = shopv1alpha1.Widget")
	assert.Contains(t, files["httpapi/shop/routes.go"], "PaintWidgetRole = httpapi.RoleOperator")
	assert.Contains(t, files["docs/http-shop.md"], "| [paintWidget](#paintwidget) | `POST /api/v1/widgets/{name}/paint` | operator |")
	for name, text := range files {
		if strings.HasSuffix(name, ".go") {
			assert.True(t, strings.HasPrefix(text, workspace.Header), "%s does not start with the header of generated files", name)
		}
	}
	t.Run("unknown_keys_of_request_bodies_are_refused", func(t *testing.T) {
		doc, err := openapi3.NewLoader().LoadFromData([]byte(files["httpapi/shop/openapi.json"]))
		require.NoError(t, err)
		paint := doc.Components.Schemas["Paint"].Value
		require.NotNil(t, paint.AdditionalProperties.Has)
		assert.False(t, *paint.AdditionalProperties.Has)
		assert.Nil(t, doc.Components.Schemas["Problem"].Value.AdditionalProperties.Has, "answers stay open for new keys")
	})
	t.Run("an_operation_without_a_role_does_not_compile", func(t *testing.T) {
		compiles(t, ws, true)
		routes := filepath.Join(ws.GeneratedDir(), "httpapi/shop/routes.go")
		text := strings.Replace(files["httpapi/shop/routes.go"], "PaintWidgetRole = httpapi.RoleOperator", "", 1)
		require.NoError(t, os.WriteFile(routes, []byte(text), 0o600))
		compiles(t, ws, false)
	})
}

// compiles builds the staged packages against a stand-in for the custom resource's type.
func compiles(t *testing.T, ws *workspace.Workspace, want bool) {
	t.Helper()
	apis := filepath.Join(ws.GeneratedDir(), "apis/shop/v1alpha1")
	require.NoError(t, os.MkdirAll(apis, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(apis, "types.go"), []byte("package v1alpha1\n\ntype Widget struct{}\n"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "./generated/...")
	build.Dir = ws.ModuleDir
	output, err := build.CombinedOutput()
	if want {
		require.NoError(t, err, "%s", output)
		return
	}
	require.Error(t, err)
	assert.Contains(t, string(output), "undefined: PaintWidgetRole")
}

// TestBadDocuments: every finding names the file and the JSON path, and nothing is written.
func TestBadDocuments(t *testing.T) {
	const (
		doc = "http/shop.openapi.yaml"
		get = "spec/http/shop.openapi.yaml: paths.['/api/v1/widgets/{name}'].get"
		pnt = "spec/http/shop.openapi.yaml: paths.['/api/v1/widgets/{name}/paint'].post"
	)
	for name, c := range map[string]struct {
		file  string
		edits []string
		want  string
	}{
		"role_missing":       {doc, []string{"      x-required-role: viewer\n", ""}, get + ".x-required-role: is required: one of none, user, viewer, operator, admin"},
		"role_unknown":       {doc, []string{"role: viewer", "role: owner"}, get + ".x-required-role: owner is not one of"},
		"role_none_secured":  {doc, []string{"role: viewer", "role: none"}, get + `.security: role "none" and the security requirement contradict`},
		"operation_id":       {doc, []string{"operationId: getWidget", "operationId: Get-Widget"}, get + `.operationId: "Get-Widget" must match`},
		"operation_id_twice": {doc, []string{"operationId: getWidget", "operationId: paintWidget"}, "paintWidget"},
		"summary_missing":    {doc, []string{"summary: Read a widget", "summary: ''"}, get + ".summary: is required"},
		"summary_sentence":   {doc, []string{"summary: Read a widget", "summary: Read a widget."}, get + ".summary: must be a headline"},
		"description":        {doc, []string{"      description: One widget.\n", ""}, get + ".description: is required"},
		"tags":               {doc, []string{"      tags: [widgets]\n", ""}, get + ".tags: is required"},
		"path_prefix":        {doc, []string{"/api/v1/widgets/{name}:", "/widgets/{name}:"}, "paths.['/widgets/{name}']: must start with /api/v1/"},
		"path_segment":       {doc, []string{"/api/v1/widgets/{name}:", "/api/v1/Widgets/{name}:"}, `the segment "Widgets" must be lower case`},
		"parameter_text":     {doc, []string{"        description: Name of the widget.\n        schema", "        schema"}, get + ".parameters.name.description: is required"},
		"parameter_bound":    {doc, []string{"          maxLength: 63\n        example", "        example"}, get + ".parameters.name.schema: a string of a request needs maxLength or enum"},
		"parameter_example":  {doc, []string{"        example: bolt\n    get", "    get"}, get + ".parameters.name.example: is required"},
		"csrf":               {doc, []string{"        - $ref: 'conventions.yaml#/components/parameters/CSRF'\n", ""}, pnt + ".parameters: an operation that is not GET must reference the parameter CSRF"},
		"if_match":           {doc, []string{"        - $ref: 'conventions.yaml#/components/parameters/IfMatch'\n", ""}, pnt + ".parameters: a change needs the parameter IfMatch"},
		"status_404":         {doc, []string{"        '404':\n          $ref: 'conventions.yaml#/components/responses/NotFound'\n", ""}, get + ".responses: 404 is required"},
		"status_428":         {doc, []string{"        '428':\n          $ref: 'conventions.yaml#/components/responses/PreconditionRequired'\n", ""}, pnt + ".responses: 428 is required"},
		"answer_example":     {doc, []string{"              examples:\n                bolt:\n                  value:\n                    kind: Widget\n                    spec:\n                      colour: red\n", ""}, get + ".responses.200.content.['application/json'].examples: is required"},
		"problem_type":       {doc, []string{"'400':\n          $ref: 'conventions.yaml#/components/responses/BadRequest'", "'400':\n          description: Bad.\n          content:\n            text/plain:\n              schema: {type: string}\n              examples: {a: {value: b}}"}, get + ".responses.400.content: an error is answered with application/problem+json and nothing else"},
		"body_unbounded":     {doc, []string{"          maxLength: 16\n          description: Name of the colour.", "          description: Name of the colour."}, pnt + ".requestBody.content.['application/json'].schema.properties.colour: a string of a request needs maxLength or enum"},
		"map_unbounded":      {doc, []string{"          maxProperties: 3\n", ""}, "components.schemas.Paint.properties.layers: a map needs maxProperties"},
		"schema_text":        {doc, []string{"          description: Name of the colour.\n", ""}, "components.schemas.Paint.properties.colour.description: is required"},
		"example_invalid":    {doc, []string{"colour: red", "colour: [red]"}, "checking spec/http/shop.openapi.yaml: "},
		"reference_missing":  {doc, []string{"#/components/schemas/Paint", "#/components/schemas/Pain"}, "bundling spec/http/shop.openapi.yaml: "},
		"reference_file":     {doc, []string{"widget.yaml#", "gadget.yaml#"}, "bundling spec/http/shop.openapi.yaml: "},
		"reference_climbs":   {doc, []string{"../crds/shop.example.org/widget.yaml#/spec/versions/0/schema/openAPIV3Schema", "../../../../../etc/passwd"}, "leaves the spec folder"},
		"reference_remote":   {doc, []string{"../crds/shop.example.org/widget.yaml#", "https://example.org/widget.yaml#"}, "leaves the spec folder"},
		"reference_inner":    {doc, []string{"openAPIV3Schema'", "openAPIV3Schema/properties/spec'"}, "a CRD can only be referenced as a whole schema"},
		"reference_cyclic":   {doc, []string{"    Paint:\n", "    Paint:\n      $ref: '#/components/schemas/Other'\n    Other:\n      $ref: '#/components/schemas/Paint'\n    Old:\n"}, `spec/http/shop.openapi.yaml: invalid components: schema "Other": found unresolved ref`},
		"crd_not_a_crd":      {"crds/shop.example.org/widget.yaml", []string{"kind: CustomResourceDefinition", "kind: Deployment"}, "the file is not a CustomResourceDefinition"},
		"yaml_broken":        {doc, []string{"openapi: 3.0.3", "openapi: [3.0.3"}, "bundling spec/http/shop.openapi.yaml: "},
		"yaml_key_twice":     {doc, []string{"      x-required-role: viewer\n", "      x-required-role: viewer\n      x-required-role: admin\n"}, "bundling spec/http/shop.openapi.yaml: "},
		"unknown_keyword":    {doc, []string{"      summary: Read a widget\n", "      summary: Read a widget\n      heading: Read\n"}, "spec/http/shop.openapi.yaml"},
		"conventions_broken": {"http/conventions.yaml", []string{"    Problem:\n      type: object", "    Problem:\n      type: objekt"}, "objekt"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := stage(t, map[string][]string{c.file: c.edits})
			err := Generate(t.Context(), ws)
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.want)
			files, err := ws.Files()
			require.NoError(t, err)
			assert.Empty(t, files, "a refused document leaves generated files")
		})
	}
}

func TestDocumentNames(t *testing.T) {
	ws := stage(t, nil)
	require.NoError(t, os.WriteFile(filepath.Join(ws.SpecDir, "http", "My-Shop.openapi.yaml"), nil, 0o600))
	err := Generate(t.Context(), ws)
	require.Error(t, err)
	assert.Contains(t, err.Error(), "spec/http/My-Shop.openapi.yaml: the part before")
}
