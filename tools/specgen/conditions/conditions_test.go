package conditions

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

const toolCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tools.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Tool, plural: tools}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            status:
              type: object
              properties:
                phase: {type: string, enum: [New, Done]}
                conditions:
                  type: array
                  items:
                    type: object
                    properties:
                      type: {type: string, pattern: '^[A-Za-z./]+$'}
                      reason: {type: string, pattern: '^[A-Z][A-Za-z]*$'}
`

const toolTable = `group: example.com
kind: Tool
conditions:
  - type: Ready
    polarity: positive
    summary: true
    meaning: It works.
    reasons:
      - reason: Reconciling
        statuses: ["Unknown"]
        meaning: First pass.
      - reason: Sharp
        statuses: ["True", "False"]
        meaning: >-
          It is
          sharp.
  - type: example.com/Broken
    polarity: negative
    meaning: It is broken.
    reasons:
      - reason: Rusty
        statuses: ["True"]
        meaning: Rust.
      - reason: Sharp
        statuses: ["False"]
        meaning: Still sharp.
phases:
  - phase: New
    terminal: false
    meaning: Just made.
    reasons: [Reconciling]
  - phase: Done
    terminal: true
    meaning: Finished.
    reasons: [Sharp, Rusty]
`

// stage makes a workspace with one CRD and the given files below spec/conditions.
func stage(t *testing.T, crd string, files map[string]string) *workspace.Workspace {
	t.Helper()
	repo := t.TempDir()
	all := map[string]string{"go.mod": "module x\n", "go.sum": "", "spec/crds/example.com/tool.yaml": crd}
	for name, text := range files {
		all["spec/conditions/"+name] = text
	}
	require.NoError(t, os.MkdirAll(filepath.Join(repo, "spec", "conditions"), 0o750))
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
	require.Len(t, files, 10, "nine kinds and the table")
}

func TestConstantsAndTable(t *testing.T) {
	ws := stage(t, toolCRD, map[string]string{"example.com/tool.yaml": toolTable})
	require.NoError(t, Generate(context.Background(), ws))
	files := generated(t, ws)
	source := strings.Join(strings.Fields(files["conditions/tool.go"]), " ")
	for _, want := range []string{
		`ToolConditionReady = "Ready"`,
		`ToolConditionExampleComBroken = "example.com/Broken"`,
		`ToolReasonReconciling = "Reconciling"`,
		`ToolReasonRusty = "Rusty"`,
		`// ToolReasonSharp: It is sharp.`,
		`Statuses: []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}, Meaning: "It is sharp.",`,
		`Type: ToolConditionExampleComBroken, Polarity: Negative, Meaning: "It is broken.",`,
		`Phase: "Done", Terminal: true, Meaning: "Finished.", Reasons: []string{ToolReasonSharp, ToolReasonRusty},`,
	} {
		assert.Contains(t, source, want)
	}
	assert.Equal(t, 1, strings.Count(source, `ToolReasonSharp = "Sharp"`), "one constant for a reason of two conditions")
	assert.Contains(t, files["conditions/table.go"], "\t\tTool,\n")
}

