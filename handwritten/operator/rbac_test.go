package operator_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-tools/pkg/genall"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
	"sigs.k8s.io/controller-tools/pkg/rbac"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	kubeaicrds "magicstick.dev/operator/generated/external/kubeai/crds"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/operator"
)

// roles are what the markers on the controllers ask for.
var roles = sync.OnceValues(func() ([]any, error) {
	roots, err := loader.LoadRoots("../kube", "../modules", "../appliance", "../instances", "../tenants", "../activations", "../modelindex", ".")
	if err != nil {
		return nil, err
	}
	collector := &markers.Collector{Registry: &markers.Registry{}}
	if err := (rbac.Generator{}).RegisterMarkers(collector.Registry); err != nil {
		return nil, err
	}
	return rbac.GenerateRoles(&genall.GenerationContext{Collector: collector, Roots: roots}, "magicstick-operator")
})

func permissions(t *testing.T) []client.Object {
	t.Helper()
	made, err := roles()
	require.NoError(t, err)
	var found []client.Object
	for _, role := range made {
		switch role := role.(type) {
		case rbacv1.ClusterRole:
			found = append(found, &role)
		case rbacv1.Role:
			found = append(found, &role)
		default:
			t.Fatalf("an unknown kind of role: %T", role)
		}
	}
	return found
}

func rules(object client.Object) []rbacv1.PolicyRule {
	switch role := object.(type) {
	case *rbacv1.ClusterRole:
		return role.Rules
	case *rbacv1.Role:
		return role.Rules
	}
	return nil
}

// contract/appliance.md C.14 in the reading of rulings 2: nothing cluster-wide
// but the reading of CRDs, namespaces, nodes and cluster models and what is made in namespaces that
// people and Paperclip choose, no list of Secrets, no wildcard, no deletion of our own kinds.
func TestPermissionsAreSmall(t *testing.T) {
	t.Parallel()
	clusterWide := map[string]bool{"customresourcedefinitions": true, "events": true, "namespaces": true, "referencegrants": true,
		"networkpolicies": true, "resourcequotas": true, "limitranges": true, "nodes": true, "clustermodels": true}
	reading := []string{"get", "list", "watch"}
	for _, role := range permissions(t) {
		for _, rule := range rules(role) {
			for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
				require.NotContains(t, list, "*")
			}
			require.Empty(t, rule.NonResourceURLs)
			if slices.Contains(rule.Resources, "secrets") {
				// F.4: LiteLLM's key and those of providers, by their names.
				require.Equal(t, "ai", role.GetNamespace())
				require.Equal(t, []string{"get"}, rule.Verbs)
			}
			require.NotContains(t, rule.Verbs, "escalate")
			if slices.Contains(rule.APIGroups, "appliance.magicstick.dev") {
				require.NotContains(t, rule.Verbs, "delete")
				require.NotContains(t, rule.Verbs, "deletecollection")
			}
			if _, wide := role.(*rbacv1.ClusterRole); wide {
				for _, resource := range rule.Resources {
					require.True(t, clusterWide[resource], "%s in all namespaces: %v", resource, rule.Verbs)
					// U015
					switch resource {
					case "namespaces", "customresourcedefinitions", "nodes":
						require.ElementsMatch(t, reading, rule.Verbs, resource)
					case "clustermodels": // the finalizer of those in use
						require.Subset(t, append(reading, "patch"), rule.Verbs, resource)
					case "resourcequotas", "limitranges":
						require.NotContains(t, rule.Verbs, "delete", resource)
					}
				}
			}
		}
	}
}

