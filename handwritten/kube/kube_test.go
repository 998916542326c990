package kube

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kustomizeac "magicstick.dev/operator/generated/external/flux/kustomize/applyconfiguration/api/v1"
	metaac "magicstick.dev/operator/generated/external/flux/kustomize/applyconfiguration/apis/meta"
)

func TestSetConditionMovesTimeOnlyOnFlips(t *testing.T) {
	var list []metav1.Condition
	first := time.Date(2026, 1, 1, 0, 0, 0, 500, time.UTC)
	set := func(status metav1.ConditionStatus, reason, message string, generation int64, now time.Time) bool {
		return SetCondition(&list, metav1.Condition{Type: "Ready", Status: status, Reason: reason, Message: message, ObservedGeneration: generation}, now)
	}
	require.True(t, set(metav1.ConditionFalse, "A", "a", 1, first))
	require.False(t, set(metav1.ConditionFalse, "A", "a", 1, first.Add(time.Hour)), "nothing new")
	require.True(t, set(metav1.ConditionFalse, "B", "b", 2, first.Add(time.Hour)))
	require.Equal(t, first.Truncate(time.Second), list[0].LastTransitionTime.Time, "a new reason is no flip")
	require.True(t, set(metav1.ConditionTrue, "C", strings.Repeat("é", MaxConditionMessage), 2, first.Add(2*time.Hour)))
	require.Equal(t, first.Add(2*time.Hour).Truncate(time.Second), list[0].LastTransitionTime.Time)
	require.LessOrEqual(t, len(list[0].Message), MaxConditionMessage)
}

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"short", 5, "short"},
		{"longer", 5, "lo…"},
		{"ééé", 5, "é…"},
		{"bad \xff byte", 20, "bad \uFFFD byte"},
		{"abc", 2, ""},
	} {
		require.Equal(t, c.want, Truncate(c.in, c.limit))
	}
}

func TestSanitizeRemovesWhatMayBeSecret(t *testing.T) {
	for in, want := range map[string]string{
		"cannot get https://user:pw@git.example.com/repo.git?token=abc#x: 403": "cannot get https://git.example.com/repo.git 403",
		"two oci://a:b@r/x and http://h?q":                                     "two oci://r/x and http://h",
		"no address":                                                           "no address",
		"port https://h:8443/p stays":                                          "port https://h:8443/p stays",
		"token hf_abcdefGHIJKL is gated":                                       "token hf_[removed] is gated",
		"Authorization: Bearer eyJhbGciOi.x.y, key sk-proj-0123456789":         "Authorization: Bearer[removed], key sk-[removed]",
		"flag --disk-cache and hf_x stay":                                      "flag --disk-cache and hf_x stay",
	} {
		require.Equal(t, want, Sanitize(in), in)
	}
}

func TestValidReason(t *testing.T) {
	require.Equal(t, "BuildFailed", ValidReason("BuildFailed", "X"))
	for _, odd := range []string{"", "has space", "9digits", strings.Repeat("a", MaxReason+1)} {
		require.Equal(t, "X", ValidReason(odd, "X"))
	}
}

// The generic reading of contract/appliance.md C.2.
func TestReadReadiness(t *testing.T) {
	condition := func(kind, status string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": "R", "message": "m"}
	}
	for name, c := range map[string]struct {
		status   map[string]any
		want     metav1.ConditionStatus
		outdated bool
	}{
		"status.ready wins":           {map[string]any{"ready": true, "conditions": []any{condition("Ready", "False")}}, "True", false},
		"status.ready false is no":    {map[string]any{"ready": false, "conditions": []any{condition("Ready", "True")}}, "True", false},
		"Ready before Available":      {map[string]any{"conditions": []any{condition("Available", "True"), condition("Ready", "False")}}, "False", false},
		"ServerReady":                 {map[string]any{"conditions": []any{condition("ServerReady", "True")}}, "True", false},
		"ServerHealthy beats it":      {map[string]any{"conditions": []any{condition("ServerReady", "False"), condition("ServerHealthy", "True")}}, "True", false},
		"Available last":              {map[string]any{"conditions": []any{condition("Available", "True")}}, "True", false},
		"an odd status is unknown":    {map[string]any{"conditions": []any{condition("Ready", "Perhaps")}}, "Unknown", false},
		"silence is unknown":          {map[string]any{}, "Unknown", false},
		"odd shapes are unknown":      {map[string]any{"conditions": []any{"x", int64(7)}}, "Unknown", false},
		"an old generation is marked": {map[string]any{"observedGeneration": int64(1), "conditions": []any{condition("Ready", "True")}}, "True", true},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"generation": int64(2)}, "status": c.status}}
			state := ReadReadiness(object)
			require.Equal(t, c.want, state.Status)
			require.Equal(t, c.outdated, state.Outdated)
			require.Equal(t, c.want == "True" && !c.outdated, state.Ready())
		})
	}
	require.Equal(t, metav1.ConditionUnknown, ReadReadiness(nil).Status)
}

