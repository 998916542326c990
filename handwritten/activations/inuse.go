package activations

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	aiv1alpha1 "magicstick.dev/operator/generated/apis/ai/v1alpha1"
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=modelactivations,verbs=get;list;watch
// +kubebuilder:rbac:groups=ai.deckhouse.io,namespace=ai,resources=models,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ai.deckhouse.io,resources=clustermodels,verbs=get;list;watch;patch

// Marks of a prepared model that serves (contract/rulings.md 2, modelRef waiting).
const (
	// FinalizerInUse keeps a Model or ClusterModel while an activation uses it.
	FinalizerInUse = "appliance.magicstick.dev/model-in-use"
	// AnnotationInUseBy names the activations that keep a deleted model from going.
	AnnotationInUseBy = "appliance.magicstick.dev/in-use-by"
	// EventInUse is the reason of the event on a deleted model that is still used.
	EventInUse = "ModelInUse"

	// maxUsersShown bounds the names in AnnotationInUseBy and in the event.
	maxUsersShown = 10
	// maxEventNote is the bound of an event's note in bytes.
	maxEventNote = 1024
)

// InUse keeps the prepared models that activations use from being deleted. It
// writes the finalizer, and while a deletion waits the names of those who hold it
// up, and touches nothing else.
//
// A model that is deleted before the finalizer is on it goes at once; the
// activation then waits with ModelNotReady. One that is deleted already cannot be
// given a finalizer.
type InUse struct {
	// Client reads activations from the cache.
	Client client.Client
	// Foreign lists prepared models from the cache.
	Foreign client.Client
	// Children reads and writes prepared models.
	Children *kube.Children
	// Kinds knows whether the kinds of prepared models are there.
	Kinds Kinds
	// Namespace of the activations.
	Namespace string
	// Namespaces in which models may run.
	Namespaces []string
	// Recorder records events.
	Recorder events.EventRecorder
}

// Setup adds the controller to the manager. A request with a namespace is about a
// Model, one without about a ClusterModel.
func (r *InUse) Setup(mgr ctrl.Manager, kinds *kube.OptionalKinds) error {
	trigger := &kube.Trigger{}
	built, err := ctrl.NewControllerManagedBy(mgr).
		Named("models-in-use").
		Watches(&appliancev1alpha1.ModelActivation{}, handler.EnqueueRequestsFromMapFunc(r.used), builder.WithPredicates(usesChanged())).
		WatchesRawSource(trigger).
		Build(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of prepared models in use: %w", err)
	}
	again := func(ctx context.Context) { trigger.Enqueue(r.all(ctx)...) }
	kinds.Watch(preparedKind, built, &handler.EnqueueRequestForObject{}, again, marksChanged())
	kinds.Watch(preparedClusterKind, built, &handler.EnqueueRequestForObject{}, again, marksChanged())
	return nil
}

// Reconcile makes one pass over one prepared model.
func (r *InUse) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var model client.Object = &aiv1alpha1.Model{}
	kind, name := preparedKind, kindModel
	if request.Namespace == "" {
		model, kind, name = &aiv1alpha1.ClusterModel{}, preparedClusterKind, kindClusterModel
	}
	if presence, _ := r.Kinds.Presence(ctx, kind.CRD); presence != kube.Present {
		return reconcile.Result{}, nil // its appearance enqueues every one
	}
	found, err := r.Children.Get(ctx, request.NamespacedName, model)
	if err != nil || !found {
		return reconcile.Result{}, err
	}
	activations, err := r.activations(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	users := usersOf(name, request.NamespacedName, activations)
	after, blocked := hold(model, users)
	if after == nil {
		return reconcile.Result{}, nil
	}
	if err := r.Children.Patch(ctx, model, after); err != nil {
		return kube.Outcome(ctx, client.IgnoreNotFound(err))
	}
	if blocked != "" && r.Recorder != nil {
		r.Recorder.Eventf(after, nil, corev1.EventTypeWarning, EventInUse, "Delete", "%s", kube.Truncate("Cannot be deleted while it is used by "+blocked, maxEventNote))
	}
	log.FromContext(ctx).V(1).Info("marked a prepared model", "kind", name, "users", len(users), "deleted", model.GetDeletionTimestamp() != nil)
	return reconcile.Result{}, nil
}

// hold gives the model as it should be, nil when it is so already. blocked names
// who holds up a deletion, when that is news.
func hold(model client.Object, users []string) (after client.Object, blocked string) {
	deleted := model.GetDeletionTimestamp() != nil
	finalizers := model.GetFinalizers()
	held := slices.Contains(finalizers, FinalizerInUse)
	said, saying := model.GetAnnotations()[AnnotationInUseBy]
	wantHeld := len(users) > 0 && (held || !deleted)
	wantSaid := ""
	if wantHeld && deleted {
		wantSaid = shownUsers(users)
	}
	if held == wantHeld && said == wantSaid && saying == (wantSaid != "") {
		return nil, ""
	}
	after, ok := model.DeepCopyObject().(client.Object)
	if !ok {
		return nil, ""
	}
	finalizers = slices.DeleteFunc(slices.Clone(finalizers), func(name string) bool { return name == FinalizerInUse })
	if wantHeld {
		finalizers = append(finalizers, FinalizerInUse)
	}
	if held != wantHeld {
		after.SetFinalizers(finalizers)
	}
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, AnnotationInUseBy)
	if wantSaid != "" {
		annotations[AnnotationInUseBy] = wantSaid
	}
	after.SetAnnotations(annotations)
	return after, wantSaid
}

