package external

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kubeaicrds "magicstick.dev/operator/generated/external/kubeai/crds"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/tools/specgen/workspace"
)

// TestKubeAI uses the types of spec/external as a controller does: registered
// in a scheme, decoded, copied.
func TestKubeAI(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, kubeaiv1.Install(scheme))
	kind := schema.GroupVersionKind{Group: "kubeai.org", Version: "v1", Kind: "Model"}
	object, err := scheme.New(kind)
	require.NoError(t, err)
	model, ok := object.(*kubeaiv1.Model)
	require.True(t, ok)

	content := map[string]any{
		"apiVersion": "kubeai.org/v1", "kind": "Model",
		"metadata": map[string]any{"name": "qwen", "namespace": "ai"},
		"spec": map[string]any{"engine": "VLLM", "url": "hf://Qwen/Qwen2.5-0.5B-Instruct",
			"features": []any{"TextGeneration"}, "args": []any{"--max-model-len=4096"}},
	}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, model))
	duplicate := model.DeepCopy()
	model.Spec.Args[0] = "--changed"
	require.Equal(t, []string{"--max-model-len=4096"}, duplicate.Spec.Args)
	require.Equal(t, metav1.ObjectMeta{Name: "qwen", Namespace: "ai"}, duplicate.ObjectMeta)
	back, err := runtime.DefaultUnstructuredConverter.ToUnstructured(duplicate)
	require.NoError(t, err)
	require.Equal(t, content, back)
}

func TestKubeAI_writes_its_CRD_and_no_other(t *testing.T) {
	ws, err := workspace.New("../../..")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ws.Close()) })
	require.NoError(t, KubeAI(t.Context(), ws))
	const name = "kubeai.org/model.yaml"
	written, err := os.ReadFile(filepath.Join(ws.GeneratedDir(), "external/kubeai/crds", filepath.FromSlash(name)))
	require.NoError(t, err)
	source, err := os.ReadFile("../../../spec/external/kubeai.org_models.yaml")
	require.NoError(t, err)
	require.Contains(t, string(written), string(source))
	require.Equal(t, []string{name}, kubeaicrds.Files())
	all, err := kubeaicrds.All()
	require.NoError(t, err)
	require.Equal(t, "models.kubeai.org", all[0].Name)
}
