// Package kubetest has what the tests of several controllers share: golden
// files, and objects that look as if the operator had applied them.
package kubetest

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
	"sigs.k8s.io/yaml"

	"magicstick.dev/operator/handwritten/kube"
)

// Golden compares a value, written as YAML, with a file. With update the file is
// written anew first.
func Golden(t *testing.T, file string, have any, update bool) {
	t.Helper()
	text, err := yaml.Marshal(have)
	require.NoError(t, err)
	if update {
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
	want, err := os.ReadFile(file) // #nosec G304 -- a path of the test's own
	require.NoError(t, err)
	require.Equal(t, string(want), string(text))
}

// Own gives an object the managed fields that it has when the operator applied
// its labels, annotations and spec as they stand. explicit are fields of the spec
// that were applied as false, which a typed object does not show.
func Own(t *testing.T, object client.Object, explicit ...string) {
	t.Helper()
	object.SetManagedFields(nil)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	applied := map[string]any{}
	if spec, found := fields["spec"].(map[string]any); found {
		for _, name := range explicit {
			if _, set := spec[name]; !set {
				spec[name] = false
			}
		}
		applied["spec"] = spec
	}
	kept := map[string]any{}
	metadata, _ := fields["metadata"].(map[string]any)
	for _, name := range []string{"labels", "annotations"} {
		if metadata[name] != nil {
			kept[name] = metadata[name]
		}
	}
	if len(kept) > 0 {
		applied["metadata"] = kept
	}
	raw, err := fieldpath.SetFromValue(value.NewValueInterface(applied)).ToJSON()
	require.NoError(t, err)
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: kube.FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(string(bytes.TrimSpace(raw))),
	}})
}
