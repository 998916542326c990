// Package docs writes the reference below generated/docs: a page per kind, a
// page per shipped catalog and an index. The pages of the HTTP APIs come from
// the step that generates those.
//
// In: spec/crds, spec/conditions, spec/catalogs, spec/examples, and the names in
// spec/http for the index. Out: generated/docs/{README,<kind>,catalog-<name>}.md.
package docs

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"magicstick.dev/operator/tools/specgen/catalogs"
	"magicstick.dev/operator/tools/specgen/conditions"
	"magicstick.dev/operator/tools/specgen/workspace"
)

const outputFolder = "docs"

// Generate writes the pages. A kind without a usable example, and a kind or
// rule without words, are errors that name file and path.
func Generate(_ context.Context, ws *workspace.Workspace) error {
	crds, err := ws.CRDs()
	if err != nil {
		return err
	}
	tables, err := conditions.Load(ws)
	if err != nil {
		return err
	}
	index := page{source: "spec/"}
	index.line("# Reference")
	index.blank()
	index.line("Made from the specification. Change `spec/` and run `make generate`; never edit these pages.")
	if err := kindPages(ws, crds, tables, &index); err != nil {
		return err
	}
	if err := catalogPages(ws, &index); err != nil {
		return err
	}
	if err := httpLinks(ws, &index); err != nil {
		return err
	}
	return index.write(ws, "README.md")
}

func kindPages(ws *workspace.Workspace, crds []workspace.CRD, tables []conditions.Table, index *page) error {
	group := ""
	for i, crd := range crds {
		if crd.Group() != group {
			group = crd.Group()
			index.blank()
			index.line("## Kinds of `%s`", group)
			index.blank()
			index.row("Kind", "Scope", "Short names", "Purpose")
			index.row("---", "---", "---", "---")
		}
		example, err := exampleOf(ws, crd.Kind())
		if err != nil {
			return err
		}
		// Load orders the tables as CRDs orders the kinds.
		text, err := kindPage(crd, tables[i], example)
		if err != nil {
			return fmt.Errorf("describing spec/%s: %w", crd.File, err)
		}
		file := strings.ToLower(crd.Kind()) + ".md"
		if err := text.write(ws, file); err != nil {
			return err
		}
		spec := crd.Definition.Spec
		index.row("["+crd.Kind()+"]("+file+")", string(spec.Scope), codeList(spec.Names.ShortNames),
			escape(firstSentence(spec.Versions[0].Schema.OpenAPIV3Schema.Description)))
	}
	return nil
}

func catalogPages(ws *workspace.Workspace, index *page) error {
	names, err := catalogs.Names(ws)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	index.blank()
	index.line("## Shipped catalogs")
	index.blank()
	index.row("Catalog", "Purpose")
	index.row("---", "---")
	for _, name := range names {
		schema, err := catalogs.LoadSchema(ws, name)
		if err != nil {
			return err
		}
		file := "catalog-" + name + ".md"
		if err := catalogPage(name, schema).write(ws, file); err != nil {
			return err
		}
		index.row("["+name+"]("+file+")", escape(firstSentence(schema.Description)))
	}
	return nil
}

// httpLinks points to the pages that the HTTP step writes for its documents.
func httpLinks(ws *workspace.Workspace, index *page) error {
	const suffix = ".openapi.yaml"
	files, err := filepath.Glob(filepath.Join(ws.SpecDir, "http", "*"+suffix))
	if err != nil {
		return fmt.Errorf("listing the HTTP documents: %w", err)
	}
	if len(files) == 0 {
		return nil
	}
	slices.Sort(files)
	index.blank()
	index.line("## HTTP APIs")
	index.blank()
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), suffix)
		index.line("* [%s](http-%s.md)", name, name)
	}
	return nil
}

// exampleOf picks the accepted example that the kind's page shows: the seed's
// own if there is one, else the minimal one, else the shortest. Examples of
// updates and of the status are passed over.
func exampleOf(ws *workspace.Workspace, kind string) (string, error) {
	folder := path.Join("examples", strings.ToLower(kind), "valid")
	files, err := filepath.Glob(filepath.Join(ws.SpecDir, filepath.FromSlash(folder), "*.yaml"))
	if err != nil {
		return "", fmt.Errorf("choosing the example of %s: %w", kind, err)
	}
	slices.Sort(files)
	best, bestRank := "", 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("choosing the example of %s: %w", kind, err)
		}
		example := strings.TrimSpace(string(text))
		if strings.Contains(example, "\n---\n") || strings.Contains(example, "# subresource:") {
			continue
		}
		rank := 2
		for i, wanted := range []string{"seed-", "minimal"} {
			if strings.HasPrefix(filepath.Base(file), wanted) {
				rank = i
			}
		}
		if best == "" || rank < bestRank || rank == 2 && bestRank == 2 && len(example) < len(best) {
			best, bestRank = example, rank
		}
	}
	if best == "" {
		return "", fmt.Errorf("choosing the example of %s: spec/%s has no example of one object to create", kind, folder)
	}
	return best, nil
}
