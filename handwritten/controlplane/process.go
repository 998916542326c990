package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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

// process is one child that ends with us.
type process struct {
	name    string
	logFile string
	cmd     *exec.Cmd
	guard   *guard
	// done is closed after the child was reaped; waitErr is set before.
	done    chan struct{}
	waitErr error
}

// startProcess starts a program with its output in logFile, in a process group
// of its own, so that Ctrl-C in the terminal reaches only us and we can stop
// the children in order.
func startProcess(name, path string, args []string, dir, logFile string) (*process, error) {
	if err := os.MkdirAll(filepath.Dir(logFile), 0o700); err != nil {
		return nil, fmt.Errorf("starting %s: making the log folder: %w", name, err)
	}
	// #nosec G304 -- a file below our own data folder.
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: opening its log: %w", name, err)
	}
	defer log.Close()
	cmd := exec.Command(path, args...) // #nosec G204 -- running the given binaries is the job.
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = log, log
	guard, err := startGuarded(cmd)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, logFile: logFile, cmd: cmd, guard: guard, done: make(chan struct{})}
	go func() {
		p.waitErr = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// probe asks a process once whether it is ready; the error says what it answered.
type probe func(context.Context) error

// httpProbe expects status 200 from url, over mutual TLS.
func httpProbe(url string, ca, client *keyPair) probe {
	return func(ctx context.Context) error {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca.certPEM)
		certificate, err := tls.X509KeyPair(client.certPEM, client.keyPEM)
		if err != nil {
			return fmt.Errorf("loading the client certificate: %w", err)
		}
		transport := &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
			DisableKeepAlives: true,
		}
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
		defer response.Body.Close()
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

// waitReady polls until the probe succeeds, the process ends, or ctx does.
func (p *process) waitReady(ctx context.Context, ready probe) error {
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

// unexpectedEnd describes a process that ended although nobody stopped it.
func (p *process) unexpectedEnd() error {
	return fmt.Errorf("running %s: it ended unexpectedly (%s)%s", p.name, p.exit(), p.tail())
}

func (p *process) exit() string {
	if p.waitErr != nil {
		return p.waitErr.Error()
	}
	return "exit status 0"
}

// stop asks the process to end and kills it when it has not after grace.
func (p *process) stop(grace time.Duration) error {
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
func (p *process) tail() string {
	file, err := os.Open(p.logFile)
	if err != nil {
		return ""
	}
	defer file.Close()
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
