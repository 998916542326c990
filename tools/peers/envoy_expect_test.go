//go:build peers

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"magicstick.dev/operator/handwritten/kube"
)

// signIn is what a request passes on a route with single sign-on, in this
// order: whoever has no session is sent to sign in before the guard is asked,
// and the guard sees the token that oauth2 put into Authorization.
var signIn = []string{"oauth2", "jwt_authn", "ext_authz", "rbac", "router"}

// told waits until the proxies have been told something.
func (e *edge) told(what string, check func(*wire) error) {
	e.t.Helper()
	e.eventually(what, func(ctx context.Context) error {
		w, err := e.wire(ctx)
		if err != nil {
			return err
		}
		return check(w)
	})
}

// guarded waits until the proxies lead a host to a backend through exactly
// these filters, and ask the guard about the right instance on the way.
func (e *edge) guarded(name, host string, filters []string, path string) {
	e.t.Helper()
	e.told(name+" is guarded in the proxies", func(w *wire) error {
		route, err := w.route(name)
		if err != nil {
			return err
		}
		if route.Route == nil || route.DirectResponse != nil || !slices.Equal(route.domains, []string{host}) {
			return fmt.Errorf("it does not lead %s anywhere: %+v", host, route)
		}
		chain, err := w.chain(route)
		if err != nil {
			return err
		}
		if !slices.Equal(chain, filters) {
			return fmt.Errorf("its filters are %q, want %q", chain, filters)
		}
		check, err := w.guard(route)
		if err != nil {
			return err
		}
		if check.PathOverride != path || check.ServerURI.URI != fmt.Sprintf("http://%s.%s:%d%s", kube.GuardService, kube.GuardNamespace, kube.GuardPort, path) {
			return fmt.Errorf("it asks %+v", check)
		}
		return nil
	})
}

// refused waits until the proxies answer 500 by themselves, whoever asks.
func (e *edge) refused(names ...string) {
	e.t.Helper()
	e.told(fmt.Sprintf("the proxies refuse %s", names), func(w *wire) error {
		for _, name := range names {
			route, err := w.route(name)
			if err != nil {
				return err
			}
			if route.Route != nil || route.DirectResponse == nil || route.DirectResponse.Status != 500 {
				return fmt.Errorf("%s: %+v", name, route)
			}
		}
		return nil
	})
}

// reopened waits until the demo is open again, and checks that the routes were
// shut after the change in between.
func (e *edge) reopened(after int64, routes ...string) {
	e.t.Helper()
	e.eventually("the routes were shut", func(context.Context) error {
		for _, route := range routes {
			if !e.changes.wasShut(route, after) {
				return fmt.Errorf("%s was not", route)
			}
		}
		return nil
	})
	e.open(demo, demoRoutes...)
	assert.Empty(e.t, accepted(e.policy(demoPolicy)))
}

// patch changes a policy as a person does with kubectl.
func (e *edge) patch(policy, text string) {
	e.t.Helper()
	object := &envoyv1alpha1.SecurityPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: kube.GuardNamespace, Name: policy}}
	require.NoError(e.t, e.Patch(e.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text)), client.FieldOwner("a-person")))
}

// keepInSecret leaves the client's secret under one key only.
func (e *edge) keepInSecret(key string) {
	e.t.Helper()
	secret := e.clientSecret()
	secret.Data = map[string][]byte{key: []byte("only-for-this-test")}
	require.NoError(e.t, e.Update(e.t.Context(), secret))
}

// aSecondAfter waits until an object is older than whatever is made from now
// on: the API server writes down whole seconds, and of two policies of one
// second Envoy Gateway takes the first in the alphabet for the older.
func (e *edge) aSecondAfter(object client.Object) {
	e.t.Helper()
	time.Sleep(time.Until(object.GetCreationTimestamp().Add(time.Second + 100*time.Millisecond)))
}

func plainService(namespace, name string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: port}}},
	}
}
