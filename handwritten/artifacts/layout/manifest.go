package layout

import (
	"encoding/json"
	"fmt"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// ArtifactType is that of the ModelPack manifest, status.artifact.mediaType.
	ArtifactType = "application/vnd.cncf.model.manifest.v1+json"
	// ModelConfigType is the media type of the ModelPack config.
	ModelConfigType = "application/vnd.cncf.model.config.v1+json"
	// AnnotationFilepath names the path that a ModelPack layer holds. It is mandatory there.
	AnnotationFilepath = "org.cncf.model.filepath"
	// imageTagSuffix tells the tag of the image manifest from that of the ModelPack manifest.
	imageTagSuffix = "-image"
	// maxTag is the largest length of a tag (OCI Distribution Specification 1.1, section Pulling manifests).
	maxTag = 128
)

// Metadata is what the ModelPack config says about a model beside its layers. All of
// it must follow from the bytes of the model, so that the same bytes from
// different places give the same digests. Empty fields are left out.
type Metadata struct {
	// Name defaults to the path of the first file with weights.
	Name string
	// Family is the lineage of the model: "llama", "qwen2".
	Family string
	// Architecture is the class of the network: "LlamaForCausalLM", "llama".
	Architecture string
	// Format is the format of the weights: "safetensors", "gguf".
	Format string
	// ParamSize is the number of parameters with one of the letters K, M, B, T, Q: "7B", "1.5B".
	ParamSize string
	// Precision is the type of the numbers: "bf16".
	Precision string
	// Quantization is the way the weights were made smaller: "Q4_K_M", "awq-4bit".
	Quantization string
}

// Document is a blob or manifest with its bytes.
type Document struct {
	// Descriptor has media type, digest and size of Bytes.
	Descriptor ocispec.Descriptor
	// Bytes are compact JSON.
	Bytes []byte
}

// Artifact is everything beside the layers that a registry must hold.
type Artifact struct {
	// ModelConfig and ModelManifest are those of the ModelPack artifact, status.artifact.
	ModelConfig, ModelManifest Document
	// ImageConfig and ImageManifest are those of the image that is mounted.
	ImageConfig, ImageManifest Document
	// SizeBytes is the size of the ModelPack config and of all layers, status.artifact.sizeBytes.
	SizeBytes int64
}

// modelConfig is the ModelPack config, in the words of its published JSON
// schema (https://github.com/modelpack/model-spec, schema/config-schema.json).
type modelConfig struct {
	Descriptor modelDescriptor `json:"descriptor"`
	ModelFS    modelFS         `json:"modelfs"`
	Config     modelFacts      `json:"config"`
}

type modelDescriptor struct {
	Name   string `json:"name,omitempty"`
	Family string `json:"family,omitempty"`
}

type modelFS struct {
	Type    string          `json:"type"`
	DiffIDs []digest.Digest `json:"diffIds"`
}

type modelFacts struct {
	Architecture string `json:"architecture,omitempty"`
	Format       string `json:"format,omitempty"`
	ParamSize    string `json:"paramSize,omitempty"`
	Precision    string `json:"precision,omitempty"`
	Quantization string `json:"quantization,omitempty"`
}

// imageConfig is the OCI image config. It has no time, and the platform is the
// most common one: its files run nowhere, and runtimes do not compare the
// platform of an image that is no part of an index.
type imageConfig struct {
	Architecture string         `json:"architecture"`
	OS           string         `json:"os"`
	Config       struct{}       `json:"config"`
	RootFS       ocispec.RootFS `json:"rootfs"`
}

// NewArtifact makes the configs and manifests over layers whose tars have the digests.
func NewArtifact(layers []Layer, digests []digest.Digest, metadata Metadata) (Artifact, error) {
	if len(layers) == 0 || len(layers) != len(digests) {
		return Artifact{}, fmt.Errorf("making the manifests: %d layers with %d digests", len(layers), len(digests))
	}
	for i, d := range digests {
		if err := d.Validate(); err != nil || d.Algorithm() != digest.SHA256 {
			return Artifact{}, fmt.Errorf("making the manifests: layer %q has no SHA-256 digest", layers[i].Path())
		}
	}
	if metadata.Name == "" {
		metadata.Name = primary(layers)
	}
	documents := documents{}
	var artifact Artifact
	artifact.ModelConfig = documents.add(ModelConfigType, modelConfig{
		Descriptor: modelDescriptor{Name: metadata.Name, Family: metadata.Family},
		ModelFS:    modelFS{Type: "layers", DiffIDs: digests},
		Config: modelFacts{
			Architecture: metadata.Architecture, Format: metadata.Format, ParamSize: metadata.ParamSize,
			Precision: metadata.Precision, Quantization: metadata.Quantization,
		},
	})
	artifact.ImageConfig = documents.add(ocispec.MediaTypeImageConfig, imageConfig{
		Architecture: "amd64", OS: "linux", RootFS: ocispec.RootFS{Type: "layers", DiffIDs: digests},
	})
	artifact.ModelManifest = documents.add(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: ArtifactType,
		Config: artifact.ModelConfig.Descriptor, Layers: modelLayers(layers, digests),
	})
	artifact.ImageManifest = documents.add(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: artifact.ImageConfig.Descriptor, Layers: imageLayers(layers, digests), Subject: &artifact.ModelManifest.Descriptor,
	})
	artifact.SizeBytes = artifact.ModelConfig.Descriptor.Size
	for _, layer := range layers {
		artifact.SizeBytes += layer.Size
	}
	return artifact, documents.err
}

func modelLayers(layers []Layer, digests []digest.Digest) []ocispec.Descriptor {
	descriptors := make([]ocispec.Descriptor, len(layers))
	for i, layer := range layers {
		descriptors[i] = ocispec.Descriptor{
			MediaType: "application/vnd.cncf.model." + string(layer.Base()) + ".v1.tar", Digest: digests[i], Size: layer.Size,
			Annotations: map[string]string{AnnotationFilepath: layer.Path()},
		}
	}
	return descriptors
}

func imageLayers(layers []Layer, digests []digest.Digest) []ocispec.Descriptor {
	descriptors := make([]ocispec.Descriptor, len(layers))
	for i, layer := range layers {
		descriptors[i] = ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: digests[i], Size: layer.Size}
	}
	return descriptors
}

// documents remembers the first error of encoding.
type documents struct{ err error }

func (d *documents) add(mediaType string, content any) Document {
	bytes, err := json.Marshal(content)
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("encoding %s: %w", mediaType, err)
	}
	return Document{
		Descriptor: ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(bytes), Size: int64(len(bytes))},
		Bytes:      bytes,
	}
}

// ImageTag is the tag of the image manifest beside a ModelPack manifest with the
// tag. Both are tagged, because a registry's garbage collection may remove what is not.
func ImageTag(tag string) (string, error) {
	if len(tag)+len(imageTagSuffix) > maxTag {
		return "", fmt.Errorf("naming the image manifest: tag %q has %d characters, at most %d leave room for %q",
			tag, len(tag), maxTag-len(imageTagSuffix), imageTagSuffix)
	}
	return tag + imageTagSuffix, nil
}
