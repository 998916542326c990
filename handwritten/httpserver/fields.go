package httpserver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"magicstick.dev/operator/generated/httpapi"
)

const (
	ruleRequired     = "required"
	ruleUnknownField = "unknownField"
	ruleType         = "type"
)

// fieldErrors translates what kin-openapi found. The messages are built from the
// schema alone: kin's own texts repeat the refused value.
func fieldErrors(err error) []httpapi.FieldError {
	return collect(nil, "", err)
}

func collect(list []httpapi.FieldError, parameter string, err error) []httpapi.FieldError {
	var schema *openapi3.SchemaError
	var request *openapi3filter.RequestError
	var parse *openapi3filter.ParseError
	if several, ok := err.(openapi3.MultiError); ok { //nolint:errorlint // the elements are visited one by one
		for _, one := range several {
			list = collect(list, parameter, one)
		}
		return list
	}
	switch {
	case errors.As(err, &request):
		if request.Parameter != nil {
			parameter = request.Parameter.In + "." + request.Parameter.Name
		}
		if errors.Is(request.Err, openapi3filter.ErrInvalidRequired) {
			return append(list, httpapi.FieldError{Field: parameter, Rule: ruleRequired, Message: "is required"})
		}
		if errors.Is(request.Err, openapi3filter.ErrInvalidEmptyValue) {
			return append(list, httpapi.FieldError{Field: parameter, Rule: "minLength", Message: "must not be empty"})
		}
		if errors.As(request.Err, &parse) {
			message := "cannot be read"
			if request.Parameter != nil && request.Parameter.Schema != nil {
				message = "must be " + typeName(request.Parameter.Schema.Value)
			}
			return append(list, httpapi.FieldError{Field: parameter, Rule: ruleType, Message: message})
		}
		if request.Err != nil {
			return collect(list, parameter, request.Err)
		}
		return append(list, httpapi.FieldError{Field: parameter, Rule: "format", Message: "cannot be read"})
	case errors.As(err, &schema):
		where := parameter
		if parameter == "" {
			where = pointer(schema.JSONPointer())
		}
		return append(list, schemaError(where, schema))
	default:
		return append(list, httpapi.FieldError{Field: parameter, Rule: "format", Message: "cannot be read"})
	}
}

