package adminserver_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/clientset"
	"magicstick.dev/operator/generated/crds"
	"magicstick.dev/operator/handwritten/adminserver"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/identity/identitytest"
	"magicstick.dev/operator/handwritten/kube"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(controlplanetest.Main(m, controlplanetest.WithCRDs(crds.FS)))
}

// patience bounds every wait; the machine is shared.
const patience = 60 * time.Second

const (
	ada      = "5f0d6a52-0000-4000-8000-00000000000a"
	bob      = "5f0d6a52-0000-4000-8000-00000000000b"
	builders = "9c1e0000-0000-4000-8000-000000000001"
)

// house is a running admin process on a real API server, with a realm.
type house struct {
	t         testing.TB
	namespace string
	client    clientset.Interface
	issuer    *identitytest.Issuer
	server    *adminserver.Server
	options   adminserver.Options
	config    *rest.Config

	ahead atomic.Int64 // how far the process' clock is ahead
	stop  context.CancelFunc
	ended chan error
}

func newHouse(t testing.TB, config *rest.Config) *house {
	t.Helper()
	h := &house{t: t, config: config, issuer: identitytest.New(t), namespace: controlplanetest.Namespace(t, config)}
	var err error
	h.client, err = clientset.NewForConfig(config)
	require.NoError(t, err)
	h.options = adminserver.DefaultOptions()
	h.options.Namespace = h.namespace
	h.options.Tokens.Issuer = identitytest.IssuerURL
	h.options.KeysURL = h.issuer.KeysURL()
	h.options.GuardAddress, h.options.ProbeAddress, h.options.MetricsAddress = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	h.options.DrainDelay = 0
	h.options.Now = func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }
	return h
}

func (h *house) start() { h.startWith(prometheus.NewRegistry()) }

// startWith is start with a registry to read afterwards.
func (h *house) startWith(registry *prometheus.Registry) {
	h.t.Helper()
	server, err := adminserver.New(h.config, h.options, registry, slog.New(slog.NewTextHandler(io.Discard, nil)))
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	h.server, h.stop, h.ended = server, cancel, make(chan error, 1)
	go func() { h.ended <- server.Run(ctx) }()
	h.t.Cleanup(cancel)
}

func (h *house) create(name string, change func(*appliancev1alpha1.AppInstanceSpec)) *appliancev1alpha1.AppInstance {
	h.t.Helper()
	object := &appliancev1alpha1.AppInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: h.namespace},
		Spec:       appliancev1alpha1.AppInstanceSpec{Application: "openclaw"},
	}
	if change != nil {
		change(&object.Spec)
	}
	created, err := h.client.ApplianceV1alpha1().AppInstances(h.namespace).Create(context.Background(), object, metav1.CreateOptions{})
	require.NoError(h.t, err)
	return created
}

func (h *house) change(name string, change func(*appliancev1alpha1.AppInstance)) {
	h.t.Helper()
	api := h.client.ApplianceV1alpha1().AppInstances(h.namespace)
	object, err := api.Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(h.t, err)
	change(object)
	_, err = api.Update(context.Background(), object, metav1.UpdateOptions{})
	require.NoError(h.t, err)
}

func (h *house) token(user string, roles, groups []string) string {
	return h.issuer.Token(h.t, identitytest.Claims(h.options.Now(), user, roles, groups, nil))
}

// ask is one check as the gateway sends it.
func (h *house) ask(instance, mode, token string) int {
	path := kube.GuardRequest{Namespace: h.namespace, Instance: instance, Authentication: mode}.Path()
	request, err := http.NewRequest(http.MethodGet, "http://"+h.server.Addr("guard")+path+"/index.html?a=b", nil)
	if err != nil {
		return 0
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || len(body) > 0 {
		return -1
	}
	return response.StatusCode
}

func (h *house) eventually(want int, instance, mode, token string) {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return h.ask(instance, mode, token) == want }, patience, 2*time.Millisecond,
		"%s/%s never answers %d, last %d", instance, mode, want, h.ask(instance, mode, token))
}

