package docs

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"magicstick.dev/operator/tools/specgen/conditions"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// kindPage describes one kind.
func kindPage(crd workspace.CRD, table conditions.Table, example string) (*page, error) {
	spec := crd.Definition.Spec
	version := spec.Versions[0]
	root := version.Schema.OpenAPIV3Schema
	p := &page{source: "spec/" + crd.File}
	p.line("# %s", crd.Kind())
	p.blank()
	p.line("%s", strings.Join(strings.Fields(root.Description), " "))
	p.blank()
	p.row("", "")
	p.row("---", "---")
	p.row("API version", code(spec.Group+"/"+version.Name))
	p.row("Resource", code(spec.Names.Plural+"."+spec.Group))
	p.row("Scope", string(spec.Scope))
	p.row("Short names", codeList(spec.Names.ShortNames))
	p.row("Categories", codeList(spec.Names.Categories))
	p.row("Columns", columns(version))
	p.blank()
	p.line("```yaml")
	p.line("%s", example)
	p.line("```")

	fields := &fieldWalk{}
	for _, part := range []string{"spec", "status"} {
		schema, exists := root.Properties[part]
		if !exists {
			continue
		}
		p.blank()
		p.line("## %s", strings.ToUpper(part[:1])+part[1:])
		p.blank()
		p.line("%s", escapeOutside(schema.Description))
		p.blank()
		p.row("Field", "Type", "Bounds", "Description")
		p.row("---", "---", "---", "---")
		if err := fields.children(p, part, &schema); err != nil {
			return nil, err
		}
		fields.rulesOf(part, &schema)
	}
	fields.rulesOf("", root)
	rules(p, fields.rules)
	states(p, table)
	return p, nil
}

func columns(version apiextensionsv1.CustomResourceDefinitionVersion) string {
	var cells []string
	for _, column := range version.AdditionalPrinterColumns {
		cell := escape(column.Name)
		if column.Priority > 0 {
			cell += " (wide)"
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, ", ")
}

// rule is a CEL rule with the place that it stands at.
type rule struct {
	// at is the path of the node.
	at string
	apiextensionsv1.ValidationRule
}

func rules(p *page, all []rule) {
	if len(all) == 0 {
		return
	}
	p.blank()
	p.line("## Rules")
	p.blank()
	p.row("Field", "Rule", "When")
	p.row("---", "---", "---")
	for _, r := range all {
		field := r.at + r.FieldPath
		if field == "" {
			field = "metadata"
		}
		when := "always"
		if strings.Contains(r.Rule, "oldSelf") {
			when = "on update"
		}
		p.row(code(strings.TrimPrefix(field, ".")), escape(r.words()), when)
	}
}

// words is what the API server says when the rule is broken.
func (r rule) words() string {
	if r.Message != "" {
		return r.Message
	}
	return r.Rule
}

// states describes phases, conditions and reasons.
func states(p *page, table conditions.Table) {
	if len(table.Phases) > 0 {
		p.blank()
		p.line("## Phases")
		p.blank()
		p.row("Phase", "Meaning", "Reasons")
		p.row("---", "---", "---")
		for _, phase := range table.Phases {
			meaning := escape(phase.Meaning)
			if phase.Terminal {
				meaning += " Final until the object changes."
			}
			p.row(code(phase.Phase), meaning, codeList(phase.Reasons))
		}
	}
	p.blank()
	p.line("## Conditions")
	for _, condition := range table.Conditions {
		p.blank()
		p.line("### %s", condition.Type)
		p.blank()
		note := fmt.Sprintf("Good when %s.", map[string]string{"positive": "True", "negative": "False"}[condition.Polarity])
		if condition.Summary {
			note += " Summarises the object."
		}
		p.line("%s %s", escapeOutside(condition.Meaning), note)
		p.blank()
		p.row("Reason", "Status", "Meaning")
		p.row("---", "---", "---")
		for _, reason := range condition.Reasons {
			p.row(code(reason.Reason), strings.Join(reason.Statuses, ", "), escape(reason.Meaning))
		}
	}
}

// escapeOutside makes plain text safe outside of tables.
func escapeOutside(text string) string { return strings.ReplaceAll(escape(text), `\|`, "|") }
