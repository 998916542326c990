package roundtrip

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/gotypes/gotypestest"
)

// TestSpec prints the table of this project's CRDs: every one comes back the same.
func TestSpec(t *testing.T) {
	spec := filepath.Join(gotypestest.RepoDir(t), "spec")
	paths := []string{filepath.Join(spec, "crds")}
	if external := filepath.Join(spec, "external"); exists(external) {
		paths = append(paths, external)
	}
	runTable(t, paths...)
}

// TestCorpus prints the table of the real-world CRDs beside the repository.
func TestCorpus(t *testing.T) {
	start := time.Now()
	table := runTable(t, gotypestest.CorpusDir(t))
	t.Logf("%d lines in %.1f s", strings.Count(table, "\n"), time.Since(start).Seconds())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func runTable(t *testing.T, paths ...string) string {
	t.Helper()
	var out bytes.Buffer
	err := Run(context.Background(), gotypestest.RepoDir(t), paths, &out)
	t.Logf("CRD, result, nodes:\n%s", out.String())
	require.NoError(t, err)
	return out.String()
}

// TestRunFormat is the fixed interface: one line per CRD, NAME same|differs|refused
// DETAIL, a count last, an error unless all are the same.
func TestRunFormat(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, d *crd.Definition) {
		t.Helper()
		data, err := json.Marshal(d.CRD)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	write("a.json", gotypestest.Definition("example.com", "Good", gotypestest.Props{Type: "object", Properties: map[string]gotypestest.Props{"a": {Type: "string"}}}))
	write("b.json", gotypestest.Definition("example.com", "Bad", gotypestest.Props{Type: "object", Properties: map[string]gotypestest.Props{"a": {Type: "array"}}}))
	write("c.json", gotypestest.Definition("example.com", "Good", gotypestest.Props{Type: "object"}))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "d.yaml"), []byte("a: ["), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("not read"), 0o600))
	var out bytes.Buffer
	err := Run(context.Background(), gotypestest.RepoDir(t), []string{dir}, &out)
	require.ErrorIs(t, err, ErrNotSame)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 5, out.String())
	require.Regexp(t, `^/.*/d\.yaml refused CRD file .* is not valid YAML`, lines[0])
	require.Regexp(t, `^bads\.example\.com refused CRD file .* spec\.versions\[0\]\.schema\.openAPIV3Schema\.properties\[spec\]\.properties\[a\]: is an array without items`, lines[1])
	require.Equal(t, "goods.example.com same 6 nodes", lines[2])
	require.Regexp(t, `^goods\.example\.com refused .*is already defined in`, lines[3])
	require.Equal(t, "4 CRDs: 1 same, 0 differ, 3 refused", lines[4])

	out.Reset()
	require.NoError(t, Run(context.Background(), gotypestest.RepoDir(t), []string{filepath.Join(dir, "a.json")}, &out))
	require.Equal(t, "goods.example.com same 6 nodes\n1 CRDs: 1 same, 0 differ, 0 refused\n", out.String())

	require.ErrorContains(t, Run(context.Background(), gotypestest.RepoDir(t), []string{filepath.Join(dir, "missing")}, &out), "missing")
	require.ErrorContains(t, Run(context.Background(), gotypestest.RepoDir(t), []string{t.TempDir()}, &out), "no file found")
}

