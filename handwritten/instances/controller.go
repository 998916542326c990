package instances

import (
	"context"
	"errors"
	"fmt"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/kube"
)

// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=appinstances,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=appinstances/status;appinstances/finalizers,verbs=update;patch
// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=moduleactivations,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=appliances,verbs=get;list;watch
// +kubebuilder:rbac:groups=helm.toolkit.fluxcd.io,namespace=ai-system,resources=helmreleases,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,namespace=identity-system,resources=httproutes,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=gateway.envoyproxy.io,namespace=identity-system,resources=securitypolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=gateway.networking.k8s.io,resources=referencegrants,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=ai-system,resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=flux-system,resources=configmaps,verbs=get;list;watch

// The kinds of others that instances need; their CRDs may be absent.
var (
	releaseKind = kube.OptionalKind{CRD: "helmreleases." + helmv2.GroupVersion.Group, Version: helmv2.GroupVersion.Version, Prototype: &helmv2.HelmRelease{}}
	routeKind   = kube.OptionalKind{CRD: "httproutes." + gatewayv1.GroupName, Version: "v1", Prototype: &gatewayv1.HTTPRoute{}}
	policyKind  = kube.OptionalKind{CRD: "securitypolicies." + envoyv1alpha1.GroupName, Version: "v1alpha1", Prototype: &envoyv1alpha1.SecurityPolicy{}}
	grantKind   = kube.OptionalKind{CRD: "referencegrants." + gatewayv1.GroupName, Version: "v1beta1", Prototype: &gatewayv1beta1.ReferenceGrant{}}
)

// OptionalKinds lists the kinds of others that instances need.
func OptionalKinds() []kube.OptionalKind {
	return []kube.OptionalKind{releaseKind, routeKind, policyKind, grantKind}
}

// Kinds tells whether a kind of others can be used; *kube.OptionalKinds does.
type Kinds interface {
	Presence(ctx context.Context, crd string) (kube.Presence, string)
}

// CatalogReader reads the catalogs. An error means that one is missing or
// broken; its text is shown to people.
type CatalogReader interface {
	Applications(ctx context.Context) (Applications, error)
	Modules(ctx context.Context) (Modules, error)
}

// DomainReader reads the domains of the appliance from its settings.
type DomainReader interface {
	Domains(ctx context.Context) (kube.Domains, error)
}

// Reconciler carries out plans for AppInstances.
type Reconciler struct {
	// Client reads and writes our own kinds and never reads behind its own writes.
	Client client.Client
	// Foreign reads the objects of others from the cache and writes them.
	Foreign client.Client
	// Live reads past the cache, before a route is opened or a policy touched.
	Live client.Reader
	// Children writes the objects that are rendered.
	Children *kube.Children
	// Kinds knows which kinds of others are there.
	Kinds    Kinds
	Catalogs CatalogReader
	Domains  DomainReader
	// Appliance is the object that names the source; instances live in its namespace.
	Appliance types.NamespacedName
	// Settings are the names that the installation chose.
	Settings Settings
	// Recorder records events.
	Recorder events.EventRecorder
	// Now is the clock.
	Now func() time.Time
}

// Reconcile makes one pass over one instance.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	instance := &appliancev1alpha1.AppInstance{}
	if err := r.Client.Get(ctx, request.NamespacedName, instance); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	kinds := r.kinds(ctx)
	for _, kind := range kinds.all() {
		if kind.Presence == kube.Starting {
			// A cache fills; its completion enqueues every instance.
			return reconcile.Result{}, nil
		}
	}
	facts, err := r.observe(ctx, instance, kinds)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan, err := Compute(facts)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("planning instance %s: %w", instance.Name, err)
	}
	return kube.Outcome(ctx, r.carryOut(ctx, instance, plan, facts))
}

func (r *Reconciler) kinds(ctx context.Context) KindFacts {
	kind := func(of kube.OptionalKind) Kind {
		presence, detail := r.Kinds.Presence(ctx, of.CRD)
		return Kind{Presence: presence, Detail: detail}
	}
	return KindFacts{Release: kind(releaseKind), Route: kind(routeKind), Policy: kind(policyKind), Grant: kind(grantKind)}
}

