package kube

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Unchanged reports whether applying desired over the cached object would be a
// no-op: every rendered value is there, and the field manager owns nothing
// that is rendered no more. A no-op apply costs the API server as much as a
// write, so a controller asks here first.
//
// Values are compared after a round trip through the Go type of the cached
// object, so that an omitted false and a rendered false are the same.
func Unchanged(desired any, cached client.Object, manager string) (bool, error) {
	raw, err := json.Marshal(desired)
	if err != nil {
		return false, fmt.Errorf("encoding the rendered %s: %w", Describe(cached), err)
	}
	rendered := map[string]any{}
	if err := json.Unmarshal(raw, &rendered); err != nil {
		return false, fmt.Errorf("reading the rendered %s: %w", Describe(cached), err)
	}
	owned, err := ownedFields(cached.GetManagedFields(), manager)
	if err != nil {
		return false, fmt.Errorf("reading the managed fields of %s: %w", Describe(cached), err)
	}
	if owned == nil {
		return false, nil
	}
	abandoned := false
	owned.Iterate(func(path fieldpath.Path) {
		abandoned = abandoned || !hasPath(rendered, path)
	})
	if abandoned {
		return false, nil
	}

	typed, ok := reflect.New(reflect.TypeOf(cached).Elem()).Interface().(client.Object)
	if !ok {
		return false, fmt.Errorf("comparing %s: its type is not an API object", Describe(cached))
	}
	if err := json.Unmarshal(raw, typed); err != nil {
		return false, fmt.Errorf("reading the rendered %s: %w", Describe(cached), err)
	}
	want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return false, fmt.Errorf("comparing the rendered %s: %w", Describe(cached), err)
	}
	have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cached)
	if err != nil {
		return false, fmt.Errorf("comparing the cached %s: %w", Describe(cached), err)
	}
	if finalizers := typed.GetFinalizers(); len(finalizers) > 0 {
		// Others hold an object with finalizers of their own; applying ours leaves them alone.
		present := slices.DeleteFunc(slices.Clone(cached.GetFinalizers()), func(name string) bool { return !slices.Contains(finalizers, name) })
		if err := unstructured.SetNestedStringSlice(have, present, "metadata", "finalizers"); err != nil {
			return false, fmt.Errorf("comparing the finalizers of %s: %w", Describe(cached), err)
		}
	}
	// A cached typed object carries no type, and its name was its key.
	delete(rendered, "apiVersion")
	delete(rendered, "kind")
	return contains(rendered, want, have, owned), nil
}

// ownedFields is what the manager last applied, nil when it never did.
func ownedFields(entries []metav1.ManagedFieldsEntry, manager string) (*fieldpath.Set, error) {
	for _, entry := range entries {
		if entry.Manager != manager || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, err
		}
		return set, nil
	}
	return nil, nil
}

// KeepOwnManagedFields is a cache transform: of the managed fields only the
// entry of FieldManager stays, which is all that Unchanged needs.
func KeepOwnManagedFields(object any) (any, error) {
	accessor, ok := object.(client.Object)
	if !ok {
		return object, nil
	}
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range accessor.GetManagedFields() {
		if entry.Manager == FieldManager {
			kept = append(kept, entry)
		}
	}
	accessor.SetManagedFields(kept)
	return object, nil
}

// contains compares the values at every rendered path. rendered says which
// paths count; want and have are the same type's encoding of both sides, and
// owned is what the manager applied there.
//
// A list whose items have keys belongs to several: of each item that was applied
// only what is rendered counts, as the API server adds defaults. Every other list
// has one owner and is compared as a whole.
func contains(rendered, want, have any, owned *fieldpath.Set) bool {
	if items, isList := rendered.([]any); isList {
		if keys := itemKeys(owned); len(keys) > 0 {
			return containsItems(items, want, have, owned, keys)
		}
	}
	fields, ok := rendered.(map[string]any)
	if !ok {
		return reflect.DeepEqual(want, have)
	}
	if len(fields) == 0 {
		return true
	}
	wantFields, _ := want.(map[string]any)
	haveFields, _ := have.(map[string]any)
	for name, value := range fields {
		if !contains(value, wantFields[name], haveFields[name], owned.WithPrefix(fieldpath.PathElement{FieldName: &name})) {
			return false
		}
	}
	return true
}

func containsItems(items []any, want, have any, owned *fieldpath.Set, keys []fieldpath.PathElement) bool {
	for _, item := range items {
		matched := false
		for _, key := range keys {
			if _, matched = itemWithKey([]any{item}, key); !matched {
				continue
			}
			wantItem, _ := itemWithKey(want, key)
			haveItem, found := itemWithKey(have, key)
			if !found || !contains(item, wantItem, haveItem, owned.WithPrefix(key)) {
				return false
			}
			break
		}
		if !matched {
			return false // an item that was never applied
		}
	}
	return true
}

// itemKeys are the keys of the items that were applied to a list.
func itemKeys(owned *fieldpath.Set) []fieldpath.PathElement {
	var keys []fieldpath.PathElement
	add := func(element fieldpath.PathElement) {
		if element.Key != nil && !slices.ContainsFunc(keys, element.Equals) {
			keys = append(keys, element)
		}
	}
	owned.Members.Iterate(add)
	owned.Children.Iterate(add)
	return keys
}

// hasPath reports whether a rendered object says something at a managed path.
func hasPath(value any, path fieldpath.Path) bool {
	for _, element := range path {
		switch {
		case element.FieldName != nil:
			fields, _ := value.(map[string]any)
			next, found := fields[*element.FieldName]
			if !found {
				return false
			}
			value = next
		case element.Key != nil:
			next, found := itemWithKey(value, element)
			if !found {
				return false
			}
			value = next
		case element.Value != nil:
			items, _ := value.([]any)
			found := false
			for _, item := range items {
				if reflect.DeepEqual(item, plain((*element.Value).Unstructured())) {
					value, found = item, true
					break
				}
			}
			if !found {
				return false
			}
		case element.Index != nil:
			items, _ := value.([]any)
			if *element.Index < 0 || *element.Index >= len(items) {
				return false
			}
			value = items[*element.Index]
		}
	}
	return true
}

func itemWithKey(value any, element fieldpath.PathElement) (any, bool) {
	items, _ := value.([]any)
	for _, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		matches := true
		for _, key := range *element.Key {
			// A key that the schema defaults is absent in what we render.
			if given, found := fields[key.Name]; found && !reflect.DeepEqual(plain(given), plain(key.Value.Unstructured())) {
				matches = false
			}
		}
		if matches {
			return item, true
		}
	}
	return nil, false
}

// plain turns the integers of a field path into the float64 of encoding/json.
func plain(value any) any {
	switch number := value.(type) {
	case int64:
		return float64(number)
	case int:
		return float64(number)
	}
	return value
}

// Applied reports whether the operator has applied the object as it was read. A
// mere change to it, or to its status, does not count: only what a controller
// renders is applied. The object comes from a cache with KeepOwnManagedFields.
func Applied(object client.Object) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
	})
}
