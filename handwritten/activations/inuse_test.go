package activations

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	aiv1alpha1 "magicstick.dev/operator/generated/apis/ai/v1alpha1"
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// user makes an activation that names a prepared model.
func user(name, kind, model string, change func(*appliancev1alpha1.ModelActivation)) *appliancev1alpha1.ModelActivation {
	activation := &appliancev1alpha1.ModelActivation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ai-system", Finalizers: []string{kube.FinalizerModel}},
		Spec: appliancev1alpha1.ModelActivationSpec{
			Type: "local", TargetNamespace: "ai",
			Local: &appliancev1alpha1.ModelActivationSpecLocal{
				ModelRef: &appliancev1alpha1.ModelActivationSpecLocalModelRef{Kind: appliancev1alpha1.ModelActivationSpecLocalModelRefKind(kind), Name: model},
			},
		},
	}
	if change != nil {
		change(activation)
	}
	return activation
}

// Which activations keep a prepared model.
func TestModelUsers(t *testing.T) {
	const ready, removing, disabled = "Ready", "Removing", "Disabled"
	off := func(phase appliancev1alpha1.ModelActivationStatusPhase, finalizers ...string) func(*appliancev1alpha1.ModelActivation) {
		return func(activation *appliancev1alpha1.ModelActivation) {
			activation.Spec.Enabled, activation.Status.Phase, activation.Finalizers = ptr.To(false), phase, finalizers
		}
	}
	gone := func(phase appliancev1alpha1.ModelActivationStatusPhase, finalizers ...string) func(*appliancev1alpha1.ModelActivation) {
		return func(activation *appliancev1alpha1.ModelActivation) {
			activation.DeletionTimestamp, activation.Status.Phase, activation.Finalizers = ptr.To(metav1.Now()), phase, finalizers
		}
	}
	for name, test := range map[string]struct {
		kind, model string
		change      func(*appliancev1alpha1.ModelActivation)
		uses        bool
	}{
		"enabled":                             {"Model", "qwen", nil, true},
		"enabled and in trouble":              {"Model", "qwen", func(a *appliancev1alpha1.ModelActivation) { a.Status.Phase = "Degraded" }, true},
		"enabled again, status still old":     {"Model", "qwen", func(a *appliancev1alpha1.ModelActivation) { a.Status.Phase = disabled }, true},
		"new, nothing done yet":               {"Model", "qwen", func(a *appliancev1alpha1.ModelActivation) { a.Finalizers = nil }, true},
		"cluster-wide of the same name":       {"ClusterModel", "qwen", nil, false},
		"another one":                         {"Model", "qwen2", nil, false},
		"another namespace":                   {"Model", "qwen", func(a *appliancev1alpha1.ModelActivation) { a.Spec.TargetNamespace = "team" }, false},
		"namespace by default":                {"Model", "qwen", func(a *appliancev1alpha1.ModelActivation) { a.Spec.TargetNamespace = "" }, true},
		"external":                            {"Model", "qwen", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Type = "external" }, false},
		"no modelRef":                         {"Model", "qwen", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Local.ModelRef = nil }, false},
		"no local":                            {"Model", "qwen", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Local = nil }, false},
		"switched off, still running":         {"Model", "qwen", off(ready, kube.FinalizerModel), true},
		"switched off, being removed":         {"Model", "qwen", off(removing, kube.FinalizerModel), true},
		"switched off and gone":               {"Model", "qwen", off(disabled, kube.FinalizerModel), false},
		"switched off from the start":         {"Model", "qwen", off(""), false},
		"deleted, still running":              {"Model", "qwen", gone(ready, kube.FinalizerModel), true},
		"deleted, runtime gone":               {"Model", "qwen", gone(removing, "somebody/else"), false},
		"deleted after it was switched off":   {"Model", "qwen", gone(disabled, kube.FinalizerModel), false},
		"deleted while nothing was done ever": {"Model", "qwen", gone("", "somebody/else"), false},
	} {
		t.Run(name, func(t *testing.T) {
			users := usersOf("Model", types.NamespacedName{Namespace: "ai", Name: "qwen"},
				[]*appliancev1alpha1.ModelActivation{user("chat", test.kind, test.model, test.change)})
			assert.Equal(t, test.uses, len(users) == 1)
		})
	}
	users := usersOf("ClusterModel", types.NamespacedName{Name: "qwen"}, []*appliancev1alpha1.ModelActivation{
		user("b", "ClusterModel", "qwen", nil), user("c", "Model", "qwen", nil), user("a", "ClusterModel", "qwen", nil),
	})
	assert.Equal(t, []string{"ai-system/a", "ai-system/b"}, users)
}

