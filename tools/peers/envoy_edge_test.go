//go:build peers

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	envoygateway "github.com/envoyproxy/gateway"
	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/controlplane"
	"magicstick.dev/operator/handwritten/controlplane/child"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/operator"
)

const (
	envoyNamespace = "envoy-gateway-system"
	controllerName = "gateway.envoyproxy.io/gatewayclass-controller"
	gatewayName    = "identity-pilot"
	clientSecret   = "magicstick-human-gateway-client" // #nosec G101 -- the name of a Secret.
	// proxyPort is where Envoy Gateway serves its proxies; it cannot be moved.
	proxyPort = "18000"
)

// edge is a cluster with our operator, the appliance's Gateway and, when it is
// started, Envoy Gateway. Nothing else runs: no proxy, no application, no Keycloak.
type edge struct {
	*appliance

	plane       *controlplane.ControlPlane
	binary, dir string
	controller  *child.Process
	changes     *changes
}

func startEdge(t *testing.T) *edge {
	t.Helper()
	binary, err := controlplane.FindPeer("envoy-gateway")
	require.NoError(t, err)
	plane := controlplanetest.StartControlPlane(t, controlplanetest.WithControllerManager(),
		controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, fstest.MapFS{"envoy-gateway.yaml": {Data: envoygateway.GatewayCRDs}}))
	scheme, err := operator.Scheme()
	require.NoError(t, err)
	require.NoError(t, envoyv1alpha1.AddToScheme(scheme))
	require.NoError(t, gatewayv1.Install(scheme))
	e := &edge{appliance: &appliance{t: t, Client: newClient(t, plane, scheme)}, plane: plane, binary: binary, dir: t.TempDir()}
	for _, name := range []string{"ai-system", "ai", "flux-system", kube.GuardNamespace, envoyNamespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == kube.GuardNamespace {
			namespace.Labels = map[string]string{"gateway.magicstick.dev/route-access": "true"}
		}
		e.create(namespace)
	}
	for _, configMap := range catalogs.ShippedConfigMaps() {
		if configMap.Name == operator.DefaultOptions().ApplicationCatalog.Name {
			withoutRequirements(t, configMap)
		}
		e.create(configMap)
	}
	e.serve(kube.GuardNamespace, kube.GuardService, kube.GuardPort)
	e.serve(kube.GuardNamespace, "keycloak", 8080)
	e.create(e.clientSecret())
	e.gateway()
	e.certificates()
	e.changes = e.record(scheme)
	e.startOperator(func() *rest.Config { return plane.RESTConfig() })
	return e
}

// withoutRequirements makes every application installable at once: modules are
// another test's subject.
func withoutRequirements(t *testing.T, configMap *corev1.ConfigMap) {
	t.Helper()
	for key, text := range configMap.Data {
		var catalog map[string]map[string]map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &catalog))
		for _, application := range catalog["applications"] {
			application["requiredModules"] = []string{}
			delete(application, "requiredCrds")
		}
		changed, err := json.Marshal(catalog)
		require.NoError(t, err)
		configMap.Data[key] = string(changed)
	}
}

func (e *edge) create(object client.Object) {
	e.t.Helper()
	require.NoError(e.t, e.Create(e.t.Context(), object))
}

func (e *edge) remove(object client.Object) {
	e.t.Helper()
	require.NoError(e.t, e.Delete(e.t.Context(), object))
}

// serve makes a Service with a Pod behind it, as far as the gateway can see:
// it refuses policies that name a Service without any endpoint, ready or not.
func (e *edge) serve(namespace, name string, port int32) {
	e.t.Helper()
	e.create(plainService(namespace, name, port))
	e.create(&discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(port), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints:   endpoints(true),
	})
}

// pods says whether there are Pods behind a Service.
func (e *edge) pods(namespace, name string, some bool) {
	e.t.Helper()
	slice := &discoveryv1.EndpointSlice{}
	require.NoError(e.t, e.Get(e.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, slice))
	slice.Endpoints = endpoints(some)
	require.NoError(e.t, e.Update(e.t.Context(), slice))
}

func endpoints(some bool) []discoveryv1.Endpoint {
	if !some {
		return []discoveryv1.Endpoint{}
	}
	return []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}}
}

func (e *edge) clientSecret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.GuardNamespace, Name: clientSecret},
		Data:       map[string][]byte{"client-secret": []byte("only-for-this-test")},
	}
}

