package operator_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// The life of an instance on a real API server, with the real CRDs of Flux, the
// Gateway API and Envoy Gateway.
func TestInstanceLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	gateway := w.gateway()
	gateway.say(nil)
	w.instance("odysseus-demo", nil)

	// Nobody asked for the modules: they are switched on and waited for.
	w.shown("odysseus-demo", "WaitingForModules", "WaitingForModules")
	require.Nil(t, w.route("odysseus-demo-local"))
	require.False(t, w.get(&helmv2.HelmRelease{}, "odysseus-demo"))
	w.eventually(func() string {
		if !w.get(&appliancev1alpha1.ModuleActivation{}, "odysseus") {
			return "module odysseus was not switched on"
		}
		return ""
	})
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.odysseusReady()

	// Everything is there but the guard's acceptance (S069, S070).
	w.shown("odysseus-demo", "Reconciling", "WaitingForHelmRelease")
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	waiting := w.shown("odysseus-demo", "Reconciling", "WaitingForAccessGuard")
	require.Equal(t, ptr.To(false), waiting.Status.AccessGuardReady)
	require.Contains(t, *waiting.Status.Message, "odysseus-demo-local-sso")
	for _, name := range []string{"odysseus-demo-local", "odysseus-demo-local-callback", "odysseus-demo-public", "odysseus-demo-public-callback"} {
		require.NotNil(t, w.route(name), name)
		require.False(t, leads(w.route(name)), name)
	}
	gateway.accept()
	ready := w.shown("odysseus-demo", "Ready", "InstallSucceeded")
	require.Equal(t, ptr.To(true), ready.Status.AccessGuardReady)
	require.Equal(t, "https://demo.odysseus.magicstick.local/", *ready.Status.URL)
	require.Equal(t, "https://demo.odysseus.magicstick.example.com/", *ready.Status.PublicURL)
	require.Equal(t, "HelmRelease", *ready.Status.Kind)
	for _, name := range []string{"odysseus-demo-local", "odysseus-demo-local-callback", "odysseus-demo-public", "odysseus-demo-public-callback"} {
		require.True(t, leads(w.route(name)), name)
	}
	w.count(4, 2, 1)

	// The release fails and heals by itself (D10).
	w.helm("odysseus-demo", metav1.ConditionFalse, "RetriesExceeded", "Failed to install after 1 attempt(s)")
	failed := w.shown("odysseus-demo", "Degraded", "RetriesExceeded")
	require.Contains(t, *failed.Status.Message, "Failed to install")
	w.helm("odysseus-demo", metav1.ConditionTrue, "UpgradeSucceeded", "ok")
	w.shown("odysseus-demo", "Ready", "UpgradeSucceeded")

	// The gateway changes its mind; the status names the policy, and forgets it.
	gateway.reject()
	bad := w.shown("odysseus-demo", "Reconciling", "WaitingForAccessGuard")
	require.Contains(t, *bad.Status.Message, "The gateway says Invalid.")
	w.leadsTo("odysseus-demo-local", false)
	w.leadsTo("odysseus-demo-public-callback", false)
	gateway.accept()
	w.shown("odysseus-demo", "Ready", "UpgradeSucceeded")
	w.leadsTo("odysseus-demo-local", true)

	// Off and on again.
	change(w, &appliancev1alpha1.AppInstance{}, "odysseus-demo", func(i *appliancev1alpha1.AppInstance) { i.Spec.Enabled = ptr.To(false) })
	off := w.shown("odysseus-demo", "Suspended", "Suspended")
	require.Nil(t, off.Status.URL)
	w.eventually(func() string { return w.counted(0, 0, 0) })
	release := &helmv2.HelmRelease{}
	require.True(t, w.get(release, "odysseus-demo"))
	require.True(t, release.Spec.Suspend)
	change(w, &appliancev1alpha1.AppInstance{}, "odysseus-demo", func(i *appliancev1alpha1.AppInstance) { i.Spec.Enabled = ptr.To(true) })
	w.shown("odysseus-demo", "Reconciling", "WaitingForHelmRelease")
	w.helm("odysseus-demo", metav1.ConditionTrue, "UpgradeSucceeded", "ok")
	w.shown("odysseus-demo", "Ready", "UpgradeSucceeded")

	// Deleted: access first, then the release, which Flux holds as long as it uninstalls.
	require.True(t, w.get(release, "odysseus-demo"))
	release.Finalizers = append(release.Finalizers, "finalizers.fluxcd.io")
	require.NoError(t, w.client.Update(t.Context(), release))
	require.NoError(t, w.client.Delete(t.Context(), ready))
	w.shown("odysseus-demo", "Removing", "Removing")
	w.eventually(func() string { return w.counted(0, 0, 0) })
	w.eventually(func() string {
		if !w.get(release, "odysseus-demo") || release.DeletionTimestamp == nil {
			return "HelmRelease is not being deleted"
		}
		return ""
	})
	require.True(t, w.get(&appliancev1alpha1.AppInstance{}, "odysseus-demo"))
	release.Finalizers = nil
	require.NoError(t, w.client.Update(t.Context(), release))
	w.gone(&appliancev1alpha1.AppInstance{}, "odysseus-demo")
}

