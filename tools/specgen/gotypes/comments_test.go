package gotypes_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/gotypes"
	"magicstick.dev/operator/tools/specgen/gotypes/gotypestest"
)

// TestTypeComments: the comment of every type starts with its name, as Go wants it.
// The types of items and map values are the exception when the schema describes
// them, because controller-tools reads that description from the type.
func TestTypeComments(t *testing.T) {
	definitions, err := crd.LoadDir(filepath.Join(gotypestest.RepoDir(t), "spec", "crds"))
	require.NoError(t, err)
	files, err := gotypes.Emit(definitions, gotypes.ByShortGroup)
	require.NoError(t, err)
	named := 0
	for name, source := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE || types.Doc == nil {
				continue
			}
			typeName := types.Specs[0].(*ast.TypeSpec).Name.Name
			comment := types.Doc.Text()
			if strings.HasPrefix(comment, "+") || strings.HasSuffix(typeName, "Item") || strings.HasSuffix(typeName, "Value") {
				continue // markers alone, or the description of an item
			}
			named++
			require.Regexp(t, "^"+typeName+"[: ]", comment)
		}
	}
	require.NotZero(t, named)
}
