package operator_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// A company of Paperclip is fenced as long as its instance is there, whatever
// Paperclip's plugin writes.
func TestTenantNamespace(t *testing.T) {
	t.Parallel()
	// Tenant namespaces are found in the whole cluster: the operators of other
	// tests, for which this one has no owner, would clean it up.
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS)))
	w.start()
	name := "paperclip-" + w.options.Appliance.Namespace
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name + "-acme", Labels: map[string]string{
		"paperclip.io/managed-by": "paperclip-k8s-plugin", "paperclip.io/company-id": "acme",
	}}}
	require.NoError(t, w.client.Create(t.Context(), tenant))
	// The plugin was here first, with a larger quota.
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Name, Name: "paperclip-quota"}}
	quota.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("50")}
	require.NoError(t, w.client.Create(t.Context(), quota))
	w.instance(name, func(i *appliancev1alpha1.AppInstance) {
		i.Spec.Application = "paperclip"
		i.Spec.Values = &apiextensionsv1.JSON{Raw: []byte(`{"agentExecution":{"maxConcurrentAgents":3}}`)}
	})
	in := func(object client.Object, name string) bool {
		err := w.client.Get(t.Context(), types.NamespacedName{Namespace: tenant.Name, Name: name}, object)
		require.NoError(t, client.IgnoreNotFound(err))
		return err == nil
	}
	pods := func(want string) {
		t.Helper()
		w.eventually(func() string {
			found := &corev1.ResourceQuota{}
			if !in(found, "paperclip-quota") || found.Spec.Hard.Pods().String() != want || found.Labels["paperclip.io/company-id"] != "acme" {
				return show(found)
			}
			return ""
		})
	}
	pods("3")
	w.eventually(func() string {
		if !in(&corev1.LimitRange{}, "paperclip-limits") || !in(&networkingv1.NetworkPolicy{}, "magicstick-paperclip-runtime-egress") {
			return "limits or policy are missing"
		}
		return ""
	})
	require.True(t, in(quota, "paperclip-quota"))
	quota.Spec.Hard["pods"] = resource.MustParse("70")
	delete(quota.Labels, "app.kubernetes.io/managed-by") // as a plugin does that writes the object whole
	err := w.client.Update(t.Context(), quota)
	require.True(t, err == nil || apierrors.IsConflict(err), "%v", err)
	pods("3")
	w.edit(name, func(i *appliancev1alpha1.AppInstance) {
		i.Spec.Values = &apiextensionsv1.JSON{Raw: []byte(`{"agentExecution":{"maxConcurrentAgents":4}}`)}
	})
	pods("4")

	w.edit(name, func(i *appliancev1alpha1.AppInstance) { i.Spec.Enabled = ptr.To(false) })
	w.eventually(func() string {
		if in(&networkingv1.NetworkPolicy{}, "magicstick-paperclip-runtime-egress") {
			return "the network policy is still there"
		}
		return ""
	})
	require.True(t, in(quota, "paperclip-quota"), "quota and limits stay")
	w.edit(name, func(i *appliancev1alpha1.AppInstance) { i.Spec.Enabled = ptr.To(true) })
	w.eventually(func() string {
		if !in(&networkingv1.NetworkPolicy{}, "magicstick-paperclip-runtime-egress") {
			return "the network policy did not come back"
		}
		return ""
	})
}
