package kube

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Children reads and writes the objects that controllers render for other
// programs: Kustomizations today, HelmReleases, routes and Models later. It
// reads from the cache, never reads behind its own writes, and makes no call
// that changes nothing.
type Children struct {
	client client.Client

	mutex   sync.Mutex
	pending map[childKey]pendingWrite
}

type childKey struct {
	kind reflect.Type
	name types.NamespacedName
}

// pendingWrite is a write that the cache has not shown yet.
type pendingWrite struct {
	version int64     // the cached object has at least this resource version, or
	deleted types.UID // the object of this UID is gone or going
	made    time.Time
}

// cacheLag bounds how long a read waits for the cache to show our own write.
// It is reached only when the object vanished again in between.
const cacheLag = 2 * time.Second

// NewChildren returns Children over a client that reads from a cache.
func NewChildren(c client.Client) *Children {
	return &Children{client: c, pending: map[childKey]pendingWrite{}}
}

// Get reads a child into object and reports whether it exists. It waits until
// the cache shows the last write that was made here.
func (c *Children) Get(ctx context.Context, name types.NamespacedName, object client.Object) (bool, error) {
	key := childKey{reflect.TypeOf(object), name}
	for {
		err := c.client.Get(ctx, name, object)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading %s %s: %w", typeName(object), name, err)
		}
		found := err == nil
		if c.settled(key, object, found) {
			return found, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("waiting for the cache of %s %s: %w", typeName(object), name, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (c *Children) settled(key childKey, object client.Object, found bool) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	write, waiting := c.pending[key]
	if !waiting {
		return true
	}
	seen := time.Since(write.made) > cacheLag
	switch {
	case write.deleted != "":
		seen = seen || !found || object.GetUID() != write.deleted || object.GetDeletionTimestamp() != nil
	case found:
		version, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
		seen = seen || err != nil || version >= write.version
	}
	if seen {
		delete(c.pending, key)
	}
	return seen
}

func (c *Children) note(key childKey, write pendingWrite) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.pending[key] = write
}

// Apply makes the child what is rendered, by server-side apply with FieldManager
// and force. current is the object as Get found it, nil when it does not exist.
// It reports whether a call was made; there is none when nothing would change.
func (c *Children) Apply(ctx context.Context, desired runtime.ApplyConfiguration, name types.NamespacedName, prototype, current client.Object) (bool, error) {
	return c.apply(ctx, desired, name, prototype, current, client.ForceOwnership)
}

// Claim is Apply for children whose name somebody else may use as well: with
// force only over an object that was read and found to be ours. One that
// appeared in the meantime answers with a conflict (see IsStale) instead of
// being taken over. The caller puts the resource version of current into
// desired, so that no other object is meant than the one that was judged.
func (c *Children) Claim(ctx context.Context, desired runtime.ApplyConfiguration, name types.NamespacedName, prototype, current client.Object) (bool, error) {
	if current == nil || reflect.ValueOf(current).IsNil() {
		return c.apply(ctx, desired, name, prototype, nil)
	}
	return c.apply(ctx, desired, name, prototype, current, client.ForceOwnership)
}

func (c *Children) apply(ctx context.Context, desired runtime.ApplyConfiguration, name types.NamespacedName, prototype, current client.Object, options ...client.ApplyOption) (bool, error) {
	if current != nil && !reflect.ValueOf(current).IsNil() {
		same, err := Unchanged(desired, current, FieldManager)
		if err != nil || same {
			return false, err
		}
	}
	if err := c.client.Apply(ctx, desired, append(options, client.FieldOwner(FieldManager))...); err != nil {
		return false, fmt.Errorf("applying %s %s: %w", typeName(prototype), name, err)
	}
	if version, ok := appliedVersion(desired); ok {
		c.note(childKey{reflect.TypeOf(prototype), name}, pendingWrite{version: version, made: time.Now()})
	}
	return true, nil
}

// Patch changes a child that exists, bound to the resource version that was
// read, so that a stale cache can neither create it again nor undo a newer change.
func (c *Children) Patch(ctx context.Context, before, after client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, after, patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("changing %s: %w", Describe(after), err)
	}
	key := childKey{reflect.TypeOf(after), client.ObjectKeyFromObject(after)}
	if after.GetDeletionTimestamp() != nil && len(after.GetFinalizers()) == 0 {
		// Nothing held it any more: the cache will never show this version.
		c.note(key, pendingWrite{deleted: after.GetUID(), made: time.Now()})
	} else if version, err := strconv.ParseInt(after.GetResourceVersion(), 10, 64); err == nil {
		c.note(key, pendingWrite{version: version, made: time.Now()})
	}
	return nil
}

// DeleteUnchanged is Delete for an object that was judged by its state: when it
// has changed since it was read, the answer is a conflict (see IsStale).
func (c *Children) DeleteUnchanged(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := c.client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", Describe(object), err)
	}
	c.note(childKey{reflect.TypeOf(object), client.ObjectKeyFromObject(object)}, pendingWrite{deleted: uid, made: time.Now()})
	return nil
}

// Delete removes exactly the object that was read. One that is gone is no error;
// one that was replaced by another of the same name answers with a conflict (see
// IsStale), since the caller has to judge the other one anew.
func (c *Children) Delete(ctx context.Context, object client.Object) error {
	uid := object.GetUID()
	err := c.client.Delete(ctx, object, client.Preconditions{UID: ptr.To(uid)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting %s: %w", Describe(object), err)
	}
	c.note(childKey{reflect.TypeOf(object), client.ObjectKeyFromObject(object)}, pendingWrite{deleted: uid, made: time.Now()})
	return nil
}

// appliedVersion reads the resource version that the API server answered into
// an apply configuration. Generated apply configurations share no interface
// for it, only the embedded field.
func appliedVersion(applied any) (version int64, ok bool) {
	defer func() {
		// A type without the promoted field must not end the process.
		if recover() != nil {
			version, ok = 0, false
		}
	}()
	if rendered, ok := applied.(*Rendered); ok {
		answered := rendered.appliedResourceVersion()
		if answered == nil {
			return 0, false
		}
		version, err := strconv.ParseInt(*answered, 10, 64)
		return version, err == nil
	}
	value := reflect.ValueOf(applied)
	for value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	text, isText := value.FieldByName("ResourceVersion").Interface().(*string)
	if !isText || text == nil {
		return 0, false
	}
	version, err := strconv.ParseInt(*text, 10, 64)
	return version, err == nil
}
