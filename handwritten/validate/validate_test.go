package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const examples = "../../spec/examples"

// TestExamples runs over every example of the spec: valid files have no problem,
// invalid ones have the field and the words that their comments name.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(examples, "*", "*", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	comment := regexp.MustCompile(`(?m)^# (field|words): (.*)$`)
	for _, name := range files {
		kind, verdict := filepath.Base(filepath.Dir(filepath.Dir(name))), filepath.Base(filepath.Dir(name))
		t.Run(strings.Join([]string{kind, verdict, filepath.Base(name)}, "/"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			expected := map[string]string{}
			for _, match := range comment.FindAllSubmatch(data, -1) {
				expected[string(match[1])] = strings.TrimSpace(string(match[2]))
			}
			report, err := Run(Options{Files: []string{name}})
			require.NoError(t, err)
			if verdict == "valid" {
				assert.Empty(t, report.Problems)
				return
			}
			require.NotEmpty(t, report.Problems)
			matched := false
			for _, problem := range report.Problems {
				matched = matched || sameField(problem.Field, expected["field"]) && strings.Contains(problem.Message+problem.Value, expected["words"])
				assert.Positive(t, problem.Line, problem.String())
			}
			assert.True(t, matched, "no problem with field %q and words %q in %v", expected["field"], expected["words"], report.Problems)
		})
	}
}

// sameField compares paths without regard to how a key is written.
func sameField(a, b string) bool {
	plain := strings.NewReplacer("[", ".", "]", "", "<nil>", "")
	return plain.Replace(a) == plain.Replace(b)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

const good = `apiVersion: appliance.magicstick.dev/v1alpha1
kind: ModuleActivation
metadata:
  name: litellm
  namespace: ai-system
spec:
  module: litellm
  enabled: true
`

// TestProblems: what is wrong in a file is said with its place and rule.
func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string // the problems without the file name
	}{
		"valid":           {good, nil},
		"comments":        {"# a\n---\n# b\n---\n" + good, nil},
		"byte_order_mark": {"\ufeff" + good, nil},
		"windows_lines":   {strings.ReplaceAll(good, "\n", "\r\n"), nil},
		"json":            {`{"apiVersion":"appliance.magicstick.dev/v1alpha1","kind":"ModuleActivation","metadata":{"name":"x"},"spec":{"module":"x"}}`, nil},
		"unknown_field":   {strings.Replace(good, "enabled", "enabeld", 1), []string{`:8:3: ModuleActivation/litellm: spec.enabeld: is not a known field [UnknownField]`}},
		"wrong_type":      {strings.Replace(good, "true", "maybe", 1), []string{`:8:3: ModuleActivation/litellm: spec.enabled: Invalid value: must be of type boolean: "string" [FieldValueTypeInvalid]`}},
		"second_document": {good + "---\n" + strings.ReplaceAll(strings.Replace(good, "  module: litellm\n", "", 1), "litellm", "other"), []string{`:15:1: ModuleActivation/other: spec.module: Required value [FieldValueRequired]`}},
		"content_after_separator": {"--- # first\n" + good + "--- {apiVersion: v1, kind: Secret}\n", []string{
			`:10:22: kind: Secret in v1 is not a kind of this product; known are`}},
		"end_marker":        {good + "...\n" + strings.Replace(good, "litellm", "Other", 1), []string{`:13:3: ModuleActivation/Other: metadata.name: Invalid value: a lowercase RFC 1123 subdomain`}},
		"update":            {good + "---\n" + strings.Replace(good, "module: litellm", "module: gpu", 1), []string{`:16:3: ModuleActivation/litellm: spec.module: Invalid value: module cannot be changed after creation; found "gpu" [FieldValueInvalid]`}},
		"list":              {"apiVersion: v1\nkind: List\nitems:\n- apiVersion: appliance.magicstick.dev/v1alpha1\n  kind: ModuleActivation\n  metadata:\n    name: a\n  spec:\n    module: 7\n- text\n", []string{`:9:5: ModuleActivation/a: spec.module: Invalid value: must be of type string: "integer"`, `:10:3: items[1]: must be an object, not a single value [Syntax]`}},
		"unknown_kind":      {"apiVersion: apps/v1\nkind: Deployment\n", []string{`:2:1: kind: Deployment in apps/v1 is not a kind of this product; known are ClusterModel, `}},
		"unknown_version":   {strings.Replace(good, "v1alpha1", "v1", 1), []string{`:2:1: kind: ModuleActivation in appliance.magicstick.dev/v1 is not a kind of this product; there is ModuleActivation in appliance.magicstick.dev/v1alpha1 [UnknownKind]`}},
		"no_kind":           {"apiVersion: v1\nmetadata: {}\n", []string{`:1:1: kind: must be a text; an object starts with apiVersion and kind [FieldValueRequired]`}},
		"kind_is_a_number":  {"apiVersion: v1\nkind: 7\n", []string{`:2:1: kind: must be a text`}},
		"broken_yaml":       {good + "---\na: b\n c: [\n", []string{`:11:1: `}},
		"tab":               {"a:\n\tb: c\n", []string{":2:1: "}},
		"key_twice":         {good + "  enabled: false\n", []string{`:9:1: key "enabled" already set in map [Syntax]`}},
		"a_list":            {"- a\n- b\n", []string{`:1:1: the document must be an object with apiVersion and kind, not a list [Syntax]`}},
		"a_text":            {"\n\nhello\n", []string{`:3:1: the document must be an object with apiVersion and kind, not a single value [Syntax]`}},
		"null":              {"null\n", []string{`:1:1: the document must be an object with apiVersion and kind, not null [Syntax]`}},
		"binary":            {"\x7fELF\x00\x01", []string{`: the file is not text in UTF-8, so it is not a manifest [Encoding]`}},
		"latin1":            {"a: \xe4\n", []string{`: the file is not text in UTF-8`}},
		"anchor_of_itself":  {"apiVersion: v1\nkind: X\na: &a\n  b: *a\n", []string{":"}},
		"alias_explosion":   {explosion(), []string{":"}},
		"deep":              {strings.Repeat("[", 20000), []string{":"}},
		"metadata_is_text":  {"apiVersion: appliance.magicstick.dev/v1alpha1\nkind: ModuleActivation\nmetadata: text\nspec: {module: a}\n", []string{":3:1: ModuleActivation: metadata: "}},
		"spec_is_a_list":    {"apiVersion: appliance.magicstick.dev/v1alpha1\nkind: ModuleActivation\nmetadata: {name: a}\nspec: [1]\n", []string{":4:1: ModuleActivation/a: spec: "}},
		"no_name":           {"apiVersion: appliance.magicstick.dev/v1alpha1\nkind: ModuleActivation\nspec: {module: a}\n", []string{":1:1: ModuleActivation: metadata.name: Required value: name or generateName is required [FieldValueRequired]"}},
		"not_a_number_json": {"apiVersion: appliance.magicstick.dev/v1alpha1\nkind: ModuleActivation\nmetadata: {name: a}\nspec: {module: .nan}\n", []string{":"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, "file.yaml", c.text)
			report, err := Run(Options{Files: []string{file}})
			require.NoError(t, err)
			require.Len(t, report.Problems, len(c.want), "%v", report.Problems)
			for i, want := range c.want {
				text := strings.TrimPrefix(report.Problems[i].String(), file)
				assert.Contains(t, text, want)
				if strings.HasPrefix(want, ":") {
					assert.True(t, strings.HasPrefix(text, want), "%q does not start with %q", text, want)
				}
			}
		})
	}
}

