package adminserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"magicstick.dev/operator/generated/clientset"
	"magicstick.dev/operator/handwritten/identity"
)

// Registry is where metrics are registered and read from; the registry of
// controller-runtime is one.
type Registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

const (
	readHeaderTimeout = 5 * time.Second
	requestTimeout    = 15 * time.Second
	// idleTimeout is longer than Envoy keeps an unused connection (an hour), so
	// that it is never ours to close one that a check is just being sent on: the
	// gateway would count that as a failed check and refuse a good request.
	idleTimeout = 65 * time.Minute
	// maxHeaderBytes leaves room for a token of identity.MaxToken and a long target.
	maxHeaderBytes = 64 << 10
)

// Server is the process of cmd/admin.
type Server struct {
	options   Options
	logger    *slog.Logger
	registry  Registry
	keys      *identity.Keys
	instances *identity.Instances
	guard     http.Handler

	listeners []listener
	draining  atomic.Bool
}

type listener struct {
	name     string
	listener net.Listener
	server   *http.Server
}

// New builds the parts and opens the ports; call Run, or Close when Run is not
// called. Nothing is asked of the cluster or of the realm before Run.
func New(connection *rest.Config, options Options, registry Registry, logger *slog.Logger) (_ *Server, err error) {
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("checking the options of admin: %w", err)
	}
	s := &Server{options: options, logger: logger, registry: registry}
	metrics, err := identity.NewMetrics(registry)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	if s.keys, err = identity.NewKeys(options.KeysURL, logger, metrics, options.Now); err != nil {
		return nil, err
	}
	tokens, err := identity.NewVerifier(options.Tokens, s.keys, options.Now)
	if err != nil {
		return nil, err
	}
	connection = rest.CopyConfig(connection)
	connection.UserAgent = rest.DefaultKubernetesUserAgent() + " magicstick-admin"
	client, err := clientset.NewForConfig(connection)
	if err != nil {
		return nil, fmt.Errorf("building the client of the API server: %w", err)
	}
	if s.instances, err = identity.NewInstances(client, options.Namespace, options.MaxCacheAge, options.Now); err != nil {
		return nil, err
	}
	s.guard = &identity.Guard{Instances: s.instances, Tokens: tokens, Metrics: metrics, Logger: logger}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.open("guard", options.GuardAddress, s.leaving(s.guard)); err != nil {
		return nil, err
	}
	if err := s.open("probes", options.ProbeAddress, s.probes()); err != nil {
		return nil, err
	}
	return s, s.open("metrics", options.MetricsAddress, s.metrics())
}

func (s *Server) open(name, address string, handler http.Handler) error {
	if address == "0" {
		return nil
	}
	opened, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("opening the port of %s: %w", name, err)
	}
	s.listeners = append(s.listeners, listener{name: name, listener: opened, server: &http.Server{
		Handler: handler,
		// "OPTIONS *" is answered by net/http itself otherwise, with 200.
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            readHeaderTimeout,
		ReadTimeout:                  requestTimeout,
		WriteTimeout:                 requestTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		ErrorLog:                     slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}})
	return nil
}

// Close closes the ports of a server that was not run.
func (s *Server) Close() {
	for _, l := range s.listeners {
		_ = l.listener.Close()
	}
}

// Addr is where a part ("guard", "probes", "metrics") listens, "" when it does not.
func (s *Server) Addr(name string) string {
	for _, l := range s.listeners {
		if l.name == name {
			return l.listener.Addr().String()
		}
	}
	return ""
}

// leaving asks for every connection to end with its next answer once the
// process is going, so that none is cut under a check.
func (s *Server) leaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// probes: alive when the process answers, ready when the guard can know
// instances. Keys are no part of it: without them signed-in people are denied
// but open instances stay open, and a restart would not bring the realm back.
func (s *Server) probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		problem := s.instances.Ready()
		if s.draining.Load() {
			problem = errors.New("ending")
		}
		if problem != nil {
			http.Error(w, "instances: "+problem.Error(), http.StatusServiceUnavailable)
			return
		}
		keys := "ok"
		if !s.keys.Available() {
			keys = "not available; everybody who signs in is denied"
		}
		fmt.Fprintf(w, "instances: ok\nkeys: %s\n", keys)
	})
	return mux
}

func (s *Server) metrics() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{}))
	return mux
}

// Run serves until ctx ends, then drains: it is not ready any more, goes on
// answering for DrainDelay, and gives what is under way ShutdownTimeout.
func (s *Server) Run(ctx context.Context) error {
	// The watch and the keys outlive ctx by the drain.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(work)
	group.Go(func() error { s.instances.Run(failed); return nil })
	group.Go(func() error { s.keys.Run(failed); return nil })
	for _, l := range s.listeners {
		s.logger.Info("listening", "part", l.name, "address", l.listener.Addr().String())
		group.Go(func() error {
			if err := l.server.Serve(l.listener); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving %s: %w", l.name, err)
			}
			return nil
		})
	}
	group.Go(func() error {
		select {
		case <-ctx.Done():
			s.drain()
		case <-failed.Done():
		}
		s.shutdown()
		stop()
		return nil
	})
	return group.Wait()
}

func (s *Server) drain() {
	s.logger.Info("ending", "after", s.options.DrainDelay)
	s.draining.Store(true)
	time.Sleep(s.options.DrainDelay)
}

func (s *Server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.ShutdownTimeout)
	defer cancel()
	for _, l := range s.listeners {
		if err := l.server.Shutdown(ctx); err != nil {
			s.logger.Warn("cutting what is still under way", "part", l.name, "error", err)
			_ = l.server.Close()
		}
	}
}
