// Package conditions turns the tables of spec/conditions into the Go package
// generated/conditions: constants for every condition type and reason, and one
// table per kind.
package conditions

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"go/format"
	"path"
	"strings"
	"text/template"
	"unicode"

	"magicstick.dev/operator/tools/specgen/workspace"
)

//go:embed table.go.tmpl
var tableTemplate string

//go:embed kind.go.tmpl
var kindTemplate string

// Generate writes generated/conditions.
func Generate(_ context.Context, ws *workspace.Workspace) error {
	tables, err := Load(ws)
	if err != nil {
		return err
	}
	names := map[string]string{}
	for _, table := range tables {
		if err := render(ws, strings.ToLower(table.Kind)+".go", kindTemplate, view(table)); err != nil {
			return fmt.Errorf("spec/%s: %w", table.File, err)
		}
		for _, name := range constants(table) {
			if first, taken := names[name]; taken {
				return fmt.Errorf("spec/%s: the Go name %s is already taken by spec/%s", table.File, name, first)
			}
			names[name] = table.File
		}
	}
	return render(ws, "table.go", tableTemplate, map[string]any{"Tables": tables})
}

func render(ws *workspace.Workspace, file, text string, data any) error {
	parsed, err := template.New(file).Funcs(template.FuncMap{
		"goName":  goName,
		"comment": comment,
		"quote":   func(s string) string { return fmt.Sprintf("%q", s) },
		"oneLine": oneLine,
	}).Parse(text)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	out.WriteString(workspace.Header)
	if err := parsed.Execute(&out, data); err != nil {
		return err
	}
	source, err := format.Source(out.Bytes())
	if err != nil {
		return fmt.Errorf("formatting %s: %w", file, err)
	}
	return ws.Write(path.Join("conditions", file), source)
}

// kindView is a table with every reason once, as constants need it.
type kindView struct {
	Table
	// AllReasons holds each reason once, in the order of its first appearance.
	AllReasons []Reason
}

func view(table Table) kindView {
	result := kindView{Table: table}
	seen := map[string]bool{}
	for _, condition := range table.Conditions {
		for _, reason := range condition.Reasons {
			if !seen[reason.Reason] {
				seen[reason.Reason] = true
				result.AllReasons = append(result.AllReasons, reason)
			}
		}
	}
	return result
}

// constants lists the Go names that a table declares.
func constants(table Table) []string {
	names := []string{table.Kind}
	for _, condition := range table.Conditions {
		names = append(names, table.Kind+"Condition"+goName(condition.Type))
	}
	for _, reason := range view(table).AllReasons {
		names = append(names, table.Kind+"Reason"+goName(reason.Reason))
	}
	return names
}

// goName is a type or reason as a part of a Go name: characters that Go does
// not allow are dropped and start a new word.
func goName(value string) string {
	var name strings.Builder
	upper := true
	for _, r := range value {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			upper = true
			continue
		}
		if upper {
			r = unicode.ToUpper(r)
		}
		name.WriteRune(r)
		upper = false
	}
	return name.String()
}

// oneLine joins a sentence that the YAML file wraps.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// comment wraps text at 100 columns as a Go comment.
func comment(indent, text string) string {
	var out strings.Builder
	line := indent + "//"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > 100 && line != indent+"//" {
			out.WriteString(line + "\n")
			line = indent + "//"
		}
		line += " " + word
	}
	return out.String() + line
}
