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
	before map[string]earlier
}

// earlier is an object of the file and where it stands.
type earlier struct {
	object *unstructured.Unstructured
	place  string
}

// checkFile checks all documents of a file. An object that appears twice in one
// file is taken as kubectl apply takes it, in the order of the file and whatever
// stands between: the second is an update of the first. A note says so, because
// the other way to have an object twice is to have copied it and forgotten to
// rename it.
func checkFile(name string, data []byte, skipUnknownKinds bool) Report {
	f := &file{name: name, skip: skipUnknownKinds, before: map[string]earlier{}}
	if i := bytes.IndexByte(data, 0); i >= 0 || !utf8.Valid(data) {
		f.problem(Problem{Rule: RuleEncoding, Message: "the file is not text in UTF-8, so it is not a manifest"})
		return f.report
	}
	number := 0
	for _, document := range split(data) {
		if document.empty() {
			continue
		}
		number++
		content, tree, err := document.parse()
		if err != nil {
			f.problem(Problem{Line: err.line, Column: 1, Rule: RuleSyntax, Message: err.message})
			continue
		}
		f.object(content, position{tree, document.skipped, fmt.Sprintf("document %d", number)})
	}
	return f.report
}

// position is a node, the number of lines of the file before its document, and the
// words for the document or the part of it that holds the object.
type position struct {
	node    *yamlnode.Node
	skipped int
	name    string
}

func (p position) at(path string) (line, column int) {
	node := locate(p.node, path)
	return p.skipped + node.Line, node.Column
}

func (f *file) problem(p Problem) {
	p.File = f.name
	f.report.Problems = append(f.report.Problems, p)
}

func (f *file) note(n Note) {
	n.File = f.name
	f.report.Notes = append(f.report.Notes, n)
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
		f.object(content, position{node, where.skipped, where.name + ", " + path})
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
	old, again := f.before[key]
	again = again && object.GetName() != ""
	f.before[key] = earlier{object, where.name}
	var list field.ErrorList
	if again {
		list = validator.ValidateUpdate(object, old.object)
		line, column := where.at("metadata.name")
		f.note(Note{Line: line, Column: column, Object: title, Message: where.name + " updates " + old.place + " and is checked as an update"})
	} else {
		list = validator.Validate(object)
	}
	if object.Object["status"] != nil {
		line, column := where.at("status")
		f.note(Note{Line: line, Column: column, Object: title, Message: "status is not stored with a manifest; it is checked as a write to the status subresource"})
		list = append(list, status(validator, object, old.object, list)...)
	}
	start := len(f.report.Problems)
	incomplete := false
	for _, one := range list {
		path := strings.TrimPrefix(one.Field, "<nil>")
		if path == "" && strings.HasPrefix(one.Detail, "some validation rules were not checked") {
			incomplete = true
			continue
		}
		line, column := where.at(path)
		p := Problem{Line: line, Column: column, Object: title, Field: clip(path), Rule: string(one.Type), Message: message(one)}
		if one.Type == field.ErrorTypeForbidden && strings.HasPrefix(one.Detail, "unknown field ") {
			p.Rule, p.Message = RuleUnknownField, "is not a known field"
		}
		if one.Type != field.ErrorTypeTypeInvalid { // there the value is the name of a type
			p.Value = scalar(path, one.BadValue)
		}
		f.problem(p)
	}
	slices.SortStableFunc(f.report.Problems[start:], func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	if incomplete {
		f.note(Note{Object: title, Message: "some rules were not checked because of the problems found; correct those and check again"})
	}
}

// status checks the status that a manifest carries. The API server drops it when
// the manifest is applied, so strictly there is no wrong status; but who writes or
// copies one into a manifest means it to be right, and whoever writes it
// through the status subresource is refused. Only what is about the
// status, and was not said already, is returned.
func status(validator *validation.Validator, object, old *unstructured.Unstructured, said field.ErrorList) field.ErrorList {
	if old == nil {
		old = object.DeepCopy()
		delete(old.Object, "status")
	}
	var list field.ErrorList
	for _, one := range validator.ValidateStatusUpdate(object, old) {
		about := one.Field == "status" || strings.HasPrefix(one.Field, "status.") || strings.HasPrefix(one.Field, "status[")
		if about && !slices.ContainsFunc(said, func(other *field.Error) bool { return other.Field == one.Field && other.Detail == one.Detail }) {
			list = append(list, one)
		}
	}
	return list
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
