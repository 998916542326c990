package kube

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// EnsureFinalizer adds the finalizer to the object and writes it, before any
// side effect is made that it guards. The write is bound to the resource
// version that was read, because a merge patch replaces the whole list.
func EnsureFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string) (bool, error) {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok || !controllerutil.AddFinalizer(object, finalizer) {
		return false, nil
	}
	if err := patchFinalizers(ctx, c, before, object); err != nil {
		return false, fmt.Errorf("adding the finalizer to %s: %w", Describe(object), err)
	}
	return true, nil
}

// DropFinalizer removes the finalizer. When it was the last one, the API server
// deletes the object; an object that is already gone is no error.
func DropFinalizer(ctx context.Context, c client.Client, object client.Object, finalizer string) error {
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok || !controllerutil.RemoveFinalizer(object, finalizer) {
		return nil
	}
	if err := client.IgnoreNotFound(patchFinalizers(ctx, c, before, object)); err != nil {
		return fmt.Errorf("removing the finalizer from %s: %w", Describe(object), err)
	}
	return nil
}

func patchFinalizers(ctx context.Context, c client.Client, before, after client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return c.Patch(ctx, after, patch, client.FieldOwner(FieldManager))
}
