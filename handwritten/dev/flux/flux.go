// Package flux runs Flux's own source-controller and kustomize-controller
// beside a control plane, for `magicstick dev` and for tests: from a Git
// repository to objects in the cluster everything is the real thing.
package flux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"magicstick.dev/operator/handwritten/controlplane"
	"magicstick.dev/operator/handwritten/controlplane/child"
)

// Namespace is where Flux and everything that it works for lives.
const Namespace = "flux-system"

const (
	startTimeout = time.Minute
	stopGrace    = 10 * time.Second
	// portAttempts bounds how often a controller is started on fresh ports. They
	// cannot share a reserved port, so another program may take one in between.
	portAttempts = 5
)

// Options say where the controllers find the cluster and keep their files.
type Options struct {
	// Kubeconfig is a file with the rights of a cluster administrator.
	Kubeconfig string
	// Dir gets the fetched artifacts and the logs.
	Dir string
}

// Flux is a running pair of controllers.
type Flux struct {
	processes []*child.Process
	stopping  chan struct{}
	stopOnce  sync.Once
	stopErr   error
	failed    chan struct{}
	failOnce  sync.Once
	failure   error
}

// Available says whether the controllers are built; the error tells how to.
func Available() error {
	for _, name := range []string{"source-controller", "kustomize-controller"} {
		if _, err := controlplane.FindPeer(name); err != nil {
			return err
		}
	}
	return nil
}

// Start starts both controllers and returns when they are ready. Flux's CRDs
// and the namespace must exist.
func Start(ctx context.Context, options Options) (*Flux, error) {
	f := &Flux{stopping: make(chan struct{}), failed: make(chan struct{})}
	storage := filepath.Join(options.Dir, "artifacts")
	if err := os.MkdirAll(storage, 0o700); err != nil {
		return nil, fmt.Errorf("starting Flux: %w", err)
	}
	source := func(port func() (string, error)) ([]string, error) {
		address, err := port()
		return []string{
			"--storage-path=" + storage,
			"--storage-addr=" + address,
			"--storage-adv-addr=" + address,
		}, err
	}
	kustomize := func(func() (string, error)) ([]string, error) {
		// A module whose dependency is not ready is looked at again soon: the default
		// of 30 s is made for clusters with thousands of objects.
		return []string{"--requeue-dependency=2s"}, nil
	}
	err := f.run(ctx, options, "source-controller", source)
	if err == nil {
		err = f.run(ctx, options, "kustomize-controller", kustomize)
	}
	if err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

// run starts one controller, on other ports when the chosen ones were taken.
func (f *Flux) run(ctx context.Context, options Options, name string, own func(port func() (string, error)) ([]string, error)) error {
	path, err := controlplane.FindPeer(name)
	if err != nil {
		return fmt.Errorf("starting Flux: %w", err)
	}
	for attempt := 1; ; attempt++ {
		process, err := f.attempt(ctx, options, name, path, own)
		if err == nil {
			f.processes = append(f.processes, process)
			go f.watch(process)
			return nil
		}
		if attempt == portAttempts || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
	}
}

func (f *Flux) attempt(ctx context.Context, options Options, name, path string,
	own func(port func() (string, error)) ([]string, error),
) (*child.Process, error) {
	health, err := freeAddress(ctx)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	args, err := own(func() (string, error) { return freeAddress(ctx) })
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	args = append(args,
		"--health-addr="+health,
		"--metrics-addr=0",
		"--enable-leader-election=false",
		"--log-encoding=console",
		"--watch-all-namespaces=true",
	)
	process, err := child.Start(child.Spec{
		Name: name, Path: path, Args: args, Dir: options.Dir, LogFile: filepath.Join(options.Dir, "logs", name+".log"),
		Env: []string{"KUBECONFIG=" + options.Kubeconfig, "RUNTIME_NAMESPACE=" + Namespace, "HOME=" + options.Dir, "TMPDIR=" + options.Dir},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := process.WaitReady(ctx, child.HTTPProbe("http://"+health+"/readyz", nil)); err != nil {
		return nil, errors.Join(err, process.Stop(stopGrace))
	}
	return process, nil
}

func (f *Flux) watch(process *child.Process) {
	<-process.Done()
	select {
	case <-f.stopping:
	default:
		f.failOnce.Do(func() {
			f.failure = process.UnexpectedEnd()
			close(f.failed)
		})
	}
}

// Failed is closed when a controller ends although nobody called Stop.
func (f *Flux) Failed() <-chan struct{} { return f.failed }

// Err names the controller that ended, or is nil.
func (f *Flux) Err() error {
	select {
	case <-f.failed:
		return f.failure
	default:
		return nil
	}
}

// Stop ends both controllers. Further calls return the first result.
func (f *Flux) Stop() error {
	f.stopOnce.Do(func() {
		close(f.stopping)
		var errs []error
		for i := len(f.processes) - 1; i >= 0; i-- {
			errs = append(errs, f.processes[i].Stop(stopGrace))
		}
		f.stopErr = errors.Join(errs...)
	})
	return f.stopErr
}

func freeAddress(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("choosing a port: %w", err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return "", fmt.Errorf("choosing a port: %w", err)
	}
	return address, nil
}