// count checks how many objects of the gateway there are (U005).
func (w *world) count(routes, policies, grants int) {
	w.t.Helper()
	require.Empty(w.t, w.counted(routes, policies, grants))
}

func (w *world) counted(routes, policies, grants int) string {
	w.t.Helper()
	haveRoutes, havePolicies, haveGrants := &gatewayv1.HTTPRouteList{}, &envoyv1alpha1.SecurityPolicyList{}, &gatewayv1beta1.ReferenceGrantList{}
	require.NoError(w.t, w.client.List(w.t.Context(), haveRoutes, client.InNamespace(w.options.IdentityNamespace)))
	require.NoError(w.t, w.client.List(w.t.Context(), havePolicies, client.InNamespace(w.options.IdentityNamespace)))
	require.NoError(w.t, w.client.List(w.t.Context(), haveGrants, client.InNamespace(w.apps())))
	if len(haveRoutes.Items) != routes || len(havePolicies.Items) != policies || len(haveGrants.Items) != grants {
		return show([]int{len(haveRoutes.Items), len(havePolicies.Items), len(haveGrants.Items)}) + " routes, policies and grants, want " + show([]int{routes, policies, grants})
	}
	return ""
}

// The aggregate shows an instance as H03 says and its trouble as long as it lasts.
func TestInstanceInTheAggregate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.odysseusAppliance()
	w.gateway()
	w.instance("odysseus-demo", nil)
	w.helm("odysseus-demo", metav1.ConditionFalse, "InstallFailed", "the disk is full")
	w.shown("odysseus-demo", "Degraded", "InstallFailed")
	w.eventually(func() string {
		appliance := &appliancev1alpha1.Appliance{}
		w.get(appliance, "local")
		row := appliance.Status.Instances["odysseus"]["demo"]
		if appliance.Status.Phase != "Degraded" || row.Phase != "Degraded" || row.Message == nil || !strings.Contains(*row.Message, "the disk is full") ||
			!strings.Contains(show(appliance.Status.Conditions), "HelmRelease "+w.options.Appliance.Namespace+"/odysseus-demo is not ready: the disk is full") {
			return show(appliance.Status)
		}
		return ""
	})
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")
	found := w.appliance("Ready", "Ready")
	row := found.Status.Instances["odysseus"]["demo"]
	require.Equal(t, "https://demo.odysseus.magicstick.local/", *row.URL)
	require.Equal(t, "HelmRelease", *row.Kind)
}

func (w *world) odysseusAppliance() {
	w.t.Helper()
	w.start()
	w.create(defaultAppliance("litellm", "model-catalog", "odysseus"))
	w.static("infrastructure-basis", metav1.ConditionTrue)
	w.odysseusReady()
}

// The target namespace is made by Flux with the release; the routes wait for it.
func TestInstanceWaitsForItsNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.odysseus()
	w.gateway()
	target := w.options.Appliance.Namespace + "-target"
	w.instance("odysseus-demo", func(i *appliancev1alpha1.AppInstance) { i.Spec.TargetNamespace = target })
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-demo", "Reconciling", "WaitingForNamespace")
	require.False(t, leads(w.route("odysseus-demo-local")))
	require.NoError(t, w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: target}}))
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")
}

