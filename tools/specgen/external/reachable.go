package external

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
)

// keepReachable removes the files of a package, one type each, whose type
// cannot be reached from root. Envoy Gateway has a dozen kinds, of which one is
// written; the others would only be compiled by everyone.
func keepReachable(dir, root string) error {
	folder, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("looking for what %s needs: %w", root, err)
	}
	defer func() { _ = folder.Close() }()
	entries, err := fs.ReadDir(folder.FS(), ".")
	if err != nil {
		return fmt.Errorf("looking for what %s needs: %w", root, err)
	}
	declaredIn, mentions := map[string]string{}, map[string][]string{}
	for _, entry := range entries {
		if path.Ext(entry.Name()) != ".go" {
			continue
		}
		source, err := folder.ReadFile(entry.Name())
		if err != nil {
			return fmt.Errorf("looking for what %s needs: %w", root, err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), source, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("looking for what %s needs: %w", root, err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.TypeSpec:
				declaredIn[node.Name.Name] = entry.Name()
			case *ast.Ident:
				mentions[entry.Name()] = append(mentions[entry.Name()], node.Name)
			}
			return true
		})
	}
	if declaredIn[root] == "" {
		return fmt.Errorf("looking for what %s needs: no such type", root)
	}
	kept, left := map[string]bool{}, []string{declaredIn[root]}
	for len(left) > 0 {
		file := left[0]
		left = left[1:]
		if file == "" || kept[file] {
			continue
		}
		kept[file] = true
		for _, name := range mentions[file] {
			left = append(left, declaredIn[name])
		}
	}
	for _, file := range declaredIn {
		if kept[file] {
			continue
		}
		// A file with several types comes up once for each.
		if err := folder.Remove(file); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("removing what %s does not need: %w", root, err)
		}
	}
	return nil
}
