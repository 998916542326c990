package httpapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"magicstick.dev/operator/tools/specgen/workspace"
)

const (
	documentSuffix = ".openapi.yaml"
	// conventionsFile holds the components that all documents share.
	conventionsFile = "conventions.yaml"
)

// apiName is also a Go package name and a file name, hence the narrow rule.
var apiName = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`)

// Generate writes the code and the reference pages of every HTTP document of
// ws.SpecDir/http. All findings of all documents are reported together.
func Generate(ctx context.Context, ws *workspace.Workspace) error {
	names, err := documents(ws.SpecDir)
	if err != nil {
		return err
	}
	bundles := make([]*bundle, 0, len(names))
	var findings []error
	for _, name := range names {
		b, err := load(ctx, ws.SpecDir, name)
		if err != nil {
			findings = append(findings, err)
			continue
		}
		if err := b.lint(); err != nil {
			findings = append(findings, err)
			continue
		}
		bundles = append(bundles, b)
	}
	if len(findings) > 0 {
		return errors.Join(findings...)
	}
	if err := writeShared(ctx, ws); err != nil {
		return fmt.Errorf("generating the shared HTTP types: %w", err)
	}
	for _, b := range bundles {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := writeAPI(ws, b); err != nil {
			return fmt.Errorf("generating from %s: %w", b.file, err)
		}
	}
	return nil
}

// documents lists the names of the HTTP documents, sorted.
func documents(specDir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(specDir, "http"))
	if err != nil {
		return nil, fmt.Errorf("listing the HTTP documents: %w", err)
	}
	var names []string
	for _, entry := range entries {
		name, found := strings.CutSuffix(entry.Name(), documentSuffix)
		if !found || !entry.Type().IsRegular() {
			continue
		}
		if !apiName.MatchString(name) {
			return nil, fmt.Errorf("listing the HTTP documents: %s: the part before %q must match %s, because it names a Go package",
				path.Join("spec/http", entry.Name()), documentSuffix, apiName)
		}
		names = append(names, name)
	}
	sort.Strings(names)
	return names, nil
}
