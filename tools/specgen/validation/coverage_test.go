package validation

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"magicstick.dev/operator/generated/crds"
	"magicstick.dev/operator/generated/validation"
)

// unreachable are the promises that no object can keep, each with the reason. The
// test fails when one of them is kept after all.
var unreachable = map[string]string{
	"Model spec.source.url: accepted on minLength 1":                               urlPattern,
	"ClusterModel spec.source.url: accepted on minLength 1":                        urlPattern,
	"Model status.resolved.supportedEndpointTypes: accepted on maxItems 16":        endpointTypes,
	"ClusterModel status.resolved.supportedEndpointTypes: accepted on maxItems 16": endpointTypes,
	"Model status.resolved.supportedFeatures: accepted on maxItems 16":             features,
	"ClusterModel status.resolved.supportedFeatures: accepted on maxItems 16":      features,
	"ModelActivation spec.local.features: accepted on maxItems 8":                  "a set of an enum with 4 values",
	"ModelActivation status.podCreation.revision: accepted on maxLength 128":       revision,
	"ModelActivation status.podRecovery.revision: accepted on maxLength 128":       revision,
}

const (
	urlPattern    = "the pattern asks for a scheme and a host"
	endpointTypes = "a set of an enum with 15 values"
	features      = "a set of an enum with 8 values"
	revision      = "the pattern allows 104 characters"
)

// TestCoverage asks of every CEL rule, every bound and every node of every CRD
// that spec/examples shows it from both sides: an object that is refused there,
// for that rule, and one that is accepted with the node in it; for a bound of
// size the accepted one lies on the bound, for an enum there is one per value. A
// rule that is added without examples fails here, in process and at once; that
// an API server gives the same answers is for TestParity.
func TestCoverage(t *testing.T) {
	kinds := map[schema.GroupVersionKind]*coverage{}
	for _, definition := range allDefinitions(t) {
		for _, version := range definition.Spec.Versions {
			kind := schema.GroupVersionKind{Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.Kind}
			kinds[kind] = newCoverage(version.Schema.OpenAPIV3Schema)
		}
	}
	for _, e := range readExamples(t) {
		covered := kinds[e.objects[0].GroupVersionKind()]
		require.NotNil(t, covered, e.name)
		if e.accepted {
			covered.accepted(e)
			continue
		}
		covered.refused(answer(t, e))
	}
	excused := maps.Clone(unreachable)
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) }) {
		t.Run(kind.Kind, func(t *testing.T) {
			require.NotEmpty(t, kinds[kind].promises)
			told := map[string]bool{}
			for _, p := range kinds[kind].promises {
				require.False(t, told[p.String()], "%s %s: two promises that no answer tells apart; give one rule other words", kind.Kind, p)
				told[p.String()] = true
			}
			for _, p := range kinds[kind].promises {
				key := kind.Kind + " " + p.String()
				_, excuse := excused[key]
				delete(excused, key)
				if excuse == p.kept {
					t.Errorf("%s: kept %t, listed as unreachable %t", key, p.kept, excuse)
				}
			}
		})
	}
	require.Empty(t, excused, "unreachable lists what no CRD asks for")
}

// TestCoverageNoticesWhatIsMissing takes one example away and adds one rule, and
// expects to be told.
func TestCoverageNoticesWhatIsMissing(t *testing.T) {
	var definition *apiextensionsv1.CustomResourceDefinition
	for _, each := range allDefinitions(t) {
		if each.Spec.Names.Kind == "AppInstance" {
			definition = each
		}
	}
	open := func(root *apiextensionsv1.JSONSchemaProps, without string) []string {
		covered := newCoverage(root)
		for _, e := range readExamples(t) {
			switch {
			case e.objects[0].GetKind() != "AppInstance" || strings.Contains(e.name, without):
			case e.accepted:
				covered.accepted(e)
			default:
				covered.refused(answer(t, e))
			}
		}
		var missing []string
		for _, p := range covered.promises {
			if !p.kept {
				missing = append(missing, p.String())
			}
		}
		return missing
	}
	root := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	require.Empty(t, open(root, "no example has this name"))
	require.Equal(t, []string{"spec.applianceRef.name: refused by maxLength 253"}, open(root, "bound-appliance-ref-name-max-length"))
	require.Equal(t, []string{"spec.access.sharing: refused by rule sharing mode all takes no users; use mode selected to name some at .users"}, open(root, "sharing-all-with-users"))
	require.Equal(t, []string{"status.phase: accepted on enum Suspended"}, open(root, "valid/status-phase-suspended"))

	changed := root.DeepCopy()
	spec := changed.Properties["spec"]
	spec.XValidations = append(spec.XValidations, apiextensionsv1.ValidationRule{Rule: "true", Message: "a new rule"})
	spec.Properties["more"] = apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: new(int64)}
	changed.Properties["spec"] = spec
	require.Equal(t, []string{"spec: refused by rule a new rule", "spec.more: accepted", "spec.more: refused by maxLength 0", "spec.more: accepted on maxLength 0"}, open(changed, "no example has this name"))
}

func allDefinitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definitions, err := crds.All()
	require.NoError(t, err)
	require.NotEmpty(t, definitions)
	return definitions
}

// answer is what the last document of an example is told.
func answer(t *testing.T, e example) field.ErrorList {
	t.Helper()
	validator, err := validation.ForGVK(e.objects[0].GroupVersionKind())
	require.NoError(t, err)
	last := len(e.objects) - 1
	switch {
	case e.status && last == 0:
		bare := e.objects[0].DeepCopy()
		delete(bare.Object, "status")
		return validator.ValidateStatusUpdate(e.objects[0], bare)
	case e.status:
		return validator.ValidateStatusUpdate(e.objects[last], e.objects[last-1])
	case last == 0:
		return validator.Validate(e.objects[0])
	default:
		return validator.ValidateUpdate(e.objects[last], e.objects[last-1])
	}
}

// promise is one thing that an example has to show.
type promise struct {
	// node is the path of the schema node, with [] for items and * for map values.
	node string
	// words say what is shown.
	words string
	// refusal tells whether an error shows it; nil for the accepted side.
	refusal func(*field.Error) bool
	// acceptance tells whether a value of the node shows it; nil for the refused side.
	acceptance func(value any) bool
	kept       bool
}

func (p *promise) String() string {
	if p.node == "" {
		return "the object: " + p.words
	}
	return p.node + ": " + p.words
}

// coverage holds the promises of one version of a kind.
type coverage struct {
	promises []*promise
	byNode   map[string][]*promise
	root     *apiextensionsv1.JSONSchemaProps
}

func newCoverage(root *apiextensionsv1.JSONSchemaProps) *coverage {
	c := &coverage{byNode: map[string][]*promise{}, root: root}
	c.node(root, "", "")
	return c
}

func (c *coverage) promise(p *promise) {
	c.promises = append(c.promises, p)
	c.byNode[p.node] = append(c.byNode[p.node], p)
}

// node collects the promises of a schema node and of all below it. pattern matches
// the paths of the node's values in an answer.
func (c *coverage) node(s *apiextensionsv1.JSONSchemaProps, node, pattern string) {
	c.promise(&promise{node: node, words: "accepted", acceptance: func(any) bool { return true }})
	for _, rule := range s.XValidations {
		c.rule(rule, node, pattern)
	}
	c.bounds(s, node, pattern)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if node == "" && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue // the same for all kinds, and the API server's own
		}
		sub := s.Properties[name]
		c.node(&sub, strings.TrimPrefix(node+"."+name, "."), pattern+`\.`+regexp.QuoteMeta(name))
	}
	if s.Items != nil && s.Items.Schema != nil {
		c.node(s.Items.Schema, node+"[]", pattern+`\[\d+\]`)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		// Rules write a key in brackets, the schema with a dot.
		c.node(s.AdditionalProperties.Schema, node+".*", pattern+`(\[[^\]]+\]|\.[^.\[]+)`)
	}
}

// at matches the paths of a pattern. An error about the object as a whole has the
// path of nothing.
func at(pattern string) func(path string) bool {
	if pattern == "" {
		return func(path string) bool { return path == "" || path == "<nil>" }
	}
	compiled := regexp.MustCompile("^" + pattern + "$")
	return func(path string) bool { return compiled.MatchString("." + path) }
}

// rule promises a refusal with the rule's message at the rule's field.
func (c *coverage) rule(rule apiextensionsv1.ValidationRule, node, pattern string) {
	place := at(pattern + strings.NewReplacer(".", `\.`, "['", `\[`, "']", `\]`).Replace(rule.FieldPath))
	words := "refused by rule " + rule.Message
	if rule.FieldPath != "" {
		words += " at " + rule.FieldPath
	}
	c.promise(&promise{node: node, words: words, refusal: func(err *field.Error) bool {
		return place(err.Field) && err.Detail == rule.Message
	}})
}

