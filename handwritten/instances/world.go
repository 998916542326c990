package instances

import (
	"context"
	"fmt"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// Indexes over AppInstances, so that an event finds those that it is about.
const (
	indexHost        = "host"
	indexApplication = "spec.application"
	indexNamespace   = "spec.targetNamespace"
)

// IndexInstances adds the indexes of this room to a cache, once per manager.
func IndexInstances(ctx context.Context, indexer client.FieldIndexer) error {
	for name, value := range map[string]func(*appliancev1alpha1.AppInstance) string{
		indexHost: func(instance *appliancev1alpha1.AppInstance) string {
			short, _ := kube.InstanceShortName(instance) // Usable all the same.
			return hostKey(instance.Spec.Application, short)
		},
		indexApplication: func(instance *appliancev1alpha1.AppInstance) string { return instance.Spec.Application },
		indexNamespace:   targetNamespace,
	} {
		err := indexer.IndexField(ctx, &appliancev1alpha1.AppInstance{}, name, func(object client.Object) []string {
			instance, ok := object.(*appliancev1alpha1.AppInstance)
			if !ok {
				return nil
			}
			return []string{value(instance)}
		})
		if err != nil {
			return fmt.Errorf("indexing AppInstances by %s: %w", name, err)
		}
	}
	return nil
}

func hostKey(application, short string) string { return short + "." + application }

// cacheWorld looks things up in the caches of the manager.
type cacheWorld struct {
	kube.CachedModules

	own       client.Reader // our own kinds
	foreign   client.Reader // those of others
	children  *kube.Children
	namespace string
	identity  string
}

func (w cacheWorld) Missing(ctx context.Context, crd string) (string, error) {
	return kube.MissingCRD(ctx, w.foreign, crd)
}

func (w cacheWorld) Namesakes(ctx context.Context, application, short string) ([]*appliancev1alpha1.AppInstance, error) {
	return w.instances(ctx, client.MatchingFields{indexHost: hostKey(application, short)})
}

func (w cacheWorld) instances(ctx context.Context, options ...client.ListOption) ([]*appliancev1alpha1.AppInstance, error) {
	list := &appliancev1alpha1.AppInstanceList{}
	options = append(options, client.InNamespace(w.namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err := w.own.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing AppInstances: %w", err)
	}
	found := make([]*appliancev1alpha1.AppInstance, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}

func (w cacheWorld) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	err := w.foreign.Get(ctx, types.NamespacedName{Name: name}, namespace, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading Namespace %s: %w", name, err)
	}
	if err != nil {
		return nil, nil
	}
	return namespace, nil
}

func (w cacheWorld) Release(ctx context.Context, name string) (*helmv2.HelmRelease, error) {
	return child(ctx, w.children, w.namespace, name, &helmv2.HelmRelease{})
}

func (w cacheWorld) Route(ctx context.Context, name string) (*gatewayv1.HTTPRoute, error) {
	return child(ctx, w.children, w.identity, name, &gatewayv1.HTTPRoute{})
}

func (w cacheWorld) Policy(ctx context.Context, name string) (*envoyv1alpha1.SecurityPolicy, error) {
	return child(ctx, w.children, w.identity, name, &envoyv1alpha1.SecurityPolicy{})
}

func (w cacheWorld) Grant(ctx context.Context, namespace, name string) (*gatewayv1beta1.ReferenceGrant, error) {
	return child(ctx, w.children, namespace, name, &gatewayv1beta1.ReferenceGrant{})
}

// child reads into object and returns it, nil when it does not exist.
func child[T client.Object](ctx context.Context, children *kube.Children, namespace, name string, object T) (T, error) {
	var none T
	found, err := children.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object)
	if err != nil || !found {
		return none, err
	}
	return object, nil
}
