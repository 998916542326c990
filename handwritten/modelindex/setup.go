package modelindex

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// KubeAIKind is KubeAI's Model, whose CRD may be absent.
func KubeAIKind() kube.OptionalKind {
	return kube.OptionalKind{CRD: "models.kubeai.org", Version: "v1", Prototype: &kubeaiv1.Model{}}
}

// Setup adds the controller to the manager. Its cache holds the ConfigMaps of the
// index's namespace, and the Deployments there that carry an activation's label.
func (r *Reconciler) Setup(mgr ctrl.Manager, kinds *kube.OptionalKinds) error {
	if r.HTTP == nil {
		r.HTTP = NewHTTPClient()
	}
	trigger := &kube.Trigger{}
	ours := func(name string) builder.Predicates {
		return builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
			return object.GetNamespace() == r.Settings.Namespace && object.GetName() == name
		}))
	}
	index, err := ctrl.NewControllerManagedBy(mgr).
		Named("model-index").
		Watches(&appliancev1alpha1.ModelActivation{}, r.soon(), builder.WithPredicates(changed(activationMark))).
		Watches(&appliancev1alpha1.ModuleActivation{}, r.soon(), builder.WithPredicates(changed(moduleMark))).
		Watches(&appsv1.Deployment{}, r.soon(), builder.WithPredicates(predicate.NewPredicateFuncs(r.runtime), changed(deploymentMark))).
		Watches(&corev1.ConfigMap{}, r.soon(), ours(r.Settings.ConfigMap)).
		Watches(&corev1.ConfigMap{}, r.soon(), ours(r.Settings.ExternalConfigMap)).
		WatchesRawSource(trigger).
		Build(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of the model index: %w", err)
	}
	again := func(context.Context) { trigger.Enqueue(r.request()) }
	here := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetNamespace() == r.Settings.Namespace })
	kinds.Watch(KubeAIKind(), index, r.soon(), again, here, changed(modelMark))
	if r.Settings.SyncAgentTemplates {
		kinds.Watch(AgentTemplateKind(), index, r.soon(), again, here)
	}
	return nil
}

// request is the only one that the controller knows.
func (r *Reconciler) request() reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: r.Settings.Namespace, Name: r.Settings.ConfigMap}}
}

// soon gathers the events of a burst into one pass.
func (r *Reconciler) soon() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue) { q.AddAfter(r.request(), r.Settings.Debounce) }
	return handler.Funcs{
		CreateFunc:  func(_ context.Context, _ event.CreateEvent, q queue) { add(q) },
		UpdateFunc:  func(_ context.Context, _ event.UpdateEvent, q queue) { add(q) },
		DeleteFunc:  func(_ context.Context, _ event.DeleteEvent, q queue) { add(q) },
		GenericFunc: func(_ context.Context, _ event.GenericEvent, q queue) { add(q) },
	}
}

// runtime lets the Deployments of direct runtimes through.
func (r *Reconciler) runtime(object client.Object) bool {
	return object.GetNamespace() == r.Settings.Namespace && object.GetLabels()[labelActivation] != ""
}

// changed lets an update through when what the index reads of the object changed.
func changed[T comparable](mark func(client.Object) T) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return mark(e.ObjectOld) != mark(e.ObjectNew) }}
}

type marks struct {
	generation int64
	going      bool
	state      string
}

func activationMark(object client.Object) marks {
	m := marks{generation: object.GetGeneration(), going: object.GetDeletionTimestamp() != nil}
	if activation, ok := object.(*appliancev1alpha1.ModelActivation); ok {
		m.state = fmt.Sprint(usable(activation))
	}
	return m
}

// moduleMark: LiteLLM may have come or gone.
func moduleMark(object client.Object) marks {
	activation, ok := object.(*appliancev1alpha1.ModuleActivation)
	if !ok || activation.Spec.Module != moduleLiteLLM {
		return marks{}
	}
	return marks{state: string(activation.Status.Phase)}
}

func deploymentMark(object client.Object) marks {
	m := marks{going: object.GetDeletionTimestamp() != nil}
	if deployment, ok := object.(*appsv1.Deployment); ok {
		m.state = fmt.Sprint(deployment.Status.ReadyReplicas > 0, deployment.Annotations[AnnotationContextWindow],
			deployment.Annotations[AnnotationMaxOutputTokens])
	}
	return m
}

func modelMark(object client.Object) marks {
	m := marks{generation: object.GetGeneration(), going: object.GetDeletionTimestamp() != nil}
	if model, ok := object.(*kubeaiv1.Model); ok {
		m.state = fmt.Sprint(serves(model), model.Annotations[AnnotationContextWindow], model.Annotations[AnnotationMaxOutputTokens])
	}
	return m
}

// moduleLiteLLM is the module whose state tells whether LiteLLM can answer.
const moduleLiteLLM = "litellm"

// moment is the clock of an index that has none.
func (r *Reconciler) moment() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}
