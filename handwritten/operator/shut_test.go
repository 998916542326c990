package operator_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// Whatever else the API server refuses, a route whose guard is no longer in
// order is shut: neither the grant nor a module to switch on comes before that.
func TestRoutesAreShutWhateverElseFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	gateway := w.gateway()
	w.start()
	w.odysseus()
	instance := w.instance("odysseus-demo", nil)
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")
	require.True(t, leads(w.route("odysseus-demo-local")))

	w.stop()
	grant := &gatewayv1beta1.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{
		Namespace: instance.Spec.TargetNamespace, Name: "odysseus-demo-route-access"}}
	require.NoError(t, w.client.Delete(t.Context(), grant))
	gateway.reject()
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if strings.Contains(request.URL.Path, "/referencegrants/") {
			return answer(request, http.StatusForbidden, metav1.StatusReasonForbidden, "the namespace is being terminated"), nil
		}
		return nil, nil
	})
	w.start()
	w.leadsTo("odysseus-demo-local", false)
	w.leadsTo("odysseus-demo-public", false)
	w.shown("odysseus-demo", "Degraded", "ChangeRefused")
	w.writes.refuse(nil)
	gateway.accept()
	w.leadsTo("odysseus-demo-local", true)
	w.leadsTo("odysseus-demo-public", true)
}
