package operator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiv1alpha1 "magicstick.dev/operator/generated/apis/ai/v1alpha1"
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/crds"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	gatewaycrds "magicstick.dev/operator/generated/external/gateway/crds"
	"magicstick.dev/operator/handwritten/activations"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// theirs is the finalizer of the model plane, which these tests play.
const theirs = "ai.deckhouse.io/model-cleanup"

// prepare makes a prepared model: in the namespace of the models, or cluster-wide.
func (w *world) prepare(kind, name string) client.Object {
	w.t.Helper()
	meta := metav1.ObjectMeta{Name: name, Finalizers: []string{theirs}, Annotations: map[string]string{"example.com/note": "stays"}}
	var model client.Object
	if kind == "ClusterModel" {
		model = &aiv1alpha1.ClusterModel{ObjectMeta: meta, Spec: aiv1alpha1.ClusterModelSpec{Source: aiv1alpha1.ClusterModelSpecSource{URL: "https://huggingface.co/a/b"}}}
	} else {
		meta.Namespace = w.options.ModelNamespace
		model = &aiv1alpha1.Model{ObjectMeta: meta, Spec: aiv1alpha1.ModelSpec{Source: aiv1alpha1.ModelSpecSource{URL: "https://huggingface.co/a/b"}}}
	}
	require.NoError(w.t, w.client.Create(w.t.Context(), model))
	return model
}

// serve makes an activation of a prepared model.
func (w *world) serve(name string, model client.Object) *appliancev1alpha1.ModelActivation {
	kind := "Model"
	if _, wide := model.(*aiv1alpha1.ClusterModel); wide {
		kind = "ClusterModel"
	}
	return w.activate(name, appliancev1alpha1.ModelActivationSpecLocal{
		ComputeTarget: "cpu", Engine: "VLLM",
		ModelRef: &appliancev1alpha1.ModelActivationSpecLocalModelRef{Kind: appliancev1alpha1.ModelActivationSpecLocalModelRefKind(kind), Name: model.GetName()},
	})
}

// holding waits until a prepared model is held or not.
func (w *world) holding(model client.Object, want bool) {
	w.t.Helper()
	w.eventually(func() string {
		err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(model), model)
		require.NoError(w.t, err)
		if slices.Contains(model.GetFinalizers(), activations.FinalizerInUse) != want {
			return fmt.Sprintf("want held=%t, has finalizers %v", want, model.GetFinalizers())
		}
		return ""
	})
}

// goes waits until a deleted prepared model has only the finalizer of its owner
// left, and lets it go.
func (w *world) goes(model client.Object) {
	w.t.Helper()
	w.holding(model, false)
	require.NotNil(w.t, model.GetDeletionTimestamp())
	require.Empty(w.t, model.GetAnnotations()[activations.AnnotationInUseBy], "nobody uses it any more")
	require.Equal(w.t, "stays", model.GetAnnotations()["example.com/note"])
	require.Equal(w.t, []string{theirs}, model.GetFinalizers())
	model.SetFinalizers(nil)
	require.NoError(w.t, w.client.Update(w.t.Context(), model))
	w.eventually(func() string {
		if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(model), model); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the model is still there: %v", err)
		}
		return ""
	})
}

// said are the notes of the events on a prepared model.
func (w *world) said(model client.Object) []string {
	w.t.Helper()
	list := &eventsv1.EventList{}
	require.NoError(w.t, w.client.List(w.t.Context(), list))
	var notes []string
	for i := range list.Items {
		if item := list.Items[i]; item.Regarding.UID == model.GetUID() && item.Reason == activations.EventInUse {
			require.Equal(w.t, "Warning", item.Type)
			notes = append(notes, item.Note)
		}
	}
	return notes
}

// The ruling on modelRef: a prepared model stays while an activation uses it, its
// deletion shows who, and it goes when nobody does any more, on every way there.
func TestPreparedModelIsHeldWhileItIsUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.heldWhileUsed("Model")
}

// The same for a cluster-wide one. It needs a cluster of its own: the operators of
// other tests would see that nobody of theirs uses it.
func TestPreparedClusterModelIsHeldWhileItIsUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(crds.FS, fluxcrds.FS, gatewaycrds.FS)))
	w.heldWhileUsed("ClusterModel")
}

func (w *world) heldWhileUsed(kind string) {
	t, space := w.t, w.options.Appliance.Namespace
	old := w.prepare(kind, "old")
	w.serve("early", old)
	w.start()
	w.holding(old, true)
	for way, leave := range map[string]func(name string){
		"deleted": func(name string) {
			require.NoError(t, w.client.Delete(t.Context(), &appliancev1alpha1.ModelActivation{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: space}}))
		},
		"off": func(name string) {
			change(w, &appliancev1alpha1.ModelActivation{}, name, func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
		},
		"changed": func(name string) {
			change(w, &appliancev1alpha1.ModelActivation{}, name, func(a *appliancev1alpha1.ModelActivation) { a.Spec.Local.ModelRef.Name = "another" })
		},
	} {
		model, one, two := w.prepare(kind, way), "one-"+way, "two-"+way
		w.serve(one, model)
		w.holding(model, true)
		require.Equal(t, []string{theirs, activations.FinalizerInUse}, model.GetFinalizers(), "what others wrote stays")
		require.Equal(t, map[string]string{"example.com/note": "stays"}, model.GetAnnotations())
		w.serve(two, model)
		w.model(one, "WaitingForModules", "WaitingForModules")
		w.model(two, "WaitingForModules", "WaitingForModules")

		require.NoError(t, w.client.Delete(t.Context(), model))
		both := space + "/" + one + ", " + space + "/" + two
		w.usedBy(model, both)
		w.eventually(func() string {
			if notes := w.said(model); !slices.Contains(notes, "Cannot be deleted while it is used by "+both) {
				return fmt.Sprintf("the events say %q", notes)
			}
			return ""
		})
		leave(one)
		w.usedBy(model, space+"/"+two)
		leave(two)
		w.goes(model)
	}
	w.holding(old, true)
}

