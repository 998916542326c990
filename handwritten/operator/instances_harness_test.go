package operator_test

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

// apps is the namespace that instances run in.
func (w *world) apps() string {
	w.t.Helper()
	name := w.options.Appliance.Namespace + "-apps"
	err := w.client.Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	require.NoError(w.t, client.IgnoreAlreadyExists(err))
	return name
}

// instance of an application that needs no CRD of its own.
func (w *world) instance(name string, edit func(*appliancev1alpha1.AppInstance)) *appliancev1alpha1.AppInstance {
	w.t.Helper()
	instance := &appliancev1alpha1.AppInstance{ObjectMeta: metav1.ObjectMeta{Name: name}}
	instance.Spec.Application, instance.Spec.TargetNamespace = "odysseus", w.apps()
	if edit != nil {
		edit(instance)
	}
	w.create(instance)
	return instance
}

// odysseus makes the modules ready that the application odysseus requires.
func (w *world) odysseus() {
	w.t.Helper()
	w.static("infrastructure-basis", metav1.ConditionTrue)
	for _, module := range []string{"litellm", "model-catalog", "odysseus"} {
		w.create(activation(module))
	}
	w.odysseusReady()
}

func (w *world) odysseusReady() {
	w.t.Helper()
	for _, kustomization := range []string{"app-litellm", "app-model-catalog", "app-odysseus"} {
		w.kustomization(kustomization, running)
		w.flux(kustomization, metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	}
}

// shown waits until an instance has the phase and the reason, and returns it.
func (w *world) shown(name string, phase appliancev1alpha1.AppInstanceStatusPhase, reason string) *appliancev1alpha1.AppInstance {
	w.t.Helper()
	found := &appliancev1alpha1.AppInstance{}
	w.eventually(func() string {
		found = &appliancev1alpha1.AppInstance{}
		if !w.get(found, name) {
			return "AppInstance " + name + " does not exist"
		}
		condition := meta.FindStatusCondition(found.Status.Conditions, "Ready")
		if condition == nil || found.Status.Phase != phase || condition.Reason != reason || condition.ObservedGeneration != found.Generation {
			return fmt.Sprintf("AppInstance %s: want %s/%s, have %s %s", name, phase, reason, found.Status.Phase, show(found.Status.Conditions))
		}
		return ""
	})
	return found
}

// helm plays helm-controller for one release.
func (w *world) helm(name string, status metav1.ConditionStatus, reason, message string) {
	w.t.Helper()
	w.eventually(func() string {
		release := &helmv2.HelmRelease{}
		if !w.get(release, name) {
			return "HelmRelease " + name + " does not exist"
		}
		release.Status.ObservedGeneration = release.Generation
		meta.SetStatusCondition(&release.Status.Conditions, metav1.Condition{
			Type: "Ready", Status: status, Reason: reason, Message: message, ObservedGeneration: release.Generation,
		})
		if err := w.client.Status().Update(w.t.Context(), release); err != nil {
			return err.Error()
		}
		return ""
	})
}

// gatewayPlayer plays the gateway: it answers every policy, when and as it is told.
type gatewayPlayer struct {
	w *world

	mutex      sync.Mutex
	answer     func(*envoyv1alpha1.SecurityPolicy) (status metav1.ConditionStatus, reason string) // nil: silence
	controller gatewayv1.GatewayController                                                        // whose name the answers bear
	wrote      func(resourceVersion string)
}

// gateway starts a player that accepts everything, until the end of the test.
func (w *world) gateway() *gatewayPlayer {
	w.t.Helper()
	player := &gatewayPlayer{w: w, controller: envoyv1alpha1.GatewayControllerName}
	player.accept()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		for ctx.Err() == nil {
			player.look(ctx)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	w.t.Cleanup(func() { cancel(); running.Wait() })
	return player
}

func (g *gatewayPlayer) say(answer func(*envoyv1alpha1.SecurityPolicy) (metav1.ConditionStatus, string)) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.answer = answer
}

// as makes the answers bear the name of another controller, "" for that of Envoy Gateway.
func (g *gatewayPlayer) as(controller gatewayv1.GatewayController) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.controller = cmp.Or(controller, envoyv1alpha1.GatewayControllerName)
}

