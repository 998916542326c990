package modules

import (
	"context"
	"fmt"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/kube"
)

// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=moduleactivations,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=moduleactivations/status;moduleactivations/finalizers,verbs=update;patch
// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=appliances,verbs=get;list;watch
// +kubebuilder:rbac:groups=kustomize.toolkit.fluxcd.io,namespace=flux-system,resources=kustomizations,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",namespace=ai-system,resources=configmaps,verbs=get;list;watch

// KustomizationKind is Flux's Kustomization, whose CRD may be absent.
func KustomizationKind() kube.OptionalKind {
	return kube.OptionalKind{
		CRD:       "kustomizations." + kustomizev1.GroupVersion.Group,
		Version:   kustomizev1.GroupVersion.Version,
		Prototype: &kustomizev1.Kustomization{},
	}
}

// Kinds tells whether Kustomizations can be used; *kube.OptionalKinds does.
type Kinds interface {
	Presence(ctx context.Context, crd string) (kube.Presence, string)
}

// Reconciler carries out plans for ModuleActivations.
type Reconciler struct {
	// Client reads and writes our own kinds and never reads behind its own writes.
	Client client.Client
	// Foreign reads the objects of others from the cache.
	Foreign client.Reader
	// Live reads past the cache, in the one place where that is needed.
	Live client.Reader
	// Children writes Kustomizations.
	Children *kube.Children
	// Kinds knows whether Flux is there.
	Kinds Kinds
	// Catalogs reads the module catalog.
	Catalogs Catalogs
	// Appliance is the object that names the source; activations live in its namespace.
	Appliance types.NamespacedName
	// Settings are the names that the installation chose.
	Settings Settings
	// Recorder records events.
	Recorder events.EventRecorder
	// Now is the clock.
	Now func() time.Time
}

// Reconcile makes one pass over one activation.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	activation := &appliancev1alpha1.ModuleActivation{}
	if err := r.Client.Get(ctx, request.NamespacedName, activation); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	facts, err := r.observe(ctx, activation)
	if err != nil {
		return reconcile.Result{}, err
	}
	if facts.Flux.Presence == kube.Starting {
		// The cache fills; its completion enqueues every activation.
		return reconcile.Result{}, nil
	}
	plan, err := Compute(facts)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("planning module %s: %w", activation.Spec.Module, err)
	}
	return kube.Outcome(ctx, r.carryOut(ctx, activation, plan, facts))
}

func (r *Reconciler) observe(ctx context.Context, activation *appliancev1alpha1.ModuleActivation) (Facts, error) {
	presence, detail := r.Kinds.Presence(ctx, KustomizationKind().CRD)
	catalog, catalogErr := r.Catalogs.ModuleCatalog(ctx)
	facts, err := Observe(ctx, activation, catalog, catalogErr, r.world(), Flux{Presence: presence, Detail: detail})
	if err != nil {
		return facts, err
	}
	facts.Settings, facts.Now = r.Settings, r.Now()
	facts.Source, err = kube.ReadSource(ctx, r.Client, r.Appliance)
	return facts, err
}

func (r *Reconciler) world() World {
	return cacheWorld{
		CachedModules:  kube.CachedModules{Reader: r.Client, Namespace: r.Appliance.Namespace},
		kustomizations: r.Foreign, children: r.Children, fluxNamespace: r.Settings.FluxNamespace,
	}
}

// carryOut makes the calls of a plan. A call that the API server refuses becomes
// the status, because trying again does not help and a person must read why.
func (r *Reconciler) carryOut(ctx context.Context, activation *appliancev1alpha1.ModuleActivation, plan Plan, facts Facts) error {
	return kube.Pass[*appliancev1alpha1.ModuleActivation]{
		Client: r.Client, Recorder: r.Recorder,
		Finalizer: kube.FinalizerModule, AddFinalizer: plan.AddFinalizer, DropFinalizer: plan.DropFinalizer,
		Effects: func(ctx context.Context, failure error) error {
			if failure != nil {
				return failure
			}
			return r.sideEffects(ctx, plan, facts)
		},
		Status: func(activation *appliancev1alpha1.ModuleActivation, failure error) {
			before := activation.Status.DeepCopy()
			activation.Status = plan.Status
			if failure != nil {
				activation.Status.Conditions = before.Conditions
				refused(activation, failure, facts)
			}
		},
		Conditions: func(activation *appliancev1alpha1.ModuleActivation) []metav1.Condition {
			return activation.Status.Conditions
		},
		Summary: conditions.ModuleActivationConditionReady,
		Failed: func(activation *appliancev1alpha1.ModuleActivation) bool {
			return activation.Status.Phase == appliancev1alpha1.ModuleActivationStatusPhaseDegraded
		},
	}.CarryOut(ctx, activation)
}