func (h *house) probe(part, path string) (int, string) {
	response, err := http.Get("http://" + h.server.Addr(part) + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

func (h *house) ready() {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		code, text := h.probe("probes", "/readyz")
		return code == http.StatusOK && strings.Contains(text, "keys: ok")
	}, patience, 5*time.Millisecond)
}

// TestGuard_follows_the_life_of_an_instance: each change at the API server
// reaches the answers, and defaults are those that the API server writes.
func TestGuard_follows_the_life_of_an_instance(t *testing.T) {
	h := newHouse(t, controlplanetest.Shared(t))
	h.start()
	h.ready()
	user := h.token(ada, []string{"magicstick-user"}, []string{builders})
	assert.Equal(t, 403, h.ask("openclaw-demo", "sso", user), "before it exists")

	h.create("openclaw-demo", nil)
	h.eventually(200, "openclaw-demo", "sso", user)
	assert.Equal(t, 403, h.ask("openclaw-demo", "sso", ""), "without a token")
	assert.Equal(t, 403, h.ask("openclaw-demo", "none", ""), "policy for another mode")

	set := func(access *appliancev1alpha1.AppInstanceSpecAccess) {
		h.change("openclaw-demo", func(i *appliancev1alpha1.AppInstance) { i.Spec.Access = access })
	}
	set(&appliancev1alpha1.AppInstanceSpecAccess{Role: "viewer"})
	h.eventually(403, "openclaw-demo", "sso", user)
	set(&appliancev1alpha1.AppInstanceSpecAccess{Sharing: &appliancev1alpha1.AppInstanceSpecAccessSharing{Mode: "selected", Users: []string{ada}}})
	h.eventually(200, "openclaw-demo", "sso", user)
	set(&appliancev1alpha1.AppInstanceSpecAccess{Sharing: &appliancev1alpha1.AppInstanceSpecAccessSharing{Mode: "selected", Users: []string{bob}}})
	h.eventually(403, "openclaw-demo", "sso", user)
	set(&appliancev1alpha1.AppInstanceSpecAccess{Sharing: &appliancev1alpha1.AppInstanceSpecAccessSharing{Mode: "selected", Groups: []string{builders}}})
	h.eventually(200, "openclaw-demo", "sso", user)
	set(&appliancev1alpha1.AppInstanceSpecAccess{Sharing: &appliancev1alpha1.AppInstanceSpecAccessSharing{Mode: "selected"}})
	h.eventually(403, "openclaw-demo", "sso", user)
	set(&appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"})
	h.eventually(200, "openclaw-demo", "none", "")
	assert.Equal(t, 403, h.ask("openclaw-demo", "sso", user), "the old policy no longer fits")
	set(nil)
	h.eventually(200, "openclaw-demo", "sso", user)
	assert.Equal(t, 403, h.ask("openclaw-demo", "none", ""))

	h.change("openclaw-demo", func(i *appliancev1alpha1.AppInstance) { i.Spec.Enabled = ptr.To(false) })
	h.eventually(403, "openclaw-demo", "sso", user)
	h.change("openclaw-demo", func(i *appliancev1alpha1.AppInstance) {
		i.Spec.Enabled = ptr.To(true)
		i.Finalizers = []string{"appliance.magicstick.dev/appinstance-cleanup"}
	})
	h.eventually(200, "openclaw-demo", "sso", user)
	require.NoError(t, h.client.ApplianceV1alpha1().AppInstances(h.namespace).Delete(t.Context(), "openclaw-demo", metav1.DeleteOptions{}))
	h.eventually(403, "openclaw-demo", "sso", user)
	_, err := h.client.ApplianceV1alpha1().AppInstances(h.namespace).Get(t.Context(), "openclaw-demo", metav1.GetOptions{})
	require.NoError(t, err, "it is denied while it is still being removed")
}

// TestGuard_knows_its_own_namespace_only: an instance elsewhere opens nothing.
func TestGuard_knows_its_own_namespace_only(t *testing.T) {
	config := controlplanetest.Shared(t)
	here, elsewhere := newHouse(t, config), newHouse(t, config)
	elsewhere.create("openclaw-demo", func(s *appliancev1alpha1.AppInstanceSpec) {
		s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}
	})
	here.create("openclaw-ready", func(s *appliancev1alpha1.AppInstanceSpec) {
		s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}
	})
	here.start()
	here.eventually(200, "openclaw-ready", "none", "")
	assert.Equal(t, 403, here.ask("openclaw-demo", "none", ""))
	here.namespace = elsewhere.namespace
	assert.Equal(t, 403, here.ask("openclaw-demo", "none", ""))
}

