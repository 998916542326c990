package fluxstandin

import (
	"context"
	"errors"
	"fmt"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// Revision is what every folder has.
	Revision = "stand-in"
	// fieldOwner is Flux's, so that Flux can go on with the objects.
	fieldOwner = client.FieldOwner("kustomize-controller")
	// healthInterval is how often an object that is not healthy yet is looked at.
	healthInterval = 200 * time.Millisecond
)

// Options of a run.
type Options struct {
	// Namespace of the Kustomizations.
	Namespace string
	// Folders are the manifests by path, without "./" before it.
	Folders map[string][]byte
	// Log gets what Flux would log. The zero value logs nothing.
	Log logr.Logger
}

// New makes the stand-in; it works while the manager runs. The CRDs of Flux
// must be installed.
func New(connection *rest.Config, options Options) (manager.Manager, error) {
	connection = rest.CopyConfig(connection)
	connection.QPS = -1
	connection.UserAgent = "flux-stand-in"
	scheme := runtime.NewScheme()
	if err := errors.Join(kustomizev1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("playing Flux: registering API types: %w", err)
	}
	mgr, err := ctrl.NewManager(connection, manager.Options{
		Scheme: scheme, Logger: options.Log, Metrics: metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true), Logger: options.Log},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&kustomizev1.Kustomization{}: {Namespaces: map[string]cache.Config{options.Namespace: {}}},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("playing Flux: %w", err)
	}
	// Objects of the folders are neither cached nor known beforehand.
	direct, err := client.New(connection, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("playing Flux: %w", err)
	}
	f := &flux{Options: options, client: mgr.GetClient(), direct: direct}
	err = ctrl.NewControllerManagedBy(mgr).Named("stand-in-flux").
		For(&kustomizev1.Kustomization{}).
		Watches(&kustomizev1.Kustomization{}, handler.EnqueueRequestsFromMapFunc(f.dependants)).
		Complete(f)
	if err != nil {
		return nil, fmt.Errorf("playing Flux: %w", err)
	}
	return mgr, nil
}

type flux struct {
	Options
	client client.Client
	direct client.Client
}

// dependants are the Kustomizations that wait for one.
func (f *flux) dependants(ctx context.Context, changed client.Object) []reconcile.Request {
	list := &kustomizev1.KustomizationList{}
	if err := f.client.List(ctx, list, client.InNamespace(f.Namespace)); err != nil {
		f.Log.Error(err, "listing the Kustomizations")
	}
	var found []reconcile.Request
	for i := range list.Items {
		for _, dependency := range list.Items[i].Spec.DependsOn {
			if dependency.Name == changed.GetName() {
				found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
	}
	return found
}

// Reconcile brings the cluster to what the folder says.
func (f *flux) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	kustomization := &kustomizev1.Kustomization{}
	if err := f.client.Get(ctx, request.NamespacedName, kustomization); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if kustomization.DeletionTimestamp != nil {
		return reconcile.Result{}, f.finish(ctx, kustomization)
	}
	if kustomization.Spec.Suspend {
		return reconcile.Result{}, nil
	}
	before := kustomization.DeepCopy()
	if controllerutil.AddFinalizer(kustomization, kustomizev1.KustomizationFinalizer) {
		if err := f.client.Patch(ctx, kustomization, client.MergeFrom(before), fieldOwner); err != nil {
			return reconcile.Result{}, fmt.Errorf("adding the finalizer to %s: %w", request.Name, err)
		}
		before = kustomization.DeepCopy()
	}
	outcome, err := f.apply(ctx, kustomization)
	if err != nil {
		return reconcile.Result{}, err
	}
	apimeta.SetStatusCondition(&kustomization.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: outcome.status, Reason: outcome.reason, Message: outcome.message, ObservedGeneration: kustomization.Generation,
	})
	kustomization.Status.ObservedGeneration = kustomization.Generation
	kustomization.Status.LastAttemptedRevision = Revision
	if outcome.status == metav1.ConditionTrue {
		kustomization.Status.LastAppliedRevision = Revision
	}
	if err := f.client.Status().Patch(ctx, kustomization, client.MergeFrom(before), fieldOwner); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reporting Kustomization %s: %w", request.Name, err)
	}
	return reconcile.Result{RequeueAfter: outcome.again}, nil
}