func (g *gatewayPlayer) accept() {
	g.say(func(*envoyv1alpha1.SecurityPolicy) (metav1.ConditionStatus, string) {
		return metav1.ConditionTrue, "Accepted"
	})
}

func (g *gatewayPlayer) reject() {
	g.say(func(*envoyv1alpha1.SecurityPolicy) (metav1.ConditionStatus, string) {
		return metav1.ConditionFalse, "Invalid"
	})
}

func (g *gatewayPlayer) look(ctx context.Context) {
	list := &envoyv1alpha1.SecurityPolicyList{}
	if err := g.w.client.List(ctx, list, client.InNamespace(g.w.options.IdentityNamespace)); err != nil {
		return // gone, or at the end
	}
	for i := range list.Items {
		policy := &list.Items[i]
		g.mutex.Lock()
		answer, controller, wrote := g.answer, g.controller, g.wrote
		g.mutex.Unlock()
		if answer == nil {
			continue
		}
		status, reason := answer(policy)
		wanted := []gatewayv1.PolicyAncestorStatus{{
			AncestorRef: gatewayv1.ParentReference{
				Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: ptr.To(gatewayv1.Kind("Gateway")),
				Namespace: ptr.To(gatewayv1.Namespace(policy.Namespace)), Name: gatewayv1.ObjectName(g.w.options.Gateway),
				SectionName: ptr.To(gatewayv1.SectionName("https")),
			},
			ControllerName: controller,
			Conditions: []metav1.Condition{{
				Type: "Accepted", Status: status, Reason: reason, Message: "The gateway says " + reason + ".",
				ObservedGeneration: policy.Generation, LastTransitionTime: metav1.Now(),
			}},
		}}
		if have := policy.Status.Ancestors; len(have) == 1 && have[0].ControllerName == controller && len(have[0].Conditions) == 1 &&
			have[0].Conditions[0].Status == status && have[0].Conditions[0].ObservedGeneration == policy.Generation {
			continue
		}
		policy.Status.Ancestors = wanted
		// A conflict means that the policy has moved on: it is looked at again.
		if err := g.w.client.Status().Update(ctx, policy); err == nil && wrote != nil {
			wrote(policy.ResourceVersion)
		}
	}
}

// route reads a route of the gateway's namespace, nil when it does not exist.
func (w *world) route(name string) *gatewayv1.HTTPRoute {
	w.t.Helper()
	route := &gatewayv1.HTTPRoute{}
	if !w.identity(route, name) {
		return nil
	}
	return route
}

// policy reads a policy of the gateway's namespace, nil when it does not exist.
func (w *world) policy(name string) *envoyv1alpha1.SecurityPolicy {
	w.t.Helper()
	policy := &envoyv1alpha1.SecurityPolicy{}
	if !w.identity(policy, name) {
		return nil
	}
	return policy
}

func (w *world) identity(object client.Object, name string) bool {
	w.t.Helper()
	err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.options.IdentityNamespace, Name: name}, object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false
	}
	require.NoError(w.t, err)
	return true
}

func leads(route *gatewayv1.HTTPRoute) bool {
	if route == nil {
		return false
	}
	for _, rule := range route.Spec.Rules {
		if len(rule.BackendRefs) > 0 {
			return true
		}
	}
	return false
}

// leadsTo waits until a route leads somewhere, or nowhere.
func (w *world) leadsTo(name string, somewhere bool) {
	w.t.Helper()
	w.eventually(func() string {
		route := w.route(name)
		if route == nil {
			return "HTTPRoute " + name + " does not exist"
		}
		if leads(route) != somewhere {
			return fmt.Sprintf("HTTPRoute %s: want a backend %t, have %s", name, somewhere, show(route.Spec))
		}
		return ""
	})
}

// settings writes the settings of the appliance.
func (w *world) settings(data map[string]string) {
	w.t.Helper()
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.options.FluxNamespace, Name: w.options.SettingsConfigMap}, Data: data}
	err := w.client.Create(w.t.Context(), settings)
	if apierrors.IsAlreadyExists(err) {
		err = w.client.Update(w.t.Context(), settings)
	}
	require.NoError(w.t, err)
}
