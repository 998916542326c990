package kube_test

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	fluxcrds "magicstick.dev/operator/generated/external/crds"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/kube"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(controlplanetest.Main(m, controlplanetest.WithCRDs(fluxcrds.FS)))
}

// A permission that is missing shows as a state, not as a silent wait, and the
// kind is used as soon as the permission is there.
func TestKindThatCannotBeListed(t *testing.T) {
	admin := controlplanetest.Shared(t)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	require.NoError(t, kustomizev1.AddToScheme(scheme))
	direct, err := client.New(admin, client.Options{Scheme: scheme})
	require.NoError(t, err)
	grant(t, direct, "crds", "apiextensions.k8s.io", "customresourcedefinitions")

	limited := admin
	limited.Impersonate.UserName = "limited"
	kind := kube.OptionalKind{CRD: "kustomizations.kustomize.toolkit.fluxcd.io", Version: "v1", Prototype: &kustomizev1.Kustomization{}}
	mgr, err := ctrl.NewManager(limited, manager.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		MapperProvider: kube.OptionalMapper(scheme, kind),
	})
	require.NoError(t, err)
	kinds, err := kube.NewOptionalKinds(mgr, mgr.GetClient())
	require.NoError(t, err)
	kinds.ListTimeout = 500 * time.Millisecond
	var reconciled, changed atomic.Int64
	watcher, err := controller.New("watcher", mgr, controller.Options{Reconciler: reconcile.Func(
		func(context.Context, reconcile.Request) (reconcile.Result, error) {
			reconciled.Add(1)
			return reconcile.Result{}, nil
		})})
	require.NoError(t, err)
	kinds.Watch(kind, watcher, &handler.EnqueueRequestForObject{}, func(context.Context) { changed.Add(1) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()

	until := func(wanted kube.Presence) string {
		t.Helper()
		detail := ""
		require.Eventually(t, func() bool {
			var presence kube.Presence
			presence, detail = kinds.Presence(ctx, kind.CRD)
			return presence == wanted
		}, time.Minute, 20*time.Millisecond)
		return detail
	}
	require.Contains(t, until(kube.Unreadable), "its objects cannot be listed: no answer within 500ms, check the permissions")
	before := changed.Load()
	require.Positive(t, before)
	grant(t, direct, "kustomizations", "kustomize.toolkit.fluxcd.io", "kustomizations")
	require.Empty(t, until(kube.Present))
	require.Greater(t, changed.Load(), before, "the controllers were told")

	namespace := controlplanetest.Namespace(t, controlplanetest.Shared(t))
	require.NoError(t, direct.Create(t.Context(), &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: namespace},
		Spec: kustomizev1.KustomizationSpec{Interval: metav1.Duration{Duration: time.Minute}, Prune: true,
			SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "x"}},
	}))
	require.Eventually(t, func() bool { return reconciled.Load() > 0 }, time.Minute, 20*time.Millisecond)
	presence, detail := kinds.Presence(ctx, "things.example.com")
	require.Equal(t, kube.Absent, presence, "a kind that nobody asked for: %s", detail)
	cancel()
	require.NoError(t, <-done)
}

func grant(t *testing.T, direct client.Client, name, group, resource string) {
	t.Helper()
	require.NoError(t, direct.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"}}},
	}))
	require.NoError(t, direct.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "limited"}},
	}))
}