// TestNotes: what is good to know and no problem is said beside the problems.
func TestNotes(t *testing.T) {
	const ready = "status:\n  phase: Ready\n"
	generated := strings.Replace(good, "  name: litellm\n", "  generateName: litellm-\n", 1)
	for name, c := range map[string]struct {
		text            string
		problems, notes []string // without the file name
	}{
		"nothing to say": {text: good},
		"the same object again": {
			text:  good + "---\n" + good,
			notes: []string{":13:3: note: ModuleActivation/litellm: document 2 updates document 1 and is checked as an update"},
		},
		"and again, with others between": {
			text: "# only a comment\n---\n" + good + "---\n" + strings.ReplaceAll(good, "litellm", "other") + "---\n" + strings.Replace(good, "module: litellm", "module: other", 1) + "---\n" + good,
			problems: []string{
				":27:3: ModuleActivation/litellm: spec.module: Invalid value: module cannot be changed after creation",
				":36:3: ModuleActivation/litellm: spec.module: Invalid value: module cannot be changed after creation",
			},
			notes: []string{
				":24:3: note: ModuleActivation/litellm: document 3 updates document 1 and",
				":33:3: note: ModuleActivation/litellm: document 4 updates document 3 and",
			},
		},
		"another namespace is another object": {text: good + "---\n" + strings.Replace(good, "ai-system", "ai", 1)},
		"a generated name is always new":      {text: generated + "---\n" + generated},
		"twice in a list": {
			text:  "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- {apiVersion: appliance.magicstick.dev/v1alpha1, kind: ModuleActivation, metadata: {name: a}, spec: {module: a}}\n", 2),
			notes: []string{":5:86: note: ModuleActivation/a: document 1, items[1] updates document 1, items[0] and"},
		},
		"a status": {
			text:  good + ready,
			notes: []string{":9:1: note: ModuleActivation/litellm: status is not stored with a manifest; it is checked as a write to the status subresource"},
		},
		"no status": {text: good + "status: null\n"},
		"a status with a wrong value": {
			text:     good + strings.Replace(ready, "Ready", "Reddy", 1),
			problems: []string{`:10:3: ModuleActivation/litellm: status.phase: Unsupported value: supported values: `},
			notes:    []string{":9:1: note: ModuleActivation/litellm: status is not stored"},
		},
		"a status with an unknown field": {
			text:     good + ready + "  fase: x\n",
			problems: []string{`:11:3: ModuleActivation/litellm: status.fase: is not a known field`},
			notes:    []string{":9:1: note: ModuleActivation/litellm: status is not stored"},
		},
		"a status of another type": {
			text:     good + "status: 3\n",
			problems: []string{`:9:1: ModuleActivation/litellm: status: `},
			notes:    []string{":9:1: note: ModuleActivation/litellm: status is not stored"},
		},
		"a fault of the spec is not told twice": {
			text:     strings.Replace(good, "true", "maybe", 1) + ready,
			problems: []string{`:8:3: ModuleActivation/litellm: spec.enabled: Invalid value: must be of type boolean`},
			notes: []string{
				":9:1: note: ModuleActivation/litellm: status is not stored",
				": note: ModuleActivation/litellm: some rules were not checked because of the problems found; correct those and check again",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, "file.yaml", c.text)
			report, err := Run(Options{Files: []string{file}})
			require.NoError(t, err)
			require.Len(t, report.Problems, len(c.problems), "%v", report.Problems)
			for i, want := range c.problems {
				assert.True(t, strings.HasPrefix(strings.TrimPrefix(report.Problems[i].String(), file), want), "%s, want %s", report.Problems[i], want)
			}
			require.Len(t, report.Notes, len(c.notes), "%v", report.Notes)
			for i, want := range c.notes {
				assert.True(t, strings.HasPrefix(strings.TrimPrefix(report.Notes[i].String(), file), want), "%s, want %s", report.Notes[i], want)
			}
			assert.Equal(t, len(c.problems) == 0, report.Valid(), "a note makes nothing invalid")
		})
	}
}