func (r *Reconciler) observe(ctx context.Context, instance *appliancev1alpha1.AppInstance, kinds KindFacts) (Facts, error) {
	applications, applicationsErr := r.Catalogs.Applications(ctx)
	modules, modulesErr := r.Catalogs.Modules(ctx)
	catalogs := Catalogs{Applications: applications, Modules: modules, Problem: errors.Join(applicationsErr, modulesErr)}
	facts, err := Observe(ctx, instance, catalogs, kinds, r.world())
	if err != nil {
		return facts, err
	}
	facts.Settings, facts.Now = r.Settings, r.Now()
	if facts.Domains, err = r.Domains.Domains(ctx); err != nil {
		return facts, err
	}
	facts.Source, err = kube.ReadSource(ctx, r.Client, r.Appliance)
	return facts, err
}

func (r *Reconciler) world() cacheWorld {
	return cacheWorld{
		CachedModules: kube.CachedModules{Reader: r.Client, Namespace: r.Appliance.Namespace},
		own:           r.Client, foreign: r.Foreign, children: r.Children,
		namespace: r.Appliance.Namespace, identity: r.Settings.IdentityNamespace,
	}
}

// carryOut makes the calls of a plan. A side effect that the API server refuses
// becomes the status, because trying again does not help and a person must read why.
func (r *Reconciler) carryOut(ctx context.Context, instance *appliancev1alpha1.AppInstance, plan Plan, facts Facts) error {
	return kube.Pass[*appliancev1alpha1.AppInstance]{
		Client: r.Client, Recorder: r.Recorder,
		Finalizer: kube.FinalizerInstance, AddFinalizer: plan.AddFinalizer, DropFinalizer: plan.DropFinalizer,
		Effects: func(ctx context.Context, failure error) error { return r.sideEffects(ctx, plan, facts, failure) },
		Status: func(instance *appliancev1alpha1.AppInstance, failure error) {
			before := instance.Status.DeepCopy()
			instance.Status = plan.Status
			if failure != nil {
				instance.Status.Conditions = before.Conditions
				refused(instance, failure, facts)
			}
		},
		Conditions: func(instance *appliancev1alpha1.AppInstance) []metav1.Condition { return instance.Status.Conditions },
		Summary:    conditions.AppInstanceConditionReady,
		Failed: func(instance *appliancev1alpha1.AppInstance) bool {
			return instance.Status.Phase == appliancev1alpha1.AppInstanceStatusPhaseDegraded
		},
	}.CarryOut(ctx, instance)
}

// sideEffects sees to the access first, since a route that has to be shut does
// not wait for anything; failure is what has gone wrong before.
func (r *Reconciler) sideEffects(ctx context.Context, plan Plan, facts Facts, failure error) error {
	if err := r.walk(ctx, plan.Access, facts, failure); err != nil {
		return err
	}
	if err := kube.EnableModules(ctx, r.Client, plan.Enable, r.Appliance); err != nil {
		return err
	}
	return r.release(ctx, plan, facts)
}

func (r *Reconciler) release(ctx context.Context, plan Plan, facts Facts) error {
	name := client.ObjectKeyFromObject(facts.Instance)
	switch {
	case plan.Release != nil:
		_, err := r.Children.Apply(ctx, plan.Release, name, &helmv2.HelmRelease{}, facts.Release)
		return err
	case plan.SuspendRelease:
		return r.suspend(ctx, facts.Release, true)
	case plan.RemoveRelease:
		if facts.Release.Spec.Suspend {
			if err := r.suspend(ctx, facts.Release, false); err != nil {
				return err
			}
		}
		if err := r.Children.Delete(ctx, facts.Release); err != nil {
			return err
		}
		log.FromContext(ctx).Info("removed a release", "release", name.String())
	}
	return nil
}

func (r *Reconciler) suspend(ctx context.Context, release *helmv2.HelmRelease, suspend bool) error {
	before := release.DeepCopy()
	release.Spec.Suspend = suspend
	return client.IgnoreNotFound(r.Children.Patch(ctx, before, release))
}

// refused is the status after an answer of the API server that will not get
// better by itself. The pass is tried again with a growing pause.
func refused(instance *appliancev1alpha1.AppInstance, failure error, facts Facts) {
	message := kube.RefusedMessage(failure)
	if instance.DeletionTimestamp == nil {
		instance.Status.Phase = appliancev1alpha1.AppInstanceStatusPhaseDegraded
	}
	instance.Status.AccessGuardReady = ptr.To(false)
	instance.Status.Message = ptr.To(kube.Truncate(message, kube.MaxStatusMessage))
	kube.SetCondition(&instance.Status.Conditions, metav1.Condition{
		Type: conditions.AppInstanceConditionReady, Status: metav1.ConditionFalse,
		Reason: conditions.AppInstanceReasonChangeRefused, Message: message,
		ObservedGeneration: instance.Generation,
	}, facts.Now)
}
