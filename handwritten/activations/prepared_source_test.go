package activations

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiv1alpha1 "magicstick.dev/operator/generated/apis/ai/v1alpha1"
)

var (
	artifactA = "sha256:" + strings.Repeat("a", 64)
	artifactB = "sha256:" + strings.Repeat("b", 64)
	imageA    = "sha256:" + strings.Repeat("1", 64)
	imageB    = "sha256:" + strings.Repeat("2", 64)
)

func readyModel(change func(*aiv1alpha1.Model)) *aiv1alpha1.Model {
	model := &aiv1alpha1.Model{
		ObjectMeta: metav1.ObjectMeta{
			Name: "qwen", Namespace: "ai", UID: types.UID("0c7e"), Generation: 1,
			Annotations: map[string]string{AnnotationImageDigests: artifactB + "=" + imageB + ", " + artifactA + "=" + imageA},
		},
		Status: aiv1alpha1.ModelStatus{
			Phase:    aiv1alpha1.ModelStatusPhaseReady,
			Artifact: &aiv1alpha1.ModelStatusArtifact{Digest: ptr.To(artifactA), SizeBytes: 3 << 30},
			Resolved: &aiv1alpha1.ModelStatusResolved{
				Format: "Safetensors", ParameterCount: 1 << 30, ContextWindowTokens: 32768,
				SupportedEndpointTypes: []aiv1alpha1.ModelStatusResolvedSupportedEndpointTypesItem{"Chat", "Embeddings"},
			},
		},
	}
	if change != nil {
		change(model)
	}
	return model
}

func TestPreparedFromModel(t *testing.T) {
	prepared := PreparedFrom("Model", readyModel(nil), "").In("registry.ai-system.svc:5000/")
	require.True(t, prepared.Ready, prepared.Detail)
	assert.Equal(t, "registry.ai-system.svc:5000/ai-models/catalog/namespaced/ai/qwen/0c7e@"+imageA, prepared.Image)
	assert.Equal(t, artifactA, prepared.Digest)
	assert.Equal(t, "Safetensors", prepared.Format)
	assert.Equal(t, []string{"Chat", "Embeddings"}, prepared.EndpointTypes)
	assert.EqualValues(t, 32768, prepared.ContextWindowTokens)
	assert.EqualValues(t, 3<<30, prepared.SizeBytes)
	assert.EqualValues(t, 1<<30, prepared.ParameterCount)
	assert.EqualValues(t, 2048, prepared.weightsMi())

	// An engine takes it as it is.
	f := facts(t, "vram: 4Gi, modelRef: {kind: Model, name: qwen}")
	f.KubeAITakesOCI, f.Prepared = true, prepared
	resolved, err := Resolve(f)
	require.NoError(t, err)
	assert.Equal(t, "oci://"+prepared.Image, resolved.URL)
}

func TestPreparedFromClusterModel(t *testing.T) {
	model := &aiv1alpha1.ClusterModel{
		ObjectMeta: metav1.ObjectMeta{Name: "qwen", UID: "0c7e", Annotations: map[string]string{AnnotationImageDigests: artifactA + "=" + imageA}},
		Status: aiv1alpha1.ClusterModelStatus{
			Phase:    aiv1alpha1.ClusterModelStatusPhaseReady,
			Artifact: &aiv1alpha1.ClusterModelStatusArtifact{Digest: ptr.To(artifactA), SizeBytes: 7},
			Resolved: &aiv1alpha1.ClusterModelStatusResolved{Format: "GGUF", ParameterCount: 5, ContextWindowTokens: 9},
		},
	}
	prepared := PreparedFrom("ClusterModel", model, "").In("example.com/models")
	require.True(t, prepared.Ready, prepared.Detail)
	assert.Equal(t, "example.com/models/ai-models/catalog/cluster/qwen/0c7e@"+imageA, prepared.Image)
	assert.Equal(t, "GGUF", prepared.Format)
	assert.EqualValues(t, 7, prepared.SizeBytes)
	assert.EqualValues(t, 9, prepared.ContextWindowTokens)
}