// A CRD of the application that appears later is noticed without a restart.
func TestInstanceWaitsForCRDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS)))
	w.start()
	w.create(activation("litellm"))
	w.instance("openclaw-demo", func(i *appliancev1alpha1.AppInstance) { i.Spec.Application = "openclaw" })
	waiting := w.shown("openclaw-demo", "WaitingForModules", "WaitingForModules")
	require.Contains(t, *waiting.Status.Message, "openclaw-operator")
	controlplanetest.InstallCRDs(t, w.config, fluxcrds.FS)
	w.static("infrastructure-basis", metav1.ConditionTrue)
	for _, name := range []string{"operator-openclaw", "app-litellm", "app-model-catalog"} {
		w.kustomization(name, running)
		w.flux(name, metav1.ConditionTrue, "ReconciliationSucceeded", "ok")
	}
	waiting = w.shown("openclaw-demo", "WaitingForCRDs", "WaitingForCRDs")
	for _, crd := range []string{"openclawinstances.openclaw.rocks", "httproutes.gateway.networking.k8s.io", "securitypolicies.gateway.envoyproxy.io", "referencegrants.gateway.networking.k8s.io"} {
		require.Contains(t, *waiting.Status.Message, crd)
	}
	controlplanetest.InstallCRDs(t, w.config, gatewaycrds.FS)
	w.eventually(func() string {
		message := *w.shown("openclaw-demo", "WaitingForCRDs", "WaitingForCRDs").Status.Message
		if strings.Contains(message, "gateway") || !strings.Contains(message, "openclawinstances.openclaw.rocks") {
			return message
		}
		return ""
	})
	require.NoError(t, w.client.Create(t.Context(), simpleCRD("OpenClawInstance", "openclawinstances", "openclaw.rocks")))
	w.shown("openclaw-demo", "Reconciling", "WaitingForHelmRelease")
	require.NotNil(t, w.route("openclaw-demo-local"))
}

func simpleCRD(kind, plural, group string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1alpha1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

// What the schema can refuse, it refuses, with field and rule.
func TestInstanceRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	many := make([]string, 101)
	for i := range many {
		many[i] = strings.Repeat("a", i+1)
	}
	sharing := func(mode string, users ...string) func(*appliancev1alpha1.AppInstance) {
		return func(i *appliancev1alpha1.AppInstance) {
			i.Spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{Sharing: &appliancev1alpha1.AppInstanceSpecAccessSharing{
				Mode: appliancev1alpha1.AppInstanceSpecAccessSharingMode(mode), Users: users,
			}}
		}
	}
	for name, test := range map[string]struct {
		object string
		edit   func(*appliancev1alpha1.AppInstance)
		words  []string
	}{
		"name of 300 characters": {strings.Repeat("a", 300), nil, []string{"metadata.name"}},
		"name of 54 characters":  {strings.Repeat("a", 54), nil, []string{"metadata", "at most 53 characters"}},
		"name with a dot":        {"odysseus.a", nil, []string{"metadata", "the application's Service"}},
		"namespace of Kubernetes": {"odysseus-a", func(i *appliancev1alpha1.AppInstance) { i.Spec.TargetNamespace = "kube-system" },
			[]string{"spec.targetNamespace", "must not be default or begin with kube-"}},
		"namespace of the platform": {"odysseus-a", func(i *appliancev1alpha1.AppInstance) { i.Spec.TargetNamespace = "identity-system" },
			[]string{"spec.targetNamespace", "must not be a namespace of the platform"}},
		"values that are no object": {"odysseus-a", func(i *appliancev1alpha1.AppInstance) {
			i.Spec.Values = &apiextensionsv1.JSON{Raw: []byte(`"text"`)}
		}, []string{"spec.values", "object"}},
		"role typo": {"odysseus-a", func(i *appliancev1alpha1.AppInstance) {
			i.Spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{Role: "oprator"}
		}, []string{"spec.access.role", "Unsupported value"}},
		"S066 101 users":       {"odysseus-a", sharing("selected", many...), []string{"spec.access.sharing.users", "100"}},
		"S066 duplicate users": {"odysseus-a", sharing("selected", "a", "a"), []string{"spec.access.sharing.users", "Duplicate"}},
		"S063 all with users":  {"odysseus-a", sharing("all", "a"), []string{"spec.access.sharing.users", "mode all takes no users"}},
		"S064 selected without sign-in": {"odysseus-a", func(i *appliancev1alpha1.AppInstance) {
			sharing("selected", "a")(i)
			i.Spec.Access.Authentication = "none"
		}, []string{"spec.access.sharing.mode", "sso"}},
	} {
		t.Run(name, func(t *testing.T) {
			instance := &appliancev1alpha1.AppInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.options.Appliance.Namespace, Name: test.object}}
			instance.Spec.Application = "odysseus"
			if test.edit != nil {
				test.edit(instance)
			}
			err := w.client.Create(t.Context(), instance)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			for _, words := range test.words {
				require.ErrorContains(t, err, words)
			}
		})
	}
}

