// Package verify checks what a review cannot: that the checked-in generated tree
// is what the spec gives, and that imports run in one direction only.
package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// Package is what "go list -json" tells about one package of the module.
type Package struct {
	// ImportPath is the package's import path.
	ImportPath string
	// Imports are those of the package itself.
	Imports []string
	// TestImports are those of its _test.go files in the same package.
	TestImports []string
	// XTestImports are those of its external test package.
	XTestImports []string
	// Error is set when the package cannot be loaded.
	Error *struct{ Err string }
}

// List reads the packages of the module at dir, test files included, with the
// build tags of the product's optional tests.
func List(ctx context.Context, dir string) ([]Package, error) {
	command := exec.CommandContext(ctx, "go", "list", "-e", "-tags=peers,e2e",
		"-json=ImportPath,Imports,TestImports,XTestImports,Error", "./...")
	command.Dir = dir
	var complaint bytes.Buffer
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages of %s: %w: %s", dir, err, strings.TrimSpace(complaint.String()))
	}
	var packages []Package
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var next Package
		if err := decoder.Decode(&next); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("listing the packages of %s: %w", dir, err)
		}
		packages = append(packages, next)
	}
}

// Violation is one import against the direction rule.
type Violation struct {
	// From imports To.
	From, To string
	// Test says that a _test.go file does it.
	Test bool
	// Rule is the broken rule in words.
	Rule string
}

// String names the import and the rule.
func (v Violation) String() string {
	where := ""
	if v.Test {
		where = " (in a _test.go file)"
	}
	return fmt.Sprintf("%s imports %s%s: %s", v.From, v.To, where, v.Rule)
}

// Imports applies the direction rule of the house (DESIGN.md, section 2) to
// every import.
func Imports(packages []Package) []Violation {
	var violations []Violation
	for _, from := range packages {
		check := func(imports []string, test bool) {
			for _, to := range imports {
				if rule := judge(relative(from.ImportPath), to, test); rule != "" {
					violation := Violation{From: from.ImportPath, To: to, Test: test, Rule: rule}
					if !slices.Contains(violations, violation) {
						violations = append(violations, violation)
					}
				}
			}
		}
		check(from.Imports, false)
		check(from.TestImports, true)
		check(from.XTestImports, true)
	}
	return violations
}

// relative is an import path below the module, or "" for a foreign one.
func relative(importPath string) string {
	rest, ours := strings.CutPrefix(importPath, workspace.Module+"/")
	if !ours {
		return ""
	}
	return rest
}

// within tells whether a path is dir or lies below it.
func within(path string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return path == dir || strings.HasPrefix(path, dir+"/")
	})
}

// room is the second segment of a path: the room of handwritten, the command of
// cmd, the tool of tools.
func room(path string) string {
	parts := strings.SplitN(path, "/", 3)
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}

// light are the generated packages that an integrator imports.
var light = []string{"generated/apis", "generated/clientset", "generated/listers", "generated/informers", "generated/applyconfiguration"}

// lightNeeds is all that they may import beside the standard library and one
// another. The last two are what the apply configurations of code-generator
// parse their embedded schema with.
var lightNeeds = []string{
	"k8s.io/apimachinery",
	"k8s.io/client-go",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
	"sigs.k8s.io/structured-merge-diff/v6",
	"k8s.io/kube-openapi/pkg/util",
}

// composition rooms wire other rooms together.
var composition = []string{"operator", "dev", "adminserver"}

// meeting rooms may be imported by every room.
var meeting = []string{"kube", "catalogs", "httpserver"}

// controlPlane starts an API server; every test may do that.
const controlPlane = "handwritten/controlplane"

// judge returns the rule that the import from -> to breaks, or "".
func judge(from, to string, test bool) string {
	target := relative(to)
	if target == "" {
		return judgeForeign(from, to, test)
	}
	if test && within(target, controlPlane) {
		return ""
	}
	switch {
	case within(target, "tools") && !within(from, "tools"):
		return "nothing imports tools except tools"
	case within(from, "tools/specgen") && !test && !within(target, "tools"):
		return "the generator does not import what it makes, or a deleted generated/ could not be rebuilt"
	case within(target, "cmd"):
		return "a command is a main program, nothing imports it"
	case within(from, "generated") && !within(target, "generated"):
		return "generated code imports generated code only (cmd -> handwritten -> generated)"
	case within(from, light...) && !within(target, light...) && !test:
		return "integrators' packages import one another only"
	case within(from, "handwritten") && within(target, "handwritten"):
		return judgeRooms(room(from), room(target))
	}
	return ""
}

func judgeRooms(from, to string) string {
	if from == to || slices.Contains(meeting, to) {
		return ""
	}
	if slices.Contains(composition, from) {
		return ""
	}
	return "rooms meet in handwritten/{kube,catalogs,httpserver} and generated only"
}

// judgeForeign checks imports of other modules and the standard library.
func judgeForeign(from, to string, test bool) string {
	if test || !within(from, light...) || standard(to) || within(to, lightNeeds...) {
		return ""
	}
	return "integrators' packages need the standard library, apimachinery, client-go and apiextensions' JSON type only"
}

// standard tells a package of the standard library: its first segment has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}
