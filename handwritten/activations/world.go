package activations

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiv1alpha1 "magicstick.dev/operator/generated/apis/ai/v1alpha1"
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// indexPods is the cache index over Pods by the activation that they were made for.
const indexPods = "activation"

// IndexPods adds the index of this room to a cache, once per manager.
func IndexPods(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &corev1.Pod{}, indexPods, func(object client.Object) []string {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return nil
		}
		name := activationOf(pod)
		if name == "" {
			return nil
		}
		return []string{name}
	})
	if err != nil {
		return fmt.Errorf("indexing Pods by model: %w", err)
	}
	return nil
}

// cacheWorld looks things up in the caches of the manager.
type cacheWorld struct {
	kube.ModuleLookup
	r *Reconciler
}

func (r *Reconciler) world() cacheWorld {
	return cacheWorld{kube.CachedModules{Reader: r.Client, Namespace: r.Appliance.Namespace}, r}
}

func (w cacheWorld) Nodes(ctx context.Context) ([]corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := w.r.Foreign.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return list.Items, nil
}

func (w cacheWorld) Prepared(ctx context.Context, activation *appliancev1alpha1.ModelActivation, pinned string) (*PreparedModel, error) {
	ref := activation.Spec.Local.ModelRef
	name := types.NamespacedName{Namespace: targetNamespace(activation), Name: ref.Name}
	var object client.Object = &aiv1alpha1.Model{}
	kind := preparedKind
	if string(ref.Kind) == kindClusterModel {
		object, kind, name.Namespace = &aiv1alpha1.ClusterModel{}, preparedClusterKind, ""
	}
	presence, _ := w.r.Kinds.Presence(ctx, kind.CRD)
	if presence != kube.Present || !kind.ClusterScoped && !w.r.runsModels(name.Namespace) {
		return nil, nil
	}
	if err := w.r.Foreign.Get(ctx, name, object, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s %s: %w", ref.Kind, ref.Name, err)
	}
	return PreparedFrom(string(ref.Kind), object, pinned).In(w.r.Registry), nil
}

func (w cacheWorld) Model(ctx context.Context, name types.NamespacedName) (*kubeaiv1.Model, error) {
	return child(ctx, w, name, &kubeaiv1.Model{})
}

func (w cacheWorld) Deployment(ctx context.Context, name types.NamespacedName) (*appsv1.Deployment, error) {
	return child(ctx, w, name, &appsv1.Deployment{})
}

func (w cacheWorld) Service(ctx context.Context, name types.NamespacedName) (*corev1.Service, error) {
	return child(ctx, w, name, &corev1.Service{})
}

// child reads an object that the operator writes; nil when it does not exist, or
// is in a namespace where the operator runs nothing.
func child[T any, P interface {
	*T
	client.Object
}](ctx context.Context, w cacheWorld, name types.NamespacedName, into P) (P, error) {
	if !w.r.runsModels(name.Namespace) {
		return nil, nil
	}
	found, err := w.r.Children.Get(ctx, name, into)
	if err != nil || !found {
		return nil, err
	}
	return into, nil
}

func (w cacheWorld) Pods(ctx context.Context, activation types.NamespacedName, namespace string) ([]*corev1.Pod, error) {
	if !w.r.runsModels(namespace) {
		return nil, nil
	}
	list := &corev1.PodList{}
	err := w.r.Foreign.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{indexPods: activation.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the Pods of model %s: %w", activation.Name, err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}

func (w cacheWorld) Listing(ctx context.Context, namespace, model string) (Listing, error) {
	if !w.r.runsModels(namespace) {
		return Listing{}, nil
	}
	return w.r.index.listing(ctx, w.r.Foreign, types.NamespacedName{Namespace: namespace, Name: w.r.Index}, model), nil
}

func (w cacheWorld) Memory(activation types.NamespacedName) MemoryReport {
	if w.r.Memory == nil {
		return MemoryReport{}
	}
	usage, known := w.r.Memory.Latest(activation)
	return MemoryReport{Usage: usage, Known: known}
}

// takesOCI reads what StripKubeAI left of KubeAI's definition.
func (r *Reconciler) takesOCI(ctx context.Context) (bool, error) {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	err := r.Foreign.Get(ctx, types.NamespacedName{Name: kubeAIKind.CRD}, definition, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading CustomResourceDefinition %s: %w", kubeAIKind.CRD, err)
	}
	return definition.Annotations[annotationTakesOCI] == "true", nil
}
