package validation

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// example is one file of spec/examples.
type example struct {
	// name is kind/valid/rule or kind/invalid/rule.
	name string
	// accepted is what the folder promises.
	accepted bool
	// field and words are what a refusal names.
	field, words string
	// status says that the documents are written through the status subresource.
	status bool
	// objects are states of one object, written one after the other.
	objects []*unstructured.Unstructured
}

const examplesDir = "../../../spec/examples"

func readExamples(t testing.TB) []example {
	t.Helper()
	files, err := filepath.Glob(examplesDir + "/*/*/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files, "no example below spec/examples")
	examples := make([]example, 0, len(files))
	for _, file := range files {
		examples = append(examples, readExample(t, file))
	}
	return examples
}

func readExample(t testing.TB, file string) example {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	relative, err := filepath.Rel(examplesDir, file)
	require.NoError(t, err)
	read := example{name: strings.TrimSuffix(filepath.ToSlash(relative), ".yaml")}
	switch folder := filepath.Base(filepath.Dir(file)); folder {
	case "valid", "invalid":
		read.accepted = folder == "valid"
	default:
		require.Failf(t, "unexpected folder", "%s lies in %q, want valid or invalid", relative, folder)
	}
	read.readHeader(data)
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, relative)
		asJSON, err := yaml.YAMLToJSONStrict(document)
		require.NoError(t, err, relative)
		var object map[string]any
		require.NoError(t, utiljson.Unmarshal(asJSON, &object), relative)
		if len(object) > 0 {
			read.objects = append(read.objects, &unstructured.Unstructured{Object: object})
		}
	}
	return read
}

// readHeader reads the comments; a second document may have its own.
func (e *example) readHeader(data []byte) {
	for _, line := range strings.Split(string(data), "\n") {
		key, value, found := strings.Cut(strings.TrimPrefix(line, "# "), ": ")
		if !found || !strings.HasPrefix(line, "# ") {
			continue
		}
		switch value = strings.TrimSpace(value); key {
		case "field":
			e.field = value
		case "words":
			e.words = value
		case "subresource":
			e.status = value == "status"
		}
	}
}
