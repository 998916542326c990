package gobuild

import (
	"bufio"
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"golang.org/x/mod/modfile"
)

// Stale says why a program must be built; empty means that it is up to date.
// An edit of a main package of our own is not noticed: those are a few lines
// that call the real program.
func (f *Folder) Stale(program Program) (string, error) {
	pins, err := readPins(program.ModuleDir)
	if err != nil {
		return "", fmt.Errorf("checking %s: %w", program.Name, err)
	}
	info, err := buildinfo.ReadFile(filepath.Join(f.Dir, program.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "it is missing", nil
	case err != nil:
		// A foreign or broken file; building it again is the cure.
		return "it was not built by Go", nil
	}
	return differs(info, program, pins), nil
}

// differs compares the record in a binary with what is wanted.
func differs(info *debug.BuildInfo, program Program, pins *pins) string {
	if info.Path != program.Package {
		return fmt.Sprintf("it was built from %s", info.Path)
	}
	want := map[string]string{
		"GOOS": runtime.GOOS, "GOARCH": runtime.GOARCH, "CGO_ENABLED": "0", "-ldflags": program.LDFlags,
	}
	for _, setting := range info.Settings {
		value, relevant := want[setting.Key]
		if relevant && value != setting.Value {
			return fmt.Sprintf("it was built with %s=%q instead of %q", setting.Key, setting.Value, value)
		}
		delete(want, setting.Key)
	}
	for _, key := range []string{"GOOS", "GOARCH", "CGO_ENABLED", "-ldflags"} {
		if value := want[key]; value != "" {
			return fmt.Sprintf("it was built without %s=%q", key, value)
		}
	}
	modules := info.Deps
	if info.Main.Sum != "" { // the program belongs to a module that we only require
		modules = append([]*debug.Module{&info.Main}, modules...)
	}
	for _, module := range modules {
		if reason := pins.differs(module); reason != "" {
			return reason
		}
	}
	return ""
}

// pins are the versions and checksums that a module asks for.
type pins struct {
	required map[string]string
	replaced map[string]string
	sums     map[string]bool // "path version sum"
}

func readPins(dir string) (*pins, error) {
	path := filepath.Join(dir, "go.mod")
	data, err := os.ReadFile(path) // #nosec G304 -- a module of the repository.
	if err != nil {
		return nil, fmt.Errorf("reading the pinned versions: %w", err)
	}
	file, err := modfile.Parse(path, data, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the pinned versions: %w", err)
	}
	p := &pins{required: map[string]string{}, replaced: map[string]string{}, sums: map[string]bool{}}
	for _, require := range file.Require {
		p.required[require.Mod.Path] = require.Mod.Version
	}
	for _, replace := range file.Replace {
		p.replaced[replace.Old.Path] = replace.New.Version
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum")) // #nosec G304 -- a module of the repository.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the pinned checksums: %w", err)
	}
	scanner := bufio.NewScanner(bytes.NewReader(sums))
	for scanner.Scan() {
		p.sums[scanner.Text()] = true
	}
	return p, scanner.Err()
}

func (p *pins) differs(module *debug.Module) string {
	used := module
	want, pinned := p.required[module.Path]
	if module.Replace != nil {
		used = module.Replace
		want, pinned = p.replaced[module.Path]
	} else if _, replaced := p.replaced[module.Path]; replaced {
		want, pinned = p.replaced[module.Path], true
	}
	if pinned && want != used.Version {
		return fmt.Sprintf("it was built with %s %s instead of %s", module.Path, used.Version, want)
	}
	if used.Sum != "" && !p.sums[used.Path+" "+used.Version+" "+used.Sum] {
		return fmt.Sprintf("it was built with %s %s, which go.sum does not list", used.Path, used.Version)
	}
	return ""
}