// TestGuard_denies_until_its_cache_is_filled: the API server is not there when
// the process starts, and comes later.
func TestGuard_denies_until_its_cache_is_filled(t *testing.T) {
	config := controlplanetest.Shared(t)
	h := newHouse(t, config)
	h.create("open", func(s *appliancev1alpha1.AppInstanceSpec) {
		s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}
	})
	var reachable atomic.Bool
	h.config = rest.CopyConfig(config)
	h.config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !reachable.Load() {
			return nil, fmt.Errorf("dial %s: the cable is cut", network)
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	h.start()
	require.Eventually(t, func() bool { code, _ := h.probe("probes", "/healthz"); return code == 200 }, patience, time.Millisecond)
	for range 20 {
		require.Equal(t, 403, h.ask("open", "none", ""))
		time.Sleep(10 * time.Millisecond)
	}
	code, text := h.probe("probes", "/readyz")
	assert.Equal(t, 503, code)
	assert.Contains(t, text, "have not been listed yet")
	reachable.Store(true)
	h.eventually(200, "open", "none", "")
	h.ready()
}

// TestGuard_denies_when_the_API_server_is_silent_for_too_long: what was true five
// minutes ago opens nothing; one word from the API server and it opens again.
func TestGuard_denies_when_the_API_server_is_silent_for_too_long(t *testing.T) {
	h := newHouse(t, controlplanetest.Shared(t))
	h.create("open", func(s *appliancev1alpha1.AppInstanceSpec) {
		s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}
	})
	h.start()
	h.eventually(200, "open", "none", "")
	h.ahead.Add(int64(h.options.MaxCacheAge + 2*time.Minute))
	assert.Equal(t, 403, h.ask("open", "none", ""))
	code, text := h.probe("probes", "/readyz")
	assert.Equal(t, 503, code)
	assert.Contains(t, text, "has not been heard from for 7m")
	h.create("another", nil)
	h.eventually(200, "open", "none", "")
}

// TestGuard_learns_again_after_an_outage: connections are cut, an instance is
// closed meanwhile, and the first thing the process learns is that.
func TestGuard_learns_again_after_an_outage(t *testing.T) {
	config := controlplanetest.Shared(t)
	h := newHouse(t, config)
	open := func(s *appliancev1alpha1.AppInstanceSpec) {
		s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}
	}
	h.create("closed-meanwhile", open)
	h.create("deleted-meanwhile", open)
	h.create("untouched", open)
	cable := &cable{}
	h.config = rest.CopyConfig(config)
	h.config.Dial = cable.dial
	h.start()
	for _, name := range []string{"closed-meanwhile", "deleted-meanwhile", "untouched"} {
		h.eventually(200, name, "none", "")
	}
	cable.cut()
	h.change("closed-meanwhile", func(i *appliancev1alpha1.AppInstance) { i.Spec.Access.Authentication = "sso" })
	require.NoError(t, h.client.ApplianceV1alpha1().AppInstances(h.namespace).Delete(t.Context(), "deleted-meanwhile", metav1.DeleteOptions{}))
	cable.mend()
	h.eventually(403, "closed-meanwhile", "none", "")
	h.eventually(403, "deleted-meanwhile", "none", "")
	assert.Equal(t, 200, h.ask("untouched", "none", ""))
}

