package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	kubeaicrds "magicstick.dev/operator/generated/external/kubeai/crds"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/operator"
)

func TestMain(m *testing.M) {
	logger := logr.Discard()
	if os.Getenv("OPERATOR_TEST_LOG") != "" {
		logger = logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	}
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	os.Exit(controlplanetest.Main(m, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS, kubeaicrds.FS)))
}

// patience bounds every wait. It is long because the machine is shared; a
// healthy wait ends within a second.
const patience = 60 * time.Second

// world is one appliance on an API server: namespaces of its own, a client
// that reads past every cache, and an operator that can be stopped and started.
type world struct {
	t       *testing.T
	config  *rest.Config
	client  client.Client
	options operator.Options
	writes  *writeCounter

	stop func()
}

// newWorld makes the namespaces and the shipped catalogs. The operator is not running yet.
func newWorld(t *testing.T, config *rest.Config) *world {
	t.Helper()
	scheme, err := operator.Scheme()
	require.NoError(t, err)
	direct, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	w := &world{t: t, config: config, client: direct, options: operator.DefaultOptions(), writes: &writeCounter{}}
	namespace := controlplanetest.Namespace(t, config)
	w.options.Appliance.Namespace = namespace
	w.options.ModuleCatalog.Namespace, w.options.ApplicationCatalog.Namespace = namespace, namespace
	w.options.ModelPresets.Namespace, w.options.EngineCatalog.Namespace, w.options.RealtimeProfiles.Namespace = namespace, namespace, namespace
	w.options.ModelNamespace = controlplanetest.Namespace(t, config)
	w.options.FluxNamespace = controlplanetest.Namespace(t, config)
	w.options.IdentityNamespace = controlplanetest.Namespace(t, config)
	w.options.LeaderElection = false
	w.options.MetricsAddress, w.options.ProbeAddress = "0", "0"
	for _, configMap := range catalogs.ShippedConfigMaps() {
		configMap.Namespace = namespace
		require.NoError(t, direct.Create(t.Context(), configMap))
	}
	return w
}

// start runs the operator until stop or the end of the test.
func (w *world) start() {
	w.t.Helper()
	connection := rest.CopyConfig(w.config)
	connection.Wrap(w.writes.wrap)
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := operator.New(ctx, connection, w.options)
	require.NoError(w.t, err)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	require.True(w.t, mgr.GetCache().WaitForCacheSync(ctx))
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					w.t.Errorf("the operator ended with: %v", err)
				}
			case <-time.After(patience):
				w.t.Error("the operator did not stop")
			}
		})
	}
	w.t.Cleanup(w.stop)
}

// create makes an object in the appliance's namespace, Kustomizations in Flux's.
func (w *world) create(object client.Object) {
	w.t.Helper()
	object.SetNamespace(w.namespaceOf(object))
	require.NoError(w.t, w.client.Create(w.t.Context(), object))
}

func (w *world) namespaceOf(object client.Object) string {
	if _, flux := object.(*kustomizev1.Kustomization); flux {
		return w.options.FluxNamespace
	}
	return w.options.Appliance.Namespace
}

// change reads, changes and writes an object, again on a conflict.
func change[T client.Object](w *world, object T, name string, edit func(T)) {
	w.t.Helper()
	for {
		require.NoError(w.t, w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespaceOf(object), Name: name}, object))
		edit(object)
		err := w.client.Update(w.t.Context(), object)
		if apierrors.IsConflict(err) {
			continue
		}
		require.NoError(w.t, err)
		return
	}
}

// get reads an object; false when it does not exist.
func (w *world) get(object client.Object, name string) bool {
	w.t.Helper()
	err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespaceOf(object), Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(w.t, err)
	return true
}

// eventually waits until check returns an empty string, and shows the last
// answer when it never does.
func (w *world) eventually(check func() string) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s", patience, problem)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// module waits until an activation has the phase and the reason, and returns it.
func (w *world) module(name string, phase appliancev1alpha1.ModuleActivationStatusPhase, reason string) *appliancev1alpha1.ModuleActivation {
	w.t.Helper()
	activation := &appliancev1alpha1.ModuleActivation{}
	w.eventually(func() string {
		activation = &appliancev1alpha1.ModuleActivation{}
		if !w.get(activation, name) {
			return "ModuleActivation " + name + " does not exist"
		}
		condition := meta.FindStatusCondition(activation.Status.Conditions, "Ready")
		if condition == nil || activation.Status.Phase != phase || condition.Reason != reason || condition.ObservedGeneration != activation.Generation {
			return fmt.Sprintf("ModuleActivation %s: want %s/%s, have %s", name, phase, reason, show(activation.Status))
		}
		return ""
	})
	return activation
}

// appliance waits until the Appliance has the phase and the reason.
func (w *world) appliance(phase appliancev1alpha1.ApplianceStatusPhase, reason string) *appliancev1alpha1.Appliance {
	w.t.Helper()
	found := &appliancev1alpha1.Appliance{}
	w.eventually(func() string {
		found = &appliancev1alpha1.Appliance{}
		if !w.get(found, w.options.Appliance.Name) {
			return "the Appliance does not exist"
		}
		condition := meta.FindStatusCondition(found.Status.Conditions, "Ready")
		if condition == nil || found.Status.Phase != phase || condition.Reason != reason {
			return fmt.Sprintf("Appliance: want %s/%s, have %s", phase, reason, show(found.Status))
		}
		return ""
	})
	return found
}

