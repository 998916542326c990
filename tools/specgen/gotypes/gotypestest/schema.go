package gotypestest

import (
	"encoding/json"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"magicstick.dev/operator/tools/specgen/crd"
)

// Props is short for the schema type of a CRD.
type Props = apiextensionsv1.JSONSchemaProps

// Definition wraps a spec schema into a CRD of the given group and kind.
func Definition(group, kind string, spec Props) *crd.Definition {
	singular := strings.ToLower(kind)
	return &crd.Definition{File: singular + ".yaml", CRD: &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: singular + "s", Singular: singular, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &Props{
					Type:        "object",
					Description: kind + " is a kind made for a test.",
					Properties: map[string]Props{
						"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Type: "object"}, "spec": spec,
					},
				}},
			}},
		},
	}}
}

// Schema draws a random structural schema of type object: every type, keyword and
// position that a CRD may have, nested, with names that are hard on generators.
func Schema() *rapid.Generator[Props] {
	return rapid.Custom(func(t *rapid.T) Props {
		d := drawer{t}
		schema := d.structure(3)
		d.describe(&schema)
		return schema
	})
}

type drawer struct{ t *rapid.T }

func (d drawer) yes(percent int) bool { return d.number(0, 99) < percent }

func (d drawer) number(low, high int) int { return rapid.IntRange(low, high).Draw(d.t, "n") }

func pick[V any](d drawer, values ...V) V { return rapid.SampledFrom(values).Draw(d.t, "pick") }

var (
	propertyNames = []string{
		"name", "type", "func", "range", "interface", "nodeUid", "kvCacheType", "openAPIV3Schema", "foo-bar", "fooBar", "foo.bar",
		"$ref", "3scale", "items", "properties", "spec", "status", "deepCopy", "DeepCopyInto", "extra", "nulls", "größe", "_hidden", "URL", "url", "localURLs", "-", "a b",
	}
	descriptions = []string{
		"", "", "Plain words about the field.", "+kubebuilder:validation:Enum={\"injected\"}\n+optional", "TODO nothing is to do\n--- and this line stays\nmore text",
		"Ends a comment */ and starts one /* with `backticks` and ``two`` and ''quotes''.", "See https://example.com/a?b=c#d for more.\n\n- first\n- second\n\n    indented\n\tcode",
		"Ünïcödé, 中文, emoji 🚀, a bell\a and a \u202eflipped\u202c part.", strings.Repeat("A very long description that goes on. ", 60), "# Heading\n[link]: https://example.com\n1. one\n2. two",
		`back\slash and "quotes"`, "Deprecated: not really.",
	}
)

// describe adds what any node may have, at the place where it is used.
func (d drawer) describe(s *Props) {
	s.Description = pick(d, descriptions...)
	if d.yes(6) {
		s.Title = pick(d, "Title", `quo"ted ''title''`)
	}
}

func (d drawer) count(low, high int) *int64 {
	n := int64(d.number(low, high))
	return &n
}

func (d drawer) node(depth int) Props {
	var s Props
	kind := d.number(0, 15)
	if depth <= 0 && kind >= 9 {
		kind -= 9
	}
	switch kind {
	case 0, 1:
		s = d.text()
	case 2:
		s = d.integer()
	case 3:
		s = Props{Type: "number"}
		if d.yes(40) {
			low, high := float64(d.number(-5, 1)), float64(d.number(2, 9))+0.5
			s.Minimum, s.Maximum = &low, &high
			s.ExclusiveMinimum = d.yes(30)
		}
		if d.yes(20) {
			s.Format = pick(d, "float", "double")
		}
	case 4:
		s = Props{Type: "boolean"}
		if d.yes(20) {
			s.Enum = values(true)
		}
		if d.yes(10) {
			s = Props{Type: "number", Enum: values(0.5, 1, -2.25)}
		}
	case 5:
		s = d.intOrString()
	case 6:
		s = Props{XPreserveUnknownFields: yes()}
	case 7:
		s = Props{Type: "object", XPreserveUnknownFields: yes()}
		if d.yes(40) {
			s.MaxProperties = d.count(4, 9)
		}
		s.XEmbeddedResource = d.yes(25)
	case 8:
		s = Props{Type: "object"}
	case 9, 10, 11:
		s = d.structure(depth - 1)
	case 12, 13:
		s = d.list(depth - 1)
	default:
		s = d.mapping(depth - 1)
	}
	d.describe(&s)
	s.Nullable = d.yes(12)
	if d.yes(4) {
		s.ExternalDocs = &apiextensionsv1.ExternalDocumentation{URL: pick(d, "https://example.com/a?b='c'", "not a url"), Description: pick(d, "", "Says ''more''.")}
	}
	if d.yes(6) {
		s.Example = &values(pick[any](d, 5, -1, true, 1.5, "te''xt", []any{1, "a"}, map[string]any{"a": nil}))[0]
	}
	if d.yes(12) {
		d.defaulted(&s)
	}
	if d.yes(10) {
		d.rules(&s)
	}
	return s
}

func yes() *bool {
	value := true
	return &value
}

func values(list ...any) []apiextensionsv1.JSON {
	var out []apiextensionsv1.JSON
	for _, value := range list {
		data, err := json.Marshal(value)
		if err != nil {
			panic(err) // only literals are passed
		}
		out = append(out, apiextensionsv1.JSON{Raw: data})
	}
	return out
}

