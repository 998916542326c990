package docs

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// fieldWalk lists the fields of a schema and collects the rules that it passes.
type fieldWalk struct {
	rules []rule
}

type props = apiextensionsv1.JSONSchemaProps

// rulesOf remembers the rules of one node.
func (w *fieldWalk) rulesOf(at string, schema *props) {
	for _, validation := range schema.XValidations {
		w.rules = append(w.rules, rule{at: at, ValidationRule: validation})
	}
}

// children writes a row for every field below a node, in the order of the keys,
// each followed by its own fields.
func (w *fieldWalk) children(p *page, path string, schema *props) error {
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		child := schema.Properties[name]
		childPath := path + "." + name
		if child.Description == "" {
			return fmt.Errorf("%s: a description is required", childPath)
		}
		bounds := boundsOf(&child)
		if slices.Contains(schema.Required, name) {
			bounds = append([]string{"**required**"}, bounds...)
		}
		p.row(code(childPath), typeOf(&child), strings.Join(bounds, "; "), escape(child.Description))
		w.rulesOf(childPath, &child)
		if err := w.inner(p, childPath, &child); err != nil {
			return err
		}
	}
	return nil
}

// inner goes on below lists and maps of objects.
func (w *fieldWalk) inner(p *page, path string, schema *props) error {
	switch {
	case schema.Items != nil && schema.Items.Schema != nil:
		path += "[]"
		w.rulesOf(path, schema.Items.Schema)
		return w.inner(p, path, schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		path += ".*"
		w.rulesOf(path, schema.AdditionalProperties.Schema)
		return w.inner(p, path, schema.AdditionalProperties.Schema)
	}
	return w.children(p, path, schema)
}

// typeOf names the type of a node in words.
func typeOf(schema *props) string {
	switch {
	case schema.XIntOrString:
		return "integer or string"
	case schema.Type == "array" && schema.Items != nil && schema.Items.Schema != nil:
		if schema.XListType != nil && *schema.XListType == "set" {
			return "set of " + typeOf(schema.Items.Schema)
		}
		return "list of " + typeOf(schema.Items.Schema)
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(schema.AdditionalProperties.Schema)
	case schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields:
		return "object, any fields"
	case schema.Type == "string" && schema.Format == "date-time":
		return "time"
	case schema.Type == "":
		return "any"
	}
	return schema.Type
}

// boundsOf lists what a node's values must keep to.
func boundsOf(schema *props) []string {
	bounds := append(scalarBounds(schema), listBounds(schema)...)
	if schema.Nullable {
		bounds = append(bounds, "may be null")
	}
	if schema.Default != nil {
		bounds = append(bounds, "default "+code(string(schema.Default.Raw)))
	}
	return bounds
}

func scalarBounds(schema *props) []string {
	var bounds []string
	if len(schema.Enum) > 0 {
		values := make([]string, len(schema.Enum))
		for i, value := range schema.Enum {
			values[i] = plain(value)
		}
		bounds = append(bounds, "one of "+codeList(values))
	}
	bounds = append(bounds, span(schema.MinLength, schema.MaxLength, "characters")...)
	if schema.Pattern != "" {
		bounds = append(bounds, "pattern "+code(schema.Pattern))
	}
	return append(bounds, numberBounds(schema)...)
}

func numberBounds(schema *props) []string {
	var bounds []string
	if schema.Minimum != nil {
		sign := "≥ "
		if schema.ExclusiveMinimum {
			sign = "\\> "
		}
		bounds = append(bounds, sign+number(*schema.Minimum))
	}
	if schema.Maximum != nil {
		sign := "≤ "
		if schema.ExclusiveMaximum {
			sign = "\\< "
		}
		bounds = append(bounds, sign+number(*schema.Maximum))
	}
	if schema.MultipleOf != nil {
		bounds = append(bounds, "multiple of "+number(*schema.MultipleOf))
	}
	return bounds
}

func listBounds(schema *props) []string {
	bounds := span(schema.MinItems, schema.MaxItems, "items")
	bounds = append(bounds, span(schema.MinProperties, schema.MaxProperties, "entries")...)
	if len(schema.XListMapKeys) > 0 {
		bounds = append(bounds, "unique by "+codeList(schema.XListMapKeys))
	}
	for _, element := range []*props{itemsOf(schema), valuesOf(schema)} {
		if element == nil {
			continue
		}
		if each := boundsOf(element); len(each) > 0 {
			bounds = append(bounds, "each: "+strings.Join(each, ", "))
		}
	}
	return bounds
}

func itemsOf(schema *props) *props {
	if schema.Items == nil {
		return nil
	}
	return schema.Items.Schema
}

func valuesOf(schema *props) *props {
	if schema.AdditionalProperties == nil {
		return nil
	}
	return schema.AdditionalProperties.Schema
}

// span words a pair of bounds.
func span(least, most *int64, unit string) []string {
	switch {
	case least != nil && most != nil && *least == *most:
		return []string{fmt.Sprintf("%d %s", *most, unit)}
	case least != nil && most != nil:
		return []string{fmt.Sprintf("%d to %d %s", *least, *most, unit)}
	case most != nil:
		return []string{fmt.Sprintf("at most %d %s", *most, unit)}
	case least != nil:
		return []string{fmt.Sprintf("at least %d %s", *least, unit)}
	}
	return nil
}

func number(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }

// plain shows a string without quotes, anything else as JSON.
func plain(value apiextensionsv1.JSON) string {
	var text string
	if err := json.Unmarshal(value.Raw, &text); err == nil {
		if text == "" {
			return `""`
		}
		return text
	}
	return string(value.Raw)
}
