package gotypestest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Sampler makes random objects that are valid under a schema. It prefers the values
// that generators lose: empty strings, zeros, empty lists and maps, nulls.
type Sampler struct {
	random    *rand.Rand
	schema    *apiextensionsv1.JSONSchemaProps
	validator validation.SchemaValidator
	// stretch lengthens repetitions, see matchLength.
	stretch int
}

// NewSampler makes a sampler for a root schema.
func NewSampler(schema *apiextensionsv1.JSONSchemaProps, seed uint64) (*Sampler, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil); err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, err
	}
	return &Sampler{random: rand.New(rand.NewPCG(seed, 1)), schema: schema, validator: validator}, nil //nolint:gosec // repeatable on purpose
}

// Object returns a valid object as JSON, or false when none was found in a number of
// tries (a pattern or a oneOf that chance does not meet).
func (s *Sampler) Object(apiVersion, kind string) ([]byte, bool) {
	for range 40 {
		value := s.object(s.schema, 0)
		value["apiVersion"], value["kind"] = apiVersion, kind
		value["metadata"] = map[string]any{"name": "sample"}
		data, err := json.Marshal(value)
		if err != nil {
			return nil, false
		}
		var decoded any
		if utiljson.Unmarshal(data, &decoded) != nil {
			return nil, false
		}
		if len(validation.ValidateCustomResource(field.NewPath(""), decoded, s.validator)) == 0 {
			return data, true
		}
	}
	return nil, false
}

func (s *Sampler) chance(p float64) bool { return s.random.Float64() < p }

func (s *Sampler) value(schema *apiextensionsv1.JSONSchemaProps, depth int) any {
	if schema.Nullable && s.chance(0.3) {
		return nil
	}
	if len(schema.Enum) > 0 {
		var value any
		if json.Unmarshal(schema.Enum[s.random.IntN(len(schema.Enum))].Raw, &value) == nil {
			return value
		}
	}
	switch {
	case schema.XIntOrString:
		return s.intOrString(schema)
	case schema.Type == "object":
		return s.object(schema, depth)
	case schema.Type == "array":
		return s.list(schema, depth)
	case schema.Type == "string":
		return s.text(schema)
	case schema.Type == "integer":
		return s.integer(schema)
	case schema.Type == "number":
		low, high := limits(schema, -1e3, 1e3)
		if s.chance(0.2) && low <= 0 && high >= 0 {
			return 0
		}
		return low + (high-low)*s.random.Float64()
	case schema.Type == "boolean":
		return s.chance(0.5)
	}
	return s.anything(2)
}

// anything is a JSON value for a node without type, never null: whether a preserved
// null survives is the API server's pruning, not the types'.
func (s *Sampler) anything(depth int) any {
	switch s.random.IntN(7) {
	case 0:
		return ""
	case 1:
		return "text"
	case 2:
		return s.random.IntN(100)
	case 3:
		return s.chance(0.5)
	case 4:
		return []any{}
	case 5:
		if depth > 0 {
			return []any{s.anything(depth - 1)}
		}
	}
	if depth > 0 {
		return map[string]any{"a": s.anything(depth - 1)}
	}
	return map[string]any{}
}

func (s *Sampler) object(schema *apiextensionsv1.JSONSchemaProps, depth int) map[string]any {
	object := map[string]any{}
	present := 0.6
	if depth > 5 {
		present = 0.15
	}
	for name, sub := range schema.Properties {
		if slices.Contains(schema.Required, name) || s.chance(present) {
			object[name] = s.value(&sub, depth+1)
		}
	}
	if schema.AdditionalProperties != nil {
		for i := range s.count(schema.MinProperties, schema.MaxProperties) {
			if schema.AdditionalProperties.Schema != nil {
				object[fmt.Sprintf("key%d", i)] = s.value(schema.AdditionalProperties.Schema, depth+1)
			}
		}
	}
	if schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields && depth > 0 {
		for i := range s.count(schema.MinProperties, schema.MaxProperties) {
			object[fmt.Sprintf("unknown%d", i)] = s.anything(2)
		}
	}
	if schema.XEmbeddedResource {
		object["apiVersion"], object["kind"] = "v1", "ConfigMap"
		object["metadata"] = map[string]any{"name": "embedded", "labels": map[string]any{"kept": "yes"}}
	}
	return object
}

// count picks a number of elements, zero often.
func (s *Sampler) count(low, high *int64) int {
	from, to := 0, 3
	if low != nil {
		from, to = int(*low), int(*low)+3
	}
	if high != nil && int(*high) < to {
		to = int(*high)
	}
	if to <= from || s.chance(0.25) {
		return from
	}
	return from + s.random.IntN(to-from+1)
}

func (s *Sampler) list(schema *apiextensionsv1.JSONSchemaProps, depth int) []any {
	list := []any{}
	if schema.Items == nil || schema.Items.Schema == nil {
		return list
	}
	n := s.count(schema.MinItems, schema.MaxItems)
	if depth > 6 && (schema.MinItems == nil || *schema.MinItems == 0) {
		n = min(n, 1)
	}
	for range n {
		list = append(list, s.value(schema.Items.Schema, depth+1))
	}
	return list
}