// D13: instances in every lasting state cost no write.
func TestInstancesAreQuiet(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.odysseus()
	gateway := w.gateway()
	w.instance("odysseus-ready", nil)
	w.instance("odysseus-open", func(i *appliancev1alpha1.AppInstance) {
		i.Spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none", Exposure: "local"}
	})
	w.instance("odysseus-failed", func(i *appliancev1alpha1.AppInstance) {
		i.Spec.Values = &apiextensionsv1.JSON{Raw: []byte(`{"a":[1,{"b":null}],"c":{},"d":1.5,"big":9007199254740993,"ingress":{"enabled":true}}`)}
	})
	w.instance("odysseus-off", func(i *appliancev1alpha1.AppInstance) { i.Spec.Enabled = ptr.To(false) })
	w.instance("nethack", func(i *appliancev1alpha1.AppInstance) { i.Spec.Application = "nethack" })
	for _, name := range []string{"odysseus-ready", "odysseus-open"} {
		w.helm(name, metav1.ConditionTrue, "InstallSucceeded", "ok")
		w.shown(name, "Ready", "InstallSucceeded")
	}
	w.helm("odysseus-failed", metav1.ConditionFalse, "InstallFailed", "no")
	w.shown("odysseus-failed", "Degraded", "InstallFailed")
	w.shown("odysseus-off", "Suspended", "Suspended")
	w.shown("nethack", "Degraded", "UnknownApplication")
	w.leadsTo("odysseus-failed-local", true)
	gateway.say(nil)
	time.Sleep(3 * time.Second)
	_, mark := w.writes.since(0)
	time.Sleep(20 * time.Second)
	writes, _ := w.writes.since(mark)
	require.Empty(t, writes)
}

// Whatever the schema lets through is rendered, or answered with a state that
// spec/conditions knows.
func TestEveryAcceptedAppInstanceGetsAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.odysseus()
	w.gateway()
	names := map[string]string{}
	for file, documents := range examples[appliancev1alpha1.AppInstance](t, "appinstance") {
		name := "x-" + strconv.Itoa(len(names))
		names[name] = file
		w.instance(name, func(i *appliancev1alpha1.AppInstance) {
			last := documents[len(documents)-1].DeepCopy()
			i.Spec = last.Spec
			i.Spec.Application, i.Spec.TargetNamespace = "odysseus", w.apps()
		})
	}
	answers := map[string]int{}
	for name, file := range names {
		w.eventually(func() string {
			instance := &appliancev1alpha1.AppInstance{}
			require.True(t, w.get(instance, name))
			condition := meta.FindStatusCondition(instance.Status.Conditions, conditions.AppInstanceConditionReady)
			if condition == nil || condition.ObservedGeneration != instance.Generation || condition.Reason == conditions.AppInstanceReasonReconciling {
				return file + ": no answer: " + show(instance.Status)
			}
			if condition.Reason == conditions.AppInstanceReasonWaitingForHelmRelease {
				w.helm(name, metav1.ConditionTrue, "InstallSucceeded", "ok")
				return file + ": not installed"
			}
			for _, phase := range conditions.AppInstance.Phases {
				if phase.Phase == string(instance.Status.Phase) && slices.Contains(phase.Reasons, condition.Reason) {
					if condition.Reason == conditions.AppInstanceReasonWaitingForAccessGuard || condition.Reason == conditions.AppInstanceReasonWaitingForModules {
						return file + ": " + condition.Message
					}
					answers[string(instance.Status.Phase)]++
					return ""
				}
			}
			return file + ": " + string(instance.Status.Phase) + "/" + condition.Reason + " is not in the table"
		})
	}
	require.Greater(t, answers["Ready"], 3, "%v", answers)
}

// A second instance with the same host names is told so, and takes over when
// the first is gone.
func TestInstanceNamesakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.start()
	w.odysseus()
	w.gateway()
	first := w.instance("odysseus-one", func(i *appliancev1alpha1.AppInstance) {
		i.Spec.Values = &apiextensionsv1.JSON{Raw: []byte(`{"name":"team"}`)}
	})
	w.helm("odysseus-one", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-one", "Ready", "InstallSucceeded")
	w.instance("odysseus-team", nil)
	told := w.shown("odysseus-team", "Degraded", "DuplicateShortName")
	require.Contains(t, *told.Status.Message, "odysseus-one")
	require.Nil(t, w.route("odysseus-team-local"))
	require.NoError(t, w.client.Delete(t.Context(), first))
	w.shown("odysseus-team", "Reconciling", "WaitingForHelmRelease")
	require.NotNil(t, w.route("odysseus-team-local"))
}