// usedBy waits until a deleted model says who uses it.
func (w *world) usedBy(model client.Object, want string) {
	w.t.Helper()
	w.eventually(func() string {
		require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKeyFromObject(model), model))
		if got := model.GetAnnotations()[activations.AnnotationInUseBy]; got != want {
			return fmt.Sprintf("the annotation says %q, not %q", got, want)
		}
		return ""
	})
}

// A model that is not used is not touched, and one that is costs one write.
func TestPreparedModelCostsOneWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	used, free := w.prepare("Model", "used"), w.prepare("Model", "free")
	w.start()
	w.readyModules("kubeai", "litellm", "model-catalog")
	w.serve("chat", used)
	w.holding(used, true)
	w.model("chat", "Reconciling", "ModelNotReady")
	// The progress of the preparation is no news.
	for _, progress := range []string{"10%", "20%", "90%"} {
		model := &aiv1alpha1.Model{}
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(used), model))
		model.Status.Phase, model.Status.Progress = "Publishing", ptr.To(progress)
		require.NoError(t, w.client.Status().Update(t.Context(), model))
		w.says("chat", func(message string) bool { return strings.Contains(message, progress) })
	}
	writes, _ := w.writes.since(0)
	writes = slices.DeleteFunc(writes, func(write string) bool { return !strings.Contains(write, "ai.deckhouse.io") })
	require.Equal(t, []string{"PATCH /apis/ai.deckhouse.io/v1alpha1/namespaces/" + w.options.ModelNamespace + "/models/used"}, writes)
	w.holding(free, false)
	require.Equal(t, []string{theirs}, free.GetFinalizers())
}

// What changed while the operator was away is made up for: a user that went, and a
// finalizer that somebody took off.
func TestPreparedModelAfterAnAbsence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	left, robbed := w.prepare("Model", "left"), w.prepare("Model", "robbed")
	w.start()
	w.serve("one", left)
	w.serve("two", robbed)
	w.holding(left, true)
	w.holding(robbed, true)

	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(robbed), robbed))
	robbed.SetFinalizers([]string{theirs})
	require.NoError(t, w.client.Update(t.Context(), robbed))
	w.holding(robbed, true)

	w.model("one", "WaitingForModules", "WaitingForModules")
	w.stop()
	change(w, &appliancev1alpha1.ModelActivation{}, "one", func(a *appliancev1alpha1.ModelActivation) { a.SetFinalizers(nil) })
	require.NoError(t, w.client.Delete(t.Context(), &appliancev1alpha1.ModelActivation{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: w.options.Appliance.Namespace}}))
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(robbed), robbed))
	robbed.SetFinalizers([]string{theirs})
	require.NoError(t, w.client.Update(t.Context(), robbed))
	w.start()
	w.holding(left, false)
	w.holding(robbed, true)
}

// A model that is deleted before the finalizer is on it goes, and the activation
// says so.
func TestPreparedModelDeletedInTheLastMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	model := w.prepare("Model", "qwen")
	require.NoError(t, w.client.Delete(t.Context(), model)) // the model plane still holds it
	w.start()
	w.readyModules("kubeai", "litellm", "model-catalog")
	w.serve("chat", model)
	w.model("chat", "Reconciling", "ModelNotReady")
	w.says("chat", func(message string) bool { return strings.Contains(message, "it is being deleted") })
	w.holding(model, false)
	model.SetFinalizers(nil)
	require.NoError(t, w.client.Update(t.Context(), model))
	w.says("chat", func(message string) bool { return strings.Contains(message, "does not exist") })

	// A new one of the same name is held like any other.
	w.holding(w.prepare("Model", "qwen"), true)
}

// A conflict on every first write changes nothing about the end.
func TestPreparedModelUnderConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	model := w.prepare("Model", "qwen")
	w.conflicts()
	w.start()
	w.serve("chat", model)
	w.holding(model, true)
	require.NoError(t, w.client.Delete(t.Context(), model))
	change(w, &appliancev1alpha1.ModelActivation{}, "chat", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
	w.goes(model)
}

// preparedWithThesePermissions holds and lets go prepared models, and sets up
// KubeAI.
func (w *world) preparedWithThesePermissions() {
	w.t.Helper()
	for _, kind := range []string{"Model", "ClusterModel"} {
		model := w.prepare(kind, "qwen")
		name := strings.ToLower(kind)
		w.serve(name, model)
		w.holding(model, true)
		require.NoError(w.t, w.client.Delete(w.t.Context(), model))
		w.usedBy(model, w.options.Appliance.Namespace+"/"+name)
		change(w, &appliancev1alpha1.ModelActivation{}, name, func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
		w.goes(model)
	}
	w.profiles(func(names []string) bool { return len(names) > 0 })
	document := w.document(w.options.FluxNamespace, activations.ProfilesConfigMap)
	document.Data = nil
	require.NoError(w.t, w.client.Update(w.t.Context(), document))
	w.profiles(func(names []string) bool { return len(names) > 0 })
	require.NotNil(w.t, w.document(w.options.ModelNamespace, activations.WrapperConfigMap))
}