// explosion is the "billion laughs": nine lines that stand for a billion items.
func explosion() string {
	text := "apiVersion: v1\nkind: X\na0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 10; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), ","))
	}
	return text
}

func TestValuesOfConfidentialFieldsStayOut(t *testing.T) {
	assert.Equal(t, `"abc"`, scalar("spec.module", "abc"))
	for _, path := range []string{"spec.local.env[0].value", "spec.external.apiKeySecretRef.name", "spec.token", "spec.auth.password"} {
		assert.Empty(t, scalar(path, "abc"), path)
	}
	assert.Empty(t, scalar("spec.x", map[string]any{"a": 1}))
	assert.LessOrEqual(t, len(scalar("spec.x", strings.Repeat("x", 5000))), 140)
}

func TestFiles(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"a.yaml": good, "sub/b.yml": good, "sub/c.json": "{}", "notes.txt": "not a manifest"} {
		file := filepath.Join(folder, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink(folder, filepath.Join(folder, "sub", "loop")))
	t.Run("folder", func(t *testing.T) {
		report, err := Run(Options{Files: []string{folder}})
		require.NoError(t, err)
		assert.Equal(t, Report{Files: 1, Objects: 1}, report)
	})
	t.Run("recursive", func(t *testing.T) {
		report, err := Run(Options{Files: []string{folder}, Recursive: true})
		require.NoError(t, err)
		assert.Equal(t, 3, report.Files)
		require.Len(t, report.Problems, 1)
		assert.True(t, strings.HasSuffix(report.Problems[0].File, filepath.Join("sub", "c.json")))
	})
	t.Run("standard_input", func(t *testing.T) {
		report, err := Run(Options{Files: []string{Stdin}, Input: strings.NewReader(good)})
		require.NoError(t, err)
		assert.True(t, report.Valid())
	})
	t.Run("too_large", func(t *testing.T) {
		for _, input := range []string{strings.Repeat("#", MaxFile+1), strings.Repeat("#", MaxFile-1) + "\n"} {
			report, err := Run(Options{Files: []string{Stdin, filepath.Join(folder, "a.yaml")}, Input: strings.NewReader(input)})
			require.NoError(t, err)
			if len(input) > MaxFile {
				require.Len(t, report.Problems, 1)
				assert.Equal(t, "-: the file is larger than 10 MiB and was not read [Size]", report.Problems[0].String())
			} else {
				assert.True(t, report.Valid())
			}
		}
	})
	t.Run("foreign_kinds_are_skipped_on_request", func(t *testing.T) {
		text := "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n" + good
		report, err := Run(Options{Files: []string{Stdin}, Input: strings.NewReader(text), SkipUnknownKinds: true})
		require.NoError(t, err)
		assert.Equal(t, Report{Files: 1, Objects: 1, Skipped: 1}, report)
	})
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"nothing":     {Options{}, "name at least one file"},
		"missing":     {Options{Files: []string{"missing.yaml"}}, `reading "missing.yaml": no such file or directory`},
		"url":         {Options{Files: []string{"https://example.org/x.yaml"}}, "nothing is fetched from a network"},
		"empty_dir":   {Options{Files: []string{t.TempDir()}}, "no file in it ends in .yaml, .yml, .json; folders in it are read with --recursive"},
		"no_object":   {Options{Files: []string{Stdin}, Input: strings.NewReader("# nothing\n")}, "no object found"},
		"stdin_twice": {Options{Files: []string{Stdin, Stdin}, Input: strings.NewReader(good)}, "standard input can be read once only"},
		"no_stdin":    {Options{Files: []string{Stdin}}, "there is none"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Run(c.options)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestReport(t *testing.T) {
	report, err := Run(Options{Files: []string{Stdin}, Input: strings.NewReader(strings.Replace(good, "enabled", "<b>", 1))})
	require.NoError(t, err)
	var text, asJSON bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	assert.Equal(t, "-:8:3: ModuleActivation/litellm: spec.<b>: is not a known field [UnknownField]\n1 object in 1 file: 1 problem\n", text.String())
	require.NoError(t, report.WriteJSON(&asJSON))
	assert.JSONEq(t, `{"valid":false,"files":1,"objects":1,"problems":[{"file":"-","line":8,"column":3,"object":"ModuleActivation/litellm","field":"spec.<b>","rule":"UnknownField","message":"is not a known field"}]}`, asJSON.String())
	text.Reset()
	asJSON.Reset()
	report, err = Run(Options{Files: []string{Stdin}, Input: strings.NewReader(good + "---\n" + good)})
	require.NoError(t, err)
	require.NoError(t, report.WriteText(&text))
	assert.Equal(t, "-:13:3: note: ModuleActivation/litellm: document 2 updates document 1 and is checked as an update\n2 objects in 1 file: valid\n", text.String())
	require.NoError(t, report.WriteJSON(&asJSON))
	assert.JSONEq(t, `{"valid":true,"files":1,"objects":2,"problems":[],"notes":[{"file":"-","line":13,"column":3,"object":"ModuleActivation/litellm","message":"document 2 updates document 1 and is checked as an update"}]}`, asJSON.String())
	asJSON.Reset()
	require.NoError(t, Report{Files: 1, Objects: 1}.WriteJSON(&asJSON))
	assert.JSONEq(t, `{"valid":true,"files":1,"objects":1,"problems":[]}`, asJSON.String())
}

func TestVersion(t *testing.T) {
	t.Cleanup(func(old string) func() { return func() { Version = old } }(Version))
	Version = "v1.2.3"
	info := ReadBuildInfo()
	assert.Equal(t, "v1.2.3", info.Version)
	var text, asJSON bytes.Buffer
	require.NoError(t, BuildInfo{Version: "v1.2.3", Commit: "abc", Modified: true, Go: "go1", Platform: "linux/amd64"}.WriteText(&text))
	assert.Equal(t, "magicstick v1.2.3 (linux/amd64, go1, commit abc (modified))\n", text.String())
	require.NoError(t, info.WriteJSON(&asJSON))
	var back BuildInfo
	require.NoError(t, json.Unmarshal(asJSON.Bytes(), &back))
	assert.Equal(t, info, back)
	Version = ""
	assert.NotEmpty(t, ReadBuildInfo().Version)
}

// FuzzCheckFile: whatever a file holds, there is an answer and no panic.
func FuzzCheckFile(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [1, {}]\n---\n...\n--- x\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("apiVersion: ai.deckhouse.io/v1alpha1\nkind: Model\nmetadata: {name: 1, labels: []}\nspec: null\nstatus: 3\n"))
	f.Add([]byte("apiVersion: appliance.magicstick.dev/v1alpha1\nkind: ModelActivation\nmetadata: {name: a}\nspec: {type: local, local: {args: [1], env: {a: b}, vramMi: 1e400}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		report := checkFile("fuzz.yaml", data, false)
		lines := bytes.Count(data, []byte("\n")) + 2
		for _, problem := range report.Problems {
			if problem.Rule == "" || problem.Message == "" || problem.Line > lines || problem.Line < 0 {
				t.Fatalf("a problem without a rule, message or place: %+v", problem)
			}
		}
		for _, note := range report.Notes {
			if note.Message == "" || note.Line > lines || note.Line < 0 {
				t.Fatalf("a note without a message or place: %+v", note)
			}
		}
	})
}
