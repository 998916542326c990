package identity

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/clientset"
)

// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=appinstances,verbs=get;list;watch

// Instances knows the AppInstances of one namespace from a watch. It answers
// from memory, and only while it can vouch for the answer: after the first full
// list, and while the API server was heard from within MaxAge. (An API server
// sends a bookmark about once a minute when nothing changes.)
type Instances struct {
	informer cache.SharedIndexInformer
	maxAge   time.Duration
	now      func() time.Time
	heard    atomic.Int64 // Unix nanoseconds
}

// MinCacheAge is the least maxAge that NewInstances takes: two bookmarks and some air.
const MinCacheAge = 150 * time.Second

// NewInstances returns the instances of a namespace; call Run.
func NewInstances(client clientset.Interface, namespace string, maxAge time.Duration, now func() time.Time) (*Instances, error) {
	if maxAge < MinCacheAge {
		return nil, fmt.Errorf("age of the cache %s: must be at least %s, because a quiet API server is heard once a minute", maxAge, MinCacheAge)
	}
	i := &Instances{maxAge: maxAge, now: now}
	api := client.ApplianceV1alpha1().AppInstances(namespace)
	i.informer = cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := api.List(ctx, options)
			if err == nil {
				i.hear()
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := api.Watch(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
				if event.Type != watch.Error {
					i.hear()
				}
				return event, true
			}), nil
		},
	}, client), &appliancev1alpha1.AppInstance{}, 0, cache.Indexers{})
	if err := i.informer.SetTransform(trim); err != nil {
		return nil, fmt.Errorf("preparing the watch of AppInstances: %w", err)
	}
	return i, nil
}

// trim keeps of an AppInstance what decisions need; values may be large.
func trim(object any) (any, error) {
	instance, ok := object.(*appliancev1alpha1.AppInstance)
	if !ok {
		return object, nil
	}
	return &appliancev1alpha1.AppInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name: instance.Name, Namespace: instance.Namespace, UID: instance.UID,
			ResourceVersion: instance.ResourceVersion, DeletionTimestamp: instance.DeletionTimestamp,
		},
		Spec: appliancev1alpha1.AppInstanceSpec{Access: instance.Spec.Access, Enabled: instance.Spec.Enabled},
	}, nil
}

func (i *Instances) hear() { i.heard.Store(i.now().UnixNano()) }

// Run watches until ctx ends. A missing CRD or API server is waited for.
func (i *Instances) Run(ctx context.Context) { i.informer.RunWithContext(ctx) }

// Ready is nil while lookups are answered, and says otherwise why not.
func (i *Instances) Ready() error {
	if !i.informer.HasSynced() {
		return errors.New("the AppInstances have not been listed yet")
	}
	if silent := i.now().Sub(time.Unix(0, i.heard.Load())); silent > i.maxAge {
		return fmt.Errorf("the API server has not been heard from for %s", silent.Round(time.Second))
	}
	return nil
}

// Lookup finds an instance.
func (i *Instances) Lookup(namespace, name string) Instance {
	if i.Ready() != nil {
		return Instance{Lookup: LookupUnavailable}
	}
	object, found, err := i.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil {
		return Instance{Lookup: LookupUnavailable}
	}
	instance, ok := object.(*appliancev1alpha1.AppInstance)
	if !found || !ok {
		return Instance{Lookup: LookupAbsent}
	}
	return FactsOf(instance)
}