// TestComparisonSees makes sure that the proof can fail: after a change of any one
// keyword the comparison names the place.
func TestComparisonSees(t *testing.T) {
	yes, text, count, number := true, "atomic", int64(7), 7.5
	reason := apiextensionsv1.FieldValueForbidden
	base := func() *apiextensionsv1.CustomResourceDefinition {
		return gotypestest.Definition("example.com", "Thing", gotypestest.Props{Type: "object", Required: []string{"a"}, Properties: map[string]gotypestest.Props{
			"a": {Type: "string", Description: "Words of it.", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"x"`)}}},
			"b": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &gotypestest.Props{Type: "integer", Format: "int32"}}},
			"c": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &gotypestest.Props{Type: "string"}}},
		}, XValidations: apiextensionsv1.ValidationRules{{Rule: "true", Message: "m"}}}).CRD
	}
	require.Empty(t, compare(base(), base()))
	spec := func(edit func(*gotypestest.Props)) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(c *apiextensionsv1.CustomResourceDefinition) {
			root := c.Spec.Versions[0].Schema.OpenAPIV3Schema
			s := root.Properties["spec"]
			edit(&s)
			root.Properties["spec"] = s
		}
	}
	property := func(name string, edit func(*gotypestest.Props)) func(*apiextensionsv1.CustomResourceDefinition) {
		return spec(func(s *gotypestest.Props) {
			p := s.Properties[name]
			edit(&p)
			s.Properties[name] = p
		})
	}
	for name, edit := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"property":        spec(func(s *gotypestest.Props) { delete(s.Properties, "a") }),
		"required":        spec(func(s *gotypestest.Props) { s.Required = nil }),
		"rule":            spec(func(s *gotypestest.Props) { s.XValidations[0].Rule = "false" }),
		"message":         spec(func(s *gotypestest.Props) { s.XValidations[0].Message = "n" }),
		"reason":          spec(func(s *gotypestest.Props) { s.XValidations[0].Reason = &reason }),
		"fieldPath":       spec(func(s *gotypestest.Props) { s.XValidations[0].FieldPath = ".a" }),
		"optionalOldSelf": spec(func(s *gotypestest.Props) { s.XValidations[0].OptionalOldSelf = &yes }),
		"preserve":        spec(func(s *gotypestest.Props) { s.XPreserveUnknownFields = &yes }),
		"embedded":        spec(func(s *gotypestest.Props) { s.XEmbeddedResource = true }),
		"oneOf":           spec(func(s *gotypestest.Props) { s.OneOf = []gotypestest.Props{{Required: []string{"a"}}} }),
		"allOf":           spec(func(s *gotypestest.Props) { s.AllOf = []gotypestest.Props{{Required: []string{"a"}}} }),
		"not":             spec(func(s *gotypestest.Props) { s.Not = &gotypestest.Props{Required: []string{"a"}} }),
		"map type":        spec(func(s *gotypestest.Props) { s.XMapType = &text }),
		"type":            property("a", func(p *gotypestest.Props) { p.Type = "integer" }),
		"int or string":   property("a", func(p *gotypestest.Props) { p.Type, p.XIntOrString = "", true }),
		"format":          property("a", func(p *gotypestest.Props) { p.Format = "uri" }),
		"enum":            property("a", func(p *gotypestest.Props) { p.Enum[0].Raw = []byte(`"y"`) }),
		"default":         property("a", func(p *gotypestest.Props) { p.Default = &apiextensionsv1.JSON{Raw: []byte(`"x"`)} }),
		"nullable":        property("a", func(p *gotypestest.Props) { p.Nullable = true }),
		"title":           property("a", func(p *gotypestest.Props) { p.Title = "T" }),
		"pattern":         property("a", func(p *gotypestest.Props) { p.Pattern = "^a$" }),
		"maxLength":       property("a", func(p *gotypestest.Props) { p.MaxLength = &count }),
		"word":            property("a", func(p *gotypestest.Props) { p.Description = "Words of him." }),
		"maxItems":        property("b", func(p *gotypestest.Props) { p.MaxItems = &count }),
		"list type":       property("b", func(p *gotypestest.Props) { p.XListType = &text }),
		"list keys":       property("b", func(p *gotypestest.Props) { p.XListMapKeys = []string{"k"} }),
		"item format":     property("b", func(p *gotypestest.Props) { p.Items.Schema.Format = "int64" }),
		"item bound":      property("b", func(p *gotypestest.Props) { p.Items.Schema.Maximum = &number }),
		"value bound":     property("c", func(p *gotypestest.Props) { p.AdditionalProperties.Schema.MinLength = &count }),
		"values":          property("c", func(p *gotypestest.Props) { p.AdditionalProperties = nil }),
		"plural":          func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Names.Plural = "thingies" },
		"short name":      func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Names.ShortNames = []string{"t"} },
		"category":        func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Names.Categories = []string{"all"} },
		"scope":           func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Scope = "Cluster" },
		"label":           func(c *apiextensionsv1.CustomResourceDefinition) { c.Labels = map[string]string{"a": "b"} },
		"storage":         func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[0].Storage = false },
		"served":          func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[0].Served = false },
		"subresource": func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
		},
		"column": func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{{Name: "A"}}
		},
		"selectable field": func(c *apiextensionsv1.CustomResourceDefinition) {
			c.Spec.Versions[0].SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".a"}}
		},
		"version": func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[0].Name = "v2" },
	} {
		t.Run(name, func(t *testing.T) {
			changed := base()
			edit(changed)
			require.NotEmpty(t, compare(base(), changed))
			require.NotEmpty(t, compare(changed, base()))
		})
	}
	require.NotEmpty(t, compare(base(), nil))
}

// TestComparisonAllows: what has no meaning is no difference.
func TestComparisonAllows(t *testing.T) {
	one := gotypestest.Definition("example.com", "Thing", gotypestest.Props{Type: "object", Required: []string{"a", "b"}, Description: "One\ntwo\n\nthree ''four''."}).CRD
	two := gotypestest.Definition("example.com", "Thing", gotypestest.Props{Type: "object", Required: []string{"b", "a"}, Description: "One two three \u201dfour\u201d.", Properties: map[string]gotypestest.Props{}}).CRD
	delete(two.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties, "apiVersion")
	two.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{}
	require.Empty(t, compare(one, two))
	require.True(t, sameScalar(json.Number("1"), json.Number("1.0")))
	require.False(t, sameScalar(json.Number("9007199254740993"), json.Number("9007199254740992")))
}

// BenchmarkCorpus is the time of one round trip of all real-world CRDs.
func BenchmarkCorpus(b *testing.B) {
	dir := gotypestest.CorpusDir(b)
	for b.Loop() {
		var out bytes.Buffer
		if err := Run(context.Background(), gotypestest.RepoDir(b), []string{dir}, &out); err != nil {
			b.Fatal(err)
		}
	}
}