// The operator does its work with these permissions and no others.
func TestPermissionsAreEnough(t *testing.T) {
	t.Parallel()
	config := controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS, kubeaicrds.FS))
	w := newWorld(t, config)
	for _, namespace := range []string{"ai-system", "flux-system", "identity-system", "ai"} {
		require.NoError(t, w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	standard := operator.DefaultOptions()
	standard.MetricsAddress, standard.ProbeAddress = "0", "0"
	w.options = standard
	w.restoreCatalogs()
	subject := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "operator"}}
	for _, role := range permissions(t) {
		require.NoError(t, w.client.Create(t.Context(), role))
		name := metav1.ObjectMeta{Name: role.GetName(), Namespace: role.GetNamespace()}
		reference := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.GetName()}
		if role.GetNamespace() == "" {
			reference.Kind = "ClusterRole"
			require.NoError(t, w.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: reference, Subjects: subject}))
			continue
		}
		require.NoError(t, w.client.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: name, RoleRef: reference, Subjects: subject}))
	}
	w.config.Impersonate.UserName = "operator"
	w.options.LeaderElection = true
	gateway := w.litellmWithoutKey()
	w.start()

	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.create(defaultAppliance("litellm"))
	w.create(activation("anything-llm"))
	w.kustomization("app-litellm", running)
	w.flux("app-litellm", metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	w.module("litellm", "Ready", "KustomizationReady")
	w.module("anything-llm", "WaitingForModules", "WaitingForModules")
	w.appliance("Reconciling", "WaitingForModules")
	change(w, &appliancev1alpha1.ModuleActivation{}, "anything-llm", func(a *appliancev1alpha1.ModuleActivation) { a.Spec.Enabled = ptr.To(false) })
	w.module("anything-llm", "Disabled", "Disabled")
	w.gone(&kustomizev1.Kustomization{}, "app-anything-llm")
	require.NoError(t, w.client.Delete(t.Context(), w.module("litellm", "Ready", "KustomizationReady")))
	w.gone(&kustomizev1.Kustomization{}, "app-litellm")
	w.instanceWithThesePermissions()
	w.modelWithThesePermissions()
	w.preparedWithThesePermissions()
	w.indexWithThesePermissions(gateway)
	w.eventually(func() string {
		list := &corev1.EventList{}
		require.NoError(t, w.client.List(t.Context(), list, client.InNamespace("ai-system")))
		for _, event := range list.Items {
			if strings.HasPrefix(event.Reason, "KustomizationReady") {
				return ""
			}
		}
		return "no event about litellm being ready"
	})
	w.writes.mutex.Lock()
	defer w.writes.mutex.Unlock()
	require.Empty(t, w.writes.denied)
}

// instanceWithThesePermissions takes an instance through every write that it needs.
func (w *world) instanceWithThesePermissions() {
	w.t.Helper()
	gateway := w.gateway()
	w.instance("odysseus-demo", func(i *appliancev1alpha1.AppInstance) { i.Spec.TargetNamespace = "ai" })
	w.odysseusReady()
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")
	gateway.reject()
	w.leadsTo("odysseus-demo-local", false)
	gateway.accept()
	w.leadsTo("odysseus-demo-local", true)
	change(w, &appliancev1alpha1.AppInstance{}, "odysseus-demo", func(i *appliancev1alpha1.AppInstance) { i.Spec.Enabled = ptr.To(false) })
	require.NoError(w.t, w.client.Delete(w.t.Context(), w.shown("odysseus-demo", "Suspended", "Suspended")))
	w.gone(&appliancev1alpha1.AppInstance{}, "odysseus-demo")

	labels := map[string]string{"paperclip.io/managed-by": "paperclip-k8s-plugin", "paperclip.io/company-id": "acme"}
	require.NoError(w.t, w.client.Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "paperclip-demo-acme", Labels: labels}}))
	paperclip := w.instance("paperclip-demo", func(i *appliancev1alpha1.AppInstance) { i.Spec.Application = "paperclip" })
	policies := func(want int) {
		w.t.Helper()
		w.eventually(func() string {
			list := &networkingv1.NetworkPolicyList{}
			require.NoError(w.t, w.client.List(w.t.Context(), list, client.InNamespace("paperclip-demo-acme")))
			if len(list.Items) != want {
				return "network policies: " + show(list.Items)
			}
			return ""
		})
	}
	policies(1)
	require.NoError(w.t, w.client.Delete(w.t.Context(), paperclip))
	policies(0)
}

// modelWithThesePermissions takes models through every write that they need.
func (w *world) modelWithThesePermissions() {
	w.t.Helper()
	w.readyModules("kubeai", "litellm", "model-catalog")
	w.cpuModel("chat")
	w.activate("omni", onCPU(""))
	w.model("omni", "Starting", "WaitingForReadyReplica")
	w.deployment("omni-runtime")
	ended := w.pod(w.kubeAIModel("chat", nil), "chat-1")
	w.reports(ended, evicted)
	w.vanished(&corev1.Pod{}, ended.Name)
	for _, name := range []string{"chat", "omni"} {
		require.NoError(w.t, w.client.Delete(w.t.Context(), &appliancev1alpha1.ModelActivation{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.options.Appliance.Namespace}}))
		w.gone(&appliancev1alpha1.ModelActivation{}, name)
	}
}