func TestUnchanged(t *testing.T) {
	rendered := func() *kustomizeac.KustomizationApplyConfiguration {
		return kustomizeac.Kustomization("k", "n").WithLabels(map[string]string{"a": "b"}).WithSpec(kustomizeac.KustomizationSpec().
			WithInterval(metav1.Duration{Duration: 10 * time.Minute}).WithPrune(true).WithSuspend(false).
			WithDependsOn(metaac.DependencyReference().WithName("base")).
			WithPostBuild(kustomizeac.PostBuild().WithSubstitute(map[string]string{"X": "1"})))
	}
	const owned = `{"f:metadata":{"f:labels":{"f:a":{}}},"f:spec":{"f:interval":{},"f:prune":{},"f:suspend":{},"f:dependsOn":{},"f:postBuild":{"f:substitute":{"f:X":{}}}}}`
	cached := func() *kustomizev1.Kustomization {
		k := &kustomizev1.Kustomization{}
		k.Name, k.Namespace, k.Labels = "k", "n", map[string]string{"a": "b", "other": "label"}
		k.Spec.Interval = metav1.Duration{Duration: 10 * time.Minute}
		k.Spec.Prune = true
		k.Spec.DependsOn = append(k.Spec.DependsOn, kustomizev1.DependencyReference{Name: "base"})
		k.Spec.PostBuild = &kustomizev1.PostBuild{Substitute: map[string]string{"X": "1", "theirs": "2"}}
		k.Spec.Force = true // set by somebody else
		k.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(owned)}}
		return k
	}
	for name, c := range map[string]struct {
		edit func(*kustomizev1.Kustomization)
		want bool
	}{
		"the same, beside fields of others": {func(*kustomizev1.Kustomization) {}, true},
		"a value differs":                   {func(k *kustomizev1.Kustomization) { k.Spec.Suspend = true }, false},
		"a value in a map differs":          {func(k *kustomizev1.Kustomization) { k.Spec.PostBuild.Substitute["X"] = "2" }, false},
		"a map is gone":                     {func(k *kustomizev1.Kustomization) { k.Spec.PostBuild = nil }, false},
		"a list differs":                    {func(k *kustomizev1.Kustomization) { k.Spec.DependsOn[0].Name = "other" }, false},
		"a list is longer":                  {func(k *kustomizev1.Kustomization) { k.Spec.DependsOn = append(k.Spec.DependsOn, k.Spec.DependsOn[0]) }, false},
		"a label is gone":                   {func(k *kustomizev1.Kustomization) { delete(k.Labels, "a") }, false},
		"never applied by us":               {func(k *kustomizev1.Kustomization) { k.ManagedFields = nil }, false},
		"applied under another name":        {func(k *kustomizev1.Kustomization) { k.ManagedFields[0].Manager = "kubectl" }, false},
		"we own a field that is rendered no more": {func(k *kustomizev1.Kustomization) {
			k.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(strings.Replace(owned, `"f:X":{}`, `"f:X":{},"f:gone":{}`, 1))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			object := cached()
			c.edit(object)
			same, err := Unchanged(rendered(), object, FieldManager)
			require.NoError(t, err)
			require.Equal(t, c.want, same)
		})
	}
	broken := cached()
	broken.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1("{")
	_, err := Unchanged(rendered(), broken, FieldManager)
	require.ErrorContains(t, err, "managed fields of Kustomization n/k")
}

