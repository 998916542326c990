package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch

// Presence says whether a kind can be worked with right now.
type Presence int

const (
	// Absent means that the CRD does not exist, does not serve the version, or is going away.
	Absent Presence = iota
	// Starting means that the CRD is there and the cache fills; a moment's wait.
	Starting
	// Unreadable means that the CRD is there, but its objects cannot be listed.
	Unreadable
	// Present means that the cache is complete.
	Present
)

// OptionalKind is a kind of another program whose CRD may be installed later
// than the operator, or be taken away under it.
type OptionalKind struct {
	// CRD is the name of the CustomResourceDefinition, <plural>.<group>.
	CRD string
	// Version is the version that our code reads and writes.
	Version string
	// Prototype is an empty object of the Go type that the cache holds.
	Prototype client.Object
	// ClusterScoped kinds have no namespace.
	ClusterScoped bool
}

// OptionalKinds follows the CRDs of optional kinds. When one is established it
// starts the watches that controllers asked for, and when it is deleted it
// forgets the cache; both without a restart. A static watch on an absent CRD
// would end the process instead.
type OptionalKinds struct {
	cache  cache.Cache
	reader client.Reader
	// ListTimeout bounds how long the first list of a kind may take until the
	// kind counts as Unreadable. It is tried again from then on.
	ListTimeout time.Duration

	mutex sync.Mutex
	kinds map[string]*optionalKind
}

type optionalKind struct {
	OptionalKind
	presence Presence
	detail   string
	uid      types.UID
	watches  []optionalWatch
	changed  []func(context.Context)
}

type optionalWatch struct {
	controller controller.Controller
	handler    handler.EventHandler
	predicates []predicate.Predicate
}

// NewOptionalKinds adds the controller that follows CRDs to the manager. reader
// reads from the cache of the manager.
func NewOptionalKinds(mgr ctrl.Manager, reader client.Reader) (*OptionalKinds, error) {
	kinds := &OptionalKinds{
		cache: mgr.GetCache(), reader: reader,
		ListTimeout: 30 * time.Second, kinds: map[string]*optionalKind{},
	}
	known := predicate.NewPredicateFuncs(func(object client.Object) bool {
		kinds.mutex.Lock()
		defer kinds.mutex.Unlock()
		return kinds.kinds[object.GetName()] != nil
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("optional-kinds").
		For(&apiextensionsv1.CustomResourceDefinition{}).
		WithEventFilter(known).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(kinds)
	if err != nil {
		return nil, fmt.Errorf("setting up the watch on CustomResourceDefinitions: %w", err)
	}
	return kinds, nil
}

// Watch asks for events of the kind to reach the controller whenever the kind
// is there, and for changed to be called when its presence changed. It is
// called before the manager starts.
func (k *OptionalKinds) Watch(kind OptionalKind, c controller.Controller, h handler.EventHandler, changed func(context.Context), predicates ...predicate.Predicate) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	known := k.kinds[kind.CRD]
	if known == nil {
		known = &optionalKind{OptionalKind: kind}
		k.kinds[kind.CRD] = known
	}
	known.watches = append(known.watches, optionalWatch{c, h, predicates})
	if changed != nil {
		known.changed = append(known.changed, changed)
	}
}

// Presence returns the state of the kind and, when it is not Present, a
// sentence for people that names the CRD.
func (k *OptionalKinds) Presence(ctx context.Context, crd string) (Presence, string) {
	k.mutex.Lock()
	known := k.kinds[crd]
	presence, detail := Absent, ""
	if known != nil {
		presence, detail = known.presence, known.detail
	}
	k.mutex.Unlock()
	if known == nil || presence != Absent {
		return presence, detail
	}
	// Right after the start the CRD may be there already and its first event
	// still on the way: that is a wait, not an absence.
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err := k.reader.Get(ctx, types.NamespacedName{Name: crd}, definition)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return Starting, fmt.Sprintf("CustomResourceDefinition %s cannot be read: %s", crd, err)
	case err != nil:
		return Absent, fmt.Sprintf("CustomResourceDefinition %s is not installed", crd)
	}
	if reason := unusable(definition, known.Version); reason != "" {
		return Absent, reason
	}
	return Starting, fmt.Sprintf("CustomResourceDefinition %s was just installed", crd)
}

// unusable says why a CRD cannot be worked with, empty when it can.
func unusable(definition *apiextensionsv1.CustomResourceDefinition, version string) string {
	if definition.DeletionTimestamp != nil {
		return fmt.Sprintf("CustomResourceDefinition %s is being deleted", definition.Name)
	}
	if !Established(definition) {
		return fmt.Sprintf("CustomResourceDefinition %s is not established yet", definition.Name)
	}
	for _, served := range definition.Spec.Versions {
		if served.Name == version && served.Served {
			return ""
		}
	}
	return fmt.Sprintf("CustomResourceDefinition %s does not serve version %s", definition.Name, version)
}