// pointer writes a JSON pointer (RFC 6901).
func pointer(path []string) string {
	var out strings.Builder
	for _, part := range path {
		out.WriteByte('/')
		out.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return clip(out.String(), 1024)
}

// schemaError says what the rule of the schema asks for.
func schemaError(where string, err *openapi3.SchemaError) httpapi.FieldError {
	schema, rule := err.Schema, err.SchemaField
	result := httpapi.FieldError{Field: where, Rule: rule}
	switch rule {
	case "required":
		result.Message = "is required"
	case "properties", "additionalProperties":
		// kin calls an unknown key so; the key itself is only in its text.
		result.Rule, result.Message = ruleUnknownField, "is not a known field"
		if key, found := unknownKey(err.Reason); found {
			result.Field = clip(where+pointer([]string{key}), 1024)
		}
		known := make([]string, 0, len(schema.Properties))
		for name := range schema.Properties {
			known = append(known, name)
		}
		slices.Sort(known)
		result.Allowed = known
	case "type", "nullable":
		result.Rule, result.Message = ruleType, "must be "+typeName(schema)
	case "enum":
		for _, value := range schema.Enum {
			result.Allowed = append(result.Allowed, fmt.Sprint(value))
		}
		result.Message = "must be one of the allowed values"
	case "pattern":
		result.Message = "must match the pattern " + schema.Pattern
	case "format":
		result.Message = "must have the format " + schema.Format
	case "minLength":
		result.Message = atLeast(schema.MinLength, "character")
	case "maxLength":
		result.Message = atMost(schema.MaxLength, "character")
	case "minItems":
		result.Message = atLeast(schema.MinItems, "item")
	case "maxItems":
		result.Message = atMost(schema.MaxItems, "item")
	case "minProperties":
		result.Message = atLeast(schema.MinProps, "key")
	case "maxProperties":
		result.Message = atMost(schema.MaxProps, "key")
	case "uniqueItems":
		result.Message = "must not hold the same item twice"
	case "minimum":
		result.Message = fmt.Sprintf("must be at least %v", deref(schema.Min))
	case "maximum":
		result.Message = fmt.Sprintf("must be at most %v", deref(schema.Max))
	case "multipleOf":
		result.Message = fmt.Sprintf("must be a multiple of %v", deref(schema.MultipleOf))
	default:
		result.Message = "does not satisfy the rule " + rule
	}
	result.Message = clip(result.Message, 1024)
	return result
}

// unknownKey reads the key from kin's text `property "key" is unsupported`.
func unknownKey(reason string) (string, bool) {
	quoted, err := strconv.QuotedPrefix(strings.TrimPrefix(reason, "property "))
	if err != nil {
		return "", false
	}
	key, err := strconv.Unquote(quoted)
	return key, err == nil
}

func deref(number *float64) float64 {
	if number == nil {
		return 0
	}
	return *number
}

func atLeast(n uint64, unit string) string {
	return fmt.Sprintf("must have at least %d %s%s", n, unit, plural(n))
}

func atMost(n *uint64, unit string) string {
	if n == nil {
		return "has too many " + unit + "s"
	}
	return fmt.Sprintf("must have at most %d %s%s", *n, unit, plural(*n))
}

func plural(n uint64) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func typeName(schema *openapi3.Schema) string {
	if schema == nil || schema.Type == nil || len(*schema.Type) == 0 {
		return "of another type"
	}
	name := strings.Join(*schema.Type, " or ")
	if strings.ContainsRune("aeio", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// InvalidObject refuses a request because the custom resource that would result
// breaks the rules of its kind (400). The errors come from
// generated/validation; their bad values are left out. at maps the path of a
// field in the object to the field of the request; nil stands for a body that is the object itself.
func InvalidObject(list field.ErrorList, at func(path string) string) *Error {
	fields := make([]httpapi.FieldError, 0, len(list))
	for _, one := range list {
		where := ObjectPointer(one.Field)
		if at != nil {
			where = at(one.Field)
		}
		message := one.Detail
		if message == "" {
			message = strings.ToLower(one.Type.String())
		}
		fields = append(fields, httpapi.FieldError{Field: clip(where, 1024), Rule: string(one.Type), Message: clip(message, 1024)})
	}
	return Invalid(fields...)
}

// ObjectPointer turns the path of a field as Kubernetes writes it,
// spec.env[0].name or metadata.labels[a/b], into a JSON pointer.
func ObjectPointer(path string) string {
	var parts []string
	for path != "" {
		switch end := strings.IndexAny(path, ".["); {
		case path[0] == '[':
			end = strings.IndexByte(path, ']')
			if end < 0 {
				end = len(path)
			}
			parts = append(parts, path[1:end])
			path = strings.TrimPrefix(path[min(end+1, len(path)):], ".")
		case end < 0:
			parts = append(parts, path)
			path = ""
		default:
			parts = append(parts, path[:end])
			path = strings.TrimPrefix(path[end:], ".")
		}
	}
	return pointer(parts)
}

// FromCluster translates an error of the Kubernetes API about an object, which what
// names in words ("the module"). The text of the API server stays in the log: it may
// hold values, names and addresses. It is nil when err is.
func FromCluster(err error, what string) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return &Error{kind: kindNotFound, detail: what + " does not exist", cause: err}
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return &Error{kind: kindStale, detail: what + " has changed since it was read", cause: err}
	case apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsServiceUnavailable(err):
		return Unavailable("the cluster does not answer", err)
	case (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) && errors.As(err, &status):
		return &Error{kind: kindInvalid, detail: what + " would not be valid", fields: causes(status.Status()), cause: err}
	case errors.As(err, &status):
		return Internal(err)
	default:
		// Not an answer of the API server: the connection failed.
		return Unavailable("the cluster does not answer", err)
	}
}

func causes(status metav1.Status) []httpapi.FieldError {
	if status.Details == nil {
		return nil
	}
	fields := make([]httpapi.FieldError, 0, len(status.Details.Causes))
	for _, cause := range status.Details.Causes {
		fields = append(fields, httpapi.FieldError{Field: ObjectPointer(cause.Field), Rule: string(cause.Type), Message: "was refused by the rules of the object"})
	}
	return fields
}
