package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"magicstick.dev/operator/handwritten/controlplane/child"
)

const (
	// DefaultStartTimeout bounds the start of each process. A warm start of all
	// of them takes about four seconds on two cores; the rest is for machines
	// that compile or test something else at the same time.
	DefaultStartTimeout = 90 * time.Second
	// stopGrace is how long a process may take to end after SIGTERM before it is killed.
	stopGrace = 10 * time.Second
)

// Options says what to start and where. The zero value starts etcd and
// kube-apiserver with their data in a temporary folder.
type Options struct {
	// BinDir is the folder with the binaries; empty means what FindBinary finds.
	BinDir string
	// DataDir keeps the objects between starts. It is made when missing. Empty
	// means a temporary folder that Stop removes.
	DataDir string
	// ControllerManager also starts kube-controller-manager: garbage collection,
	// deletion of namespaces, and the ServiceAccount `default` in each namespace.
	// Without it ServiceAccount admission is off, so that Pods can be created.
	ControllerManager bool
	// Port is the port of the API server on 127.0.0.1; 0 means any free one.
	Port int
	// APIServerArgs are further arguments of kube-apiserver, after our own.
	APIServerArgs []string
	// StartTimeout bounds the start of each process; 0 means DefaultStartTimeout.
	StartTimeout time.Duration
}

// ControlPlane is a running control plane. Stop it when done.
type ControlPlane struct {
	config     *rest.Config
	kubeconfig string
	dataDir    string

	dir       *DataDir
	ports     []*reservedPort
	processes []*child.Process // in start order; stopped in reverse
	stopOnce  sync.Once
	stopErr   error
	failed    chan struct{}
	failOnce  sync.Once
	failure   error
	stopping  chan struct{}
}

// Start starts the control plane and returns when the API server is ready. A
// failure names the process and ends with the last lines of its log; nothing
// keeps running then. ctx bounds the start only.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	if opts.StartTimeout == 0 {
		opts.StartTimeout = DefaultStartTimeout
	}
	paths, err := opts.binaries()
	if err != nil {
		return nil, err
	}
	dir, err := OpenDataDir(opts.DataDir, PurposeControlPlane)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{dataDir: dir.path, dir: dir, failed: make(chan struct{}), stopping: make(chan struct{})}
	if err := c.start(ctx, opts, paths); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context, opts Options, paths map[string]string) error {
	certs, err := writeCertificates(filepath.Join(c.dataDir, "pki"))
	if err != nil {
		return err
	}
	etcdPort, err := c.reserve(0)
	if err != nil {
		return fmt.Errorf("choosing the port of etcd: %w", err)
	}
	peerPort, err := c.reserve(0)
	if err != nil {
		return fmt.Errorf("choosing the peer port of etcd: %w", err)
	}
	apiPort, err := c.reserve(opts.Port)
	if err != nil {
		return fmt.Errorf("choosing the port of kube-apiserver: %w", err)
	}

	etcdURL := "https://" + loopback(etcdPort)
	etcdArgs := etcdArguments(filepath.Join(c.dataDir, "etcd"), etcdURL, "https://"+loopback(peerPort), certs, c.dir.temporary)
	if err := c.run(ctx, opts, "etcd", paths["etcd"], etcdArgs,
		probe(etcdURL+"/readyz", certs.ca, certs.etcdClient)); err != nil {
		return err
	}

	server := "https://" + loopback(apiPort)
	c.config = adminConfig(server, certs)
	c.kubeconfig = filepath.Join(c.dataDir, "kubeconfig")
	if err := writeKubeconfig(c.kubeconfig, server, certs.ca, certs.admin); err != nil {
		return err
	}
	args := append(apiServerArguments(apiPort, etcdURL, certs, opts.ControllerManager), opts.APIServerArgs...)
	if err := c.run(ctx, opts, "kube-apiserver", paths["kube-apiserver"], args,
		probe(server+"/readyz", certs.ca, certs.admin)); err != nil {
		return err
	}

	if !opts.ControllerManager {
		return nil
	}
	managerPort, err := c.reserve(0)
	if err != nil {
		return fmt.Errorf("choosing the port of kube-controller-manager: %w", err)
	}
	managerConfig := filepath.Join(c.dataDir, "controller-manager.kubeconfig")
	if err := writeKubeconfig(managerConfig, server, certs.ca, certs.controllerManager); err != nil {
		return err
	}
	return c.run(ctx, opts, "kube-controller-manager", paths["kube-controller-manager"],
		controllerManagerArguments(managerPort, managerConfig, certs),
		probe("https://"+loopback(managerPort)+"/healthz", certs.ca, certs.admin))
}

