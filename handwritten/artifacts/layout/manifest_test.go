package layout

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// shards is a model of two shards with companions. Its digests are those of the real
// tars, with files made small enough for a test.
func shards(t *testing.T) ([]Layer, []digest.Digest) {
	t.Helper()
	layers := []Layer{
		newLayer([]File{{Path: "config.json", Size: 700}, {Path: "tokenizer.json", Size: 1 << 10}}),
		newLayer([]File{{Path: "model-00001-of-00002.safetensors", Size: 3 << 10}}),
		newLayer([]File{{Path: "model-00002-of-00002.safetensors", Size: 3<<10 + 1}}),
	}
	digests := make([]digest.Digest, len(layers))
	for i, layer := range layers {
		digests[i] = digest.FromBytes(render(layer, 0))
	}
	return layers, digests
}

// TestArtifactGolden pins every byte: a change here changes the digests of all models.
func TestArtifactGolden(t *testing.T) {
	single := newLayer([]File{{Path: "model.gguf", Size: 2000}})
	layers, digests := shards(t)
	for name, c := range map[string]struct {
		layers   []Layer
		digests  []digest.Digest
		metadata Metadata
	}{
		"G04_shards": {layers, digests, Metadata{Family: "llama", Architecture: "LlamaForCausalLM", Format: "safetensors", ParamSize: "7B", Precision: "bf16"}},
		"G01_single": {[]Layer{single}, []digest.Digest{digest.FromBytes(render(single, 0))}, Metadata{}},
	} {
		t.Run(name, func(t *testing.T) {
			artifact, err := NewArtifact(c.layers, c.digests, c.metadata)
			require.NoError(t, err)
			require.NoError(t, CheckModelManifest(artifact.ModelManifest.Bytes, artifact.ModelConfig.Bytes))
			require.NoError(t, CheckImageManifest(artifact.ImageManifest.Bytes, artifact.ImageConfig.Bytes, artifact.ModelManifest.Descriptor.Digest))
			checkSchema(t, artifact.ModelConfig.Bytes)
			for document, bytes := range map[string][]byte{
				"model-config": artifact.ModelConfig.Bytes, "model-manifest": artifact.ModelManifest.Bytes,
				"image-config": artifact.ImageConfig.Bytes, "image-manifest": artifact.ImageManifest.Bytes,
			} {
				golden(t, filepath.Join("testdata", name, document+".json"), bytes)
			}
		})
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	var pretty bytes.Buffer
	require.NoError(t, json.Indent(&pretty, got, "", "  "))
	pretty.WriteByte('\n')
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, pretty.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), pretty.String())
}

// checkSchema holds a config to the constraints of the published schema of ModelPack.
func checkSchema(t *testing.T, config []byte) {
	t.Helper()
	const text = `{
		"type": "object", "additionalProperties": false, "required": ["descriptor", "config", "modelfs"],
		"properties": {
			"descriptor": {"type": "object", "additionalProperties": false, "properties": {
				"name": {"type": "string", "minLength": 1}, "family": {"type": "string"}}},
			"config": {"type": "object", "additionalProperties": false, "properties": {
				"architecture": {"type": "string"}, "format": {"type": "string"}, "paramSize": {"type": "string", "pattern": "^[0-9]+([.][0-9])?[QqTtBbMmKk]$"},
				"precision": {"type": "string"}, "quantization": {"type": "string"}}},
			"modelfs": {"type": "object", "additionalProperties": false, "required": ["type", "diffIds"], "properties": {
				"type": {"enum": ["layers"]}, "diffIds": {"type": "array", "minItems": 1, "items": {"type": "string"}}}}}}`
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("config.json", schema))
	compiled, err := compiler.Compile("config.json")
	require.NoError(t, err)
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
	require.NoError(t, err)
	require.NoError(t, compiled.Validate(instance))
}

func TestArtifactSizeIsThatOfConfigAndLayers(t *testing.T) {
	layers, digests := shards(t)
	artifact, err := NewArtifact(layers, digests, Metadata{})
	require.NoError(t, err)
	want := int64(len(artifact.ModelConfig.Bytes))
	for _, layer := range layers {
		want += layer.Size
	}
	assert.Equal(t, want, artifact.SizeBytes)
	_, err = NewArtifact(layers, digests[1:], Metadata{})
	require.ErrorContains(t, err, "3 layers with 2 digests")
	_, err = NewArtifact(layers[:1], []digest.Digest{"sha256:abc"}, Metadata{})
	require.ErrorContains(t, err, "no SHA-256 digest")
}

func TestCheckModelManifest(t *testing.T) {
	layers, digests := shards(t)
	artifact, err := NewArtifact(layers, digests, Metadata{})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*ocispec.Manifest)
		want   string
	}{
		"schema_version":                 {func(m *ocispec.Manifest) { m.SchemaVersion = 1 }, "schemaVersion is 1"},
		"artifact_type":                  {func(m *ocispec.Manifest) { m.ArtifactType = "" }, "artifactType"},
		"config_type":                    {func(m *ocispec.Manifest) { m.Config.MediaType = ocispec.MediaTypeImageConfig }, "config.mediaType"},
		"config_digest":                  {func(m *ocispec.Manifest) { m.Config.Digest = digests[0] }, "config.digest"},
		"no_layer":                       {func(m *ocispec.Manifest) { m.Layers = nil }, "layers is empty"},
		"G07_raw_layer_compressed":       {func(m *ocispec.Manifest) { m.Layers[0].MediaType = "application/vnd.cncf.model.weight.v1.raw+gzip" }, "layers[0]"},
		"foreign_layer":                  {func(m *ocispec.Manifest) { m.Layers[1].MediaType = ocispec.MediaTypeImageLayer }, "layers[1]"},
		"chunked_layout":                 {func(m *ocispec.Manifest) { m.Layers[1].MediaType = chunkedTypes + "chunk-pack.v1" }, "not supported"},
		"no_path":                        {func(m *ocispec.Manifest) { m.Layers[2].Annotations = nil }, AnnotationFilepath},
		"layer_without_digest":           {func(m *ocispec.Manifest) { m.Layers[2].Digest = "" }, "layers[2]: digest"},
		"G08_fewer_diff_ids_than_layers": {func(m *ocispec.Manifest) { m.Layers = append(m.Layers, m.Layers[0]) }, "3 entries for 4 layers"},
		"diff_id_of_another_layer":       {func(m *ocispec.Manifest) { m.Layers[0].Digest = digests[1] }, "modelfs.diffIds[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			var m ocispec.Manifest
			require.NoError(t, json.Unmarshal(artifact.ModelManifest.Bytes, &m))
			c.change(&m)
			bytes, err := json.Marshal(m)
			require.NoError(t, err)
			err = CheckModelManifest(bytes, artifact.ModelConfig.Bytes)
			require.ErrorContains(t, err, "checking the ModelPack manifest: ")
			assert.ErrorContains(t, err, c.want)
		})
	}
	err = CheckImageManifest(artifact.ImageManifest.Bytes, artifact.ImageConfig.Bytes, digests[0])
	require.ErrorContains(t, err, "subject is not")
	require.Error(t, CheckImageManifest(artifact.ModelManifest.Bytes, artifact.ModelConfig.Bytes, digests[0]))
}

func TestImageTag(t *testing.T) {
	tag, err := ImageTag("published")
	require.NoError(t, err)
	assert.Equal(t, "published-image", tag)
	_, err = ImageTag(strings.Repeat("t", 123))
	require.ErrorContains(t, err, "at most 122")
}
