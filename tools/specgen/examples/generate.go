// Package examples embeds the examples of the seed documents, and those made
// for showing the operator (demo-*), so that `magicstick dev` can apply them
// without the source tree.
//
// In: spec/examples/<kind>/valid/{seed,demo}-*.yaml. Out: the package
// generated/examples.
package examples

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sort"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"magicstick.dev/operator/tools/specgen/workspace"
)

const source = workspace.Header + `// Package examples carries the objects that the seed documents show and those
// of demonstrations, as spec/examples has them, for programs that run without
// the source tree.
package examples

import (
	"embed"
	"io/fs"
	"path"
)

// FS holds one object per file, <kind in lower case>/<name>.yaml. A leading
// comment "subresource: status" says that the example is about the status,
// which is written through its own subresource after the object was created.
//
//go:embed */*.yaml
var FS embed.FS

// Files lists the paths of FS, ordered by kind and name.
func Files() []string {
	var files []string
	// Walking an embedded file system cannot fail.
	_ = fs.WalkDir(FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".yaml" {
			files = append(files, name)
		}
		return err
	})
	return files
}
`

// Generate writes generated/examples. A seed example with more than one
// document is an error: it would be an update, and dev only creates.
func Generate(ctx context.Context, ws *workspace.Workspace) error {
	files, err := filepath.Glob(filepath.Join(ws.SpecDir, "examples", "*", "valid", "seed-*.yaml"))
	if err != nil {
		return fmt.Errorf("listing the seed examples: %w", err)
	}
	demos, err := filepath.Glob(filepath.Join(ws.SpecDir, "examples", "*", "valid", "demo-*.yaml"))
	if err != nil {
		return fmt.Errorf("listing the examples for demonstrations: %w", err)
	}
	if len(files) == 0 {
		return errors.New("listing the seed examples: there is no examples/<kind>/valid/seed-*.yaml")
	}
	files = append(files, demos...)
	sort.Strings(files)
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := os.ReadFile(file) // #nosec G304 -- a file of spec/.
		if err != nil {
			return fmt.Errorf("reading a seed example: %w", err)
		}
		if documents := countDocuments(data); documents != 1 {
			return fmt.Errorf("reading the seed example %s: it has %d documents, expected one", file, documents)
		}
		kind := filepath.Base(filepath.Dir(filepath.Dir(file)))
		if err := ws.Write(path.Join("examples", kind, filepath.Base(file)), data); err != nil {
			return err
		}
	}
	return ws.Write("examples/examples.go", []byte(source))
}

func countDocuments(data []byte) int {
	count := 0
	for document := range bytes.SplitSeq(append([]byte("\n"), data...), []byte("\n---\n")) {
		json, err := utilyaml.ToJSON(document)
		if err != nil || !bytes.Equal(bytes.TrimSpace(json), []byte("null")) {
			count++
		}
	}
	return count
}
