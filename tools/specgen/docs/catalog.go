package docs

import (
	"slices"
	"strconv"
	"strings"

	"magicstick.dev/operator/tools/specgen/catalogs"
)

// catalogPage describes one shipped catalog.
func catalogPage(name string, root *catalogs.Schema) *page {
	p := &page{source: "spec/catalogs/" + name + ".schema.yaml"}
	p.line("# Catalog of %s", name)
	p.blank()
	p.line("%s", strings.Join(strings.Fields(root.Description), " "))
	p.blank()
	p.line("A catalog with an unknown or repeated key, or with a value outside its bounds, is refused as a whole. The shipped")
	p.line("content is `spec/catalogs/%s.yaml`; in the cluster the catalog is JSON.", name)
	objectTable(p, root, root)
	for _, definition := range root.Definitions {
		if len(definition.Schema.Properties) == 0 {
			continue
		}
		p.blank()
		p.line("## %s", definition.Name)
		p.blank()
		p.line("%s", escapeOutside(definition.Schema.Description))
		objectTable(p, root, definition.Schema)
	}
	return p
}

func objectTable(p *page, root, object *catalogs.Schema) {
	p.blank()
	p.row("Field", "Type", "Bounds", "Description")
	p.row("---", "---", "---", "---")
	for _, property := range object.Properties {
		bounds := catalogBounds(root, property.Schema)
		if slices.Contains(object.Required, property.Name) {
			bounds = append([]string{"**required**"}, bounds...)
		}
		if property.Schema.Default != nil {
			bounds = append(bounds, "default "+code(*property.Schema.Default))
		}
		description := property.Schema.Description
		if description == "" && property.Schema.Ref != "" {
			description = root.Definition(property.Schema.Ref).Description
		}
		p.row(code(property.Name), catalogType(root, property.Schema), strings.Join(bounds, "; "), escape(description))
	}
}

// catalogType names a type; objects with a page section of their own are linked.
func catalogType(root, schema *catalogs.Schema) string {
	switch {
	case schema.Ref != "":
		target := root.Definition(schema.Ref)
		if len(target.Properties) > 0 {
			return "[" + schema.Ref + "](#" + strings.ToLower(schema.Ref) + ")"
		}
		return catalogType(root, target)
	case schema.Type == "array":
		return "list of " + catalogType(root, schema.Items)
	case schema.Values != nil:
		return "map of " + catalogType(root, schema.Values)
	}
	return schema.Type
}

func catalogBounds(root, schema *catalogs.Schema) []string {
	for schema.Ref != "" {
		schema = root.Definition(schema.Ref)
	}
	bounds := directBounds(schema)
	if schema.Keys != nil {
		if keys := catalogBounds(root, schema.Keys); len(keys) > 0 {
			bounds = append(bounds, "keys: "+strings.Join(keys, ", "))
		}
	}
	for _, element := range []*catalogs.Schema{schema.Items, schema.Values} {
		if element == nil {
			continue
		}
		if each := catalogBounds(root, element); len(each) > 0 {
			bounds = append(bounds, "each: "+strings.Join(each, ", "))
		}
	}
	return bounds
}

func directBounds(schema *catalogs.Schema) []string {
	var bounds []string
	// An object has its own section, with its own bounds.
	if len(schema.Properties) > 0 {
		return nil
	}
	if len(schema.Enum) > 0 {
		bounds = append(bounds, "one of "+codeList(schema.Enum))
	}
	for _, limit := range []struct{ least, most, unit string }{
		{"minLength", "maxLength", "characters"}, {"minItems", "maxItems", "items"}, {"minProperties", "maxProperties", "entries"},
	} {
		bounds = append(bounds, span(whole(schema, limit.least), whole(schema, limit.most), limit.unit)...)
	}
	for _, limit := range []struct{ keyword, sign string }{{"minimum", "≥ "}, {"maximum", "≤ "}} {
		if value := schema.Limits[limit.keyword]; value != "" {
			bounds = append(bounds, limit.sign+value)
		}
	}
	if pattern := schema.Limits["pattern"]; pattern != "" {
		bounds = append(bounds, "pattern "+code(pattern))
	}
	if schema.Limits["uniqueItems"] == "true" {
		bounds = append(bounds, "no repeated items")
	}
	return bounds
}

// whole reads a bound that counts something; nil when the schema has none.
func whole(schema *catalogs.Schema, keyword string) *int64 {
	value, err := strconv.ParseInt(schema.Limits[keyword], 10, 64)
	if err != nil {
		return nil
	}
	return &value
}