// kustomization waits until one exists that passes the check.
func (w *world) kustomization(name string, check func(*kustomizev1.Kustomization) string) *kustomizev1.Kustomization {
	w.t.Helper()
	found := &kustomizev1.Kustomization{}
	w.eventually(func() string {
		found = &kustomizev1.Kustomization{}
		if !w.get(found, name) {
			return "Kustomization " + name + " does not exist"
		}
		if check == nil {
			return ""
		}
		return check(found)
	})
	return found
}

// gone waits until an object does not exist.
func (w *world) gone(object client.Object, name string) {
	w.t.Helper()
	w.eventually(func() string {
		if w.get(object, name) {
			return fmt.Sprintf("%T %s still exists: %s", object, name, show(object))
		}
		return ""
	})
}

// flux plays kustomize-controller for one Kustomization: it writes a Ready
// condition for the present generation.
func (w *world) flux(name string, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	for {
		kustomization := w.kustomization(name, nil)
		kustomization.Status.ObservedGeneration = kustomization.Generation
		meta.SetStatusCondition(&kustomization.Status.Conditions, metav1.Condition{
			Type: "Ready", Status: status, Reason: reason, Message: message, ObservedGeneration: kustomization.Generation,
		})
		err := w.client.Status().Update(w.t.Context(), kustomization)
		if apierrors.IsConflict(err) {
			continue
		}
		require.NoError(w.t, err)
		return
	}
}

// static makes the Kustomization of a static module, as the installation does.
func (w *world) static(name string, ready metav1.ConditionStatus) {
	w.t.Helper()
	w.create(&kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kustomizev1.KustomizationSpec{
			Interval: metav1.Duration{Duration: 10 * time.Minute}, Path: "./static", Prune: true,
			SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "flux-system"},
		},
	})
	w.flux(name, ready, "ReconciliationSucceeded", "Applied revision: main@sha1:0123")
}

func activation(module string) *appliancev1alpha1.ModuleActivation {
	return &appliancev1alpha1.ModuleActivation{
		ObjectMeta: metav1.ObjectMeta{Name: module},
		Spec:       appliancev1alpha1.ModuleActivationSpec{Module: module},
	}
}

func defaultAppliance(modules ...string) *appliancev1alpha1.Appliance {
	appliance := &appliancev1alpha1.Appliance{
		ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec: appliancev1alpha1.ApplianceSpec{
			Source:  appliancev1alpha1.ApplianceSpecSource{Kind: "GitRepository", Name: "flux-system", Namespace: "flux-system"},
			Modules: map[string]appliancev1alpha1.ApplianceSpecModulesValue{},
		},
	}
	for _, module := range modules {
		enabled := true
		appliance.Spec.Modules[module] = appliancev1alpha1.ApplianceSpecModulesValue{Enabled: &enabled}
	}
	return appliance
}

func show(value any) string {
	return strings.Join(strings.Fields(fmt.Sprintf("%+v", value)), " ")
}

// writeCounter counts the requests of the operator that change something.
// Leases are not counted: they are the heartbeat of leader election.
type writeCounter struct {
	mutex   sync.Mutex
	failing sync.Mutex
	seen    []string
	denied  []string // requests that met a 403
	fail    func(request *http.Request, next http.RoundTripper) (*http.Response, error)
}

func (c *writeCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/leases") {
			c.mutex.Lock()
			c.seen = append(c.seen, request.Method+" "+request.URL.Path)
			fail := c.fail
			c.mutex.Unlock()
			if fail != nil {
				c.failing.Lock()
				response, err := fail(request, next)
				c.failing.Unlock()
				if response != nil || err != nil {
					return response, err
				}
			}
		}
		response, err := next.RoundTrip(request)
		if err == nil && response.StatusCode == http.StatusForbidden {
			c.mutex.Lock()
			c.denied = append(c.denied, request.Method+" "+request.URL.Path)
			c.mutex.Unlock()
		}
		return response, err
	})
}

// since returns the writes after a mark that an earlier call returned.
func (c *writeCounter) since(mark int) ([]string, int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return append([]string(nil), c.seen[mark:]...), len(c.seen)
}

// refuse sets what may answer in place of the API server; nil, nil of it lets a
// request through.
func (c *writeCounter) refuse(fail func(request *http.Request, next http.RoundTripper) (*http.Response, error)) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.fail = fail
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func isEvent(write string) bool { return strings.Contains(write, "/events") }

// changeStatus is change through the status subresource.
func changeStatus[T client.Object](w *world, object T, name string, edit func(T)) {
	w.t.Helper()
	for {
		require.NoError(w.t, w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespaceOf(object), Name: name}, object))
		edit(object)
		err := w.client.Status().Update(w.t.Context(), object)
		if apierrors.IsConflict(err) {
			continue
		}
		require.NoError(w.t, err)
		return
	}
}