// run starts one process, waits until it answers, and watches it from then on.
func (c *ControlPlane) run(ctx context.Context, opts Options, name, path string, args []string, ready child.Probe) error {
	p, err := child.Start(child.Spec{
		Name: name, Path: path, Args: args, Dir: c.dataDir, LogFile: filepath.Join(c.dataDir, "logs", name+".log"),
	})
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	ctx, cancel := context.WithTimeout(ctx, opts.StartTimeout)
	defer cancel()
	if err := p.WaitReady(ctx, ready); err != nil {
		return err
	}
	go func() {
		<-p.Done()
		select {
		case <-c.stopping:
		default:
			c.failOnce.Do(func() {
				c.failure = p.UnexpectedEnd()
				close(c.failed)
			})
		}
	}()
	return nil
}

func (c *ControlPlane) reserve(port int) (int, error) {
	reserved, err := reservePort(port)
	if err != nil {
		return 0, err
	}
	c.ports = append(c.ports, reserved)
	return reserved.port, nil
}

// RESTConfig is the configuration of a cluster administrator. Each call returns
// a copy that the caller may change; it has no client-side rate limit.
func (c *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// KubeconfigPath is a kubeconfig file of a cluster administrator, readable by
// its owner only. It is rewritten at each start.
func (c *ControlPlane) KubeconfigPath() string { return c.kubeconfig }

// DataDir is the folder with etcd's data, the certificates and the logs.
func (c *ControlPlane) DataDir() string { return c.dataDir }

// Failed is closed when one of the processes ends although nobody called Stop;
// Err then says which and why.
func (c *ControlPlane) Failed() <-chan struct{} { return c.failed }

// Err is nil while all processes run, and else names the one that ended first,
// with the last lines of its log.
func (c *ControlPlane) Err() error {
	select {
	case <-c.failed:
		return c.failure
	default:
		return nil
	}
}

// Stop ends the processes in the reverse order of their start (without etcd the
// API server would hang), kills what has not ended after ten seconds, and
// removes a temporary data folder. Further calls return the first result.
func (c *ControlPlane) Stop() error {
	c.stopOnce.Do(func() {
		close(c.stopping)
		var errs []error
		for i := len(c.processes) - 1; i >= 0; i-- {
			errs = append(errs, c.processes[i].Stop(stopGrace))
		}
		for _, port := range c.ports {
			errs = append(errs, port.release())
		}
		errs = append(errs, c.dir.Close())
		c.stopErr = errors.Join(errs...)
	})
	return c.stopErr
}

// PIDs lists the process IDs of the children by name, for tests and for people
// who look for them.
func (c *ControlPlane) PIDs() map[string]int {
	pids := make(map[string]int, len(c.processes))
	for _, p := range c.processes {
		pids[p.Name()] = p.PID()
	}
	return pids
}

func (o Options) binaries() (map[string]string, error) {
	names := []string{"etcd", "kube-apiserver"}
	if o.ControllerManager {
		names = append(names, "kube-controller-manager")
	}
	paths := make(map[string]string, len(names))
	var missing []error
	for _, name := range names {
		path, err := FindBinary(name)
		if o.BinDir != "" {
			path = filepath.Join(o.BinDir, name)
			err = checkExecutable(path)
		}
		if err != nil {
			missing = append(missing, err)
			continue
		}
		paths[name] = path
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("finding the control plane's binaries (run `make controlplane` to build them): %w", errors.Join(missing...))
	}
	return paths, nil
}

func checkExecutable(path string) error {
	info, err := os.Stat(path) // #nosec G703 -- the folder of the binaries is the caller's choice.
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable file", path)
	}
	return nil
}
