package appliance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=appliances;appinstances;modelactivations,verbs=get;list;watch
// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=moduleactivations,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=appliances/status,verbs=patch
// +kubebuilder:rbac:groups="",namespace=ai-system,resources=configmaps,verbs=get;list;watch

// Catalogs reads the catalogs. An error means that one is missing or broken;
// its text is shown to people.
type Catalogs interface {
	Modules(ctx context.Context) (Modules, error)
	Applications(ctx context.Context) (Applications, error)
}

// Reconciler keeps one Appliance.
type Reconciler struct {
	// Client reads from the cache and never behind its own writes.
	Client   client.Client
	Catalogs Catalogs
	// Name is the Appliance; runtime objects live in its namespace.
	Name types.NamespacedName
	// Recorder records events.
	Recorder events.EventRecorder
	// Now is the clock.
	Now func() time.Time

	mutex   sync.Mutex
	written time.Time
}

// writePause is the least time between two writes of the aggregate
// (contract/rulings.md 1): a thousand objects that become ready in one second
// are one write.
const writePause = time.Second

// Setup adds the controller to the manager. catalogs are the ConfigMaps of the catalogs.
func (r *Reconciler) Setup(mgr ctrl.Manager, catalogs ...types.NamespacedName) error {
	self := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: r.Name}}
	})
	wanted := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return client.ObjectKeyFromObject(object) == r.Name
	})
	catalog := predicate.NewPredicateFuncs(func(object client.Object) bool {
		for _, name := range catalogs {
			if client.ObjectKeyFromObject(object) == name {
				return true
			}
		}
		return false
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("appliance").
		For(&appliancev1alpha1.Appliance{}, builder.WithPredicates(wanted)).
		Watches(&appliancev1alpha1.ModuleActivation{}, self).
		Watches(&appliancev1alpha1.AppInstance{}, self).
		Watches(&appliancev1alpha1.ModelActivation{}, self).
		Watches(&corev1.ConfigMap{}, self, builder.WithPredicates(catalog)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of the Appliance: %w", err)
	}
	return nil
}

// Reconcile seeds missing activations and writes the aggregate.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	appliance := &appliancev1alpha1.Appliance{}
	if err := r.Client.Get(ctx, request.NamespacedName, appliance); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if appliance.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	now := r.Now()
	if pause := r.pause(now); pause > 0 {
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	facts := Facts{Appliance: appliance, Now: now}
	modules, modulesErr := r.Catalogs.Modules(ctx)
	applications, applicationsErr := r.Catalogs.Applications(ctx)
	var seedErr error
	if err := errors.Join(modulesErr, applicationsErr); err != nil {
		facts.CatalogError = err.Error()
	} else {
		facts.Modules, facts.Applications = modules, applications
		seedErr = r.seed(ctx, &facts)
	}
	// A module that could not be switched on keeps nobody from reading the rest.
	if err := r.collect(ctx, &facts); err != nil {
		return reconcile.Result{}, errors.Join(seedErr, err)
	}
	err := r.write(ctx, appliance, Aggregate(facts))
	if kube.IsStale(err) && seedErr == nil {
		return reconcile.Result{RequeueAfter: writePause}, nil
	}
	return reconcile.Result{}, errors.Join(seedErr, err)
}

// seed switches on missing default modules, each on its own, and notes in the
// facts what a person has to repair.
func (r *Reconciler) seed(ctx context.Context, facts *Facts) error {
	var failure error
	seeds, unknown := Seeds(facts.Appliance.Spec.Modules, facts.Modules, func(module catalogs.Module) bool {
		activations, err := kube.ModuleActivations(ctx, r.Client, r.Name.Namespace, names(module)...)
		failure = errors.Join(failure, err)
		return err != nil || len(activations) > 0
	})
	facts.UnknownModules, facts.Unseeded = unknown, map[string]string{}
	for _, key := range seeds {
		namesake, err := kube.ModuleActivationNamed(ctx, r.Client, types.NamespacedName{Namespace: r.Name.Namespace, Name: key})
		if err != nil {
			failure = errors.Join(failure, err)
			continue
		}
		if namesake != nil {
			if problem := nameTaken(key, namesake, facts.Modules); problem != "" {
				facts.Unseeded[key] = problem
			}
			continue
		}
		created, err := kube.EnableModule(ctx, r.Client, key, r.Name)
		if kube.IsRefused(err) {
			facts.Unseeded[key] = "spec.modules: the API server refused to switch it on: " + kube.Refusal(err)
		}
		failure = errors.Join(failure, err)
		if created {
			log.FromContext(ctx).Info("switched on a default module", "module", key)
		}
	}
	return failure
}

func (r *Reconciler) collect(ctx context.Context, facts *Facts) error {
	options := []client.ListOption{client.InNamespace(r.Name.Namespace), client.UnsafeDisableDeepCopy}
	activations := &appliancev1alpha1.ModuleActivationList{}
	instances := &appliancev1alpha1.AppInstanceList{}
	models := &appliancev1alpha1.ModelActivationList{}
	for _, list := range []client.ObjectList{activations, instances, models} {
		if err := r.Client.List(ctx, list, options...); err != nil {
			return fmt.Errorf("collecting the state of the appliance: %w", err)
		}
	}
	facts.Activations, facts.Instances, facts.Models = activations.Items, instances.Items, models.Items
	return nil
}

func (r *Reconciler) write(ctx context.Context, appliance *appliancev1alpha1.Appliance, status appliancev1alpha1.ApplianceStatus) error {
	before := appliance.DeepCopy()
	appliance.Status = status
	written, err := kube.PatchStatus(ctx, r.Client, before, appliance)
	if err != nil || !written {
		return client.IgnoreNotFound(err)
	}
	r.mutex.Lock()
	r.written = r.Now()
	r.mutex.Unlock()
	kube.Notify(r.Recorder, appliance,
		kube.FindCondition(before.Status.Conditions, conditions.ApplianceConditionReady),
		kube.FindCondition(appliance.Status.Conditions, conditions.ApplianceConditionReady),
		appliance.Status.Phase == appliancev1alpha1.ApplianceStatusPhaseDegraded)
	return nil
}

// pause is how long the next write of the aggregate has to wait.
func (r *Reconciler) pause(now time.Time) time.Duration {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.written.IsZero() {
		return 0
	}
	return writePause - now.Sub(r.written)
}
