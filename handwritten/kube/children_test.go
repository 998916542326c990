package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// Whoever takes the last finalizer off must not wait for a version that no
// cache will ever show: what comes in its place is wanted now.
func TestChildrenReadOnAfterTheLastFinalizer(t *testing.T) {
	config := controlplanetest.Shared(t)
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	children := NewChildren(c)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: controlplanetest.Namespace(t, config), Name: "held", Finalizers: []string{"example.com/first", "example.com/last"},
	}}
	require.NoError(t, c.Create(t.Context(), held))
	require.NoError(t, c.Delete(t.Context(), held))

	for _, left := range [][]string{{"example.com/last"}, nil} {
		found, err := children.Get(t.Context(), client.ObjectKeyFromObject(held), held)
		require.NoError(t, err)
		require.True(t, found)
		before := held.DeepCopy()
		held.Finalizers = left
		require.NoError(t, children.Patch(t.Context(), before, held))
	}
	began := time.Now()
	found, err := children.Get(t.Context(), client.ObjectKeyFromObject(held), held)
	require.NoError(t, err)
	require.False(t, found)
	require.Less(t, time.Since(began), cacheLag)
}
