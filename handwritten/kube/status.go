package kube

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PatchStatus writes the difference between before and after through the
// status subresource, as one merge patch that is bound to the resource version
// that was read. Without a difference no call is made and false is returned.
//
// A conflict means that the cache was behind: the caller tries again with
// fresh facts (see IsStale), and no time stamp of a newer status is lost.
func PatchStatus(ctx context.Context, c client.Client, before, after client.Object) (bool, error) {
	difference, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return false, fmt.Errorf("comparing the status of %s: %w", Describe(after), err)
	}
	if string(difference) == "{}" {
		return false, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Status().Patch(ctx, after, patch, client.FieldOwner(FieldManager)); err != nil {
		return false, fmt.Errorf("writing the status of %s: %w", Describe(after), err)
	}
	return true, nil
}

// Describe names an object for errors: Go type without package, namespace, name.
func Describe(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = typeName(object)
	}
	if object.GetNamespace() == "" {
		return kind + " " + object.GetName()
	}
	return kind + " " + object.GetNamespace() + "/" + object.GetName()
}
