package crd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Lint checks the rules of this project's own CRDs, which an API server does not
// ask for: every string, list and map is bounded on the node itself, every field is
// described, every CEL rule has a message and a reason and stays under a tenth of
// the cost limits, every kind has the same shape of status, and the file stands
// where its group and kind say. The errors are *Error values, joined.
func Lint(definitions []*Definition) error {
	faults, err := lint(definitions)
	if err != nil {
		return err
	}
	return join(faults)
}

func lint(definitions []*Definition) ([]*Error, error) {
	var faults []*Error
	for _, d := range definitions {
		l := &linter{d: d}
		l.file()
		for i := range d.CRD.Spec.Versions {
			at := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
			root := d.CRD.Spec.Versions[i].Schema.OpenAPIV3Schema
			l.status(root, at)
			l.node(root, at, true)
		}
		faults = append(faults, l.faults...)
	}
	estimates, err := Costs(definitions)
	if err != nil {
		return nil, err
	}
	return append(faults, lintCosts(definitions, estimates)...), nil
}

// lintCosts holds the project's ceiling against the estimates. Rules that do not
// compile are Check's to report.
func lintCosts(definitions []*Definition, estimates []RuleCost) []*Error {
	byName := map[string]*Definition{}
	for _, d := range definitions {
		byName[d.Name()] = d
	}
	var faults []*Error
	totals := map[string]uint64{}
	for _, c := range estimates {
		if c.Error != "" {
			continue
		}
		if c.Cost > RuleCostLimit/ceilingShare {
			fault := byName[c.CRD].Errorf(c.Path,
				"estimated cost %d is over this project's ceiling of %d, a tenth of the API server's limit; add maxItems, maxProperties or maxLength, or simplify", c.Cost, RuleCostLimit/ceilingShare)
			fault.subject = costs
			faults = append(faults, fault)
			continue
		}
		totals[c.CRD] += c.Cost
	}
	for _, name := range sortedKeys(totals) {
		if totals[name] > CRDCostLimit/ceilingShare {
			fault := byName[name].Errorf("spec.versions",
				"estimated cost of all rules %d is over this project's ceiling of %d", totals[name], CRDCostLimit/ceilingShare)
			fault.subject = costs
			faults = append(faults, fault)
		}
	}
	return faults
}

type linter struct {
	d      *Definition
	faults []*Error
}

func (l *linter) fault(at *field.Path, format string, args ...any) {
	l.faults = append(l.faults, l.d.Errorf(at.String(), format, args...))
}

// file checks the place of the file: <group>/<kind in lower case>.yaml.
func (l *linter) file() {
	names := l.d.CRD.Spec.Names
	want := path.Join(l.d.CRD.Spec.Group, strings.ToLower(names.Kind)+".yaml")
	if file := filepath.ToSlash(l.d.File); !strings.HasSuffix(file, "/"+want) && file != want {
		l.fault(field.NewPath("spec", "names", "kind"), "%s of group %s belongs into the file %s", names.Kind, l.d.CRD.Spec.Group, want)
	}
	if names.Kind == "" || strings.ToUpper(names.Kind[:1]) != names.Kind[:1] {
		l.fault(field.NewPath("spec", "names", "kind"), "%q starts with a small letter; a Go type of this name would not be exported", names.Kind)
	}
}

// status checks what all kinds share: a default that keeps an untouched object from
// looking current, observedGeneration without a minimum, conditions as a list map.
func (l *linter) status(root *apiextensionsv1.JSONSchemaProps, at *field.Path) {
	status, ok := root.Properties["status"]
	at = at.Child("properties").Key("status")
	if !ok {
		l.fault(at, "is missing; every kind reports a status")
		return
	}
	if status.Default == nil || !sameJSON(status.Default.Raw, `{"observedGeneration":-1}`) {
		l.fault(at.Child("default"), "is not {observedGeneration: -1}, which tells an untouched object from an observed one")
	}
	generation := status.Properties["observedGeneration"]
	if generation.Type != "integer" || generation.Format != "int64" || generation.Minimum != nil {
		l.fault(at.Child("properties").Key("observedGeneration"), "is not an int64 without minimum; -1 means not observed")
	}
	conditions := status.Properties["conditions"]
	if conditions.Type != "array" || conditions.XListType == nil || *conditions.XListType != "map" || !slices.Equal(conditions.XListMapKeys, []string{"type"}) {
		l.fault(at.Child("properties").Key("conditions"), "is not a list map by type")
	}
}

func sameJSON(raw []byte, want string) bool {
	var compact bytes.Buffer
	return json.Compact(&compact, raw) == nil && compact.String() == want
}