// outcome is what the Ready condition says.
type outcome struct {
	status  metav1.ConditionStatus
	reason  string
	message string
	again   time.Duration
}

func failed(reason, format string, args ...any) outcome {
	return outcome{status: metav1.ConditionFalse, reason: reason, message: fmt.Sprintf(format, args...)}
}

// apply applies the folder and prunes what left it. The inventory of the
// Kustomization is brought up to date in memory.
func (f *flux) apply(ctx context.Context, kustomization *kustomizev1.Kustomization) (outcome, error) {
	waiting, err := f.dependency(ctx, kustomization)
	if err != nil || waiting != "" {
		return failed("DependencyNotReady", "dependency '%s/%s' is not ready", f.Namespace, waiting), err
	}
	text, found := f.Folders[clean(kustomization.Spec.Path)]
	if !found {
		return failed("ArtifactFailed", "kustomization path not found: %s", kustomization.Spec.Path), nil
	}
	objects, err := build(text, kustomization)
	if err != nil {
		return failed("BuildFailed", "%s", err), nil //nolint:nilerr // the condition says it; a change of the folder is a new run
	}
	inventory := &kustomizev1.ResourceInventory{Entries: []kustomizev1.ResourceRef{}}
	for _, object := range objects {
		if err := f.direct.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership); err != nil {
			return outcome{}, fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		inventory.Entries = append(inventory.Entries, reference(object))
	}
	if err := f.prune(ctx, kustomization, inventory); err != nil {
		return outcome{}, err
	}
	kustomization.Status.Inventory = inventory
	unhealthy, err := f.unhealthy(ctx, kustomization)
	if err != nil || unhealthy != "" {
		return outcome{metav1.ConditionUnknown, "Progressing", "Running health checks: " + unhealthy, healthInterval}, err
	}
	return outcome{metav1.ConditionTrue, "ReconciliationSucceeded", "Applied revision: " + Revision, 0}, nil
}

// dependency names the first one that is not Ready.
func (f *flux) dependency(ctx context.Context, kustomization *kustomizev1.Kustomization) (string, error) {
	for _, dependency := range kustomization.Spec.DependsOn {
		other := &kustomizev1.Kustomization{}
		err := f.client.Get(ctx, types.NamespacedName{Namespace: f.Namespace, Name: dependency.Name}, other)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading the dependency %s: %w", dependency.Name, err)
		}
		ready := apimeta.FindStatusCondition(other.Status.Conditions, "Ready")
		if ready == nil || ready.Status != metav1.ConditionTrue || other.Status.ObservedGeneration != other.Generation {
			return dependency.Name, nil
		}
	}
	return "", nil
}

// unhealthy names the first CRD of the health checks that is not served. Other
// kinds are taken for healthy.
func (f *flux) unhealthy(ctx context.Context, kustomization *kustomizev1.Kustomization) (string, error) {
	for _, check := range kustomization.Spec.HealthChecks {
		if check.Kind != "CustomResourceDefinition" {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := f.direct.Get(ctx, types.NamespacedName{Name: check.Name}, crd); client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading the CRD %s: %w", check.Name, err)
		}
		served := false
		for _, condition := range crd.Status.Conditions {
			served = served || condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue
		}
		if !served {
			return check.Name, nil
		}
	}
	return "", nil
}

// finish removes the objects of a Kustomization that is deleted. Flux leaves
// those of a suspended one, and of one that does not prune.
func (f *flux) finish(ctx context.Context, kustomization *kustomizev1.Kustomization) error {
	if !controllerutil.ContainsFinalizer(kustomization, kustomizev1.KustomizationFinalizer) {
		return nil
	}
	if !kustomization.Spec.Suspend {
		if err := f.prune(ctx, kustomization, &kustomizev1.ResourceInventory{}); err != nil {
			return err
		}
	}
	before := kustomization.DeepCopy()
	controllerutil.RemoveFinalizer(kustomization, kustomizev1.KustomizationFinalizer)
	if err := f.client.Patch(ctx, kustomization, client.MergeFrom(before), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("letting Kustomization %s go: %w", kustomization.Name, err)
	}
	return nil
}