// shownUsers lists users for people, not more than anybody reads.
func shownUsers(users []string) string {
	text := strings.Join(users[:min(len(users), maxUsersShown)], ", ")
	if more := len(users) - maxUsersShown; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// usersOf are the activations that use a prepared model, <namespace>/<name>,
// sorted.
func usersOf(kind string, name types.NamespacedName, activations []*appliancev1alpha1.ModelActivation) []string {
	var users []string
	for _, activation := range activations {
		usedKind, used, uses := usedBy(activation)
		if uses && usedKind == kind && used == name && holds(activation) {
			users = append(users, client.ObjectKeyFromObject(activation).String())
		}
	}
	slices.Sort(users)
	return users
}

// usedBy is the prepared model that an activation names.
func usedBy(activation *appliancev1alpha1.ModelActivation) (kind string, name types.NamespacedName, names bool) {
	local := activation.Spec.Local
	if local == nil || local.ModelRef == nil || activation.Spec.Type != appliancev1alpha1.ModelActivationSpecTypeLocal {
		return "", types.NamespacedName{}, false
	}
	name = types.NamespacedName{Name: local.ModelRef.Name}
	if string(local.ModelRef.Kind) == kindModel {
		name.Namespace = targetNamespace(activation)
	}
	return string(local.ModelRef.Kind), name, true
}

// holds tells whether an activation needs its model: it is switched on, or what it
// ran is perhaps not gone yet.
func holds(activation *appliancev1alpha1.ModelActivation) bool {
	if activation.DeletionTimestamp == nil && ptr.Deref(activation.Spec.Enabled, true) {
		return true
	}
	return slices.Contains(activation.Finalizers, kube.FinalizerModel) &&
		activation.Status.Phase != appliancev1alpha1.ModelActivationStatusPhaseDisabled
}

// activations are all of them, the cache's own.
func (r *InUse) activations(ctx context.Context) ([]*appliancev1alpha1.ModelActivation, error) {
	list := &appliancev1alpha1.ModelActivationList{}
	if err := r.Client.List(ctx, list, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, fmt.Errorf("listing the activations that may use a prepared model: %w", err)
	}
	found := make([]*appliancev1alpha1.ModelActivation, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}

// all enqueues every prepared model of the kinds that can be read: also one that
// nobody uses any more must lose its finalizer.
func (r *InUse) all(ctx context.Context) []reconcile.Request {
	var requests []reconcile.Request
	collect := func(kind kube.OptionalKind, list client.ObjectList, options ...client.ListOption) {
		if presence, _ := r.Kinds.Presence(ctx, kind.CRD); presence != kube.Present {
			return
		}
		if err := r.Foreign.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
			log.FromContext(ctx).Error(err, "listing prepared models to look at again", "kind", kind.CRD)
			return
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			if model, ok := item.(client.Object); ok {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(model)})
			}
			return nil
		})
	}
	for _, namespace := range r.Namespaces {
		collect(preparedKind, &aiv1alpha1.ModelList{}, client.InNamespace(namespace))
	}
	collect(preparedClusterKind, &aiv1alpha1.ClusterModelList{})
	return requests
}

// used enqueues the model that an activation names; of a change, the former one too.
func (r *InUse) used(_ context.Context, object client.Object) []reconcile.Request {
	activation, ok := object.(*appliancev1alpha1.ModelActivation)
	if !ok {
		return nil
	}
	_, name, names := usedBy(activation)
	if !names || name.Namespace != "" && !slices.Contains(r.Namespaces, name.Namespace) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: name}}
}

// usesChanged lets activations through when they may have begun or ceased to use
// a model.
func usesChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isOld := e.ObjectOld.(*appliancev1alpha1.ModelActivation)
		after, isNew := e.ObjectNew.(*appliancev1alpha1.ModelActivation)
		return !isOld || !isNew || before.Generation != after.Generation || holds(before) != holds(after)
	}}
}

// marksChanged lets prepared models through when what this controller writes or
// looks at changed; their progress is none of that.
func marksChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return (before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
			slices.Contains(before.GetFinalizers(), FinalizerInUse) != slices.Contains(after.GetFinalizers(), FinalizerInUse) ||
			before.GetAnnotations()[AnnotationInUseBy] != after.GetAnnotations()[AnnotationInUseBy]
	}}
}