func (d drawer) text() Props {
	s := Props{Type: "string"}
	switch d.number(0, 6) {
	case 0:
		s.MaxLength = d.count(10, 40)
		if d.yes(50) {
			s.MinLength = d.count(0, 3)
		}
	case 1:
		s.Pattern = pick(d, "^[a-z0-9]{1,9}$", "^$|^a'b''c`d``e$", `^\d+(\.\d+)?"?$`, "^x*$")
	case 2:
		s.Format = pick(d, "date-time", "duration", "byte", "uri", "ipv4", "uuid", "date", "made-up")
		if d.yes(30) {
			s.MaxLength = d.count(64, 99)
		}
	case 3:
		s.Enum = pick(d, values("bool:true", "bool:false", "a/b", "a b", "a-b", ""), values("nvidia-gpu", "amd-gpu", "cpu", "+1", "-1", "*"),
			values("It's", `say "yes"`, "true", "123", "87 % of `it`", "''"), values("only"))
	}
	return s
}

func (d drawer) integer() Props {
	s := Props{Type: "integer", Format: pick(d, "", "int32", "int64")}
	switch d.number(0, 4) {
	case 0:
		low, high := float64(d.number(-9, 1)), float64(d.number(2, 100000))
		s.Minimum, s.Maximum = &low, &high
		s.ExclusiveMaximum = d.yes(20)
	case 1:
		s.Enum = values(301, 302, 307, 308)
	case 2:
		step := float64(d.number(1, 5))
		s.MultipleOf = &step
	}
	return s
}

func (d drawer) intOrString() Props {
	s := Props{XIntOrString: true}
	if d.yes(60) {
		s.AnyOf = []Props{{Type: "integer"}, {Type: "string"}}
	}
	if d.yes(30) {
		s.Pattern = pick(d, "^[0-9]+%?$", `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`)
	}
	return s
}

func (d drawer) structure(depth int) Props {
	s := Props{Type: "object", Properties: map[string]Props{}}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(propertyNames), 1, 6, rapid.ID[string]).Draw(d.t, "names") {
		s.Properties[name] = d.node(depth)
		if d.yes(35) {
			s.Required = append(s.Required, name)
		}
	}
	if d.yes(15) {
		s.XPreserveUnknownFields = yes()
	}
	if d.yes(10) {
		s.XMapType = new(string)
		*s.XMapType = pick(d, "atomic", "granular")
	}
	if d.yes(10) {
		s.MinProperties, s.MaxProperties = d.count(0, 1), d.count(30, 40)
	}
	if d.yes(12) {
		var names []string
		for name := range s.Properties {
			names = append(names, name)
		}
		first := names[0]
		for _, name := range names {
			first = min(first, name)
		}
		s.AnyOf = []Props{{Required: []string{first}}, {Properties: map[string]Props{first: {}}}}
	}
	if d.yes(8) {
		s.Not = &Props{Required: []string{"never"}}
	}
	return s
}

func (d drawer) list(depth int) Props {
	item := d.node(depth)
	s := Props{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}}
	if d.yes(50) {
		s.MaxItems = d.count(3, 6)
	}
	if d.yes(20) {
		s.MinItems = d.count(0, 2)
	}
	if d.yes(20) {
		s.XListType = new(string)
		*s.XListType = "atomic"
	}
	s.XPreserveUnknownFields = nil
	return s
}

func (d drawer) mapping(depth int) Props {
	value := d.node(depth)
	s := Props{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &value}}
	if d.yes(40) {
		s.MaxProperties = d.count(3, 6)
	}
	return s
}

// defaulted adds a default of the node's type; whether it is valid is the API
// server's question, not the generator's.
func (d drawer) defaulted(s *Props) {
	switch {
	case len(s.Enum) > 0:
		s.Default = &s.Enum[0]
	case s.Type == "string":
		s.Default = &values(pick(d, "", "it's ''quoted'' and ``ticked``", "<html>&"))[0]
	case s.Type == "integer":
		s.Default = &values(pick[any](d, 0, -7, json.Number("9007199254740993")))[0]
	case s.Type == "number":
		s.Default = &values(0.5)[0]
	case s.Type == "boolean":
		s.Default = &values(false)[0]
	case s.Type == "array":
		s.Default = &values([]any{})[0]
	case s.Type == "object":
		s.Default = &values(map[string]any{"nested": map[string]any{"deep": []any{1, "two"}}})[0]
	case s.XIntOrString:
		s.Default = &values("25%")[0]
	}
}

func (d drawer) rules(s *Props) {
	reason := apiextensionsv1.FieldValueInvalid
	s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{
		Rule: pick(d, "self == oldSelf", "self != '' && self != ''''", "self.matches(r'^`[a-z]+`$')", "true\n&& true"), Message: pick(d, "is ''fixed''", "says \"no\", always"),
	})
	if d.yes(50) {
		optional := d.yes(50)
		s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{
			Rule: "!oldSelf.hasValue() || oldSelf.value() == self", MessageExpression: "'was ' + string(oldSelf.value())", Reason: &reason, FieldPath: ".some['odd-name']", OptionalOldSelf: &optional,
		})
	}
}

// Example draws one schema for a seed, without a test around it.
func Example(seed int) Props { return Schema().Example(seed) }

// RandomDefinition is a random CRD for a seed; the group tells them apart.
func RandomDefinition(seed int) *crd.Definition {
	return Definition(fmt.Sprintf("random%d.example.com", seed), "Thing", Example(seed))
}