// node checks one schema node and everything below it.
func (l *linter) node(s *apiextensionsv1.JSONSchemaProps, at *field.Path, root bool) {
	l.bounds(s, at)
	l.repeated(s, at)
	for i, rule := range s.XValidations {
		here := at.Child("x-kubernetes-validations").Index(i)
		if rule.Message == "" && rule.MessageExpression == "" {
			l.fault(here.Child("message"), "is missing; a person reads it when the rule refuses an object")
		}
		if rule.Reason == nil {
			l.fault(here.Child("reason"), "is missing")
		}
	}
	for _, name := range sortedKeys(s.Properties) {
		sub := s.Properties[name]
		here := at.Child("properties").Key(name)
		if root && (name == "apiVersion" || name == "kind" || name == "metadata") {
			continue
		}
		if strings.TrimSpace(sub.Description) == "" {
			l.fault(here.Child("description"), "is missing")
		}
		if name == "metadata" && !s.XEmbeddedResource && sub.Type == "object" && len(sub.Properties) == 0 && sub.AdditionalProperties == nil && !preserves(&sub) {
			l.fault(here, "declares nothing, so labels and annotations given here would be pruned; declare them")
		}
		l.node(&sub, here, false)
	}
	if s.Items != nil && s.Items.Schema != nil {
		l.node(s.Items.Schema, at.Child("items"), false)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		l.node(s.AdditionalProperties.Schema, at.Child("additionalProperties"), false)
	}
}

// repeated finds values that a list of the schema holds twice: one of the two is
// most likely a slip for another value.
func (l *linter) repeated(s *apiextensionsv1.JSONSchemaProps, at *field.Path) {
	values := map[string]int{}
	for i, value := range s.Enum {
		var compact bytes.Buffer
		if json.Compact(&compact, value.Raw) != nil {
			continue // Check says that it is no JSON
		}
		if first, ok := values[compact.String()]; ok {
			l.fault(at.Child("enum").Index(i), "is %s, as is enum[%d]; each value is listed once", compact.String(), first)
			continue
		}
		values[compact.String()] = i
	}
	names := map[string]int{}
	for i, name := range s.Required {
		if first, ok := names[name]; ok {
			l.fault(at.Child("required").Index(i), "is %q, as is required[%d]; each name is listed once", name, first)
			continue
		}
		names[name] = i
	}
}

func preserves(s *apiextensionsv1.JSONSchemaProps) bool {
	return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
}

// boundedFormats are string formats that bound the length themselves.
var boundedFormats = []string{"date", "date-time", "uuid", "uuid3", "uuid4", "uuid5", "ipv4", "ipv6", "cidr", "mac", "bsonobjectid", "creditcard", "isbn10", "isbn13", "isbn", "ssn", "hexcolor", "rgbcolor"}

// bounds asks every value of unlimited size for its limit. The limits are not only
// hygiene: without them a CEL rule's estimated cost is unbounded too.
func (l *linter) bounds(s *apiextensionsv1.JSONSchemaProps, at *field.Path) {
	switch {
	case s.Type == "string" || s.XIntOrString:
		if s.MaxLength == nil && len(s.Enum) == 0 && !slices.Contains(boundedFormats, s.Format) && !boundedPattern(s.Pattern) {
			l.unbounded(at, "is a string without bound; set maxLength, enum, a bounded format, or a pattern of limited length")
		}
		if s.Format == "duration" && s.Pattern == "" {
			l.fault(at, "is a duration without pattern; the format alone lets words through that no Go duration has")
		}
	case s.Type == "array":
		if s.MaxItems == nil {
			l.unbounded(at, "is a list without bound; set maxItems")
		}
	case s.Type == "object" && (s.AdditionalProperties != nil || preserves(s)):
		if s.MaxProperties == nil {
			l.unbounded(at, "is a map without bound; set maxProperties")
		}
	case s.Type == "":
		l.unbounded(at, "holds any JSON value, which nothing bounds; give it a type")
	}
}

func (l *linter) unbounded(at *field.Path, reason string) {
	l.fault(at, "%s", reason)
	l.faults[len(l.faults)-1].subject = bounds
}

// boundedPattern tells whether a pattern is anchored at both ends and matches texts
// of limited length only.
func boundedPattern(pattern string) bool {
	if !strings.HasPrefix(pattern, "^") || !strings.HasSuffix(pattern, "$") || strings.HasSuffix(pattern, `\$`) {
		return false
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil || parsed.Op != syntax.OpConcat && parsed.Op != syntax.OpBeginText {
		return false // an alternation at the top may leave one side unanchored
	}
	return finite(parsed)
}

func finite(re *syntax.Regexp) bool {
	if re.Op == syntax.OpStar || re.Op == syntax.OpPlus || re.Op == syntax.OpRepeat && re.Max < 0 {
		return false
	}
	return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !finite(sub) })
}

// String makes cost lines readable in test output.
func (c RuleCost) String() string {
	return fmt.Sprintf("%s %s: %d (%.3f %%)", c.CRD, c.Path, c.Cost, c.Percent())
}
