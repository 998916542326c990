//go:build peers

// The tests of this package run the operator together with Flux's real
// source-controller and kustomize-controller against a real API server: from a
// commit in a Git repository to objects in the cluster and back.
//
//	make test-peers
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/dev/flux"
	"magicstick.dev/operator/handwritten/dev/gitserver"
	"magicstick.dev/operator/handwritten/operator"
)

const (
	patience = time.Minute
	poll     = 100 * time.Millisecond
)

// appliance is a cluster with Flux, our operator and a Git source.
type appliance struct {
	client.Client

	t       *testing.T
	git     *gitserver.Server
	content map[string][]byte
}

// configMap is a manifest of a module; value may use Flux's substitution.
func configMap(name, value string) []byte {
	return fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: ai, name: %s}\ndata:\n  value: %q\n", name, value)
}

func startAppliance(t *testing.T) *appliance {
	t.Helper()
	require.NoError(t, flux.Available())
	plane := controlplanetest.StartControlPlane(t, controlplanetest.WithControllerManager(),
		controlplanetest.WithCRDs(crds.FS, fluxcrds.FS))
	scheme, err := operator.Scheme()
	require.NoError(t, err)
	require.NoError(t, sourcev1.AddToScheme(scheme))
	a := &appliance{t: t, Client: newClient(t, plane, scheme), content: map[string][]byte{
		"magic-cluster/platform/basis/basis.yaml":         configMap("basis", "first"),
		"magic-cluster/apps/ai/litellm/base/litellm.yaml": configMap("litellm", "${AI_APPLIANCE_LITELLM_POSTGRES_STORAGE:=1Gi}"),
		"magic-cluster/apps/ai/model-catalog/index.yaml":  configMap("model-index", "static"),
	}}
	for _, name := range []string{"ai-system", "ai", "flux-system"} {
		require.NoError(t, a.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	for _, configMap := range catalogs.ShippedConfigMaps() {
		require.NoError(t, a.Create(t.Context(), configMap))
	}

	dir := t.TempDir()
	for _, folder := range []string{"git", "flux"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
	}
	a.git, err = gitserver.Start(t.Context(), filepath.Join(dir, "git"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, a.git.Stop()) })
	a.commit("the first manifests", nil)
	require.NoError(t, a.Create(t.Context(), &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "flux-system"},
		Spec: sourcev1.GitRepositorySpec{
			URL: a.git.URL, Interval: metav1.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: gitserver.Branch},
		},
	}))
	// basis is part of the appliance's own Flux graph, not of what the operator makes.
	require.NoError(t, a.Create(t.Context(), &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "infrastructure-basis"},
		Spec: kustomizev1.KustomizationSpec{
			Interval: metav1.Duration{Duration: time.Hour}, Prune: true, Path: "./magic-cluster/platform/basis",
			SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "flux-system"},
		},
	}))
	controllers, err := flux.Start(t.Context(), flux.Options{Kubeconfig: plane.KubeconfigPath(), Dir: filepath.Join(dir, "flux")})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, controllers.Err(), "Flux ran until the end")
		assert.NoError(t, controllers.Stop())
	})
	a.startOperator(plane.RESTConfig)
	return a
}

// commit changes files (nil removes one) and makes the result the branch's content.
func (a *appliance) commit(message string, changes map[string][]byte) {
	a.t.Helper()
	for name, content := range changes {
		if content == nil {
			delete(a.content, name)
			continue
		}
		a.content[name] = content
	}
	_, err := a.git.Commit(a.t.Context(), message, a.content)
	require.NoError(a.t, err)
}

// fetch makes Flux look at the source now, as `flux reconcile source git` does;
// what is built from it follows on its own.
func (a *appliance) fetch() {
	a.t.Helper()
	source := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "flux-system"}}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, time.Now().Format(time.RFC3339Nano))
	require.NoError(a.t, a.Patch(a.t.Context(), source, client.RawPatch("application/merge-patch+json", patch)))
}

// enable creates the activation of a module, or switches it.
func (a *appliance) enable(module string, enabled bool, parameters map[string]string) {
	a.t.Helper()
	text := fmt.Appendf(nil, `{"apiVersion":"appliance.magicstick.dev/v1alpha1","kind":"ModuleActivation",`+
		`"metadata":{"namespace":"ai-system","name":%q},"spec":{"module":%q,"enabled":%t%s}}`, module, module, enabled, parametersJSON(parameters))
	activation := &appliancev1alpha1.ModuleActivation{ObjectMeta: metav1.ObjectMeta{Namespace: "ai-system", Name: module}}
	require.NoError(a.t, a.Patch(a.t.Context(), activation, client.RawPatch("application/apply-patch+yaml", text),
		client.FieldOwner("a-person"), client.ForceOwnership))
}

