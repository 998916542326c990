package operator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/activations"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// document reads a ConfigMap; nil when it does not exist.
func (w *world) document(namespace, name string) *corev1.ConfigMap {
	w.t.Helper()
	found := &corev1.ConfigMap{}
	err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return found
}

// profiles waits until KubeAI's profiles pass the check, and returns their names.
func (w *world) profiles(check func(names []string) bool) []string {
	w.t.Helper()
	var names []string
	w.eventually(func() string {
		names = nil
		document := w.document(w.options.FluxNamespace, activations.ProfilesConfigMap)
		if document == nil {
			return "there are no profiles"
		}
		var values struct {
			ResourceProfiles map[string]any `json:"resourceProfiles"`
		}
		require.NoError(w.t, yaml.Unmarshal([]byte(document.Data[activations.ProfilesKey]), &values))
		for name := range values.ResourceProfiles {
			names = append(names, name)
		}
		slices.Sort(names)
		if !check(names) {
			return fmt.Sprintf("the profiles are %v", names)
		}
		return ""
	})
	return names
}

// profileWrites counts the writes of the profiles.
func (w *world) profileWrites() int {
	writes, _ := w.writes.since(0)
	return len(slices.DeleteFunc(writes, func(write string) bool { return !strings.HasSuffix(write, "/"+activations.ProfilesConfigMap) }))
}

// H17: KubeAI's profiles follow the activations, whatever happens to them by hand,
// and keep what a Model still names.
func TestResourceProfilesFollowActivations(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.options.ProfilesQuiet, w.options.ProfilesInterval = 20*time.Millisecond, 100*time.Millisecond
	w.start()
	w.readyModules("kubeai", "litellm", "model-catalog")
	standard := w.profiles(func(names []string) bool { return slices.Contains(names, "magicstick-cpu") })
	document := w.document(w.options.FluxNamespace, activations.ProfilesConfigMap)
	require.Equal(t, "Enabled", document.Labels["reconcile.fluxcd.io/watch"])
	wrapper := activations.WrapperDocument(w.options.ModelNamespace)
	w.eventually(func() string {
		found := w.document(w.options.ModelNamespace, activations.WrapperConfigMap)
		if found == nil || found.Data["wrapper.py"] != wrapper.Data["wrapper.py"] || found.Data["wrapper.sh"] == "" {
			return "the wrapper is not there"
		}
		return ""
	})

	// A standard model needs nothing, one with its own amount of RAM a profile.
	before := document.ResourceVersion
	w.cpuModel("standard")
	w.kubeAIModel("standard", nil)
	w.activate("large", appliancev1alpha1.ModelActivationSpecLocal{Preset: "qwen2505bcpu", ComputeTarget: "cpu", MemoryRequiredMi: 8192})
	model := w.kubeAIModel("large", nil)
	own, _, _ := strings.Cut(model.Spec.ResourceProfile, ":")
	require.NotContains(t, standard, own)
	w.profiles(func(names []string) bool { return slices.Contains(names, own) && len(names) == len(standard)+1 })
	require.NotEqual(t, before, w.document(w.options.FluxNamespace, activations.ProfilesConfigMap).ResourceVersion)

	// Changed by hand, emptied, deleted: taken back.
	want := w.document(w.options.FluxNamespace, activations.ProfilesConfigMap).Data
	for _, edit := range []func(*corev1.ConfigMap){
		func(document *corev1.ConfigMap) { document.Data[activations.ProfilesKey] = "resourceProfiles: {}\n" },
		func(document *corev1.ConfigMap) { document.Data = nil },
		func(document *corev1.ConfigMap) { document.Labels = nil },
	} {
		document := w.document(w.options.FluxNamespace, activations.ProfilesConfigMap)
		edit(document)
		require.NoError(t, w.client.Update(t.Context(), document))
		w.eventually(func() string {
			found := w.document(w.options.FluxNamespace, activations.ProfilesConfigMap)
			if found.Data[activations.ProfilesKey] != want[activations.ProfilesKey] || found.Labels["reconcile.fluxcd.io/watch"] != "Enabled" {
				return "what the hand wrote is still there"
			}
			return ""
		})
	}
	require.NoError(t, w.client.Delete(t.Context(), w.document(w.options.ModelNamespace, activations.WrapperConfigMap)))
	w.eventually(func() string {
		if w.document(w.options.ModelNamespace, activations.WrapperConfigMap) == nil {
			return "the wrapper is still gone"
		}
		return ""
	})

	// Nobody asks for it any more, and a Model of somebody else still names it.
	other := &kubeaiv1.Model{
		ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: w.options.ModelNamespace},
		Spec:       &kubeaiv1.ModelSpec{Engine: "VLLM", URL: "hf://a/b", Features: []kubeaiv1.ModelSpecFeaturesItem{"TextGeneration"}, ResourceProfile: model.Spec.ResourceProfile, MaxReplicas: 1},
	}
	require.NoError(t, w.client.Create(t.Context(), other))
	change(w, &appliancev1alpha1.ModelActivation{}, "large", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
	w.model("large", "Disabled", "Disabled")
	w.activate("larger", appliancev1alpha1.ModelActivationSpecLocal{Preset: "qwen2505bcpu", ComputeTarget: "cpu", MemoryRequiredMi: 9216})
	w.profiles(func(names []string) bool { return slices.Contains(names, own) && len(names) == len(standard)+2 })
	require.NoError(t, w.client.Delete(t.Context(), other))
	w.profiles(func(names []string) bool { return !slices.Contains(names, own) && len(names) == len(standard)+1 })
}

