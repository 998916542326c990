package gotypes

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// commentWidth is where reflowed comments break.
const commentWidth = 110

// commentLines turns a description into comment lines without the slashes. Lines
// are joined and wrapped, paragraphs and list items stay apart, and nothing in the
// text can end the comment, start a marker or cut the rest of the description.
func commentLines(text string) []string {
	var out []string
	var paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			out = append(out, wrap(paragraph)...)
			paragraph = nil
		}
	}
	for _, line := range strings.Split(sanitize(text), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "":
			flush()
			if len(out) > 0 && out[len(out)-1] != "" {
				out = append(out, "")
			}
		case strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "* "):
			flush()
			paragraph = strings.Fields(trimmed)
		default:
			paragraph = append(paragraph, strings.Fields(trimmed)...)
		}
	}
	flush()
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return out
}

// sanitize drops what must not reach a source file: control and format characters
// (a carriage return, a byte order mark, text-direction overrides that make code
// read other than it runs).
func sanitize(text string) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\u2028' || r == '\u2029' || r == '\r':
			return '\n'
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, text)
}

// wrap fills lines with words. A line never starts with a word that the readers of
// doc comments give a meaning: such a word stays on the line before, and is escaped
// where there is none.
func wrap(words []string) []string {
	var lines []string
	line := ""
	for _, word := range words {
		switch {
		case line == "" && len(lines) == 0 && special(word):
			line = `\` + word
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > commentWidth && !special(word):
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// special tells whether a word at the start of a comment line would be read as a
// marker (+), as the end of the description (---), as a note to drop (TODO), or as
// Go doc syntax (a heading, a link target, a code fence, a numbered item).
func special(word string) bool {
	for _, prefix := range []string{"+", "---", "TODO", "#", "[", "```", "~~~"} {
		if strings.HasPrefix(word, prefix) {
			return true
		}
	}
	digits := strings.TrimLeft(word, "0123456789")
	return len(digits) < len(word) && (digits == "." || digits == ")")
}

// PlainDescription undoes what a description suffers on its way through a comment:
// characters that must not be in source are dropped, escapes are taken away, and
// the typographic quotes that gofmt makes of doubled ones are written out. Two
// descriptions with equal words are equal after it.
func PlainDescription(text string) string {
	return strings.NewReplacer("\u201d", "''", "\u201c", "``", `\`, "").Replace(sanitize(text))
}
