package validate

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Problem is one reason why a document would be refused.
type Problem struct {
	// File is the name as it was given, "-" for standard input.
	File string `json:"file"`
	// Line and Column start at 1; they are 0 when the problem is about the whole file.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Object is kind and name, such as ModuleActivation/litellm.
	Object string `json:"object,omitempty"`
	// Field is the path of the field as the API server names it.
	Field string `json:"field,omitempty"`
	// Rule is the kind of rule that refused it: a reason of the API server such as
	// FieldValueInvalid, or one of the rules below.
	Rule string `json:"rule"`
	// Value is the refused value when it is a short scalar that is no secret.
	Value string `json:"value,omitempty"`
	// Message says what is asked for.
	Message string `json:"message"`
}

// Rules that are not reasons of the API server.
const (
	RuleSyntax       = "Syntax"
	RuleSize         = "Size"
	RuleEncoding     = "Encoding"
	RuleUnknownKind  = "UnknownKind"
	RuleUnknownField = "UnknownField"
)

// Note is something to know about a document that is no reason to refuse it.
type Note struct {
	// File is the name as it was given, "-" for standard input.
	File string `json:"file"`
	// Line and Column start at 1; they are 0 when no place in the file is meant.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Object is kind and name, such as ModuleActivation/litellm.
	Object string `json:"object,omitempty"`
	// Message is what there is to know.
	Message string `json:"message"`
}

// String is the note on one line, in the form that editors can jump to.
func (n Note) String() string {
	var out strings.Builder
	out.WriteString(n.File)
	if n.Line > 0 {
		fmt.Fprintf(&out, ":%d:%d", n.Line, n.Column)
	}
	out.WriteString(": note: ")
	if n.Object != "" {
		out.WriteString(n.Object + ": ")
	}
	out.WriteString(n.Message)
	return out.String()
}

// String is the problem on one line, in the form that editors can jump to.
func (p Problem) String() string {
	var out strings.Builder
	out.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&out, ":%d:%d", p.Line, p.Column)
	}
	for _, part := range []string{p.Object, p.Field} {
		if part != "" {
			out.WriteString(": " + part)
		}
	}
	out.WriteString(": " + p.Message)
	if p.Value != "" {
		out.WriteString("; found " + p.Value)
	}
	fmt.Fprintf(&out, " [%s]", p.Rule)
	return out.String()
}

// Report is the result of one run.
type Report struct {
	// Files and Objects count what was looked at.
	Files   int `json:"files"`
	Objects int `json:"objects"`
	// Skipped counts objects of foreign kinds that were passed over on request.
	Skipped int `json:"skipped,omitempty"`
	// Problems in the order of files and lines; never null in JSON.
	Problems []Problem `json:"problems"`
	// Notes in the order of files and documents. They do not make anything invalid.
	Notes []Note `json:"notes,omitempty"`
}

// Valid reports whether everything would be accepted.
func (r Report) Valid() bool { return len(r.Problems) == 0 }

// WriteText writes one line per problem, one per note, and one that counts the problems.
func (r Report) WriteText(w io.Writer) error {
	for _, problem := range r.Problems {
		if _, err := fmt.Fprintln(w, problem); err != nil {
			return err
		}
	}
	for _, note := range r.Notes {
		if _, err := fmt.Fprintln(w, note); err != nil {
			return err
		}
	}
	skipped := ""
	if r.Skipped > 0 {
		skipped = fmt.Sprintf(", %s of other kinds skipped", count(r.Skipped, "object"))
	}
	verdict := "valid"
	if !r.Valid() {
		verdict = count(len(r.Problems), "problem")
	}
	_, err := fmt.Fprintf(w, "%s in %s: %s%s\n", count(r.Objects, "object"), count(r.Files, "file"), verdict, skipped)
	return err
}

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	type plain Report // without the methods
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if r.Problems == nil {
		r.Problems = []Problem{}
	}
	return encoder.Encode(struct {
		Valid bool `json:"valid"`
		plain
	}{r.Valid(), plain(r)})
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