// H17: a crowd of activations, each with a profile of its own, makes KubeAI start
// again once or twice and not for each; the same document comes out of a new start.
func TestResourceProfilesOfACrowdAreWrittenTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.options.ProfilesQuiet, w.options.ProfilesInterval = 500*time.Millisecond, 2*time.Second
	w.start()
	w.create(activation("kubeai"))
	standard := len(w.profiles(func(names []string) bool { return len(names) > 0 }))
	began, writes := time.Now(), w.profileWrites()
	for i := range 25 {
		w.activate(fmt.Sprintf("m%d", i), appliancev1alpha1.ModelActivationSpecLocal{Preset: "qwen2505bcpu", ComputeTarget: "cpu", MemoryRequiredMi: int64(5000 + 16*i)})
	}
	w.profiles(func(names []string) bool { return len(names) == standard+25 })
	allowed := 1 + int(time.Since(began)/w.options.ProfilesInterval)
	require.LessOrEqual(t, w.profileWrites()-writes, allowed, "at most one write in an interval")

	w.stop()
	before := w.document(w.options.FluxNamespace, activations.ProfilesConfigMap)
	w.start()
	w.activate("last", appliancev1alpha1.ModelActivationSpecLocal{Preset: "qwen2505bcpu", ComputeTarget: "cpu", MemoryRequiredMi: 9000})
	w.profiles(func(names []string) bool { return len(names) == standard+26 })
	require.NoError(t, w.client.Delete(t.Context(), &appliancev1alpha1.ModelActivation{ObjectMeta: metav1.ObjectMeta{Name: "last", Namespace: w.options.Appliance.Namespace}}))
	w.profiles(func(names []string) bool { return len(names) == standard+25 })
	after := w.document(w.options.FluxNamespace, activations.ProfilesConfigMap)
	require.Equal(t, strings.Split(before.Data[activations.ProfilesKey], "\n"), strings.Split(after.Data[activations.ProfilesKey], "\n"), "the same activations, the same bytes")
}

// An appliance without KubeAI has neither of the ConfigMaps, and what Flux applies
// is Flux's.
func TestResourceProfilesNobodyAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.options.ProfilesQuiet, w.options.ProfilesInterval = 20*time.Millisecond, 100*time.Millisecond
	theirs := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: activations.WrapperConfigMap, Namespace: w.options.ModelNamespace,
			Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "platform-kubeai"},
		},
		Data: map[string]string{"wrapper.py": "theirs"},
	}
	require.NoError(t, w.client.Create(t.Context(), theirs))
	w.start()
	w.activate("direct", appliancev1alpha1.ModelActivationSpecLocal{
		Engine: "FreeToken", URL: "hf://a/b",
		Freetoken: &appliancev1alpha1.ModelActivationSpecLocalFreetoken{GPUDevice: "n/0000:01:00.0", GPUMemoryMi: 1, SystemMemoryMi: 1},
	})
	w.model("direct", "WaitingForModules", "WaitingForModules")
	time.Sleep(time.Second) // ten times as long as a write would be held back
	require.Nil(t, w.document(w.options.FluxNamespace, activations.ProfilesConfigMap))
	w.create(activation("kubeai"))
	w.profiles(func(names []string) bool { return len(names) > 0 })
	require.Equal(t, "theirs", w.document(w.options.ModelNamespace, activations.WrapperConfigMap).Data["wrapper.py"])
	// Without the label it is ours to keep.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))
	require.NoError(t, w.client.Patch(t.Context(), theirs, patch))
	w.eventually(func() string {
		if w.document(w.options.ModelNamespace, activations.WrapperConfigMap).Data["wrapper.py"] == "theirs" {
			return "the wrapper is still theirs"
		}
		return ""
	})
}
