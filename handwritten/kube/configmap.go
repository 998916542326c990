package kube

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConfigMapDocument reads a ConfigMap and parses it. The result is kept until
// the ConfigMap changes, so asking in every pass costs a look into the cache.
type ConfigMapDocument[T any] struct {
	// Reader is a cache.
	Reader client.Reader
	// Name of the ConfigMap.
	Name types.NamespacedName
	// Parse turns the ConfigMap into the result; its error names what is wrong.
	Parse func(*corev1.ConfigMap) (T, error)

	mutex   sync.Mutex
	version string
	value   T
	err     error
	good    *T
}

// LastGood is the result of the last ConfigMap that could be parsed, although it
// may be broken or gone by now; false when there was none since the process started.
func (d *ConfigMapDocument[T]) LastGood() (T, bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.good == nil {
		var none T
		return none, false
	}
	return *d.good, true
}

// Get returns the parsed document as the cache has it now. The error names the
// ConfigMap and what is wrong with it.
func (d *ConfigMapDocument[T]) Get(ctx context.Context) (T, error) {
	var none T
	configMap := &corev1.ConfigMap{}
	if err := d.Reader.Get(ctx, d.Name, configMap, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return none, fmt.Errorf("ConfigMap %s does not exist", d.Name)
		}
		return none, fmt.Errorf("reading ConfigMap %s: %w", d.Name, err)
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if version := string(configMap.UID) + "/" + configMap.ResourceVersion; d.version != version {
		d.version = version
		d.value, d.err = d.Parse(configMap)
		if d.err == nil {
			good := d.value
			d.good = &good
		}
	}
	return d.value, d.err
}