func (r *Reconciler) sideEffects(ctx context.Context, plan Plan, facts Facts) error {
	if err := kube.EnableModules(ctx, r.Client, plan.Enable, r.Appliance); err != nil {
		return err
	}
	for _, kustomization := range plan.Suspend {
		if err := r.suspend(ctx, kustomization); err != nil {
			return err
		}
	}
	if plan.Apply != nil {
		name := types.NamespacedName{Namespace: r.Settings.FluxNamespace, Name: kustomizationName(*facts.Module)}
		if facts.Kustomization != nil {
			// Whose it is was decided over this version and no other.
			plan.Apply.WithResourceVersion(facts.Kustomization.ResourceVersion)
		}
		if _, err := r.Children.Claim(ctx, plan.Apply, name, &kustomizev1.Kustomization{}, facts.Kustomization); err != nil {
			return err
		}
	}
	for _, kustomization := range plan.Remove {
		if err := r.remove(ctx, kustomization); err != nil {
			return err
		}
	}
	for _, kustomization := range plan.Retire {
		if err := r.retire(ctx, kustomization); err != nil {
			return err
		}
	}
	return nil
}

// suspend keeps Flux from applying a Kustomization. The write fails when Flux
// has begun in between.
func (r *Reconciler) suspend(ctx context.Context, kustomization *kustomizev1.Kustomization) error {
	before := kustomization.DeepCopy()
	kustomization.Spec.Suspend = true
	return r.Children.Patch(ctx, before, kustomization)
}

// remove un-suspends, then deletes: Flux prunes the objects of a Kustomization
// only when it is not suspended at its deletion (contract/appliance.md C.2).
// Everything else in it stays as it was applied.
func (r *Reconciler) remove(ctx context.Context, kustomization *kustomizev1.Kustomization) error {
	return r.removeAs(ctx, kustomization, func(*kustomizev1.Kustomization) {})
}

// retire removes a Kustomization whose objects another one has taken over. Flux
// may look at it between the two calls of a removal and must not apply it once
// more: one that depends on itself is never ready for that, only to be pruned.
func (r *Reconciler) retire(ctx context.Context, kustomization *kustomizev1.Kustomization) error {
	return r.removeAs(ctx, kustomization, func(last *kustomizev1.Kustomization) {
		last.Spec.DependsOn = []kustomizev1.DependencyReference{{Name: last.Name}}
	})
}

func (r *Reconciler) removeAs(ctx context.Context, kustomization *kustomizev1.Kustomization, edit func(*kustomizev1.Kustomization)) error {
	if kustomization.Spec.Suspend {
		before := kustomization.DeepCopy()
		kustomization.Spec.Suspend = false
		edit(kustomization)
		if err := r.Children.Patch(ctx, before, kustomization); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if err := r.Children.Delete(ctx, kustomization); err != nil {
		return err
	}
	log.FromContext(ctx).Info("removed a Kustomization", "kustomization", client.ObjectKeyFromObject(kustomization).String())
	return nil
}

// refused is the status after an answer of the API server that will not get
// better by itself. The pass is tried again with a growing pause.
func refused(activation *appliancev1alpha1.ModuleActivation, failure error, facts Facts) {
	message := kube.RefusedMessage(failure)
	activation.Status.Phase = appliancev1alpha1.ModuleActivationStatusPhaseDegraded
	activation.Status.Message = ptr.To(kube.Truncate(message, kube.MaxStatusMessage))
	kube.SetCondition(&activation.Status.Conditions, metav1.Condition{
		Type: conditions.ModuleActivationConditionReady, Status: metav1.ConditionFalse,
		Reason: conditions.ModuleActivationReasonKustomizationRefused, Message: message,
		ObservedGeneration: activation.Generation,
	}, facts.Now)
}
