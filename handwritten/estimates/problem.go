package estimates

import (
	"strconv"
	"strings"
)

// Problem says what is wrong with an input, in a way that a person can act on.
type Problem struct {
	// Source is the input: a file name, "request" or "reference".
	Source string
	// Field is the path inside of the source; empty when all of it is at fault.
	Field string
	// Rule is what is broken, in words.
	Rule string
	// Value is what the field has, shortened; empty when it is missing.
	Value string
}

// Error names source, field, rule and value.
func (p *Problem) Error() string {
	var text strings.Builder
	text.WriteString("reading " + p.Source + ": ")
	if p.Field != "" {
		text.WriteString(p.Field + ": ")
	}
	text.WriteString(p.Rule)
	if p.Value != "" {
		text.WriteString(", got " + p.Value)
	}
	return text.String()
}

// maxShown bounds how much of a foreign value an error repeats, in bytes.
const maxShown = 80

// shown makes a foreign text fit for an error message.
func shown(value string) string {
	if len(value) > maxShown {
		value = value[:maxShown] + "..."
	}
	return strconv.Quote(value)
}