// gateway makes the appliance's Gateway (contract/appliance.md F.2).
func (e *edge) gateway() {
	e.t.Helper()
	e.create(&envoyv1alpha1.EnvoyProxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.GuardNamespace, Name: "magicstick"},
		Spec: envoyv1alpha1.EnvoyProxySpec{FilterOrder: []envoyv1alpha1.FilterPosition{
			{Name: envoyv1alpha1.EnvoyFilterExtAuthz, After: ptr.To(envoyv1alpha1.EnvoyFilterJWTAuthn)},
		}},
	})
	e.create(&gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: "magicstick-envoy"},
		Spec: gatewayv1.GatewayClassSpec{
			ControllerName: controllerName,
			ParametersRef: &gatewayv1.ParametersReference{
				Group: envoyv1alpha1.GroupName, Kind: "EnvoyProxy", Name: "magicstick", Namespace: ptr.To(gatewayv1.Namespace(kube.GuardNamespace)),
			},
		},
	})
	allowed := &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{
		From:     ptr.To(gatewayv1.NamespacesFromSelector),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"gateway.magicstick.dev/route-access": "true"}},
	}}
	e.create(&gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.GuardNamespace, Name: gatewayName},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "magicstick-envoy",
			Listeners: []gatewayv1.Listener{
				{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType, AllowedRoutes: allowed},
				{
					Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, AllowedRoutes: allowed,
					TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "identity-pilot-tls"}}},
				},
			},
		},
	})
	e.create(&gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.GuardNamespace, Name: "redirect"},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: gatewayName, SectionName: ptr.To(gatewayv1.SectionName("http"))}}},
			Rules: []gatewayv1.HTTPRouteRule{{Filters: []gatewayv1.HTTPRouteFilter{{
				Type:            gatewayv1.HTTPRouteFilterRequestRedirect,
				RequestRedirect: &gatewayv1.HTTPRequestRedirectFilter{Scheme: ptr.To("https"), StatusCode: ptr.To(301)},
			}}}},
		},
	})
}

// certificates makes Envoy Gateway's certificates with its own command, and
// writes them where a cluster would mount them.
func (e *edge) certificates() {
	e.t.Helper()
	command := exec.CommandContext(e.t.Context(), e.binary, "certgen", "--disable-topology-injector")
	command.Env = append(os.Environ(), "KUBECONFIG="+e.plane.KubeconfigPath())
	output, err := command.CombinedOutput()
	require.NoError(e.t, err, "%s", output)
	for _, name := range []string{"envoy-gateway", "envoy"} {
		secret := &corev1.Secret{}
		require.NoError(e.t, e.Get(e.t.Context(), client.ObjectKey{Namespace: envoyNamespace, Name: name}, secret))
		require.NoError(e.t, os.Mkdir(filepath.Join(e.dir, name), 0o700))
		for file, data := range secret.Data {
			require.NoError(e.t, os.WriteFile(filepath.Join(e.dir, name, file), data, 0o600))
		}
		if name == "envoy" { // any certificate does for the listener
			e.create(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: kube.GuardNamespace, Name: "identity-pilot-tls"}, Type: corev1.SecretTypeTLS,
				Data: map[string][]byte{"tls.crt": secret.Data["tls.crt"], "tls.key": secret.Data["tls.key"]},
			})
		}
	}
}