// TestServer_ends_in_order: not ready at once, answering for the drain, no
// connection cut under a check, ports closed.
func TestServer_ends_in_order(t *testing.T) {
	h := newHouse(t, controlplanetest.Shared(t))
	h.options.DrainDelay = 1500 * time.Millisecond
	h.create("open", func(s *appliancev1alpha1.AppInstanceSpec) {
		s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}
	})
	h.start()
	h.ready()
	h.eventually(200, "open", "none", "")
	h.stop()
	require.Eventually(t, func() bool {
		code, text := h.probe("probes", "/readyz")
		return code == 503 && strings.Contains(text, "ending")
	}, patience, time.Millisecond)
	response, err := http.Get("http://" + h.server.Addr("guard") + kube.GuardRequest{Namespace: h.namespace, Instance: "open", Authentication: "none"}.Path())
	require.NoError(t, err)
	defer response.Body.Close()
	assert.Equal(t, 200, response.StatusCode, "still answering")
	assert.True(t, response.Close, "and asking the gateway to come on another connection")
	select {
	case err := <-h.ended:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	_, err = net.DialTimeout("tcp", h.server.Addr("guard"), time.Second)
	assert.Error(t, err)
}

// TestServer_parts_stay_apart: the guard's port serves the guard alone.
func TestServer_parts_stay_apart(t *testing.T) {
	h := newHouse(t, controlplanetest.Shared(t))
	h.create("open", func(s *appliancev1alpha1.AppInstanceSpec) {
		s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}
	})
	h.start()
	h.ready()
	h.eventually(200, "open", "none", "")
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/"} {
		code, text := h.probe("guard", path)
		assert.Equal(t, 403, code, path)
		assert.Empty(t, text)
	}
	code, text := h.probe("metrics", "/metrics")
	assert.Equal(t, 200, code)
	assert.Contains(t, text, `magicstick_guard_decisions_total{outcome="allow",reason="Public"}`)
	code, _ = h.probe("metrics", "/guard/x/open/none")
	assert.Equal(t, 404, code)
	connection, err := net.Dial("tcp", h.server.Addr("guard"))
	require.NoError(t, err)
	defer connection.Close()
	require.NoError(t, connection.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(connection, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(connection)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(answer), "HTTP/1.1 403 "), "%s", answer)
}

// TestServer_stays_ready_without_keys: open instances go on, people who sign in
// are denied, and the probe says why.
func TestServer_stays_ready_without_keys(t *testing.T) {
	h := newHouse(t, controlplanetest.Shared(t))
	h.issuer.SetMode(identitytest.HTML)
	h.create("open", func(s *appliancev1alpha1.AppInstanceSpec) {
		s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}
	})
	h.create("closed", nil)
	h.start()
	h.eventually(200, "open", "none", "")
	assert.Equal(t, 403, h.ask("closed", "sso", h.token(ada, []string{"magicstick-admin"}, nil)))
	code, text := h.probe("probes", "/readyz")
	assert.Equal(t, 200, code)
	assert.Contains(t, text, "keys: not available")
}

func TestNew_says_what_is_wrong(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for name, test := range map[string]struct {
		change func(*adminserver.Options)
		want   string
	}{
		"no issuer":        {func(o *adminserver.Options) { o.Tokens.Issuer = "" }, "issuer"},
		"namespace":        {func(o *adminserver.Options) { o.Namespace = "AI System" }, `namespace "AI System"`},
		"cache age":        {func(o *adminserver.Options) { o.MaxCacheAge = time.Minute }, "age of the cache 1m0s"},
		"guard switched":   {func(o *adminserver.Options) { o.GuardAddress = "0" }, "guard address"},
		"probe address":    {func(o *adminserver.Options) { o.ProbeAddress = "8081" }, `probe address "8081"`},
		"negative time":    {func(o *adminserver.Options) { o.DrainDelay = -1 }, "drain delay"},
		"keys URL":         {func(o *adminserver.Options) { o.KeysURL = "keycloak:8080/certs" }, "keys"},
		"port is taken":    {func(o *adminserver.Options) { o.GuardAddress = taken.Addr().String() }, "port of guard"},
		"no clock":         {func(o *adminserver.Options) { o.Now = nil }, "clock"},
		"metrics is taken": {func(o *adminserver.Options) { o.MetricsAddress = taken.Addr().String() }, "port of metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			options := adminserver.DefaultOptions()
			options.Tokens.Issuer = identitytest.IssuerURL
			options.GuardAddress, options.ProbeAddress, options.MetricsAddress = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
			test.change(&options)
			_, err := adminserver.New(&rest.Config{Host: "127.0.0.1:1"}, options, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(io.Discard, nil)))
			assert.ErrorContains(t, err, test.want)
		})
	}
}
