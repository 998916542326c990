// Package controlplanetest gives tests a real API server.
//
// A test that needs one of its own, or special flags, calls Start. The tests of
// a package that can share one call Shared, and the package has
//
//	func TestMain(m *testing.M) { os.Exit(controlplanetest.Main(m)) }
//
// A shared control plane starts with the first test that asks for it, so that
// pure tests of the package stay fast; tests keep apart by namespaces (see
// Namespace). When the binaries are missing a test fails, it is never skipped.
package controlplanetest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"magicstick.dev/operator/handwritten/controlplane"
)

// setupTimeout bounds everything that happens before a test gets its configuration.
const setupTimeout = 3 * time.Minute

type settings struct {
	options controlplane.Options
	crds    []fs.FS
}

// Option changes what is started.
type Option func(*settings)

// WithCRDs installs the CRDs of the given file systems and waits until the API
// server serves them.
func WithCRDs(sources ...fs.FS) Option {
	return func(s *settings) { s.crds = append(s.crds, sources...) }
}

// WithControllerManager also starts kube-controller-manager, for tests that
// need garbage collection, namespace deletion or ServiceAccounts.
func WithControllerManager() Option {
	return func(s *settings) { s.options.ControllerManager = true }
}

// WithAPIServerArgs passes further arguments to kube-apiserver.
func WithAPIServerArgs(args ...string) Option {
	return func(s *settings) { s.options.APIServerArgs = append(s.options.APIServerArgs, args...) }
}

// Start starts a control plane for one test and stops it when the test ends.
func Start(t testing.TB, opts ...Option) *rest.Config {
	t.Helper()
	return StartControlPlane(t, opts...).RESTConfig()
}

// StartControlPlane is Start for tests that need more than the configuration:
// the kubeconfig file, the process IDs, or an early stop.
func StartControlPlane(t testing.TB, opts ...Option) *controlplane.ControlPlane {
	t.Helper()
	plane, err := start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	return plane
}

func start(opts []Option) (*controlplane.ControlPlane, error) {
	var s settings
	for _, opt := range opts {
		opt(&s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	plane, err := controlplane.Start(ctx, s.options)
	if err != nil {
		return nil, fmt.Errorf("starting a control plane for the test: %w", err)
	}
	if err := controlplane.InstallCRDs(ctx, plane.RESTConfig(), s.crds...); err != nil {
		_ = plane.Stop()
		return nil, err
	}
	return plane, nil
}

// shared is the control plane of a test binary.
var shared struct {
	sync.Mutex
	ready bool // Main runs
	opts  []Option
	plane *controlplane.ControlPlane
	err   error
}

// Main runs the tests of a package and stops the shared control plane, if any
// test started it, before it returns the exit code. The options hold for all
// tests that call Shared.
func Main(m *testing.M, opts ...Option) int {
	shared.Lock()
	shared.ready, shared.opts = true, opts
	shared.Unlock()
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.plane != nil {
		if err := shared.plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// Shared returns the configuration of the package's control plane; the first
// call starts it.
func Shared(t testing.TB) *rest.Config {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if !shared.ready {
		t.Fatal("controlplanetest.Shared needs `func TestMain(m *testing.M) { os.Exit(controlplanetest.Main(m)) }` in the package")
	}
	if shared.plane == nil && shared.err == nil {
		shared.plane, shared.err = start(shared.opts)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	if err := shared.plane.Err(); err != nil {
		t.Fatal(err)
	}
	return shared.plane.RESTConfig()
}

// InstallCRDs installs CRDs for a test and waits until they are served.
func InstallCRDs(t testing.TB, config *rest.Config, sources ...fs.FS) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if err := controlplane.InstallCRDs(ctx, config, sources...); err != nil {
		t.Fatal(err)
	}
}

// Namespace makes a fresh namespace with a name that starts like the test's.
// It is not deleted: the control plane ends with the tests, and without
// kube-controller-manager a deletion would never finish.
func Namespace(t testing.TB, config *rest.Config) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatalf("making a namespace: %v", err)
	}
	namespace, err := client.CoreV1().Namespaces().Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namePrefix(t.Name())}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("making a namespace: %v", err)
	}
	return namespace.Name
}

// namePrefix turns a test name into the start of a DNS label, at most 40 characters.
func namePrefix(name string) string {
	label := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, name)
	label = strings.Trim(label[:min(len(label), 40)], "-")
	return label + "-"
}
