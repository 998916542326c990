package httpapi

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// roles in ascending order, as spec/http/README.md lists them.
var roles = []string{"none", "user", "viewer", "operator", "admin"}

var (
	operationID = regexp.MustCompile(`^[a-z][A-Za-z0-9]{2,63}$`)
	segment     = regexp.MustCompile(`^([a-z][a-z0-9]*(-[a-z0-9]+)*|v[0-9]+|\{[a-z][A-Za-z0-9]*\})$`)
)

const (
	problemMedia = "application/problem+json"
	problemRef   = "#/components/schemas/Problem"
	csrfHeader   = "X-MagicStick-CSRF"
)

// linter collects the findings of one document.
type linter struct {
	file string
	// custom are the schemas of custom resources; their bounds are checked where CRDs are read.
	custom   map[*openapi3.Schema]bool
	findings []error
}

func (l *linter) report(at, format string, args ...any) {
	l.findings = append(l.findings, fmt.Errorf("%s: %s: %s", l.file, at, fmt.Sprintf(format, args...)))
}

// lint checks the rules that spec/http/README.md marks as checked.
func (b *bundle) lint() error {
	l := &linter{file: b.file, custom: map[*openapi3.Schema]bool{}}
	for name := range b.bound {
		l.custom[b.doc.Components.Schemas[name].Value] = true
	}
	if len(b.operations) == 0 {
		l.report("paths", "the document has no operation")
	}
	ids := map[string]string{}
	for _, op := range b.operations {
		if other, twice := ids[op.OperationID]; twice && op.OperationID != "" {
			l.report(op.at()+".operationId", "%s is used by %s as well", op.OperationID, other)
		}
		ids[op.OperationID] = op.at()
		l.path(op)
		l.texts(op)
		l.role(b.doc, op)
		l.requests(op)
		l.statuses(op)
		l.revisions(op)
		l.lists(op)
		l.answers(op)
	}
	l.components(b)
	slices.SortFunc(l.findings, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(l.findings...)
}

func (l *linter) path(op operation) {
	at := "paths." + pathKey(op.path)
	prefix := "/api/v1/"
	if strings.HasPrefix(op.path, "/setup/api/") {
		prefix = "/setup/api/"
	}
	rest, found := strings.CutPrefix(op.path, prefix)
	if !found {
		l.report(at, "must start with /api/v1/ or /setup/api/")
		return
	}
	for part := range strings.SplitSeq(rest, "/") {
		if !segment.MatchString(part) {
			l.report(at, "the segment %q must be lower case with dashes, or {camelCase}", part)
		}
	}
}

func (l *linter) texts(op operation) {
	at := op.at()
	if !operationID.MatchString(op.OperationID) {
		l.report(at+".operationId", "%q must match %s", op.OperationID, operationID)
	}
	if strings.TrimSpace(op.Summary) == "" {
		l.report(at+".summary", "is required")
	} else if len(op.Summary) > 80 || strings.HasSuffix(op.Summary, ".") {
		l.report(at+".summary", "must be a headline: at most 80 bytes, no full stop at its end")
	}
	if strings.TrimSpace(op.Description) == "" {
		l.report(at+".description", "is required")
	}
	if len(op.Tags) == 0 {
		l.report(at+".tags", "is required")
	}
	for _, ref := range op.parameters() {
		if ref.Value != nil && strings.TrimSpace(ref.Value.Description) == "" {
			l.report(at+".parameters."+ref.Value.Name+".description", "is required")
		}
	}
}

func (l *linter) role(doc *openapi3.T, op operation) {
	at := op.at() + "." + extRole
	role := op.role()
	if _, declared := op.Extensions[extRole]; !declared {
		l.report(at, "is required: one of %s", strings.Join(roles, ", "))
		return
	}
	if !slices.Contains(roles, role) {
		l.report(at, "%v is not one of %s", op.Extensions[extRole], strings.Join(roles, ", "))
		return
	}
	security := doc.Security
	if op.Security != nil {
		security = *op.Security
	}
	anonymous := len(security) == 0
	for _, requirement := range security {
		anonymous = anonymous || len(requirement) == 0
	}
	if anonymous != (role == "none") {
		l.report(op.at()+".security", "role %q and the security requirement contradict each other: role none goes with security: [], every other role with a scheme", role)
	}
}

// requests checks that everything a client sends is bounded and has an example.
func (l *linter) requests(op operation) {
	at := op.at()
	for _, ref := range op.parameters() {
		if ref.Value == nil {
			continue
		}
		where := at + ".parameters." + ref.Value.Name
		if ref.Value.Schema == nil {
			l.report(where+".schema", "is required")
			continue
		}
		if ref.Value.Example == nil && len(ref.Value.Examples) == 0 {
			l.report(where+".example", "is required")
		}
		l.bounded(where+".schema", ref.Value.Schema, map[*openapi3.Schema]bool{})
	}
	if op.changes() {
		if p := op.parameter("header", csrfHeader); p == nil || !p.Required {
			l.report(at+".parameters", "an operation that is not GET must reference the parameter CSRF of %s", conventionsFile)
		}
	}
	if op.RequestBody == nil || op.RequestBody.Value == nil {
		return
	}
	for media, content := range op.RequestBody.Value.Content {
		where := at + ".requestBody.content." + pathKey(media)
		if media == "application/json" {
			if content.Schema == nil || content.Schema.Value == nil || !content.Schema.Value.Type.Is("object") {
				l.report(where+".schema", "a JSON body must be an object")
				continue
			}
			l.bounded(where+".schema", content.Schema, map[*openapi3.Schema]bool{})
		}
		if content.Example == nil && len(content.Examples) == 0 {
			l.report(where+".examples", "is required")
		}
	}
}

// bounded reports strings, arrays and maps of a request that have no bound.
func (l *linter) bounded(at string, ref *openapi3.SchemaRef, seen map[*openapi3.Schema]bool) {
	if ref == nil || ref.Value == nil || seen[ref.Value] || l.custom[ref.Value] {
		return
	}
	schema := ref.Value
	seen[schema] = true
	switch {
	case schema.Type.Is("string"):
		if schema.MaxLength == nil && len(schema.Enum) == 0 && schema.Format != "date-time" {
			l.report(at, "a string of a request needs maxLength or enum")
		}
	case schema.Type.Is("array"):
		if schema.MaxItems == nil {
			l.report(at, "an array of a request needs maxItems")
		}
		l.bounded(at+".items", schema.Items, seen)
	case schema.Type.Is("object"):
		for name, property := range schema.Properties {
			l.bounded(at+".properties."+pathKey(name), property, seen)
		}
		if schema.AdditionalProperties.Schema != nil {
			if schema.MaxProps == nil {
				l.report(at, "a map of a request needs maxProperties")
			}
			l.bounded(at+".additionalProperties", schema.AdditionalProperties.Schema, seen)
		} else if len(schema.Properties) == 0 {
			l.report(at, "an object of a request needs properties or additionalProperties")
		}
	case schema.Type == nil && len(schema.AllOf)+len(schema.OneOf)+len(schema.AnyOf) == 0:
		l.report(at, "a value of a request needs a type")
	}
	for keyword, list := range map[string]openapi3.SchemaRefs{"allOf": schema.AllOf, "oneOf": schema.OneOf, "anyOf": schema.AnyOf} {
		for i, item := range list {
			l.bounded(fmt.Sprintf("%s.%s[%d]", at, keyword, i), item, seen)
		}
	}
}

// statuses checks that the errors which can happen are documented.
func (l *linter) statuses(op operation) {
	required := []string{"401", "403", "default"}
	if op.role() == "none" {
		required = []string{"default"}
	}
	if len(op.parameters()) > 0 || op.RequestBody != nil {
		required = append(required, "400")
	}
	if strings.Contains(op.path, "{") {
		required = append(required, "404")
	}
	if op.RequestBody != nil {
		required = append(required, "413", "415")
	}
	if op.parameter("header", "If-Match") != nil {
		required = append(required, "412", "428")
	}
	for _, status := range required {
		if op.Responses.Value(status) == nil {
			l.report(op.at()+".responses", "%s is required", status)
		}
	}
}

func (l *linter) revisions(op operation) {
	why, _ := op.Extensions[extNoRevision].(string)
	match := op.parameter("header", "If-Match")
	switch {
	case !op.changes() && match != nil:
		l.report(op.at()+".parameters", "If-Match belongs to operations that change something")
	case op.changes() && match == nil && strings.TrimSpace(why) == "":
		l.report(op.at()+".parameters", "a change needs the parameter IfMatch of %s, or %s with the reason why it has none", conventionsFile, extNoRevision)
	case match != nil && why != "":
		l.report(op.at()+"."+extNoRevision, "contradicts the parameter If-Match")
	case match != nil && !match.Required:
		l.report(op.at()+".parameters", "If-Match must be required")
	}
}

func (l *linter) lists(op operation) {
	limit, token := op.parameter("query", "limit"), op.parameter("query", "continue")
	if (limit == nil) != (token == nil) {
		l.report(op.at()+".parameters", "limit and continue go together")
	}
	conditional := op.parameter("header", "If-None-Match") != nil
	if limit != nil && !conditional {
		l.report(op.at()+".parameters", "a list needs the parameter IfNoneMatch of %s", conventionsFile)
	}
	if conditional != (op.Responses.Value("304") != nil) {
		l.report(op.at()+".responses", "304 and the parameter If-None-Match go together")
	}
	if conditional && !hasHeader(op.Responses.Value("200"), "ETag") {
		l.report(op.at()+".responses.200.headers", "an answer that can be 304 needs the header WeakETag of %s", conventionsFile)
	}
	if op.parameter("header", "If-Match") != nil && !hasHeader(op.Responses.Value("200"), "ETag") && !hasHeader(op.Responses.Value("201"), "ETag") &&
		op.method != "DELETE" {
		l.report(op.at()+".responses.200.headers", "the answer to a change needs the header ETag of %s", conventionsFile)
	}
}

func hasHeader(ref *openapi3.ResponseRef, name string) bool {
	return ref != nil && ref.Value != nil && ref.Value.Headers[name] != nil
}
