package verify

import (
	"context"
	"fmt"
	"io"
	"strings"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// Error lists everything that verify found, one line each.
type Error struct {
	// Findings are whole sentences that name the file or the import.
	Findings []string
}

// Error implements error.
func (e *Error) Error() string {
	noun := "findings"
	if len(e.Findings) == 1 {
		noun = "finding"
	}
	return fmt.Sprintf("verifying the tree: %d %s\n  %s", len(e.Findings), noun, strings.Join(e.Findings, "\n  "))
}

// explanations say in words what a difference means and what to do.
var explanations = map[workspace.Change]string{
	workspace.Missing: "is missing: the spec gives this file; run make generate",
	workspace.Extra:   "is not generated from the spec: remove it, or run make generate",
	workspace.Edited:  "differs from what the spec gives: it was edited, or the spec changed; run make generate",
}

// Tree compares a staged workspace, in which all steps have run, with the
// checked-in tree and checks the imports of the module.
func Tree(ctx context.Context, ws *workspace.Workspace, progress io.Writer) error {
	differences, err := ws.Differences()
	if err != nil {
		return err
	}
	var findings []string
	for _, difference := range differences {
		findings = append(findings, difference.Path+" "+explanations[difference.Change])
	}
	packages, err := List(ctx, ws.RepoDir)
	if err != nil {
		return err
	}
	for _, unread := range packages {
		// Imports that cannot be read cannot be judged.
		if unread.Error != nil {
			findings = append(findings, fmt.Sprintf("%s cannot be read: %s", unread.ImportPath, strings.TrimSpace(unread.Error.Err)))
		}
	}
	for _, violation := range Imports(packages) {
		findings = append(findings, violation.String())
	}
	if len(findings) > 0 {
		return &Error{Findings: findings}
	}
	files, err := ws.Files()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(progress, "verified %d generated files and the imports of %d packages\n", len(files), len(packages))
	return err
}
