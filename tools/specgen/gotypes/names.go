package gotypes

import (
	"reflect"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// initialisms are written in capitals in Go names. The list is part of the API
// contract: a new entry renames fields.
var initialisms = map[string]string{}

func init() {
	for _, word := range strings.Fields("URL UID ID API CPU GPU RAM VRAM KV CA CRD PCI HTTP HTTPS TLS JSON YAML OCI LLM IP DNS SSO OS DRA") {
		initialisms[strings.ToLower(word)] = word
	}
	// The plurals that occur as words of a name; "cas" or "oss" would be other words.
	for _, word := range strings.Fields("URL UID ID API CPU GPU CRD LLM IP") {
		initialisms[strings.ToLower(word)+"s"] = word + "s"
	}
}

// words splits a JSON name into words: at characters that no Go name has, at
// lower-to-upper changes, and before the last capital of a run that a lower-case
// letter follows (HTTPRoute: HTTP, Route).
func words(name string) []string {
	var out []string
	var current []rune
	flush := func() {
		if len(current) > 0 {
			out = append(out, string(current))
			current = nil
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			continue
		}
		if i > 0 && unicode.IsUpper(r) {
			previous := runes[i-1]
			nextLower := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			// A plural "s" after capitals (IPs, URLs) does not start a word.
			if nextLower && runes[i+1] == 's' && (i+2 == len(runes) || !unicode.IsLower(runes[i+2])) && unicode.IsUpper(previous) {
				nextLower = false
			}
			if !unicode.IsUpper(previous) || nextLower {
				flush()
			}
		}
		current = append(current, r)
	}
	flush()
	return out
}

// goName makes an exported Go name of a JSON name: kvCacheType is KVCacheType,
// nodeUid is NodeUID, 3scale is X3scale. It is never empty.
func goName(name string) string {
	var b strings.Builder
	for _, word := range words(name) {
		if capital, ok := initialisms[strings.ToLower(word)]; ok && (word == strings.ToLower(word) || isTitle(word)) {
			b.WriteString(capital)
			continue
		}
		runes := []rune(word)
		b.WriteRune(unicode.ToUpper(runes[0]))
		b.WriteString(string(runes[1:]))
	}
	text := b.String()
	if text == "" {
		return "X"
	}
	// A digit, or a letter of a script without capitals, cannot start an exported name.
	if first := []rune(text)[0]; !unicode.IsUpper(first) {
		return "X" + text
	}
	return text
}

func isTitle(word string) bool {
	return word != "" && strings.ToLower(word[1:]) == word[1:]
}

// constName makes the last part of an enum constant: words as in goName, with the
// values that have no letters spelled out.
func constName(value string) string {
	if value == "" {
		return "Empty"
	}
	var b strings.Builder
	for _, r := range value {
		if spelled, ok := symbolWords[r]; ok {
			b.WriteString(" " + spelled + " ")
		} else {
			b.WriteRune(r)
		}
	}
	// Only a value that is nothing but signs needs them in its name; elsewhere
	// they separate words, and a clash falls back to the spelled form.
	if len(words(value)) > 0 {
		return upperFirst(goName(value), value)
	}
	return goName(b.String())
}

// spelledConstName is constName with every sign spelled out, for values that
// would otherwise share a name ("a/b" and "a b").
func spelledConstName(value string) string {
	var b strings.Builder
	for _, r := range value {
		if spelled, ok := symbolWords[r]; ok {
			b.WriteString(" " + spelled + " ")
		} else {
			b.WriteRune(r)
		}
	}
	return upperFirst(goName(b.String()), value)
}

// upperFirst takes away the X that goName puts before a digit: a constant's name
// starts with its type's name, so a digit may follow.
func upperFirst(name, value string) string {
	if strings.HasPrefix(name, "X") && !strings.HasPrefix(strings.ToUpper(strings.TrimLeft(value, "-_./ ")), "X") {
		return name[1:]
	}
	return name
}

// symbolWords spell the signs that occur in enum values.
var symbolWords = map[rune]string{
	'/': "Slash", ' ': "Space", ':': "Colon", '.': "Dot", '-': "Dash", '+': "Plus", '_': "Underscore", '*': "Star", '=': "Equal",
	'!': "Not", '<': "Less", '>': "Greater", '&': "And", '|': "Or", '%': "Percent", '~': "Tilde", '#': "Hash", '@': "At",
	'$': "Dollar", '?': "Question", ',': "Comma", ';': "Semicolon", '^': "Caret", '(': "Open", ')': "Close", '[': "OpenBracket",
	']': "CloseBracket", '{': "OpenBrace", '}': "CloseBrace", '"': "Quote", '\'': "Apostrophe", '`': "Backtick", '\\': "Backslash",
}

// reservedFields are names that a field must not take because a method of that
// name is generated or promoted; Extra and Nulls are our own additions.
var reservedFields = map[string]bool{
	"DeepCopy": true, "DeepCopyInto": true, "DeepCopyObject": true, "MarshalJSON": true, "UnmarshalJSON": true,
	"Extra": true, "Nulls": true,
}

// reservedRootFields are those of the kinds, which embed TypeMeta and ObjectMeta.
var reservedRootFields = map[string]bool{"TypeMeta": true, "ObjectMeta": true}

func init() {
	for _, t := range []reflect.Type{reflect.TypeFor[*metav1.TypeMeta](), reflect.TypeFor[*metav1.ObjectMeta]()} {
		for i := range t.NumMethod() {
			reservedRootFields[t.Method(i).Name] = true
		}
	}
}