// MissingCRD says why objects of a CRD that only others work with cannot exist
// yet, empty when they can. It reads from a cache of CRDs.
func MissingCRD(ctx context.Context, reader client.Reader, crd string) (string, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err := reader.Get(ctx, types.NamespacedName{Name: crd}, definition, client.UnsafeDisableDeepCopy)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return "", fmt.Errorf("reading CustomResourceDefinition %s: %w", crd, err)
	case err != nil:
		return fmt.Sprintf("CustomResourceDefinition %s is not installed", crd), nil
	case definition.DeletionTimestamp != nil:
		return fmt.Sprintf("CustomResourceDefinition %s is being deleted", crd), nil
	case !Established(definition):
		return fmt.Sprintf("CustomResourceDefinition %s is not established yet", crd), nil
	}
	return "", nil
}

// Established reports whether the API server serves a CRD.
func Established(definition *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range definition.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// Reconcile brings the watches in line with one CRD.
func (k *OptionalKinds) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	k.mutex.Lock()
	known := k.kinds[request.Name]
	k.mutex.Unlock()
	if known == nil {
		return reconcile.Result{}, nil
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err := k.reader.Get(ctx, request.NamespacedName, definition)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading CustomResourceDefinition %s: %w", request.Name, err)
	}
	reason := ""
	if err != nil {
		reason = fmt.Sprintf("CustomResourceDefinition %s is not installed", request.Name)
	} else {
		reason = unusable(definition, known.Version)
	}

	presence, uid := known.presence, known.uid
	replaced := presence != Absent && reason == "" && uid != definition.UID
	if presence != Absent && (reason != "" || replaced) {
		if err := k.cache.RemoveInformer(ctx, known.Prototype); err != nil {
			return reconcile.Result{}, fmt.Errorf("forgetting the objects of %s: %w", request.Name, err)
		}
		k.set(ctx, known, Absent, reason, "")
	}
	if reason != "" {
		if presence == Absent {
			k.set(ctx, known, Absent, reason, "")
		}
		return reconcile.Result{}, nil
	}
	if known.presence == Absent {
		for _, watch := range known.watches {
			if err := watch.controller.Watch(source.Kind(k.cache, known.Prototype, watch.handler, watch.predicates...)); err != nil {
				return reconcile.Result{}, fmt.Errorf("watching the objects of %s: %w", request.Name, err)
			}
		}
		k.set(ctx, known, Starting, fmt.Sprintf("CustomResourceDefinition %s was just installed", request.Name), definition.UID)
	}
	if known.presence != Present {
		if err := k.waitForCache(ctx, known); err != nil {
			k.set(ctx, known, Unreadable, fmt.Sprintf("CustomResourceDefinition %s is installed, but its objects cannot be listed: %s", request.Name, err), definition.UID)
			return reconcile.Result{RequeueAfter: k.ListTimeout}, nil
		}
		k.set(ctx, known, Present, "", definition.UID)
	}
	return reconcile.Result{}, nil
}

func (k *OptionalKinds) waitForCache(ctx context.Context, kind *optionalKind) error {
	ctx, cancel := context.WithTimeout(ctx, k.ListTimeout)
	defer cancel()
	if _, err := k.cache.GetInformer(ctx, kind.Prototype); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("no answer within %s, check the permissions of the operator", k.ListTimeout)
		}
		return err
	}
	return nil
}

// set is called from Reconcile only, which runs once at a time for one CRD.
func (k *OptionalKinds) set(ctx context.Context, kind *optionalKind, presence Presence, detail string, uid types.UID) {
	k.mutex.Lock()
	notify := kind.presence != presence || kind.detail != detail
	kind.presence, kind.detail, kind.uid = presence, detail, uid
	changed := kind.changed
	k.mutex.Unlock()
	if !notify {
		return
	}
	for _, call := range changed {
		call(ctx)
	}
}

// StripCRD is a cache transform that keeps of a CRD only what OptionalKinds
// reads: schemas are by far the largest objects of a cluster.
func StripCRD(object any) (any, error) {
	definition, ok := object.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return object, nil
	}
	definition.ManagedFields = nil
	definition.Annotations = nil
	definition.Spec.Conversion = nil
	for i := range definition.Spec.Versions {
		definition.Spec.Versions[i].Schema = nil
		definition.Spec.Versions[i].AdditionalPrinterColumns = nil
		definition.Spec.Versions[i].SelectableFields = nil
	}
	return definition, nil
}