// bounds promises, for every keyword that limits a value, a refusal for it; where
// the limit is a size or a list of values, it also promises a value on the limit.
func (c *coverage) bounds(s *apiextensionsv1.JSONSchemaProps, node, pattern string) {
	here, inside := at(pattern), at(pattern+`\[\d+\]`)
	// A CEL rule can have the same type of error, but has its own words.
	const noWords = ""
	refusal := func(keyword string, place func(string) bool, kind field.ErrorType, detail string) {
		c.promise(&promise{node: node, words: "refused by " + keyword, refusal: func(err *field.Error) bool {
			return place(err.Field) && err.Type == kind && strings.Contains(err.Detail, detail) && (detail != noWords || err.Detail == noWords)
		}})
	}
	onBound := func(keyword string, size func(any) float64, bound float64) {
		c.promise(&promise{node: node, words: "accepted on " + keyword, acceptance: func(value any) bool { return size(value) == bound }})
	}
	for _, limit := range []struct {
		keyword string
		bound   *int64
		kind    field.ErrorType
		detail  string
	}{
		{"maxLength", s.MaxLength, field.ErrorTypeTooLong, "may not be more than"},
		{"minLength", s.MinLength, field.ErrorTypeInvalid, "chars long"},
		{"maxItems", s.MaxItems, field.ErrorTypeTooMany, "must have at most"},
		{"minItems", s.MinItems, field.ErrorTypeInvalid, "should have at least"},
		{"maxProperties", s.MaxProperties, field.ErrorTypeTooMany, "must have at most"},
		{"minProperties", s.MinProperties, field.ErrorTypeInvalid, "should have at least"},
	} {
		if limit.bound != nil && !(strings.HasPrefix(limit.keyword, "min") && *limit.bound == 0) {
			words := fmt.Sprintf("%s %d", limit.keyword, *limit.bound)
			refusal(words, here, limit.kind, limit.detail)
			onBound(words, size, float64(*limit.bound))
		}
	}
	for _, limit := range []struct {
		keyword          string
		bound            *float64
		exclusive        bool
		detail           string
		exclusiveKeyword string
	}{
		{"maximum", s.Maximum, s.ExclusiveMaximum, "should be less than", "exclusiveMaximum"},
		{"minimum", s.Minimum, s.ExclusiveMinimum, "should be greater than", "exclusiveMinimum"},
		{"multipleOf", s.MultipleOf, false, "should be a multiple of", ""},
	} {
		switch {
		case limit.bound == nil:
		case limit.exclusive: // nothing lies on it
			refusal(fmt.Sprintf("%s %v", limit.exclusiveKeyword, *limit.bound), here, field.ErrorTypeInvalid, limit.detail)
		default:
			words := fmt.Sprintf("%s %v", limit.keyword, *limit.bound)
			refusal(words, here, field.ErrorTypeInvalid, limit.detail)
			onBound(words, number, *limit.bound)
		}
	}
	if s.Pattern != "" {
		refusal("pattern", here, field.ErrorTypeInvalid, "should match '")
	}
	if s.Format == "date-time" {
		refusal("format date-time", here, field.ErrorTypeTypeInvalid, "must be of type date-time")
	}
	if len(s.Enum) > 0 {
		refusal("enum", here, field.ErrorTypeNotSupported, "supported values: ")
		for _, value := range s.Enum {
			c.promise(&promise{node: node, words: "accepted on enum " + strings.Trim(string(value.Raw), `"`), acceptance: func(found any) bool {
				text, err := json.Marshal(found)
				return err == nil && string(text) == string(value.Raw)
			}})
		}
	}
	for _, name := range s.Required {
		refusal("required "+name, at(pattern+`\.`+regexp.QuoteMeta(name)), field.ErrorTypeRequired, noWords)
	}
	if s.XListType != nil && *s.XListType != "atomic" || s.UniqueItems {
		refusal("duplicate", inside, field.ErrorTypeDuplicate, noWords)
	}
}

// size is the length of a text, list or map, and -1 of anything else.
func size(value any) float64 {
	switch value := value.(type) {
	case string:
		return float64(utf8.RuneCountInString(value))
	case []any:
		return float64(len(value))
	case map[string]any:
		return float64(len(value))
	}
	return -1
}

// number is a number, and something that is on no bound for anything else.
func number(value any) float64 {
	switch value := value.(type) {
	case int64:
		return float64(value)
	case float64:
		return value
	}
	return -1 << 62
}

// refused marks what the answer to an example shows.
func (c *coverage) refused(answer field.ErrorList) {
	for _, err := range answer {
		for _, p := range c.promises {
			if p.refusal != nil && !p.kept {
				p.kept = p.refusal(err)
			}
		}
	}
}

// accepted marks what the documents of an example show. The status counts where it
// is written through the subresource; elsewhere the API server drops it.
func (c *coverage) accepted(e example) {
	for _, object := range e.objects {
		content := maps.Clone(object.Object)
		if !e.status {
			delete(content, "status")
		}
		c.value(c.root, "", content)
	}
}

func (c *coverage) value(s *apiextensionsv1.JSONSchemaProps, node string, value any) {
	for _, p := range c.byNode[node] {
		if p.acceptance != nil && !p.kept {
			p.kept = p.acceptance(value)
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			if sub, declared := s.Properties[name]; declared {
				c.value(&sub, strings.TrimPrefix(node+"."+name, "."), inner)
			} else if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
				c.value(s.AdditionalProperties.Schema, node+".*", inner)
			}
		}
	case []any:
		for _, inner := range value {
			if s.Items != nil && s.Items.Schema != nil {
				c.value(s.Items.Schema, node+"[]", inner)
			}
		}
	}
}
