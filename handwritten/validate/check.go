package validate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	yamlnode "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"magicstick.dev/operator/generated/validation"
)

// file is the state of checking one file.
type file struct {
	name   string
	skip   bool
	report Report
	// before holds the objects of the file so far, by kind, namespace and name.
	before map[string]*unstructured.Unstructured
}

// checkFile checks all documents of a file. An object that appears twice in one
// file is taken as kubectl apply takes it: the second is an update of the first.
func checkFile(name string, data []byte, skipUnknownKinds bool) Report {
	f := &file{name: name, skip: skipUnknownKinds, before: map[string]*unstructured.Unstructured{}}
	if i := bytes.IndexByte(data, 0); i >= 0 || !utf8.Valid(data) {
		f.problem(Problem{Rule: RuleEncoding, Message: "the file is not text in UTF-8, so it is not a manifest"})
		return f.report
	}
	for _, document := range split(data) {
		if document.empty() {
			continue
		}
		content, tree, err := document.parse()
		if err != nil {
			f.problem(Problem{Line: err.line, Column: 1, Rule: RuleSyntax, Message: err.message})
			continue
		}
		f.object(content, position{tree, document.skipped})
	}
	return f.report
}

// position is a node and the number of lines of the file before its document.
type position struct {
	node    *yamlnode.Node
	skipped int
}

func (p position) at(path string) (line, column int) {
	node := locate(p.node, path)
	return p.skipped + node.Line, node.Column
}

func (f *file) problem(p Problem) {
	p.File = f.name
	f.report.Problems = append(f.report.Problems, p)
}

// object checks one object, or each object of a list.
func (f *file) object(content map[string]any, where position) {
	apiVersion, _ := content["apiVersion"].(string)
	kind, _ := content["kind"].(string)
	if items, isList := content["items"].([]any); isList && apiVersion == "v1" && kind == "List" {
		f.list(items, where)
		return
	}
	f.report.Objects++
	for _, key := range []string{"apiVersion", "kind"} {
		if text, isText := content[key].(string); !isText || text == "" {
			line, column := where.at(key)
			f.problem(Problem{
				Line: line, Column: column, Field: key, Rule: string(field.ErrorTypeRequired),
				Message: "must be a text; an object starts with apiVersion and kind",
			})
			return
		}
	}
	validator, err := validation.ForGVK(schema.FromAPIVersionAndKind(apiVersion, kind))
	switch {
	case errors.Is(err, validation.ErrUnknownKind) && f.skip:
		f.report.Objects--
		f.report.Skipped++
	case errors.Is(err, validation.ErrUnknownKind):
		line, column := where.at("kind")
		f.problem(Problem{Line: line, Column: column, Field: "kind", Rule: RuleUnknownKind, Message: unknownKind(apiVersion, kind)})
	case err != nil:
		f.problem(Problem{Rule: string(field.ErrorTypeInternal), Message: err.Error()})
	default:
		f.known(validator, &unstructured.Unstructured{Object: content}, where)
	}
}

func (f *file) list(items []any, where position) {
	for i, item := range items {
		path := fmt.Sprintf("items[%d]", i)
		content, isObject := item.(map[string]any)
		node := locate(where.node, path)
		if !isObject {
			f.report.Objects++
			line, column := where.at(path)
			f.problem(Problem{Line: line, Column: column, Field: path, Rule: RuleSyntax, Message: "must be an object, not " + describe(item)})
			continue
		}
		f.object(content, position{node, where.skipped})
	}
}

// unknownKind says what is known that comes nearest.
func unknownKind(apiVersion, kind string) string {
	message := fmt.Sprintf("%s in %s is not a kind of this product", clip(kind), clip(apiVersion))
	var names []string
	for _, known := range validation.Kinds() {
		if strings.EqualFold(known.Kind, kind) {
			return fmt.Sprintf("%s; there is %s in %s", message, known.Kind, known.GroupVersion())
		}
		names = append(names, known.Kind)
	}
	return message + "; known are " + strings.Join(names, ", ")
}

func (f *file) known(validator *validation.Validator, object *unstructured.Unstructured, where position) {
	name := object.GetName()
	if name == "" {
		name = object.GetGenerateName()
	}
	title := object.GetKind()
	if name != "" {
		title += "/" + clip(name)
	}
	key := strings.Join([]string{object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), object.GetName()}, "\x00")
	var list field.ErrorList
	if old, again := f.before[key]; again && object.GetName() != "" {
		list = validator.ValidateUpdate(object, old)
	} else {
		list = validator.Validate(object)
	}
	f.before[key] = object
	start := len(f.report.Problems)
	for _, one := range list {
		path := strings.TrimPrefix(one.Field, "<nil>")
		line, column := where.at(path)
		p := Problem{Line: line, Column: column, Object: title, Field: clip(path), Rule: string(one.Type), Message: message(one)}
		if one.Type == field.ErrorTypeForbidden && strings.HasPrefix(one.Detail, "unknown field ") {
			p.Rule, p.Message = RuleUnknownField, "is not a known field"
		}
		if path == "" && strings.HasPrefix(one.Detail, "some validation rules were not checked") {
			p.Rule, p.Message = RuleIncomplete, one.Detail
		}
		if one.Type != field.ErrorTypeTypeInvalid { // there the value is the name of a type
			p.Value = scalar(path, one.BadValue)
		}
		f.problem(p)
	}
	slices.SortStableFunc(f.report.Problems[start:], func(a, b Problem) int {
		if incomplete := a.Rule == RuleIncomplete; incomplete != (b.Rule == RuleIncomplete) {
			return map[bool]int{true: 1, false: -1}[incomplete]
		}
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
}

// message is what the API server says, without the field and the value.
func message(one *field.Error) string {
	// The schema validator of the API server repeats the path.
	text := strings.TrimPrefix(one.Detail, one.Field+" in body ")
	if text = strings.Join(strings.Fields(text), " "); text == "" {
		return one.Type.String()
	}
	return one.Type.String() + ": " + text
}

// confidential are the words that make a field's value stay out of messages.
var confidential = regexp.MustCompile(`(?i)env|token|secret|password|credential|api-?key|authorization`)

// omitted is what the API server puts in the place of a long value.
const omitted = "<value omitted>"

// scalar writes a refused value when it helps: a short text, number or boolean.
func scalar(path string, value any) string {
	if confidential.MatchString(path) {
		return ""
	}
	switch value := value.(type) {
	case string:
		if value == "" || value == omitted || strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[") {
			return ""
		}
		return fmt.Sprintf("%q", clip(value))
	case bool, int, int32, int64, float64:
		return fmt.Sprint(value)
	default:
		return ""
	}
}

// clip shortens a text from a file for a message.
func clip(text string) string {
	const limit = 128
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	return string([]rune(text)[:limit]) + "..."
}
