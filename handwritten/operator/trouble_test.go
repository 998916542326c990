package operator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// What fails is named with its message whatever else is not ready, and is no
// longer named when it has healed: policy, route, namespace, release, module.
func TestFailingChildIsNamedWhateverElseIsNotReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	gateway := w.gateway()
	w.start()
	w.odysseus()
	w.instance("odysseus-demo", nil)
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")
	says := func(phase appliancev1alpha1.AppInstanceStatusPhase, reason string, words ...string) {
		t.Helper()
		w.eventually(func() string {
			instance := w.shown("odysseus-demo", phase, reason)
			for _, text := range words {
				if word, silent := strings.CutPrefix(text, "not "); strings.Contains(*instance.Status.Message, word) == silent {
					return *instance.Status.Message + "; want " + text
				}
			}
			return ""
		})
	}
	refused := "SecurityPolicy " + w.options.IdentityNamespace + "/odysseus-demo-local-sso is not accepted by the gateway: Invalid: The gateway says Invalid"

	// Flux is at work and the gateway refuses the policies.
	w.helm("odysseus-demo", metav1.ConditionUnknown, "Progressing", "Running 'upgrade' action")
	says("Reconciling", "Progressing", "Running 'upgrade' action")
	gateway.reject()
	says("Reconciling", "WaitingForAccessGuard", refused, "Running 'upgrade' action")
	w.helm("odysseus-demo", metav1.ConditionFalse, "UpgradeFailed", "the disk is full")
	says("Degraded", "UpgradeFailed", "the disk is full", refused)
	w.flux("app-litellm", metav1.ConditionFalse, "BuildFailed", "no such path")
	says("WaitingForModules", "WaitingForModules", "litellm (Degraded", "no such path", refused, "the disk is full")
	w.odysseusReady()
	gateway.accept()
	says("Degraded", "UpgradeFailed", "the disk is full", "not SecurityPolicy")

	// A route that the gateway refuses.
	w.helm("odysseus-demo", metav1.ConditionUnknown, "Progressing", "Running 'upgrade' action")
	w.leadsTo("odysseus-demo-local", true)
	w.judgeRoute("odysseus-demo-local", metav1.ConditionFalse)
	says("Degraded", "RouteNotAccepted", "HTTPRoute "+w.options.IdentityNamespace+"/odysseus-demo-local is refused by the gateway: NotAllowedByListeners: No listener takes it", "Running 'upgrade' action")
	w.judgeRoute("odysseus-demo-local", metav1.ConditionTrue)
	says("Reconciling", "Progressing", "not HTTPRoute")

	// The namespace goes away. Without a controller of namespaces it stays so.
	require.NoError(t, w.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.apps()}}))
	says("Reconciling", "WaitingForNamespace", "Namespace "+w.apps()+" is being deleted", "Running 'upgrade' action")
}

// judgeRoute lets the gateway accept or refuse a route as it is.
func (w *world) judgeRoute(name string, accepted metav1.ConditionStatus) {
	w.t.Helper()
	w.eventually(func() string {
		route := w.route(name)
		route.Status.Parents = []gatewayv1.RouteParentStatus{{
			ParentRef:      gatewayv1.ParentReference{Name: gatewayv1.ObjectName(w.options.Gateway)},
			ControllerName: "gateway.envoyproxy.io/gatewayclass-controller",
			Conditions: []metav1.Condition{{
				Type: "Accepted", Status: accepted, Reason: "NotAllowedByListeners", Message: "No listener takes it.",
				ObservedGeneration: route.Generation, LastTransitionTime: metav1.NewTime(time.Now()),
			}},
		}}
		if err := w.client.Status().Update(w.t.Context(), route); err != nil {
			return err.Error()
		}
		return ""
	})
}

// A module that Flux merely looks at again does not take a running instance back
// to where it waits; one that fails does.
func TestRunningInstanceToleratesModulesThatAreLookedAtAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.gateway()
	w.start()
	w.odysseus()
	w.instance("odysseus-demo", nil)
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")

	w.flux("app-litellm", metav1.ConditionUnknown, "Progressing", "Reconciliation in progress")
	w.module("litellm", "Reconciling", "WaitingForKustomization")
	// A pass that has surely seen this changes nothing of the phase.
	w.edit("odysseus-demo", func(i *appliancev1alpha1.AppInstance) {
		i.Spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{Role: "viewer"}
	})
	w.eventually(func() string {
		instance := &appliancev1alpha1.AppInstance{}
		require.True(t, w.get(instance, "odysseus-demo"))
		require.NotEqual(t, "WaitingForModules", string(instance.Status.Phase))
		if instance.Status.Phase != "Ready" || *instance.Status.ObservedGeneration != instance.Generation || instance.Status.RequiredRole != "viewer" {
			return show(instance.Status)
		}
		return ""
	})
	w.flux("app-litellm", metav1.ConditionFalse, "BuildFailed", "no such path")
	w.shown("odysseus-demo", "WaitingForModules", "WaitingForModules")
	w.flux("app-litellm", metav1.ConditionUnknown, "Progressing", "Reconciliation in progress")
	w.module("litellm", "Reconciling", "WaitingForKustomization")
	w.shown("odysseus-demo", "WaitingForModules", "WaitingForModules")
	w.odysseusReady()
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")
}

// A required module that cannot be switched on is named with what stands in its
// way, and goes on when that is gone.
func TestNameOfARequiredModuleIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.gateway()
	w.start()
	w.static("infrastructure-basis", metav1.ConditionTrue)
	squatter := activation("paperclip-operator")
	squatter.Name = "litellm"
	w.create(squatter)
	w.instance("odysseus-demo", nil)
	w.eventually(func() string {
		instance := w.shown("odysseus-demo", "WaitingForModules", "WaitingForModules")
		if message := *instance.Status.Message; !strings.Contains(message, "litellm (cannot be switched on: ModuleActivation litellm exists but is for module paperclip-operator; delete it") {
			return message
		}
		return ""
	})
	require.NoError(t, w.client.Delete(t.Context(), squatter))
	w.eventually(func() string {
		found := &appliancev1alpha1.ModuleActivation{}
		if !w.get(found, "litellm") || found.Spec.Module != "litellm" {
			return "litellm was not switched on"
		}
		return ""
	})
}

// The namespaces of the platform are refused under the names of the installation, too.
func TestInstanceInANamespaceOfThePlatform(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.gateway()
	w.start()
	w.odysseus()
	for name, namespace := range map[string]string{
		"odysseus-a": w.options.Appliance.Namespace, "odysseus-b": w.options.FluxNamespace, "odysseus-c": w.options.IdentityNamespace,
	} {
		w.instance(name, func(i *appliancev1alpha1.AppInstance) { i.Spec.TargetNamespace = namespace })
		refused := w.shown(name, "Degraded", "InvalidTargetNamespace")
		require.Contains(t, *refused.Status.Message, "targetNamespace: "+namespace)
		require.Nil(t, refused.Status.URL)
		require.Equal(t, ptr.To(false), refused.Status.AccessGuardReady)
	}
	w.count(0, 0, 0)
}
