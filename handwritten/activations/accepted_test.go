package activations

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/kube"
)

// kubeAICRDs are folders with KubeAI's CustomResourceDefinition: the part of it
// that the product writes, and the whole of it where the corpus is at hand.
func kubeAICRDs(t *testing.T) map[string]fs.FS {
	t.Helper()
	sources := map[string]string{
		"our part of it": "../../spec/external/kubeai.org_models.yaml",
		"the whole":      "../../../shared/corpus/crds/kubeai-project__models.kubeai.org.yaml",
	}
	found := map[string]fs.FS{}
	for name, file := range sources {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) && name == "the whole" {
			t.Logf("%s is not here: KubeAI's whole definition is not checked", file)
			continue
		}
		require.NoError(t, err)
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, "models.yaml"), text, 0o600))
		found[name] = os.DirFS(folder)
	}
	return found
}

// A real API server takes every object that the golden files show.
func TestRenderedObjectsAreAccepted(t *testing.T) {
	cases, err := filepath.Glob("testdata/*/in.yaml")
	require.NoError(t, err)
	for name, crd := range kubeAICRDs(t) {
		t.Run(name, func(t *testing.T) {
			c, err := client.New(controlplanetest.Start(t, controlplanetest.WithCRDs(crd)), client.Options{})
			require.NoError(t, err)
			require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ai"}}))
			seen := map[string]int{}
			for _, file := range cases {
				in, f := loadSituation(t, file)
				resolved, err := Resolve(f)
				if err != nil {
					continue
				}
				objects := EngineOf(resolved).Render(resolved, in.Settings)
				for kind, object := range map[string]any{"Model": objects.Model, "Deployment": objects.Deployment, "Service": objects.Service} {
					text, err := yaml.Marshal(object)
					require.NoError(t, err)
					if string(text) == "null\n" {
						continue
					}
					seen[kind]++
					wanted := &unstructured.Unstructured{}
					require.NoError(t, yaml.Unmarshal(text, wanted))
					err = c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(kube.FieldManager))
					if name == "the whole" && resolved.Prepared != nil && kind == "Model" {
						// The corpus is older than oci://; that is what KubeAIVersionTooOld is about.
						require.ErrorContains(t, err, "url must start with")
						continue
					}
					require.NoError(t, err, "%s of %s", kind, file)
				}
			}
			assert.GreaterOrEqual(t, seen["Model"], 10)
			assert.GreaterOrEqual(t, seen["Deployment"], 5)
			assert.Equal(t, seen["Deployment"], seen["Service"])
		})
	}
}

// Whatever the API server accepts is either resolved or refused by field, and a
// refusal has a reason from the table.
func TestExamplesAreAnswered(t *testing.T) {
	files, err := filepath.Glob("../../spec/examples/modelactivation/valid/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	refused := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, document := range documents(t, text) {
			f := Facts{Activation: document, Catalogs: shippedCatalogs(t), KubeAITakesOCI: true, Prepared: preparedModel()}
			resolved, err := Resolve(f)
			name := filepath.Base(file)
			if err == nil {
				require.NotEmpty(t, resolved.Modules, name)
				EngineOf(resolved).Render(resolved, Settings{})
				continue
			}
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal, name)
			require.Contains(t, []string{conditions.ModelActivationReasonInvalidModelSpec}, refusal.Reason, name)
			require.NotEmpty(t, refusal.Field, name)
			refused[name] = refusal.Field
		}
	}
	for _, want := range []string{"m7-offloading-vllm-without-budget.yaml", "m11-replicas-min-alone.yaml", "source-model-ref-ollama.yaml"} {
		assert.Contains(t, refused, want)
	}
	for name := range refused {
		assert.NotContains(t, name, "seed-", "what the seed shows works")
	}
	t.Logf("%d files; refused: %v", len(files), refused)
}

func documents(t *testing.T, text []byte) (all []*appliancev1alpha1.ModelActivation) {
	t.Helper()
	for _, part := range strings.Split(string(text), "\n---\n") {
		activation := &appliancev1alpha1.ModelActivation{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(part), activation))
		if activation.Kind != "" {
			all = append(all, activation)
		}
	}
	return all
}

// The types that are applied say nothing that was not meant.
func TestModelHasNoLeftovers(t *testing.T) {
	resolved := resolve(t, "url: hf://a/b, vram: 1Gi")
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(EngineOf(resolved).Render(resolved, Settings{}).Model)
	require.NoError(t, err)
	assert.NotContains(t, object, "status")
	metadata, _, err := unstructured.NestedMap(object, "metadata")
	require.NoError(t, err)
	assert.NotContains(t, metadata, "creationTimestamp")
}
