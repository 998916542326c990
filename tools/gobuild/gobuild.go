// Package gobuild builds programs of other projects from pinned Go modules into
// a folder and keeps them there.
//
// A program carries its own stamp: Go records in every binary from which
// versions and with which flags it was built. A binary whose record agrees with
// the wanted go.mod, go.sum and flags is up to date, whoever built it.
package gobuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// heartbeat is how often a build that takes long says that it is alive.
	heartbeat = 30 * time.Second
	// lockPoll is how often a waiting run looks whether the folder is free.
	lockPoll = 200 * time.Millisecond
	// outputLines bounds what an error quotes of the compiler's output.
	outputLines = 30

	temporarySuffix = ".building"
)

// Program is one program to build.
type Program struct {
	// Name is the file name in the folder.
	Name string
	// Package is the import path of its main package.
	Package string
	// ModuleDir is the folder whose go.mod and go.sum pin every version.
	ModuleDir string
	// LDFlags are the linker flags.
	LDFlags string
}

// Folder is where the programs go. One run at a time works in it.
type Folder struct {
	// Dir is made when missing.
	Dir string
	// Log gets one line for each thing that happens.
	Log io.Writer
	// GoCommand runs the go command in a folder and returns its output; nil
	// means the real one.
	GoCommand func(ctx context.Context, dir string, args ...string) ([]byte, error)
}

// Lock waits until no other run works in the folder, and removes what killed
// runs left there. unlock gives the folder free; so does the end of the process.
func (f *Folder) Lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(f.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the folder of the binaries: %w", err)
	}
	path := filepath.Join(f.Dir, ".lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // #nosec G304 -- a fixed name in the caller's folder.
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the binaries: %w", err)
	}
	for told := false; ; {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = file.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !told {
			f.say("waiting for another build in %s to end", f.Dir)
			told = true
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for another build in %s to end: %w", f.Dir, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
	leftovers, _ := filepath.Glob(filepath.Join(f.Dir, ".*"+temporarySuffix))
	for _, leftover := range leftovers {
		_ = os.Remove(leftover)
	}
	var once sync.Once
	return func() { once.Do(func() { _ = file.Close() }) }, nil
}

// Build builds the programs that are missing or stale, one at a time. The
// caller holds the lock.
func (f *Folder) Build(ctx context.Context, programs ...Program) error {
	type job struct {
		Program
		reason string
	}
	var jobs []job
	for _, program := range programs {
		reason, err := f.Stale(program)
		if err != nil {
			return err
		}
		if reason != "" {
			jobs = append(jobs, job{program, reason})
		}
	}
	if len(jobs) == 0 {
		f.say("up to date: %s", strings.Join(names(programs), ", "))
		return nil
	}
	for i, job := range jobs {
		f.say("[%d/%d] %s: building, because %s", i+1, len(jobs), job.Name, job.reason)
		began := time.Now()
		if err := f.build(ctx, job.Program); err != nil {
			return err
		}
		f.say("[%d/%d] %s: built in %s", i+1, len(jobs), job.Name, time.Since(began).Round(time.Second))
	}
	return nil
}

func (f *Folder) build(ctx context.Context, program Program) error {
	temporary := f.Temporary(program.Name)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		began := time.Now()
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				f.say("      %s: still building after %s (a first build takes minutes, later ones seconds)",
					program.Name, time.Since(began).Round(time.Second))
			}
		}
	}()
	run := f.GoCommand
	if run == nil {
		run = goCommand
	}
	args := []string{"build", "-mod=readonly", "-o", temporary}
	if program.LDFlags != "" {
		args = append(args, "-ldflags", program.LDFlags)
	}
	output, err := run(ctx, program.ModuleDir, append(args, program.Package)...)
	if err != nil {
		_ = os.Remove(temporary)
		return fmt.Errorf("building %s: %w\n%s", program.Name, err, lastLines(output))
	}
	return f.Install(program.Name, temporary)
}

// Temporary is the path of a file in the folder that Install may put in place.
func (f *Folder) Temporary(name string) string {
	return filepath.Join(f.Dir, fmt.Sprintf(".%s.%d%s", name, os.Getpid(), temporarySuffix))
}

// Install puts a finished file in place at once, so that nobody ever starts
// half a program and a running one keeps its file.
func (f *Folder) Install(name, from string) error {
	if err := os.Rename(from, filepath.Join(f.Dir, name)); err != nil {
		return fmt.Errorf("installing %s: %w", name, err)
	}
	return nil
}

// goCommand runs go without cgo: the programs are static, and one setting for
// all means that they share what was compiled.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "go", args...) // #nosec G204 -- fixed arguments and our own paths.
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	// A Ctrl-C ends the compilers too; without a grace the go command would leave them.
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	return command.CombinedOutput()
}

func (f *Folder) say(format string, args ...any) {
	if f.Log != nil {
		_, _ = fmt.Fprintf(f.Log, format+"\n", args...)
	}
}

func lastLines(output []byte) string {
	lines := bytes.Split(bytes.TrimRight(output, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-outputLines):], []byte("\n")))
}

func names(programs []Program) []string {
	var list []string
	for _, program := range programs {
		list = append(list, program.Name)
	}
	return list
}
