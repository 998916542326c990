package estimates

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxConfig bounds config.json and the answer of the API, in bytes.
	maxConfig = 4 << 20
	// maxIndex bounds model.safetensors.index.json, in bytes: it lists every
	// tensor, and the largest models have a hundred thousand.
	maxIndex = 32 << 20
	// maxItems bounds the lists that are read, in items.
	maxItems = 4096
	// exactInFloat is the largest number up to which a float64 holds every whole number.
	exactInFloat = 1 << 53
)

// fields is a JSON object whose values are looked at one by one. The first value
// that is not what it should be is kept as the problem of the whole document;
// from then on everything reads as absent. null counts as absent.
type fields struct {
	source, path string
	values       map[string]json.RawMessage
	// paths are those of values that come from elsewhere in the document.
	paths   map[string]string
	problem **Problem
}

// document reads a JSON object. The literals NaN, Infinity and -Infinity, which
// Python writes, are no JSON but occur in published files; they are read as
// texts, so that they only hurt where a number is needed.
func document(source string, data []byte, limit int) (fields, error) {
	if len(data) > limit {
		return fields{}, &Problem{Source: source, Rule: fmt.Sprintf("may not be larger than %d bytes", limit), Value: strconv.Itoa(len(data))}
	}
	read := fields{source: source, problem: new(*Problem)}
	if err := json.Unmarshal(quoteNonNumbers(data), &read.values); err != nil {
		return fields{}, &Problem{Source: source, Rule: "must be a JSON object: " + err.Error()}
	}
	return read, nil
}

// nonNumbers are Python's literals that are no JSON, the longest first.
var nonNumbers = []string{"-Infinity", "Infinity", "NaN"}

// quoteNonNumbers turns Python's literals outside of texts into texts.
func quoteNonNumbers(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	out := make([]byte, 0, len(data)+64)
	inText := false
	for i := 0; i < len(data); i++ {
		switch {
		case inText && data[i] == '\\' && i+1 < len(data):
			out = append(out, data[i])
			i++
		case data[i] == '"':
			inText = !inText
		case !inText && (data[i] == 'N' || data[i] == 'I' || data[i] == '-'):
			at := slices.IndexFunc(nonNumbers, func(literal string) bool { return bytes.HasPrefix(data[i:], []byte(literal)) })
			if at >= 0 {
				out = strconv.AppendQuote(out, nonNumbers[at])
				i += len(nonNumbers[at]) - 1
				continue
			}
		}
		out = append(out, data[i])
	}
	return out
}

// err is the first problem of the document.
func (f fields) err() error {
	if f.problem == nil || *f.problem == nil {
		return nil
	}
	return *f.problem
}

// refuse keeps the first problem.
func (f fields) refuse(name, rule string, value []byte) {
	if *f.problem == nil {
		*f.problem = &Problem{Source: f.source, Field: f.pathOf(name), Rule: rule, Value: shown(string(value))}
	}
}

// pathOf is where in the document a name stands.
func (f fields) pathOf(name string) string {
	if path, elsewhere := f.paths[name]; elsewhere {
		return path + name
	}
	return f.path + name
}

// raw is the value of a name; null and a document with a problem count as absent.
func (f fields) raw(name string) (json.RawMessage, bool) {
	value, present := f.values[name]
	if !present || string(value) == "null" || *f.problem != nil {
		return nil, false
	}
	return value, true
}

// whole reads the first of the names that is present as a whole number in
// bounds; 0 when none is.
func (f fields) whole(low, high int64, names ...string) int64 {
	for _, name := range names {
		value, present := f.raw(name)
		if !present {
			continue
		}
		number, isWhole := wholeNumber(value)
		if !isWhole || number < low || number > high {
			f.refuse(name, fmt.Sprintf("must be a whole number from %d to %d", low, high), value)
			return 0
		}
		return number
	}
	return 0
}