// What a prepared model is to be marked with, and when a deletion is announced.
func TestHoldModel(t *testing.T) {
	many := make([]string, 0, 13)
	for i := range 13 {
		many = append(many, fmt.Sprintf("ai-system/a%02d", i))
	}
	one := []string{"ai-system/chat"}
	for name, test := range map[string]struct {
		held, deleted bool
		said          string
		users         []string
		same          bool // nothing is written
		wantHeld      bool
		wantSaid      string
	}{
		"nobody, not marked":           {same: true},
		"nobody any more":              {held: true},
		"nobody any more, deleted":     {held: true, deleted: true, said: "ai-system/chat"},
		"somebody new":                 {users: one, wantHeld: true},
		"somebody, marked":             {held: true, users: one, same: true},
		"somebody, deleted":            {held: true, deleted: true, users: one, wantHeld: true, wantSaid: "ai-system/chat"},
		"somebody, deleted, said":      {held: true, deleted: true, said: "ai-system/chat", users: one, same: true},
		"somebody else by now":         {held: true, deleted: true, said: "ai-system/old", users: one, wantHeld: true, wantSaid: "ai-system/chat"},
		"too late for a finalizer":     {deleted: true, users: one, same: true},
		"too late, with a wrong claim": {deleted: true, said: "ai-system/chat", users: one},
		"a claim by hand":              {held: true, said: "me", users: one, wantHeld: true},
		"many":                         {held: true, deleted: true, users: many, wantHeld: true, wantSaid: "ai-system/a00, ai-system/a01, ai-system/a02, ai-system/a03, ai-system/a04, ai-system/a05, ai-system/a06, ai-system/a07, ai-system/a08, ai-system/a09 and 3 more"},
	} {
		t.Run(name, func(t *testing.T) {
			model := &aiv1alpha1.Model{ObjectMeta: metav1.ObjectMeta{
				Name: "qwen", Finalizers: []string{"ai.deckhouse.io/model-cleanup"}, Annotations: map[string]string{"theirs": "stays"},
			}}
			if test.held {
				model.Finalizers = append(model.Finalizers, FinalizerInUse)
			}
			if test.said != "" {
				model.Annotations[AnnotationInUseBy] = test.said
			}
			if test.deleted {
				model.DeletionTimestamp = ptr.To(metav1.Now())
			}
			before := model.DeepCopy()
			after, blocked := hold(model, test.users)
			assert.Equal(t, before, model, "the cache's own is not touched")
			if test.same {
				assert.Nil(t, after)
				assert.Empty(t, blocked)
				return
			}
			require.NotNil(t, after)
			finalizers := []string{"ai.deckhouse.io/model-cleanup"}
			if test.wantHeld {
				finalizers = append(finalizers, FinalizerInUse)
			}
			assert.Equal(t, finalizers, after.GetFinalizers())
			assert.Equal(t, "stays", after.GetAnnotations()["theirs"])
			assert.Equal(t, test.wantSaid, after.GetAnnotations()[AnnotationInUseBy])
			assert.Equal(t, test.wantSaid, blocked)
			again, _ := hold(after, test.users)
			assert.Nil(t, again, "once is enough")
		})
	}
}
