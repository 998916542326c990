package httpapi

import (
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// answers checks the responses: an example for every body, problems above 400.
func (l *linter) answers(op operation) {
	succeeds := false
	for status, ref := range op.Responses.Map() {
		if ref.Value == nil {
			continue
		}
		at := op.at() + ".responses." + status
		if ref.Value.Description == nil || strings.TrimSpace(*ref.Value.Description) == "" {
			l.report(at+".description", "is required")
		}
		succeeds = succeeds || strings.HasPrefix(status, "2")
		if status == "default" || status >= "4" {
			l.problem(at, ref.Value)
		}
		for media, content := range ref.Value.Content {
			if len(content.Examples) == 0 {
				l.report(at+".content."+pathKey(media)+".examples", "is required")
			}
		}
	}
	if !succeeds {
		l.report(op.at()+".responses", "a 2xx answer is required")
	}
}

func (l *linter) problem(at string, response *openapi3.Response) {
	content := response.Content[problemMedia]
	if len(response.Content) != 1 || content == nil {
		l.report(at+".content", "an error is answered with %s and nothing else", problemMedia)
		return
	}
	if content.Schema == nil || content.Schema.Ref != problemRef {
		l.report(at+".content."+pathKey(problemMedia)+".schema", "must be the schema Problem of %s", conventionsFile)
	}
}

// components checks the schemas that the document declares itself: every
// schema and property is described, arrays and maps are bounded.
func (l *linter) components(b *bundle) {
	if b.doc.Components == nil {
		return
	}
	names := keys(b.doc.Components.Schemas)
	slices.Sort(names)
	for _, name := range names {
		ref := b.doc.Components.Schemas[name]
		if ref.Value == nil || l.custom[ref.Value] {
			continue
		}
		l.described("components.schemas."+pathKey(name), ref, true)
	}
}

func (l *linter) described(at string, ref *openapi3.SchemaRef, needsText bool) {
	if ref == nil || ref.Value == nil {
		return
	}
	schema := ref.Value
	if needsText && strings.TrimSpace(schema.Description) == "" {
		l.report(at+".description", "is required")
	}
	if schema.Type.Is("array") && schema.MaxItems == nil {
		l.report(at, "an array needs maxItems")
	}
	if schema.AdditionalProperties.Schema != nil && schema.MaxProps == nil {
		l.report(at, "a map needs maxProperties")
	}
	names := keys(schema.Properties)
	slices.Sort(names)
	for _, name := range names {
		if property := schema.Properties[name]; property.Ref == "" {
			l.described(at+".properties."+pathKey(name), property, true)
		}
	}
	if schema.Items != nil && schema.Items.Ref == "" {
		l.described(at+".items", schema.Items, false)
	}
	if values := schema.AdditionalProperties.Schema; values != nil && values.Ref == "" {
		l.described(at+".additionalProperties", values, false)
	}
}