// widest is whole for a dimension that some families give layer by layer: of a
// list it is the largest, which never counts too little.
func (f fields) widest(low, high int64, names ...string) int64 {
	for _, name := range names {
		if list := f.numbers(name); len(list) > 0 {
			widest := slices.Max(list)
			if slices.Min(list) < 0 || widest < low || widest > high {
				value, _ := f.raw(name)
				f.refuse(name, fmt.Sprintf("must be whole numbers from %d to %d", low, high), value)
				return 0
			}
			return widest
		}
	}
	return f.whole(low, high, names...)
}

// wholeNumber reads a JSON number without a fraction, however it is written.
func wholeNumber(value []byte) (int64, bool) {
	text := string(value)
	if number, err := strconv.ParseInt(text, 10, 64); err == nil {
		return number, true
	}
	if text == "" || text[0] != '-' && (text[0] < '0' || text[0] > '9') {
		return 0, false
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || number != math.Trunc(number) || math.Abs(number) > exactInFloat {
		return 0, false
	}
	return int64(number), true
}

// text reads the first of the names that is present and a text; "" otherwise:
// descriptions are taken where they can be read.
func (f fields) text(names ...string) string {
	for _, name := range names {
		var text string
		if value, present := f.raw(name); present && json.Unmarshal(value, &text) == nil {
			return text
		}
	}
	return ""
}

// truth reads a name as true or false; nil when it is neither.
func (f fields) truth(name string) *bool {
	var truth bool
	value, present := f.raw(name)
	if !present || json.Unmarshal(value, &truth) != nil {
		return nil
	}
	return &truth
}

// is tells that a name is there and true.
func (f fields) is(name string) bool {
	truth := f.truth(name)
	return truth != nil && *truth
}

// inner reads a name as an object; an empty one when it is none.
func (f fields) inner(name string) fields {
	inside := fields{source: f.source, path: f.pathOf(name) + ".", problem: f.problem}
	if value, present := f.raw(name); present && value[0] == '{' {
		if json.Unmarshal(value, &inside.values) != nil {
			inside.values = nil
		}
	}
	return inside
}

// texts reads a name as a list of texts; nil when it is none.
func (f fields) texts(name string) []string {
	return listOf[string](f, name)
}

// numbers reads a name as a list of whole numbers; nil when it is none.
func (f fields) numbers(name string) []int64 {
	return listOf[int64](f, name)
}

func listOf[T any](f fields, name string) []T {
	value, present := f.raw(name)
	if !present || value[0] != '[' {
		return nil
	}
	var list []T
	if json.Unmarshal(value, &list) != nil {
		return nil
	}
	if len(list) > maxItems {
		f.refuse(name, fmt.Sprintf("may not have more than %d items", maxItems), []byte(strconv.Itoa(len(list))))
		return nil
	}
	return list
}

// or gives the names of f, and those of other that f does not have: what a
// nested part leaves out is said at the top.
func (f fields) or(other fields) fields {
	merged := fields{
		source: f.source, path: f.path, problem: f.problem,
		values: make(map[string]json.RawMessage, len(f.values)+len(other.values)), paths: map[string]string{},
	}
	for _, part := range []fields{other, f} {
		for name, value := range part.values {
			if string(value) != "null" {
				merged.values[name] = value
				merged.paths[name] = part.path
			}
		}
	}
	return merged
}

// within checks a number of the request.
func within(field string, value, low, high int64) error {
	if value >= low && value <= high {
		return nil
	}
	return &Problem{
		Source: sourceRequest, Field: field, Value: strconv.FormatInt(value, 10),
		Rule: fmt.Sprintf("must be from %d to %d", low, high),
	}
}

// oneOf checks a word of the request; empty is the first.
func oneOf(field, value string, allowed ...string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return &Problem{Source: sourceRequest, Field: field, Rule: "must be one of " + strings.Join(allowed, ", "), Value: shown(value)}
}

// sourceRequest is the Source of problems with what the caller asks for.
const sourceRequest = "request"