func parametersJSON(parameters map[string]string) string {
	if len(parameters) == 0 {
		return ""
	}
	var fields []string
	for key, value := range parameters {
		fields = append(fields, fmt.Sprintf("%q:%q", key, value))
	}
	return `,"parameters":{` + strings.Join(fields, ",") + "}"
}

// eventually waits until check has no complaint, and shows the last one otherwise.
func (a *appliance) eventually(what string, check func(context.Context) error) {
	a.t.Helper()
	began := time.Now()
	var last error
	for time.Since(began) < patience {
		if last = check(a.t.Context()); last == nil {
			a.t.Logf("%s after %s", what, time.Since(began).Round(time.Millisecond))
			return
		}
		time.Sleep(poll)
	}
	a.t.Fatalf("%s: not within %s: %v", what, patience, last)
}

func (a *appliance) phase(module string, want appliancev1alpha1.ModuleActivationStatusPhase) {
	a.t.Helper()
	a.eventually(fmt.Sprintf("module %s is %s", module, want), func(ctx context.Context) error {
		activation := &appliancev1alpha1.ModuleActivation{}
		if err := a.Get(ctx, client.ObjectKey{Namespace: "ai-system", Name: module}, activation); err != nil {
			return err
		}
		if activation.Status.Phase != want || ptr.Deref(activation.Status.ObservedGeneration, 0) != activation.Generation {
			return fmt.Errorf("phase %q, message %q", activation.Status.Phase, ptr.Deref(activation.Status.Message, ""))
		}
		return nil
	})
}

func (a *appliance) value(name, want string) {
	a.t.Helper()
	a.eventually(fmt.Sprintf("ConfigMap %s says %q", name, want), func(ctx context.Context) error {
		object := &corev1.ConfigMap{}
		if err := a.Get(ctx, client.ObjectKey{Namespace: "ai", Name: name}, object); err != nil {
			return err
		}
		if object.Data["value"] != want {
			return fmt.Errorf("it says %q", object.Data["value"])
		}
		return nil
	})
}

func (a *appliance) gone(object client.Object, namespace, name string) {
	a.t.Helper()
	a.eventually(fmt.Sprintf("%T %s is gone", object, name), func(ctx context.Context) error {
		err := a.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = errors.New("it is still there")
		}
		return err
	})
}

func (a *appliance) kustomization(name string) *kustomizev1.Kustomization {
	a.t.Helper()
	object := &kustomizev1.Kustomization{}
	require.NoError(a.t, a.Get(a.t.Context(), client.ObjectKey{Namespace: "flux-system", Name: name}, object))
	return object
}

