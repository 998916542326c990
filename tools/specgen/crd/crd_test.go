package crd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// base is a sound CRD of the shape that this project's own have; the tests break it
// in one place each.
const base = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, listKind: ThingList, plural: things, singular: thing}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          description: A thing.
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            metadata: {type: object}
            spec:
              type: object
              description: What is wanted.
              properties:
                name: {type: string, description: Its name., maxLength: 63}
                list: {type: array, description: Names., maxItems: 8, items: {type: string, maxLength: 63}}
                map: {type: object, description: Names by key., maxProperties: 8, additionalProperties: {type: string, maxLength: 63}}
                count: {type: integer, description: How many., format: int32}
              x-kubernetes-validations:
                - rule: "!has(self.count) || self.count > 0"
                  message: count is positive
                  reason: FieldValueInvalid
            status:
              type: object
              description: What was seen.
              default: {observedGeneration: -1}
              properties:
                observedGeneration: {type: integer, format: int64, description: Last generation.}
                conditions:
                  type: array
                  description: Conditions.
                  maxItems: 8
                  x-kubernetes-list-type: map
                  x-kubernetes-list-map-keys: [type]
                  items: {type: object, required: [type], properties: {type: {type: string, description: Type., maxLength: 63}}}
`

const specPath = "spec.versions[0].schema.openAPIV3Schema.properties[spec]"

// change replaces exactly one occurrence.
func change(t testing.TB, old, replacement string) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(base, old), "the text to break must occur once: %q", old)
	return strings.Replace(base, old, replacement, 1)
}

func TestBaseIsSound(t *testing.T) {
	d, err := Parse("example.com/thing.yaml", []byte(base))
	require.NoError(t, err)
	require.NoError(t, Check(context.Background(), []*Definition{d}))
	require.NoError(t, Lint([]*Definition{d}))
}

// fault is one expected error.
type fault struct {
	name, text, path, reason string
}

func requireFault(t *testing.T, err error, file, path, reason string) {
	t.Helper()
	require.Error(t, err)
	var found *Error
	require.ErrorAs(t, err, &found)
	require.Equal(t, file, found.File)
	require.Equal(t, path, found.Path)
	require.Contains(t, found.Reason, reason)
	require.Contains(t, err.Error(), file)
}

// TestParse is the bad input of the loader: one error each, with file, path, reason.
func TestParse(t *testing.T) {
	for _, c := range []fault{
		{"unknown keyword", change(t, "name: {type: string,", "name: {type: string, maxlength: 3,"), specPath + ".properties[name].maxlength", "is not a keyword"},
		{"unknown keyword below items", change(t, "items: {type: string, maxLength: 63}", "items: {type: string, minLenght: 1}"), specPath + ".properties[list].items.minLenght", "is not a keyword"},
		{"unknown keyword below map values", change(t, "additionalProperties: {type: string, maxLength: 63}", "additionalProperties: {typ: string}"), specPath + ".properties[map].additionalProperties.typ", "is not a keyword"},
		{"unknown key of a rule", change(t, "reason: FieldValueInvalid", "reasons: FieldValueInvalid"), specPath + ".x-kubernetes-validations[0].reasons", "is not a key of a rule"},
		{"unknown key of the CRD", change(t, "  scope: Namespaced", "  scope: Namespaced\n  scopes: x"), "spec.scopes", "unknown field"},
		{"reference", change(t, "count: {type: integer,", "count: {$ref: '#/definitions/x', type: integer,"), specPath + ".properties[count].$ref", "refers to #/definitions/x"},
		{"cyclic reference", change(t, "count: {type: integer, description: How many., format: int32}", "count: {$ref: '#/properties/spec'}"), specPath + ".properties[count].$ref", "holds no references"},
		{"definitions", change(t, "count: {type: integer,", "count: {definitions: {}, type: integer,"), specPath + ".properties[count].definitions", "is not allowed"},
		{"key twice", change(t, "count: {type: integer,", "count: {type: integer, type: string,"), specPath + ".properties[count].type", "key is given twice"},
		{"property twice", change(t, "                count: {", "                name: {type: string}\n                count: {"), specPath + ".properties[name]", "key is given twice, first in line 26"},
		{"wrong type of value", change(t, "maxItems: 8, items: {type: string", "maxItems: many, items: {type: string"), specPath + ".properties[list].maxItems", `is the string "many", expected a whole number`},
		{"fraction of a count", change(t, "maxItems: 8, items: {type: string", "maxItems: 1.5, items: {type: string"), specPath + ".properties[list].maxItems", "expected a whole number"},
		{"list of items", change(t, "items: {type: string, maxLength: 63}", "items: [{type: string}]"), specPath + ".properties[list].items", "is a list, a schema is a mapping"},
		{"schema null", change(t, "count: {type: integer, description: How many., format: int32}", "count:"), specPath + ".properties[count]", "is null"},
		{"anchor", change(t, "count: {type: integer,", "count: &a {type: integer,"), specPath + ".properties[count]", "anchor or alias"},
		{"plain on", change(t, "count: {type: integer,", "on: {type: integer,"), specPath + ".properties[on]", "put it in quotes"},
		{"two documents", base + "---\n" + base, "", "holds several documents"},
		{"another kind", strings.Replace(base, "kind: CustomResourceDefinition", "kind: ConfigMap", 1), "kind", "kind ConfigMap"},
		{"an old version", strings.Replace(base, "extensions.k8s.io/v1", "extensions.k8s.io/v1beta1", 1), "kind", "apiextensions.k8s.io/v1beta1"},
		{"no name", change(t, "  name: things.example.com\n", "  labels: {a: b}\n"), "metadata.name", "is empty"},
		{"group that climbs", change(t, "  group: example.com", "  group: ../../etc"), "spec.group", `"../../etc" would lead out of the folder`},
		{"group that is absolute", change(t, "  group: example.com", "  group: /etc"), "spec.group", "would lead out of the folder"},
		{"group that is the parent", change(t, "  group: example.com", "  group: .."), "spec.group", "would lead out of the folder"},
		{"kind that climbs", change(t, "{kind: Thing,", "{kind: ../Thing,"), "spec.names.kind", "would lead out of the folder"},
		{"kind with a backslash", change(t, "{kind: Thing,", "{kind: 'a\\Thing',"), "spec.names.kind", "would lead out of the folder"},
		{"version that climbs", change(t, "name: v1alpha1", "name: ../v1"), "spec.versions[0].name", "would lead out of the folder"},
		{"no schema", base[:strings.Index(base, "      schema:")], "spec.versions[0].schema.openAPIV3Schema", "is missing"},
		{"empty file", "", "", "is empty"},
		{"only comments", "# nothing\n", "", "is empty"},
		{"a list", "- a\n- b\n", "", "is not a YAML mapping"},
		{"broken YAML", "a: [", "", "is not valid YAML"},
		{"binary", "\x7fELF\x00\x01", "", "is not text"},
		{"no UTF-8", "a: \xff\xfe", "", "is not text"},
		{"deep nesting", "a: " + strings.Repeat("[", 300) + strings.Repeat("]", 300), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse("dir/thing.yaml", []byte(c.text))
			require.Nil(t, d)
			if c.name == "deep nesting" {
				require.ErrorContains(t, err, "nested deeper")
				return
			}
			requireFault(t, err, "dir/thing.yaml", c.path, c.reason)
		})
	}
}

// TestAllFaultsAtOnce: a person sees every mistake of a file in one run.
func TestAllFaultsAtOnce(t *testing.T) {
	text := strings.Replace(change(t, "name: {type: string,", "name: {type: string, a: 1,"), "count: {type: integer,", "count: {type: integer, b: 2,", 1)
	_, err := Parse("x.yaml", []byte(text))
	require.ErrorContains(t, err, "properties[name].a")
	require.ErrorContains(t, err, "properties[count].b")
}

func TestLoadDir(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("b/thing.yaml", base)
	write("README.md", "not a CRD")
	definitions, err := LoadDir(dir)
	require.NoError(t, err)
	require.Len(t, definitions, 1)
	require.Equal(t, filepath.Join(dir, "b", "thing.yaml"), definitions[0].File)

	write("a/copy.yaml", base)
	_, err = LoadDir(dir)
	requireFault(t, err, filepath.Join(dir, "b", "thing.yaml"), "metadata.name", `"things.example.com" is already defined in`)

	write("a/copy.yaml", strings.NewReplacer("things", "thingies").Replace(base))
	_, err = LoadDir(dir)
	requireFault(t, err, filepath.Join(dir, "b", "thing.yaml"), "spec.names.kind", `"Thing" of group "example.com" is already defined in`)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "a")))

	outside := filepath.Join(t.TempDir(), "outside.yaml")
	require.NoError(t, os.WriteFile(outside, []byte(base), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link.yaml")))
	_, err = LoadDir(dir)
	requireFault(t, err, filepath.Join(dir, "link.yaml"), "", "is a link that leads to no file of its folder")
	_, err = LoadDirAs(dir, "spec/crds")
	requireFault(t, err, "spec/crds/link.yaml", "", "path escapes from parent")
	require.NoError(t, os.Remove(filepath.Join(dir, "link.yaml")))

	write("big.yaml", strings.Repeat("# padding\n", MaxFileBytes/10+1))
	_, err = LoadDir(dir)
	requireFault(t, err, filepath.Join(dir, "big.yaml"), "", "is larger than")

	_, err = LoadDir(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Load(filepath.Join(dir, "missing.yaml"))
	require.ErrorContains(t, err, "missing.yaml")
}

// TestLoadBundle: published manifests hold several CRDs and other objects.
func TestLoadBundle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle.yaml")
	load := func(text string) ([]*Definition, error) {
		t.Helper()
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return LoadBundle(path)
	}
	other := strings.NewReplacer("things", "parts", "Thing", "Part", "singular: thing", "singular: part").Replace(base)
	definitions, err := load("---\n# a comment\n---\n" + base + "---\nkind: ServiceAccount\napiVersion: v1\n--- # next\n" + other + "---\n")
	require.NoError(t, err)
	require.Len(t, definitions, 2)
	require.Equal(t, "parts.example.com", definitions[1].Name())

	_, err = load(base + "---\n" + strings.Replace(other, "count: {type: integer,", "count: {typ: integer,", 1))
	var found *Error
	require.ErrorAs(t, err, &found)
	require.Equal(t, specPath+".properties[count].typ", found.Path)
	require.Equal(t, strings.Count(base, "\n")+1+strings.Count(other[:strings.Index(other, "count:")], "\n")+1, found.Line, "lines count from the top of the file")

	_, err = load("kind: ServiceAccount\napiVersion: v1\n")
	require.ErrorContains(t, err, "kind ServiceAccount")
	_, err = load("kind: A\n---\nkind: B\n")
	require.ErrorContains(t, err, "holds no CustomResourceDefinition")
	_, err = load("")
	require.ErrorContains(t, err, "is empty")
	_, err = LoadBundle(path + ".missing")
	require.ErrorContains(t, err, "missing")
}

// TestCheck is what the API server refuses; row 32 of the generator cases is here and
// in TestLint: rules over unbounded lists and maps, a messageExpression on an int.
func TestCheck(t *testing.T) {
	rule := `rule: "!has(self.count) || self.count > 0"`
	for _, c := range []fault{
		{"rule does not compile", change(t, rule, `rule: "self.nothing > 0"`), specPath + ".x-kubernetes-validations[0].rule", "undefined field 'nothing'"},
		{"rule is no boolean", change(t, rule, `rule: "self.count + 1"`), specPath + ".x-kubernetes-validations[0].rule", "must evaluate to a bool"},
		{"messageExpression is an int", change(t, "message: count is positive", `messageExpression: "self.count"`), specPath + ".x-kubernetes-validations[0].messageExpression", "messageExpression must evaluate to a string"},
		{"rule over an unbounded list", strings.Replace(change(t, "maxItems: 8, items: {type: string, maxLength: 63}", "items: {type: string}"), rule, `rule: "!has(self.list) || self.list.all(a, self.list.all(b, a == b || a.contains(b)))"`, 1),
			specPath + ".x-kubernetes-validations[0].rule", "estimated rule cost exceeds budget"},
		{"rule over an unbounded map", strings.Replace(change(t, "maxProperties: 8, additionalProperties: {type: string, maxLength: 63}", "additionalProperties: {type: string}"), rule, `rule: "!has(self.map) || self.map.all(a, self.map.all(b, a == b || self.map[a].contains(self.map[b])))"`, 1),
			specPath + ".x-kubernetes-validations[0].rule", "estimated rule cost exceeds budget"},
		{"not structural", change(t, "count: {type: integer, description: How many., format: int32}", "count: {description: No type.}"), specPath + ".properties[count].type", "must not be empty"},
		{"default of a wrong type", change(t, "count: {type: integer,", "count: {default: many, type: integer,"), specPath + ".properties[count].default", "must be of type integer"},
		{"name and plural differ", change(t, "plural: things", "plural: thingies"), "metadata.name", "must be spec.names.plural"},
		{"column without path", change(t, "      subresources:", "      additionalPrinterColumns: [{name: A, type: string, jsonPath: 'x'}]\n      subresources:"), "spec.versions[0].additionalPrinterColumns[0].jsonPath", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse("example.com/thing.yaml", []byte(c.text))
			require.NoError(t, err)
			err = Check(context.Background(), []*Definition{d})
			requireFault(t, err, "example.com/thing.yaml", c.path, c.reason)
			var found *Error
			require.True(t, errors.As(err, &found))
			require.Positive(t, found.Line, "the line is found: %v", err)
		})
	}
}

// TestOneErrorPerFault: what follows from a fault is not told beside it, and no
// message dumps a rule or a schema.
func TestOneErrorPerFault(t *testing.T) {
	rule := `rule: "!has(self.count) || self.count > 0"`
	dear := func(path string) string {
		return strings.Replace(change(t, "maxItems: 8, items: {type: string, maxLength: 63}", "items: {type: string}"), rule, `rule: "`+path+`"`, 1)
	}
	nested := "!has(self.list) || self.list.all(a, self.list.all(b, a == b || a.contains(b)))"
	several := ""
	for range 12 {
		several += "                - {rule: '" + strings.ReplaceAll(nested, "'", "") + "', message: names are free, reason: FieldValueInvalid}\n"
	}
	const rulePath, listPath = specPath + ".x-kubernetes-validations[0].rule", specPath + ".properties[list]"
	wide := func(items, length int) string {
		return strings.Replace(change(t, "maxItems: 8, items: {type: string, maxLength: 63}", fmt.Sprintf("maxItems: %d, items: {type: string, maxLength: %d}", items, length)), rule, `rule: "`+nested+`"`, 1)
	}
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"far over the limit", wide(10000, 1000), []string{rulePath + ": Forbidden: estimated rule cost exceeds budget"}},
		{"over the limit", wide(1000, 63), []string{rulePath + ": Forbidden: estimated rule cost exceeds budget"}},
		{"over the ceiling", wide(60, 63), []string{rulePath + ": estimated cost "}},
		{"too dear for want of bounds", dear(nested), []string{listPath + ": is a list without bound", listPath + ".items: is a string without bound"}},
		{"does not compile", change(t, rule, `rule: "self.nothing > 0"`), []string{rulePath + `: Invalid value: compilation failed: ERROR: <input>:1:5: undefined field 'nothing'`}},
		{"message that does not compile", change(t, "message: count is positive", `messageExpression: "self.count"`), []string{specPath + ".x-kubernetes-validations[0].messageExpression: Invalid value"}},
		{"all rules together", strings.Replace(change(t, "maxItems: 8, items: {type: string, maxLength: 63}", "maxItems: 116, items: {type: string, maxLength: 63}"),
			"                - "+rule+"\n                  message: count is positive\n                  reason: FieldValueInvalid\n", several, 1),
			[]string{"schema.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget"}},
		{"name and plural differ", change(t, "plural: things", "plural: thingies"), []string{`metadata.name: Invalid value: "things.example.com": must be spec.names.plural+"."+spec.group`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse("example.com/thing.yaml", []byte(c.text))
			require.NoError(t, err)
			err = Verify(context.Background(), []*Definition{d})
			require.Error(t, err)
			lines := strings.Split(err.Error(), "\n")
			require.Len(t, lines, len(c.want), "%v", err)
			for i, want := range c.want {
				require.Contains(t, lines[i], want)
				require.NotContains(t, lines[i], "{", "a dump of a Go value")
				require.Less(t, len(lines[i]), 700)
			}
		})
	}
}

// TestLint is what this project asks for beyond the API server.
func TestLint(t *testing.T) {
	rule := `rule: "!has(self.count) || self.count > 0"`
	for _, c := range []fault{
		{"string without bound", change(t, "name: {type: string, description: Its name., maxLength: 63}", "name: {type: string, description: Its name.}"), specPath + ".properties[name]", "is a string without bound"},
		{"pattern of any length", change(t, "Its name., maxLength: 63}", "Its name., pattern: '^[a-z]+$'}"), specPath + ".properties[name]", "is a string without bound"},
		{"pattern without anchor", change(t, "Its name., maxLength: 63}", "Its name., pattern: '[a-z]{3}'}"), specPath + ".properties[name]", "is a string without bound"},
		{"pattern with a loose alternative", change(t, "Its name., maxLength: 63}", "Its name., pattern: '^a|b$'}"), specPath + ".properties[name]", "is a string without bound"},
		{"item without bound", change(t, "items: {type: string, maxLength: 63}", "items: {type: string}"), specPath + ".properties[list].items", "is a string without bound"},
		{"list without bound", change(t, "maxItems: 8, items: {type: string", "items: {type: string"), specPath + ".properties[list]", "is a list without bound"},
		{"map without bound", change(t, "maxProperties: 8, ", ""), specPath + ".properties[map]", "is a map without bound"},
		{"preserved keys without bound", change(t, "count: {type: integer, description: How many., format: int32}", "count: {type: integer, description: How many., format: int32}\n                any: {type: object, description: Any., x-kubernetes-preserve-unknown-fields: true}"), specPath + ".properties[any]", "is a map without bound"},
		{"any value", change(t, "format: int32}", "format: int32}\n                any: {description: Any., x-kubernetes-preserve-unknown-fields: true}"), specPath + ".properties[any]", "holds any JSON value"},
		{"no description", change(t, "name: {type: string, description: Its name.,", "name: {type: string,"), specPath + ".properties[name].description", "is missing"},
		{"metadata that would be pruned", change(t, "format: int32}", "format: int32}\n                template: {type: object, description: A Pod., properties: {metadata: {type: object, description: Labels.}}}"), specPath + ".properties[template].properties[metadata]", "would be pruned"},
		{"rule without message", change(t, "                  message: count is positive\n", ""), specPath + ".x-kubernetes-validations[0].message", "is missing"},
		{"rule without reason", change(t, "                  reason: FieldValueInvalid\n", ""), specPath + ".x-kubernetes-validations[0].reason", "is missing"},
		{"expensive rule", strings.Replace(change(t, "maxItems: 8, items: {type: string", "maxItems: 200, items: {type: string"), rule, `rule: "!has(self.list) || self.list.all(a, self.list.all(b, a.contains(b)))"`, 1),
			specPath + ".x-kubernetes-validations[0].rule", "over this project's ceiling of 1000000"},
		{"enum value twice", change(t, "Its name., maxLength: 63}", "Its name., enum: [a, b, a]}"), specPath + ".properties[name].enum[2]", `is "a", as is enum[0]`},
		{"required twice", change(t, "              properties:\n                name:", "              required: [name, name]\n              properties:\n                name:"), specPath + ".required[1]", `is "name", as is required[0]`},
		{"no default status", change(t, "              default: {observedGeneration: -1}\n", ""), "spec.versions[0].schema.openAPIV3Schema.properties[status].default", "is not {observedGeneration: -1}"},
		{"conditions are no map", change(t, "                  x-kubernetes-list-type: map\n                  x-kubernetes-list-map-keys: [type]\n", ""), "spec.versions[0].schema.openAPIV3Schema.properties[status].properties[conditions]", "is not a list map by type"},
		{"generation with a minimum", change(t, "format: int64, description: Last", "format: int64, minimum: 0, description: Last"), "spec.versions[0].schema.openAPIV3Schema.properties[status].properties[observedGeneration]", "-1 means not observed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse("example.com/thing.yaml", []byte(c.text))
			require.NoError(t, err)
			requireFault(t, Lint([]*Definition{d}), "example.com/thing.yaml", c.path, c.reason)
		})
	}
	d, err := Parse("example.com/wrong.yaml", []byte(base))
	require.NoError(t, err)
	requireFault(t, Lint([]*Definition{d}), "example.com/wrong.yaml", "spec.names.kind", "belongs into the file example.com/thing.yaml")
}

// TestBoundedPattern: patterns that bound a string need no maxLength.
func TestBoundedPattern(t *testing.T) {
	for pattern, bounded := range map[string]bool{
		"^sha256:[0-9a-f]{64}$": true, "^(a|bc)?$": true, "^$": true, "^a*$": false, "^a{2,}$": false, "a": false, "^a": false, "": false, "^(": false, `^a\$`: false,
	} {
		require.Equal(t, bounded, boundedPattern(pattern), pattern)
	}
}

// TestCosts: the estimate is the API server's, items multiply it, and the table names
// every rule.
func TestCosts(t *testing.T) {
	text := strings.Replace(base, "items: {type: string, maxLength: 63}",
		`items: {type: string, maxLength: 63, x-kubernetes-validations: [{rule: "self != ''", message: no, reason: FieldValueInvalid}]}`, 1)
	text = strings.Replace(text, "message: no,", `message: "no",`, 1)
	d, err := Parse("example.com/thing.yaml", []byte(text))
	require.NoError(t, err)
	costs, err := Costs([]*Definition{d})
	require.NoError(t, err)
	require.Len(t, costs, 2)
	require.Equal(t, specPath+".properties[list].items.x-kubernetes-validations[0].rule", costs[0].Path)
	require.Zero(t, costs[0].Cost%8, "the rule runs once for each of 8 items: %v", costs[0])
	require.Greater(t, costs[0].Cost, costs[1].Cost)
	require.InDelta(t, float64(costs[0].Cost)/1e5, costs[0].Percent(), 1e-9)

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "thing.yaml"), []byte(text), 0o600))
	var out bytes.Buffer
	require.NoError(t, WriteCosts(context.Background(), dir, &out))
	require.Regexp(t, regexp.QuoteMeta("things.example.com  "+costs[0].Path)+" +no +self != ''", out.String())
	require.Contains(t, out.String(), "count is positive  !has(self.count) || self.count > 0")
	require.Contains(t, out.String(), "total")

	out.Reset()
	require.NoError(t, WriteSummary([]*Definition{d}, &out))
	require.Equal(t, fmt.Sprintf("2 CEL rules in 1 CRDs; the dearest costs %d, %.3f %% of the limit: things.example.com %s (no)\n",
		costs[0].Cost, costs[0].Percent(), costs[0].Path), out.String())
}

// TestSpec: this project's CRDs pass everything.
func TestSpec(t *testing.T) {
	definitions, err := LoadDir(filepath.Join("..", "..", "..", "spec", "crds"))
	require.NoError(t, err)
	require.NotEmpty(t, definitions)
	require.NoError(t, Check(context.Background(), definitions))
	require.NoError(t, Lint(definitions))
	costs, err := Costs(definitions)
	require.NoError(t, err)
	require.NotEmpty(t, costs)
	require.Less(t, costs[0].Percent(), 10.0, "%v", costs[0])
	for _, c := range costs {
		require.Empty(t, c.Error, c.Path)
	}
}

// FuzzParse: no file makes the loader panic, and what it takes can be checked.
func FuzzParse(f *testing.F) {
	f.Add([]byte(base))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("? {}\n: x"))
	f.Add([]byte("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {versions: [{schema: {openAPIV3Schema: {properties: {a: {}}}}}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("fuzz.yaml", data)
		if err != nil {
			var fault *Error
			if !errors.As(err, &fault) || fault.File != "fuzz.yaml" || fault.Reason == "" {
				t.Fatalf("not an error with file and reason: %v", err)
			}
			return
		}
		_ = Check(context.Background(), []*Definition{d})
		_ = Lint([]*Definition{d})
	})
}