// A finalizer of somebody else is no change of ours; a missing one of ours is.
func TestUnchangedLeavesForeignFinalizersAlone(t *testing.T) {
	rendered := kustomizeac.Kustomization("k", "n").WithFinalizers("ours.example/a")
	cached := &kustomizev1.Kustomization{}
	cached.Name, cached.Namespace = "k", "n"
	cached.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply,
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:finalizers":{"v:\"ours.example/a\"":{}}}}`)}}
	for finalizers, want := range map[string]bool{
		"ours.example/a": true, "theirs.example/b ours.example/a": true, "theirs.example/b": false, "": false,
	} {
		cached.Finalizers = strings.Fields(finalizers)
		same, err := Unchanged(rendered, cached, FieldManager)
		require.NoError(t, err)
		require.Equal(t, want, same, finalizers)
	}
}

func TestUnchangedKnowsListsWithKeys(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "d", "namespace": "n"},
		"spec":     map[string]any{"ports": []any{map[string]any{"port": int64(80), "name": "http"}}, "set": []any{"x"}},
	}}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(
		`{"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{},"f:port":{}}},"f:set":{"v:\"x\"":{}}}}`)}})
	rendered := map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
		"spec": map[string]any{"ports": []any{map[string]any{"port": 80, "name": "http"}}, "set": []any{"x"}}}
	same, err := Unchanged(rendered, object, FieldManager)
	require.NoError(t, err)
	require.True(t, same)
	rendered["spec"].(map[string]any)["ports"] = []any{map[string]any{"port": 81, "name": "http"}}
	same, err = Unchanged(rendered, object, FieldManager)
	require.NoError(t, err)
	require.False(t, same)
}

// Of an item with a key only what is rendered counts: the API server adds
// defaults to containers, and others add containers.
func TestUnchangedLooksIntoItemsWithKeys(t *testing.T) {
	container := func(edit func(map[string]any)) []any {
		fields := map[string]any{
			"name": "server", "image": "x", "imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log",
			"ports":     []any{map[string]any{"containerPort": int64(8000), "protocol": "TCP", "name": "http"}},
			"resources": map[string]any{"limits": map[string]any{"memory": "8Gi"}},
		}
		if edit != nil {
			edit(fields)
		}
		return []any{fields}
	}
	for name, c := range map[string]struct {
		containers []any
		same       bool
	}{
		"defaults":              {container(nil), true},
		"a foreign container":   {append([]any{map[string]any{"name": "sidecar", "image": "y"}}, container(nil)...), true},
		"another image":         {container(func(f map[string]any) { f["image"] = "z" }), false},
		"another limit":         {container(func(f map[string]any) { f["resources"] = map[string]any{"limits": map[string]any{"memory": "9Gi"}} }), false},
		"the port is gone":      {container(func(f map[string]any) { delete(f, "ports") }), false},
		"the container is gone": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": "d", "namespace": "n"}, "spec": map[string]any{"containers": c.containers},
			}}
			object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(
				`{"f:spec":{"f:containers":{"k:{\"name\":\"server\"}":{".":{},"f:name":{},"f:image":{},"f:resources":{"f:limits":{"f:memory":{}}},"f:ports":{"k:{\"containerPort\":8000,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{}}}}}}}`)}})
			rendered := map[string]any{"apiVersion": "v1", "kind": "Thing", "spec": map[string]any{"containers": []any{map[string]any{
				"name": "server", "image": "x", "resources": map[string]any{"limits": map[string]any{"memory": "8Gi"}},
				"ports": []any{map[string]any{"containerPort": 8000, "name": "http"}},
			}}}}
			same, err := Unchanged(rendered, object, FieldManager)
			require.NoError(t, err)
			require.Equal(t, c.same, same)
		})
	}
}

func TestTransformsKeepWhatIsRead(t *testing.T) {
	k := &kustomizev1.Kustomization{}
	k.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}, {Manager: FieldManager}}
	_, err := KeepOwnManagedFields(k)
	require.NoError(t, err)
	require.Equal(t, []metav1.ManagedFieldsEntry{{Manager: FieldManager}}, k.ManagedFields)

	crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: "v1", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{}}}}}
	_, err = StripCRD(crd)
	require.NoError(t, err)
	require.Equal(t, []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}}, crd.Spec.Versions)
}

func TestUnusableCRDs(t *testing.T) {
	established := func(edit func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Name = "things.example.com"
		crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}}
		crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		edit(crd)
		return crd
	}
	for want, edit := range map[string]func(*apiextensionsv1.CustomResourceDefinition){
		"": func(*apiextensionsv1.CustomResourceDefinition) {},
		"CustomResourceDefinition things.example.com is being deleted": func(c *apiextensionsv1.CustomResourceDefinition) {
			c.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		},
		"CustomResourceDefinition things.example.com is not established yet":    func(c *apiextensionsv1.CustomResourceDefinition) { c.Status.Conditions = nil },
		"CustomResourceDefinition things.example.com does not serve version v1": func(c *apiextensionsv1.CustomResourceDefinition) { c.Spec.Versions[0].Served = false },
	} {
		require.Equal(t, want, unusable(established(edit), "v1"))
	}
}

func TestErrorsAreSorted(t *testing.T) {
	resource := schema.GroupResource{Resource: "things"}
	wrap := func(err error) error { return fmt.Errorf("applying: %w", err) }
	for name, c := range map[string]struct {
		err            error
		stale, refused bool
	}{
		"conflict":       {apierrors.NewConflict(resource, "x", errors.New("changed")), true, false},
		"forbidden":      {apierrors.NewForbidden(resource, "x", errors.New("no")), false, true},
		"not found":      {apierrors.NewNotFound(resource, "x"), false, true},
		"bad request":    {apierrors.NewBadRequest("odd"), false, true},
		"too large":      {apierrors.NewRequestEntityTooLargeError("big"), false, true},
		"server timeout": {apierrors.NewServerTimeout(resource, "patch", 1), false, false},
		"unavailable":    {apierrors.NewServiceUnavailable("gone"), false, false},
		"too many":       {apierrors.NewTooManyRequestsError("slow down"), false, false},
		"network":        {errors.New("connection refused"), false, false},
	} {
		require.Equal(t, c.stale, IsStale(wrap(c.err)), name)
		require.Equal(t, c.refused, IsRefused(wrap(c.err)), name)
	}
	require.Equal(t, "odd", Refusal(wrap(apierrors.NewBadRequest("odd"))))
	require.Equal(t, "applying: get http://h/", Refusal(wrap(errors.New("get http://u:p@h/?k="+http.MethodGet))))
}
