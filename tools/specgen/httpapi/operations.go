package httpapi

import (
	"sort"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// operation is one method of one path.
type operation struct {
	*openapi3.Operation
	path   string
	method string
	item   *openapi3.PathItem
}

// at is the JSON path of the operation in its document.
func (o operation) at() string {
	return "paths." + pathKey(o.path) + "." + strings.ToLower(o.method)
}

// pathKey writes a map key of a JSON path; keys with dots or slashes are quoted.
func pathKey(key string) string {
	if key != "" && !strings.ContainsAny(key, "./[]'\" ") {
		return key
	}
	return "['" + strings.ReplaceAll(key, "'", `\'`) + "']"
}

// role is the declared role, empty when there is none.
func (o operation) role() string {
	role, _ := o.Extensions[extRole].(string)
	return role
}

// parameters are those of the path and those of the operation.
func (o operation) parameters() openapi3.Parameters {
	all := append(openapi3.Parameters{}, o.item.Parameters...)
	return append(all, o.Parameters...)
}

func (o operation) parameter(in, name string) *openapi3.Parameter {
	for _, ref := range o.parameters() {
		if ref.Value != nil && ref.Value.In == in && strings.EqualFold(ref.Value.Name, name) {
			return ref.Value
		}
	}
	return nil
}

// changes reports whether the operation may change something.
func (o operation) changes() bool {
	switch o.method {
	case "GET", "HEAD", "OPTIONS":
		return false
	}
	return true
}

// operations lists the operations of a document by path, then method.
func operations(doc *openapi3.T) []operation {
	var list []operation
	if doc.Paths == nil {
		return nil
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			list = append(list, operation{Operation: op, path: path, method: method, item: item})
		}
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].path != list[j].path {
			return list[i].path < list[j].path
		}
		return list[i].method < list[j].method
	})
	return list
}