func TestFlux_with_the_operator(t *testing.T) {
	a := startAppliance(t)

	// The parts build on each other: one appliance, as a person uses it.
	a.enable("litellm", true, nil)
	a.phase("litellm", appliancev1alpha1.ModuleActivationStatusPhaseReady)
	a.value("litellm", "1Gi")

	t.Log("a parameter reaches the manifests")
	a.enable("litellm", true, map[string]string{"postgresStorage": "5Gi"})
	a.value("litellm", "5Gi")
	a.phase("litellm", appliancev1alpha1.ModuleActivationStatusPhaseReady)

	t.Log("a module waits for the one it requires")
	a.enable("model-catalog", true, nil)
	a.phase("model-catalog", appliancev1alpha1.ModuleActivationStatusPhaseReady)
	a.value("model-index", "static")

	t.Log("a dependency that turns unready suspends and does not delete")
	basis := "magic-cluster/platform/basis/basis.yaml"
	a.commit("break basis", map[string][]byte{basis: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: nowhere, name: basis}\n")})
	a.fetch()
	a.phase("litellm", appliancev1alpha1.ModuleActivationStatusPhaseWaitingForModules)
	a.phase("model-catalog", appliancev1alpha1.ModuleActivationStatusPhaseWaitingForModules)
	for _, name := range []string{"app-litellm", "app-model-catalog"} {
		suspended := a.kustomization(name)
		assert.True(t, suspended.Spec.Suspend, "%s is suspended", name)
		assert.True(t, suspended.Spec.Prune, "%s still prunes when it is removed", name)
	}
	// A change that arrives meanwhile must wait, and nothing may disappear.
	a.commit("change litellm meanwhile", map[string][]byte{"magic-cluster/apps/ai/litellm/base/litellm.yaml": configMap("litellm", "meanwhile")})
	a.fetch()
	time.Sleep(3 * time.Second)
	a.value("litellm", "5Gi")
	a.value("model-index", "static")

	t.Log("and it resumes when the dependency is ready again")
	a.commit("repair basis", map[string][]byte{basis: configMap("basis", "second")})
	a.fetch()
	a.phase("litellm", appliancev1alpha1.ModuleActivationStatusPhaseReady)
	a.value("litellm", "meanwhile")
	a.phase("model-catalog", appliancev1alpha1.ModuleActivationStatusPhaseReady)
	assert.False(t, a.kustomization("app-litellm").Spec.Suspend)

	t.Log("a manifest that cannot be applied is the module's own failure, with Flux's words")
	catalogFile := "magic-cluster/apps/ai/model-catalog/index.yaml"
	a.commit("break the model catalog", map[string][]byte{catalogFile: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: ai, name: Not_A_Name}\n")})
	a.fetch()
	activation := &appliancev1alpha1.ModuleActivation{}
	a.eventually("the failure is in the activation", func(ctx context.Context) error {
		if err := a.Get(ctx, client.ObjectKey{Namespace: "ai-system", Name: "model-catalog"}, activation); err != nil {
			return err
		}
		message := ptr.Deref(activation.Status.Message, "")
		if activation.Status.Phase != appliancev1alpha1.ModuleActivationStatusPhaseDegraded || !strings.Contains(message, "Not_A_Name") {
			return fmt.Errorf("phase %q, message %q", activation.Status.Phase, message)
		}
		return nil
	})
	a.commit("repair the model catalog", map[string][]byte{catalogFile: configMap("model-index", "repaired")})
	a.fetch()
	a.phase("model-catalog", appliancev1alpha1.ModuleActivationStatusPhaseReady)
	a.value("model-index", "repaired")

	t.Log("disabled: objects pruned, intent kept, dependants wait and keep their objects")
	a.enable("litellm", false, map[string]string{"postgresStorage": "5Gi"})
	a.phase("litellm", appliancev1alpha1.ModuleActivationStatusPhaseDisabled)
	a.gone(&corev1.ConfigMap{}, "ai", "litellm")
	a.gone(&kustomizev1.Kustomization{}, "flux-system", "app-litellm")
	a.phase("model-catalog", appliancev1alpha1.ModuleActivationStatusPhaseWaitingForModules)
	a.value("model-index", "repaired")

	t.Log("deleted while suspended: Flux prunes all the same")
	require.True(t, a.kustomization("app-model-catalog").Spec.Suspend)
	require.NoError(t, a.Delete(t.Context(), activation))
	a.gone(&appliancev1alpha1.ModuleActivation{}, "ai-system", "model-catalog")
	a.gone(&corev1.ConfigMap{}, "ai", "model-index")

	ready := a.kustomization("infrastructure-basis")
	assert.True(t, apimeta.IsStatusConditionTrue(ready.Status.Conditions, meta.ReadyCondition), "basis was left alone")
}

func newClient(t *testing.T, plane interface{ RESTConfig() *rest.Config }, scheme *runtime.Scheme) client.Client {
	t.Helper()
	c, err := client.New(plane.RESTConfig(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

// startOperator runs the product's operator in this process until the test ends.
func (a *appliance) startOperator(config func() *rest.Config) {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), "operator.log")
	log, err := os.Create(path)
	require.NoError(a.t, err)
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(log, nil)))
	options := operator.DefaultOptions()
	options.LeaderElection, options.MetricsAddress, options.ProbeAddress = false, "0", "0"
	ctx, cancel := context.WithCancel(context.Background())
	manager, err := operator.New(ctx, config(), options)
	require.NoError(a.t, err)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	a.t.Cleanup(func() {
		cancel()
		assert.NoError(a.t, <-ended)
		if text, err := os.ReadFile(path); err == nil && a.t.Failed() {
			a.t.Logf("the end of the operator's log:\n%s", text[max(0, len(text)-8<<10):])
		}
	})
}