// startController starts Envoy Gateway and waits until it serves.
func (e *edge) startController() {
	e.t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(e.t.Context(), "tcp", "127.0.0.1:"+proxyPort)
	require.NoError(e.t, err, "Envoy Gateway can serve its proxies on this port only")
	require.NoError(e.t, listener.Close())
	listener, err = config.Listen(e.t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(e.t, err)
	admin := listener.Addr().(*net.TCPAddr).Port
	require.NoError(e.t, listener.Close())

	path := filepath.Join(e.dir, "envoy-gateway.yaml")
	require.NoError(e.t, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: %s}
admin: {address: {host: 127.0.0.1, port: %d}}
telemetry: {metrics: {prometheus: {disable: true}}}
provider:
  type: Kubernetes
  kubernetes:
    leaderElection: {disable: true}
    topologyInjector: {disable: true}
`, controllerName, admin), 0o600))
	log := filepath.Join(e.dir, "envoy-gateway.log")
	e.controller, err = child.Start(child.Spec{
		Name: "envoy-gateway", Path: e.binary, Dir: e.dir, LogFile: log,
		Args: []string{"--certificates", filepath.Join(e.dir, "envoy-gateway"), "server", "--config-path", path},
		Env:  []string{"KUBECONFIG=" + e.plane.KubeconfigPath(), "ENVOY_GATEWAY_NAMESPACE=" + envoyNamespace, "TMPDIR=" + e.dir},
	})
	require.NoError(e.t, err)
	controller := e.controller
	e.t.Cleanup(func() {
		assert.NoError(e.t, controller.Stop(10*time.Second))
		if text, err := os.ReadFile(log); err == nil && e.t.Failed() {
			e.t.Logf("the end of Envoy Gateway's log:\n%s", text[max(0, len(text)-8<<10):])
		}
	})
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	require.NoError(e.t, controller.WaitReady(ctx, child.HTTPProbe(fmt.Sprintf("http://127.0.0.1:%d/api/info", admin), nil)))
}

// instance gives a team an application, as a person does.
func (e *edge) instance(name, application string, edit func(*appliancev1alpha1.AppInstance)) {
	e.t.Helper()
	instance := &appliancev1alpha1.AppInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ai-system", Name: name}}
	instance.Spec.Application = application
	if edit != nil {
		edit(instance)
	}
	e.create(instance)
}

func (e *edge) change(name string, edit func(*appliancev1alpha1.AppInstance)) {
	e.t.Helper()
	e.eventually("the change of "+name+" is written", func(ctx context.Context) error {
		instance, err := e.look(ctx, name)
		if err != nil {
			return err
		}
		edit(instance)
		return e.Update(ctx, instance)
	})
}

func (e *edge) look(ctx context.Context, name string) (*appliancev1alpha1.AppInstance, error) {
	instance := &appliancev1alpha1.AppInstance{}
	return instance, e.Get(ctx, client.ObjectKey{Namespace: "ai-system", Name: name}, instance)
}

// installed plays helm-controller: the application's Service is there and the
// release says that it is ready.
func (e *edge) installed(name, service string, port int32) {
	e.t.Helper()
	e.serve("ai", service, port)
	e.eventually("the release "+name+" is ready", func(ctx context.Context) error {
		release := &helmv2.HelmRelease{}
		if err := e.Get(ctx, client.ObjectKey{Namespace: "ai-system", Name: name}, release); err != nil {
			return err
		}
		release.Status.ObservedGeneration = release.Generation
		apimeta.SetStatusCondition(&release.Status.Conditions, metav1.Condition{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "InstallSucceeded", ObservedGeneration: release.Generation,
		})
		return e.Status().Update(ctx, release)
	})
}

// open waits until the instance says that its guard is ready and all routes lead to it.
func (e *edge) open(name string, routes ...string) {
	e.t.Helper()
	e.eventually(name+" is open", func(ctx context.Context) error {
		instance, err := e.look(ctx, name)
		if err != nil {
			return err
		}
		if !ptr.Deref(instance.Status.AccessGuardReady, false) || instance.Status.Phase != "Ready" ||
			ptr.Deref(instance.Status.ObservedGeneration, 0) != instance.Generation {
			return fmt.Errorf("phase %q, guard ready %t, message %q", instance.Status.Phase,
				ptr.Deref(instance.Status.AccessGuardReady, false), ptr.Deref(instance.Status.Message, ""))
		}
		for _, route := range routes {
			if err := e.routeIs(ctx, route, true); err != nil {
				return err
			}
		}
		return nil
	})
}

// shut waits until the guard is not ready for the reason, and the routes lead nowhere.
func (e *edge) shut(name, words string, routes ...string) {
	e.t.Helper()
	e.eventually(name+" is shut", func(ctx context.Context) error {
		instance, err := e.look(ctx, name)
		if err != nil {
			return err
		}
		message := ptr.Deref(instance.Status.Message, "")
		ready := apimeta.FindStatusCondition(instance.Status.Conditions, "Ready")
		if ptr.Deref(instance.Status.AccessGuardReady, true) || ready == nil || ready.Reason != "WaitingForAccessGuard" {
			return fmt.Errorf("phase %q, guard ready %t, message %q", instance.Status.Phase, ptr.Deref(instance.Status.AccessGuardReady, false), message)
		}
		if !strings.Contains(message, words) {
			return fmt.Errorf("message %q does not say %q", message, words)
		}
		for _, route := range routes {
			if err := e.routeIs(ctx, route, false); err != nil {
				return err
			}
		}
		return nil
	})
}

// routeIs checks that a route leads somewhere or nowhere, and for one that
// leads somewhere that the gateway has accepted it in this form.
func (e *edge) routeIs(ctx context.Context, name string, leading bool) error {
	route := &gatewayv1.HTTPRoute{}
	if err := e.Get(ctx, client.ObjectKey{Namespace: kube.GuardNamespace, Name: name}, route); err != nil {
		return err
	}
	if leads(route) != leading {
		return fmt.Errorf("HTTPRoute %s: leads somewhere %t, want %t", name, leads(route), leading)
	}
	if !leading {
		return nil
	}
	if len(route.Status.Parents) != 1 {
		return fmt.Errorf("HTTPRoute %s has %d answers", name, len(route.Status.Parents))
	}
	for _, condition := range []string{"Accepted", "ResolvedRefs"} {
		found := apimeta.FindStatusCondition(route.Status.Parents[0].Conditions, condition)
		if found == nil || found.Status != metav1.ConditionTrue || found.ObservedGeneration != route.Generation {
			return fmt.Errorf("HTTPRoute %s: %s is %+v", name, condition, found)
		}
	}
	return nil
}

func leads(route *gatewayv1.HTTPRoute) bool {
	for _, rule := range route.Spec.Rules {
		if len(rule.BackendRefs) > 0 {
			return true
		}
	}
	return false
}

func (e *edge) policy(name string) *envoyv1alpha1.SecurityPolicy {
	e.t.Helper()
	policy := &envoyv1alpha1.SecurityPolicy{}
	require.NoError(e.t, e.Get(e.t.Context(), client.ObjectKey{Namespace: kube.GuardNamespace, Name: name}, policy))
	return policy
}