// What keeps a model from being served, in words for status.message.
func TestPreparedObstacles(t *testing.T) {
	deleting := func(model *aiv1alpha1.Model) { model.DeletionTimestamp = ptr.To(metav1.Now()) }
	for name, test := range map[string]struct {
		change func(*aiv1alpha1.Model)
		pinned string
		detail string // empty: Ready
	}{
		"new":     {func(model *aiv1alpha1.Model) { model.Status = aiv1alpha1.ModelStatus{} }, "", "nobody has looked at it yet"},
		"pending": {func(model *aiv1alpha1.Model) { model.Status = aiv1alpha1.ModelStatus{Phase: "Pending"} }, "", "it is Pending"},
		"publishing": {func(model *aiv1alpha1.Model) {
			model.Status = aiv1alpha1.ModelStatus{Phase: "Publishing", Progress: ptr.To("40%")}
		}, "", "it is Publishing (40%)"},
		"failed, with a secret in its words": {func(model *aiv1alpha1.Model) {
			model.Status = aiv1alpha1.ModelStatus{Phase: "Failed", Conditions: []metav1.Condition{{Type: "Ready", Message: "GET https://me:pw@hf.co/x?token=hf_1 failed"}}}
		}, "", "it is Failed: GET https://hf.co/x failed"},
		"being deleted":                  {deleting, "", "it is being deleted"},
		"no artifact":                    {func(model *aiv1alpha1.Model) { model.Status.Artifact = nil }, "", "it has no artifact"},
		"odd digest":                     {func(model *aiv1alpha1.Model) { model.Status.Artifact.Digest = ptr.To("md5:1") }, "", "its artifact has no usable digest"},
		"no image":                       {func(model *aiv1alpha1.Model) { model.Annotations = nil }, "", "there is no image of artifact " + artifactA + " that a node could mount"},
		"image that is none":             {func(model *aiv1alpha1.Model) { model.Annotations[AnnotationImageDigests] = artifactA + "=evil/image" }, "", "there is no image of artifact " + artifactA + " that a node could mount"},
		"pinned, present":                {nil, artifactA, ""},
		"pinned, another one is present": {nil, artifactB, ""},
		"pinned, being deleted":          {deleting, artifactA, ""},
		"pinned, phase Deleting":         {func(model *aiv1alpha1.Model) { model.Status.Phase = "Deleting" }, artifactA, ""},
		"pinned, facts are gone":         {func(model *aiv1alpha1.Model) { model.Status = aiv1alpha1.ModelStatus{Phase: "Publishing"} }, artifactA, "it is Publishing"},
		"pinned, image is gone":          {func(model *aiv1alpha1.Model) { model.Annotations = nil }, artifactA, "there is no image of artifact " + artifactA + " that a node could mount"},
	} {
		t.Run(name, func(t *testing.T) {
			prepared := PreparedFrom("Model", readyModel(test.change), test.pinned).In("r")
			require.NotNil(t, prepared)
			assert.Equal(t, test.detail, prepared.Detail)
			assert.Equal(t, test.detail == "", prepared.Ready)
			assert.Equal(t, test.detail == "", prepared.Image != "")
			if test.pinned != "" {
				assert.Equal(t, test.pinned, prepared.Digest)
			}
			if test.detail == "" && test.pinned == artifactB {
				assert.True(t, strings.HasSuffix(prepared.Image, imageB))
			}
		})
	}
	t.Run("a long message is cut", func(t *testing.T) {
		model := readyModel(func(model *aiv1alpha1.Model) {
			model.Status = aiv1alpha1.ModelStatus{Phase: "Failed", Conditions: []metav1.Condition{{Type: "Ready", Message: strings.Repeat("x", 5000)}}}
		})
		assert.Less(t, len(PreparedFrom("Model", model, "").Detail), 300)
	})
	t.Run("without a registry", func(t *testing.T) {
		prepared := PreparedFrom("Model", readyModel(nil), "").In("")
		assert.False(t, prepared.Ready)
		assert.Contains(t, prepared.Detail, "which registry")
		var none *PreparedModel
		assert.Nil(t, none.In("r"))
	})
	t.Run("other objects", func(t *testing.T) {
		for _, object := range []client.Object{nil, (*aiv1alpha1.Model)(nil), &corev1.Pod{}, &aiv1alpha1.ClusterModel{}} {
			assert.Nil(t, PreparedFrom("Model", object, ""))
		}
		assert.Nil(t, PreparedFrom("ClusterModel", readyModel(nil), ""))
	})
}

// The least that the weights take once they are loaded.
func TestPreparedWeights(t *testing.T) {
	for _, test := range []struct{ size, parameters, want int64 }{
		{0, 0, 0},
		{0, 1 << 40, 0},
		{1 << 30, 0, 1024},
		{2 << 30, 1 << 30, 2048},    // half precision
		{4 << 30, 1 << 30, 2048},    // single precision is halved
		{512 << 20, 1 << 30, 512},   // four bits
		{1 << 62, 1 << 62, 1 << 42}, // no overflow
	} {
		assert.Equal(t, test.want, (&PreparedModel{SizeBytes: test.size, ParameterCount: test.parameters}).weightsMi(), test)
	}
	assert.Zero(t, (*PreparedModel)(nil).weightsMi())
}
