// Package child runs a program as a child process that cannot outlive its
// parent, not even when the parent is killed with SIGKILL.
package child

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	probeInterval = 50 * time.Millisecond
	probeTimeout  = 2 * time.Second
	// tailLines and tailBytes bound what an error quotes from a log.
	tailLines = 20
	tailBytes = 16 << 10
)

// Spec says what to run.
type Spec struct {
	// Name appears in errors.
	Name string
	// Path is the program, Args its arguments without the program's name.
	Path string
	Args []string
	// Env are further variables, NAME=value, beside those of this process.
	Env []string
	// Dir is the working directory.
	Dir string
	// LogFile gets standard output and standard error; it is truncated first.
	LogFile string
}

// Process is a child that ends with us.
type Process struct {
	name    string
	logFile string
	cmd     *exec.Cmd
	guard   *guard
	// done is closed after the child was reaped; waitErr is set before.
	done    chan struct{}
	waitErr error
}

// Start starts a program in a process group of its own, so that Ctrl-C in the
// terminal reaches only us and we can stop the children in order.
func Start(spec Spec) (*Process, error) {
	name, logFile := spec.Name, spec.LogFile
	if err := os.MkdirAll(filepath.Dir(logFile), 0o700); err != nil {
		return nil, fmt.Errorf("starting %s: making the log folder: %w", name, err)
	}
	// #nosec G304 -- a file below our own data folder.
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: opening its log: %w", name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(spec.Path, spec.Args...) // #nosec G204 -- running the given binaries is the job.
	cmd.Dir = spec.Dir
	cmd.Env = append(os.Environ(), spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	guard, err := startGuarded(cmd)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &Process{name: name, logFile: logFile, cmd: cmd, guard: guard, done: make(chan struct{})}
	go func() {
		p.waitErr = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Probe asks a process once whether it is ready; the error says what it answered.
type Probe func(context.Context) error

// HTTPProbe expects status 200 from url; config is for https and may be nil.
func HTTPProbe(url string, config *tls.Config) Probe {
	return func(ctx context.Context) error {
		transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s: %s", url, response.Status, failedChecks(string(body)))
		}
		return nil
	}
}

// failedChecks keeps the lines of a health report that name a failed check.
func failedChecks(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	if len(failed) == 0 {
		return strings.TrimSpace(body)
	}
	return strings.Join(failed, "; ")
}

// WaitReady polls until the probe succeeds, the process ends, or ctx does. The
// error ends with the last lines of the log.
func (p *Process) WaitReady(ctx context.Context, ready Probe) error {
	started := time.Now()
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	last := errors.New("it was not asked yet")
	for {
		select {
		case <-p.done:
			return fmt.Errorf("starting %s: it ended (%s) before it was ready%s", p.name, p.exit(), p.tail())
		case <-ctx.Done():
			return fmt.Errorf("starting %s: not ready after %s: %w; its last answer: %w%s",
				p.name, time.Since(started).Round(time.Millisecond), context.Cause(ctx), last, p.tail())
		case <-ticker.C:
			err := ready(ctx)
			if err == nil {
				return nil
			}
			if ctx.Err() == nil {
				last = err // else it is only about our own deadline
			}
		}
	}
}

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Name is the name given at the start.
func (p *Process) Name() string { return p.name }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// UnexpectedEnd describes a process that ended although nobody stopped it.
func (p *Process) UnexpectedEnd() error {
	return fmt.Errorf("running %s: it ended unexpectedly (%s)%s", p.name, p.exit(), p.tail())
}

func (p *Process) exit() string {
	if p.waitErr != nil {
		return p.waitErr.Error()
	}
	return "exit status 0"
}

// Stop asks the process to end and kills it when it has not after grace. It is
// no error when the process has ended already.
func (p *Process) Stop(grace time.Duration) error {
	defer p.guard.release()
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s, which did not end within %s: %w", p.name, grace, err)
	}
	<-p.done
	return nil
}

// tail quotes the end of the log for an error message.
func (p *Process) tail() string {
	file, err := os.Open(p.logFile)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := file.Seek(-tailBytes, io.SeekEnd); err != nil {
			return ""
		}
	}
	data, err := io.ReadAll(io.LimitReader(file, tailBytes))
	if err != nil || len(bytes.TrimSpace(data)) == 0 {
		return "; its log is empty"
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Sprintf("; the last lines of %s:\n  %s", p.logFile, strings.Join(lines, "\n  "))
}
