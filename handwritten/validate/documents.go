package validate

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// chunk is one document of a file.
type chunk struct {
	text []byte
	// skipped is the number of lines of the file before the document.
	skipped int
}

// split cuts a file into documents at the lines "---" and "...", as kubectl does.
// What stands behind "---" on its line stays in the document, at its column.
func split(data []byte) []chunk {
	var chunks []chunk
	current := chunk{}
	for number, line := range bytes.SplitAfter(data, []byte("\n")) {
		start, end := isMarker(line, "---"), isMarker(line, "...")
		if start || end {
			chunks = append(chunks, current)
			current = chunk{skipped: number}
			line = append([]byte("   "), line[3:]...)
		}
		current.text = append(current.text, line...)
	}
	return append(chunks, current)
}

func isMarker(line []byte, marker string) bool {
	rest, found := bytes.CutPrefix(line, []byte(marker))
	return found && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0)
}

// empty reports whether a document holds comments and directives only.
func (c chunk) empty() bool {
	for line := range bytes.SplitSeq(c.text, []byte("\n")) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff")))
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// syntaxError is what a YAML parser says, with the line in the file.
type syntaxError struct {
	line    int
	message string
}

func (e *syntaxError) Error() string { return e.message }

var errorLine = regexp.MustCompile(`line (\d+): ?`)

// syntax takes the position out of a parser's message, where it is relative to the document.
func (c chunk) syntax(err error) *syntaxError {
	text := err.Error()
	result := &syntaxError{line: c.skipped + 1}
	if match := errorLine.FindStringSubmatchIndex(text); match != nil {
		if n, err := strconv.Atoi(text[match[2]:match[3]]); err == nil {
			result.line = c.skipped + n
		}
		text = text[:match[0]] + text[match[1]:]
	}
	text = strings.Join(strings.Fields(text), " ")
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	result.message = text
	return result
}

// parse reads a document twice: once as kubectl does, for the content, and once
// as a tree of nodes, for the positions.
func (c chunk) parse() (map[string]any, *yamlnode.Node, *syntaxError) {
	var tree yamlnode.Node
	if err := yamlnode.Unmarshal(c.text, &tree); err != nil {
		return nil, nil, c.syntax(err)
	}
	asJSON, err := yaml.YAMLToJSONStrict(c.text)
	if err != nil {
		return nil, nil, c.syntax(err)
	}
	var content any
	if err := json.Unmarshal(asJSON, &content); err != nil {
		return nil, nil, c.syntax(err)
	}
	object, isObject := content.(map[string]any)
	if !isObject {
		return nil, nil, &syntaxError{line: c.skipped + max(1, first(&tree).Line), message: fmt.Sprintf("the document must be an object with apiVersion and kind, not %s", describe(content))}
	}
	return object, first(&tree), nil
}

func first(tree *yamlnode.Node) *yamlnode.Node {
	if tree.Kind == yamlnode.DocumentNode && len(tree.Content) > 0 {
		return tree.Content[0]
	}
	return tree
}

func describe(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case []any:
		return "a list"
	default:
		return "a single value"
	}
}

// locate finds the node that a path of the API server is about, or the nearest
// one above it that exists. For a key of a mapping it is the key.
func locate(root *yamlnode.Node, path string) *yamlnode.Node {
	place, node := root, root
	for _, step := range steps(path) {
		key, value := child(node, step)
		if value == nil {
			break
		}
		place, node = key, value
	}
	return place
}

// maxAliases bounds the aliases that are followed at one step; an anchor can
// hold an alias of itself.
const maxAliases = 16

func child(node *yamlnode.Node, step string) (key, value *yamlnode.Node) {
	for range maxAliases {
		if node.Kind != yamlnode.AliasNode || node.Alias == nil {
			break
		}
		node = node.Alias
	}
	switch node.Kind {
	case yamlnode.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i], node.Content[i+1]
			}
		}
	case yamlnode.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
	}
	return nil, nil
}

// steps takes the path of a field apart: spec.env[0].name, metadata.labels[a.b/c].
func steps(path string) []string {
	var list []string
	for path != "" {
		if path[0] == '[' {
			end := strings.IndexByte(path, ']')
			if end < 0 {
				end = len(path)
			}
			list = append(list, path[1:end])
			path = strings.TrimPrefix(path[min(end+1, len(path)):], ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(list, path)
		}
		list = append(list, path[:end])
		path = strings.TrimPrefix(path[end:], ".")
	}
	return list
}
