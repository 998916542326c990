package gotypes_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/gotypes"
	"magicstick.dev/operator/tools/specgen/gotypes/gotypestest"
	"magicstick.dev/operator/tools/specgen/roundtrip"
)

// schemaCase is one small schema that breaks generators. The row number is that of
// the list of reported cases which the project was given.
type schemaCase struct {
	name string
	row  int
	// schema is the schema of spec.
	schema string
	// types are fragments that the generated source must hold, blanks aside.
	types []string
	// never are fragments that it must not hold.
	never []string
	// specs are values of spec that must pass through the types unchanged.
	specs []string
	// refused is the path (below the root schema) and the reason when no types can be
	// made.
	refused string
}

// definition puts the case into a group of its own.
func (c schemaCase) definition(t testing.TB) *crd.Definition {
	t.Helper()
	var spec gotypestest.Props
	require.NoError(t, yaml.UnmarshalStrict([]byte(c.schema), &spec))
	group := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(c.name), "-") + ".example.com"
	return gotypestest.Definition(group, "Case", spec)
}

var (
	buildCases  sync.Once
	caseCodec   *gotypestest.Codec
	caseResults map[string]roundtrip.Result
)

// TestCase runs every case: the Go types have the expected shape, the schema comes
// back the same, and valid objects pass through unchanged.
func TestCase(t *testing.T) {
	definitions := map[string]*crd.Definition{}
	var sound []*crd.Definition
	for _, c := range schemaCases {
		d := c.definition(t)
		require.NotContains(t, definitions, c.name)
		definitions[c.name] = d
		if c.refused == "" {
			sound = append(sound, d)
		}
	}
	buildCases.Do(func() {
		caseCodec = gotypestest.Build(t, sound)
		results, err := roundtrip.Compare(context.Background(), gotypestest.RepoDir(t), sound)
		require.NoError(t, err)
		caseResults = map[string]roundtrip.Result{}
		for _, r := range results {
			caseResults[r.Name] = r
		}
	})
	for _, c := range schemaCases {
		t.Run(fmt.Sprintf("row_%d/%s", c.row, c.name), func(t *testing.T) {
			d := definitions[c.name]
			files, err := gotypes.Emit([]*crd.Definition{d}, gotypestest.ByGroup)
			if c.refused != "" {
				require.ErrorContains(t, err, "spec.versions[0].schema.openAPIV3Schema.properties[spec]"+c.refused)
				return
			}
			require.NoError(t, err)
			source := blanks(source(files, "types_case.go"))
			for _, want := range c.types {
				require.Contains(t, source, blanks(want))
			}
			for _, never := range c.never {
				require.NotContains(t, source, blanks(never))
			}
			result := caseResults[d.Name()]
			require.Equal(t, roundtrip.Same, result.Verdict, result.Detail)
			for _, spec := range c.specs {
				object := []byte(fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Case","metadata":{"name":"a"},"spec":%s}`, d.CRD.Spec.Group, spec))
				got, err := caseCodec.Through(d, "v1", object)
				require.NoError(t, err, spec)
				require.Empty(t, gotypestest.Difference(object, got), spec)
			}
		})
	}
}

func source(files map[string][]byte, suffix string) string {
	for name, data := range files {
		if strings.HasSuffix(name, suffix) {
			return string(data)
		}
	}
	return ""
}

func blanks(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestCaseRows makes sure that no row of the list is without a test here or in
// rows_test.go.
func TestCaseRows(t *testing.T) {
	elsewhere := map[int]string{27: "TestTwoVersions", 30: "TestPluralMarker", 32: "crd.TestCheck, crd.TestLint", 24: "TestNames"}
	covered := map[int]bool{}
	for _, c := range schemaCases {
		covered[c.row] = true
	}
	for _, row := range []int{1, 2, 4, 6, 7, 8, 9, 10, 11, 13, 15, 16, 18, 19, 21, 23, 24, 25, 26, 27, 28, 30, 32, 34} {
		require.True(t, covered[row] || elsewhere[row] != "", "row %d has no test", row)
	}
}

// TestTwoVersions is row 27: both versions of a CRD become packages.
func TestTwoVersions(t *testing.T) {
	d := schemaCase{name: "versions", schema: "{type: object, properties: {a: {type: object, additionalProperties: {type: array, items: {type: object, additionalProperties: {type: string}}}}}}"}.definition(t)
	second := *d.CRD.Spec.Versions[0].DeepCopy()
	second.Name, second.Storage = "v2beta1", false
	spec := second.Schema.OpenAPIV3Schema.Properties["spec"]
	spec.Properties["b"] = gotypestest.Props{Type: "string"}
	d.CRD.Spec.Versions = append(d.CRD.Spec.Versions, second)
	files, err := gotypes.Emit([]*crd.Definition{d}, gotypestest.ByGroup)
	require.NoError(t, err)
	first, other := files["versions.example.com/v1/types_case.go"], files["versions.example.com/v2beta1/types_case.go"]
	require.Contains(t, blanks(string(first)), "A map[string][]map[string]string `json:\"a,omitzero\"`")
	require.Contains(t, string(first), "+kubebuilder:storageversion")
	require.NotContains(t, string(other), "+kubebuilder:storageversion")
	require.NotContains(t, string(first), "json:\"b")
	require.Contains(t, string(other), "json:\"b,omitempty\"")
	results, err := roundtrip.Compare(context.Background(), gotypestest.RepoDir(t), []*crd.Definition{d})
	require.NoError(t, err)
	require.Equal(t, roundtrip.Same, results[0].Verdict, results[0].Detail)
}

// TestPluralMarker is row 30 as far as types go: the plural of the CRD is written
// into the marker that every later generator reads.
func TestPluralMarker(t *testing.T) {
	for kind, plural := range map[string]string{"Policy": "policies", "Kinesis": "kinesis", "DNS": "dnses", "Features": "features", "Gateway": "gatewayz"} {
		d := schemaCase{name: "plural " + kind, schema: "{type: object, properties: {a: {type: string}}}"}.definition(t)
		d.CRD.Spec.Names.Kind, d.CRD.Spec.Names.Plural, d.CRD.Spec.Names.Singular = kind, plural, strings.ToLower(kind)
		d.CRD.Name = plural + "." + d.CRD.Spec.Group
		files, err := gotypes.Emit([]*crd.Definition{d}, gotypestest.ByGroup)
		require.NoError(t, err)
		text := source(files, "types_"+strings.ToLower(kind)+".go")
		require.Contains(t, text, `+kubebuilder:resource:path="`+plural+`"`)
		results, err := roundtrip.Compare(context.Background(), gotypestest.RepoDir(t), []*crd.Definition{d})
		require.NoError(t, err)
		require.Equal(t, roundtrip.Same, results[0].Verdict, results[0].Detail)
	}
}

// TestEncodings is row 34 as a table: required or optional, nullable or not, and what
// each of the three inputs becomes.
func TestEncodings(t *testing.T) {
	c := schemaCase{name: "encodings", schema: `
type: object
required: [requiredPlain, requiredNullable]
properties:
  requiredPlain: {type: string}
  requiredNullable: {type: string, nullable: true}
  optionalPlain: {type: string}
  optionalNullable: {type: string, nullable: true}
  values: {type: object, additionalProperties: {type: integer, nullable: true}}
`}
	d := c.definition(t)
	codec := gotypestest.Build(t, []*crd.Definition{d})
	for _, row := range []struct{ in, out string }{
		{`{"requiredPlain":"","requiredNullable":""}`, ""},
		{`{"requiredPlain":"a","requiredNullable":null}`, ""},
		{`{"requiredPlain":"a","requiredNullable":"b","optionalPlain":"","optionalNullable":""}`, ""},
		{`{"requiredPlain":"a","requiredNullable":"b","optionalNullable":null}`, ""},
		{`{"requiredPlain":"a","requiredNullable":"b","values":{"x":null,"y":0}}`, ""},
		{`{"requiredPlain":"a","requiredNullable":"b","values":{}}`, ""},
		// A null where the schema allows none is pruned by the API server.
		{`{"requiredPlain":"a","requiredNullable":"b","optionalPlain":null}`, `{"requiredPlain":"a","requiredNullable":"b"}`},
	} {
		want := row.in
		if row.out != "" {
			want = row.out
		}
		object := func(spec string) []byte {
			return []byte(`{"apiVersion":"x/v1","kind":"Case","metadata":{"name":"a"},"spec":` + spec + `}`)
		}
		got, err := codec.Through(d, "v1", object(row.in))
		require.NoError(t, err)
		require.Empty(t, gotypestest.Difference(object(want), got), row.in)
	}
}
