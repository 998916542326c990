package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"magicstick.dev/operator/handwritten/controlplane"
	"magicstick.dev/operator/handwritten/dev/flux"
	"magicstick.dev/operator/handwritten/dev/gitserver"
)

// DefaultTimeout bounds the wait for convergence of a run with Once.
const DefaultTimeout = 3 * time.Minute

// Options are the choices of `magicstick dev`.
type Options struct {
	// Kubeconfig names an existing cluster to use instead of starting one. It is
	// a list of files as in the variable KUBECONFIG.
	Kubeconfig string
	// DataDir keeps objects, artifacts and logs between runs; empty means a
	// temporary folder that is removed at the end.
	DataDir string
	// Port is the API server's port; 0 means any free one.
	Port int
	// Once prints the table when nothing changes any more, and ends.
	Once bool
	// Flux also runs Flux's controllers.
	Flux bool
	// StandIns plays KubeAI, LiteLLM and, without Flux, Flux, on the built-in
	// control plane, so that models go through all their phases though none runs.
	StandIns bool
	// Timeout bounds the wait of Once.
	Timeout time.Duration
	// Out gets everything that a person reads.
	Out io.Writer
}

// session is one run; everything that was started is stopped by its end.
type session struct {
	Options
	out     *printer
	dir     string
	config  *rest.Config
	cleanup []func() error
	// kubeconfig is the file to show to the person.
	kubeconfig string
	// liteLLM is the address of the stand-in for LiteLLM; empty without one.
	liteLLM string
	// log of the operator and of the libraries that everything here uses.
	log logr.Logger
	// failures are closed by parts that end on their own; reason says why.
	failures []failure
}

type failure struct {
	ended  <-chan struct{}
	reason func() error
}

// Run starts everything, shows the table, and returns when ctx ends (nil), when
// Once is satisfied (nil), or when something breaks. Whatever was started is
// stopped before it returns.
func Run(ctx context.Context, options Options) (err error) {
	if options.Kubeconfig != "" && options.Flux {
		return errors.New("checking the options: Flux can only run beside the built-in control plane; unset KUBECONFIG or leave out --flux")
	}
	if options.Kubeconfig != "" && options.StandIns {
		return errors.New("checking the options: stand-ins only work on the built-in control plane; unset KUBECONFIG or leave out --stand-ins")
	}
	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}
	s := &session{Options: options, out: newPrinter(options.Out)}
	defer func() {
		began := time.Now()
		stopped := s.stop()
		if err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil {
			// The person asked for the end, perhaps in the middle of the start.
			err = nil
		}
		err = errors.Join(err, stopped)
		s.out.line("stopped in %s", took(began))
	}()
	began := time.Now()
	if err := s.start(ctx); err != nil {
		return err
	}
	s.out.line("everything runs after %s", took(began))
	return s.show(ctx)
}

// start brings up the parts in the order in which they need one another. The
// examples come before the operator, so that an object that the operator would
// seed with defaults is there as the example has it.
func (s *session) start(ctx context.Context) error {
	steps := []struct {
		title string
		run   func(context.Context) (string, error)
	}{
		{"cluster", s.startCluster},
		{"log", s.startLog},
		{"CRDs", s.installCRDs},
		{"namespaces and catalogs", s.applyBasics},
		{"registry", s.startRegistry},
		{"Flux", s.startFlux},
		{"stand-ins", s.startStandIns},
		{"examples", s.applyExamples},
		{"operator", s.startOperator},
	}
	for _, step := range steps {
		began := time.Now()
		result, err := step.run(ctx)
		if err != nil {
			return err
		}
		if result != "" {
			s.out.line("%-24s %6s  %s", step.title, took(began), result)
		}
	}
	return nil
}

func (s *session) startCluster(ctx context.Context) (string, error) {
	if s.Kubeconfig != "" {
		return s.useCluster()
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{DataDir: s.DataDir, ControllerManager: true, Port: s.Port})
	if err != nil {
		return "", err
	}
	s.onStop(plane.Stop)
	s.failures = append(s.failures, failure{plane.Failed(), plane.Err})
	s.config, s.kubeconfig, s.dir = plane.RESTConfig(), plane.KubeconfigPath(), plane.DataDir()
	return s.config.Host + ", data in " + s.dir, nil
}

// useCluster connects to the cluster of the given kubeconfig. Nothing is asked
// of it yet: its name is on the screen before anything happens there.
func (s *session) useCluster() (string, error) {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(s.Kubeconfig)}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	config, err := loader.ClientConfig()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig %s: %w", s.Kubeconfig, err)
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig %s: %w", s.Kubeconfig, err)
	}
	config.QPS = -1
	dir, err := controlplane.OpenDataDir(s.DataDir, controlplane.PurposeDev)
	if err != nil {
		return "", err
	}
	s.onStop(dir.Close)
	s.config, s.kubeconfig, s.dir = config, s.Kubeconfig, dir.Path()
	s.out.line("working on the cluster %s, context %q of KUBECONFIG=%s (unset KUBECONFIG to get a control plane of your own)",
		config.Host, raw.CurrentContext, s.Kubeconfig)
	return "data in " + s.dir, nil
}

func (s *session) startRegistry(ctx context.Context) (string, error) {
	// Not the run's context: a registry that loses it in the middle of a push
	// would answer with nonsense instead of being shut down by stop.
	started, err := startRegistry(context.WithoutCancel(ctx), s.dir)
	if err != nil {
		return "", err
	}
	s.onStop(started.stop)
	return "http://" + started.address, nil
}

// startFlux serves the stand-in source and starts Flux on it, when asked.
func (s *session) startFlux(ctx context.Context) (string, error) {
	if !s.Flux {
		return "", nil
	}
	if err := flux.Available(); err != nil {
		return "", fmt.Errorf("starting Flux: %w", err)
	}
	dir := filepath.Join(s.dir, "flux")
	source := filepath.Join(s.dir, "git")
	for _, folder := range []string{dir, source} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return "", fmt.Errorf("starting Flux: %w", err)
		}
	}
	server, err := gitserver.Start(ctx, source)
	if err != nil {
		return "", err
	}
	s.onStop(server.Stop)
	files, err := standInSource()
	if err != nil {
		return "", err
	}
	if _, err := server.Commit(ctx, "Stand-ins for the appliance's modules", files); err != nil {
		return "", err
	}
	if err := s.applySource(ctx, server.URL); err != nil {
		return "", err
	}
	controllers, err := flux.Start(ctx, flux.Options{Kubeconfig: s.kubeconfig, Dir: dir})
	if err != nil {
		return "", err
	}
	s.onStop(controllers.Stop)
	s.failures = append(s.failures, failure{controllers.Failed(), controllers.Err})
	return "source " + server.URL, nil
}

func (s *session) onStop(stop func() error) { s.cleanup = append(s.cleanup, stop) }

// stop ends everything in the reverse order of its start.
func (s *session) stop() error {
	var errs []error
	for i := len(s.cleanup) - 1; i >= 0; i-- {
		errs = append(errs, s.cleanup[i]())
	}
	return errors.Join(errs...)
}

func took(since time.Time) string {
	return fmt.Sprintf("%.1f s", time.Since(since).Seconds())
}