func (s *Sampler) intOrString(schema *apiextensionsv1.JSONSchemaProps) any {
	if strings.Contains(schema.Pattern, "KMGTPE") {
		// The forms that resource.Quantity itself writes.
		return []string{"0", "1", "500m", "1Gi", "64Mi", "2k"}[s.random.IntN(6)]
	}
	if schema.Pattern == "" && s.chance(0.5) {
		return s.random.IntN(2) * s.random.IntN(1<<31-1)
	}
	return s.text(schema)
}

func (s *Sampler) integer(schema *apiextensionsv1.JSONSchemaProps) int64 {
	low, high := limits(schema, -1000, 100000)
	if low <= 0 && high >= 0 && s.chance(0.3) {
		return 0
	}
	step := int64(1)
	if schema.MultipleOf != nil && *schema.MultipleOf >= 1 {
		step = int64(*schema.MultipleOf)
	}
	from, to := int64(math.Ceil(low/float64(step))), int64(math.Floor(high/float64(step)))
	if to <= from {
		return from * step
	}
	return (from + s.random.Int64N(to-from+1)) * step
}

// limits are the bounds of a number, shrunk a little where they are exclusive.
func limits(schema *apiextensionsv1.JSONSchemaProps, low, high float64) (float64, float64) {
	step := 1.0
	if schema.Type == "number" {
		step = 1e-3
	}
	if schema.Minimum != nil {
		low = *schema.Minimum
		high = max(high, low)
		if schema.ExclusiveMinimum {
			low += step
		}
	}
	if schema.Maximum != nil {
		high = *schema.Maximum
		low = min(low, high)
		if schema.Minimum != nil {
			low = max(low, *schema.Minimum)
		}
		if schema.ExclusiveMaximum {
			high -= step
		}
	}
	return low, high
}

func (s *Sampler) text(schema *apiextensionsv1.JSONSchemaProps) string {
	switch schema.Format {
	case "date-time":
		return fmt.Sprintf("20%02d-0%d-1%dT0%d:3%d:0%dZ", s.random.IntN(90)+10, s.random.IntN(9)+1, s.random.IntN(9), s.random.IntN(10), s.random.IntN(10), s.random.IntN(10))
	case "duration":
		return []string{"0s", "1m0s", "1h0m0s", "1.5s"}[s.random.IntN(4)]
	case "byte":
		return []string{"", "YQ==", "YWJj"}[s.random.IntN(3)]
	case "uri":
		return "https://example.com/a"
	case "email":
		return "someone@example.com"
	case "ipv4":
		return "192.0.2.1"
	case "ipv6":
		return "2001:db8::1"
	case "cidr":
		return "192.0.2.0/24"
	case "uuid":
		return "0f4e6f1e-6c3a-4c7e-9a55-0123456789ab"
	case "date":
		return "2024-02-29"
	case "hostname":
		return "host.example.com"
	}
	if schema.Pattern != "" {
		if parsed, err := syntax.Parse(schema.Pattern, syntax.Perl); err == nil {
			return s.matchLength(parsed, schema.MinLength, schema.MaxLength)
		}
	}
	low, high := 0, 12
	if schema.MinLength != nil {
		low, high = int(*schema.MinLength), int(*schema.MinLength)+12
	}
	if schema.MaxLength != nil {
		high = min(high, int(*schema.MaxLength))
	}
	if s.chance(0.2) || high <= low {
		high = low
	}
	var b strings.Builder
	alphabet := []rune(`abcXYZ019 -_./:"'\<>&é`)
	for range low + s.random.IntN(high-low+1) {
		b.WriteRune(alphabet[s.random.IntN(len(alphabet))])
	}
	return b.String()
}

// matchLength makes a text that the expression matches and that is within the bounds
// where chance allows it; longer and longer repetitions are tried.
func (s *Sampler) matchLength(re *syntax.Regexp, low, high *int64) string {
	text := ""
	for stretch := range 24 {
		s.stretch = stretch
		text = s.match(re)
		length := int64(len([]rune(text)))
		if (low == nil || length >= *low) && (high == nil || length <= *high) {
			break
		}
	}
	s.stretch = 0
	return text
}

// match makes a text that the expression matches.
func (s *Sampler) match(re *syntax.Regexp) string {
	repeat := func(low, high int) string {
		if high < 0 || high > low+3+2*s.stretch {
			high = low + 3 + 2*s.stretch
		}
		var b strings.Builder
		for range low + s.random.IntN(high-low+1) {
			b.WriteString(s.match(re.Sub[0]))
		}
		return b.String()
	}
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		// Prefer a printable range.
		for range 8 {
			i := s.random.IntN(len(re.Rune)/2) * 2
			low, high := re.Rune[i], re.Rune[i+1]
			if low < ' ' {
				low = ' '
			}
			if high > '~' {
				high = '~'
			}
			if low <= high {
				return string(low + s.random.Int32N(high-low+1))
			}
		}
		return string(re.Rune[0])
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "x"
	case syntax.OpCapture:
		return s.match(re.Sub[0])
	case syntax.OpStar:
		return repeat(0, -1)
	case syntax.OpPlus:
		return repeat(1, -1)
	case syntax.OpQuest:
		return repeat(0, 1)
	case syntax.OpRepeat:
		return repeat(re.Min, re.Max)
	case syntax.OpConcat:
		var b strings.Builder
		for _, sub := range re.Sub {
			b.WriteString(s.match(sub))
		}
		return b.String()
	case syntax.OpAlternate:
		return s.match(re.Sub[s.random.IntN(len(re.Sub))])
	}
	return ""
}