func TestLoadRefuses(t *testing.T) {
	const file = "example.com/tool.yaml"
	change := func(old, replacement string) map[string]string {
		changed := strings.Replace(toolTable, old, replacement, 1)
		if changed == toolTable {
			t.Fatalf("%q is not in the table", old)
		}
		return map[string]string{file: changed}
	}
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no table":               {nil, "spec/conditions/example.com/tool.yaml is missing, spec/crds/example.com/tool.yaml defines Tool"},
		"table without kind":     {map[string]string{file: toolTable, "example.com/saw.yaml": toolTable}, "spec/conditions/example.com/saw.yaml belongs to no kind"},
		"not YAML":               {map[string]string{file: toolTable, "example.com/README.md": ""}, "spec/conditions/example.com/README.md is no YAML file"},
		"unknown key":            {change("summary: true", "sumary: true"), "reading spec/conditions/example.com/tool.yaml: yaml: unmarshal errors:\n  line 6: field sumary not found"},
		"key twice":              {change("summary: true", "summary: true\n    summary: true"), "already"},
		"two documents":          {change("phases:", "---\nphases:"), "want one YAML document, found several"},
		"empty file":             {map[string]string{file: ""}, "reading spec/conditions/example.com/tool.yaml: EOF"},
		"other group":            {change("group: example.com", "group: example.org"), `group: "example.org", must be "example.com" as the folder`},
		"other kind":             {change("kind: Tool", "kind: Saw"), `kind: "Saw", must be "Tool"`},
		"condition type":         {change("type: Ready", "type: Not ready"), `conditions[0].type: "Not ready", must match`},
		"condition type twice":   {change("type: example.com/Broken", "type: Ready"), `conditions[1].type: "Ready" appears twice`},
		"polarity":               {change("polarity: negative", "polarity: bad"), `conditions[1].polarity: "bad", must be positive or negative`},
		"condition without text": {change("meaning: It works.", "meaning: ' '"), "conditions[0].meaning: required"},
		"no reasons":             {change("    reasons:\n      - reason: Rusty\n        statuses: [\"True\"]\n        meaning: Rust.\n      - reason: Sharp\n        statuses: [\"False\"]\n        meaning: Still sharp.\n", ""), "conditions[1].reasons: must have at least one"},
		"reason pattern":         {change("reason: Rusty", "reason: rusty"), `conditions[1].reasons[0].reason: "rusty", must match`},
		"reason twice":           {change("- reason: Rusty", "- reason: Sharp"), `conditions[1].reasons[1].reason: "Sharp" appears twice`},
		"reason without text":    {change("meaning: Rust.", "meaning: ''"), "conditions[1].reasons[0].meaning: required"},
		"no status":              {change(`statuses: ["Unknown"]`, "statuses: []"), "conditions[0].reasons[0].statuses: must have at least one"},
		"unknown status":         {change(`statuses: ["Unknown"]`, `statuses: ["Maybe"]`), `conditions[0].reasons[0].statuses[0]: "Maybe", must be one of True, False, Unknown`},
		"status twice":           {change(`statuses: ["True", "False"]`, `statuses: ["True", "True"]`), `conditions[0].reasons[1].statuses[1]: "True" appears twice`},
		"no summary":             {change("    summary: true\n", ""), "conditions: 0 with summary: true"},
		"two summaries":          {change("polarity: negative", "polarity: negative\n    summary: true"), "conditions: 2 with summary: true"},
		"no first pass":          {change(`statuses: ["Unknown"]`, `statuses: ["False"]`), "the summary needs the reason Reconciling with status Unknown"},
		"phase of no CRD":        {change("phase: Done", "phase: Gone"), `phases[1].phase: "Gone", the CRD knows New, Done`},
		"phase twice":            {change("phase: Done", "phase: New"), `phases[1].phase: "New" appears twice`},
		"phase missing":          {change("  - phase: Done\n    terminal: true\n    meaning: Finished.\n    reasons: [Sharp, Rusty]\n", ""), `phases: "Done" of the CRD's status.phase is missing`},
		"phase without text":     {change("meaning: Finished.", "meaning: ''"), "phases[1].meaning: required"},
		"phase reason unknown":   {change("reasons: [Sharp, Rusty]", "reasons: [Blunt]"), `phases[1].reasons[0]: "Blunt" is a reason of no condition`},
		"phase reason twice":     {change("reasons: [Sharp, Rusty]", "reasons: [Sharp, Sharp]"), `phases[1].reasons[1]: "Sharp" appears twice`},
	} {
		t.Run(name, func(t *testing.T) {
			ws := stage(t, toolCRD, test.files)
			require.ErrorContains(t, Generate(context.Background(), ws), test.want)
		})
	}
}

func TestLoadRefusesCRD(t *testing.T) {
	for name, test := range map[string]struct{ old, replacement, want string }{
		"no phase":      {"                phase: {type: string, enum: [New, Done]}\n", "", "phases: the CRD has no status.phase"},
		"no conditions": {"conditions:", "states:", "has no status.conditions"},
		"no pattern":    {", pattern: '^[A-Z][A-Za-z]*$'", "", "has no usable pattern for status.conditions[].reason"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := stage(t, strings.Replace(toolCRD, test.old, test.replacement, 1), map[string]string{"example.com/tool.yaml": toolTable})
			_, err := Load(ws)
			require.ErrorContains(t, err, test.want)
		})
	}
}
