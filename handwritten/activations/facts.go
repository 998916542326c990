package activations

import (
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/catalogs"
)

// Facts are all that Resolve looks at.
type Facts struct {
	// Activation to carry out, as the API server stores it.
	Activation *appliancev1alpha1.ModelActivation
	// Catalogs of the appliance.
	Catalogs
	// Prepared is the model that spec.local.modelRef names; nil when it does not exist.
	Prepared *PreparedModel
	// Published is the number of whole devices that the nodes offer, by extended
	// resource, see PublishedResources.
	Published map[string]int64
	// SharedDevice tells that the devices of the target are shared between models on
	// the chosen node: NVIDIA time-slicing or a shared DRA claim.
	SharedDevice bool
	// Namespaces in which models may run, the one of KubeAI and LiteLLM first; none
	// means ai for external models and any for others.
	Namespaces []string
	// KubeAITakesOCI tells that the installed KubeAI accepts oci:// addresses.
	KubeAITakesOCI bool
}

// Catalogs are the shipped catalogs that resolving needs.
type Catalogs struct {
	// Presets are models with known-good settings.
	Presets *catalogs.Presets
	// Engines are the defaults of engines and targets.
	Engines *catalogs.Engines
	// Realtime are the profiles of vLLM-Omni.
	Realtime *catalogs.Realtime
}

// PreparedModel is a Model or ClusterModel of group ai.deckhouse.io, seen from
// the engine that serves it.
type PreparedModel struct {
	// Kind is Model or ClusterModel.
	Kind string `json:"kind"`
	// Name of the object.
	Name string `json:"name"`
	// Ready tells that the artifact is verified and usable.
	Ready bool `json:"ready"`
	// Detail says in a sentence why it is not Ready; may be empty.
	Detail string `json:"detail,omitempty"`
	// Digest is the digest of the artifact to serve: the one that the activation has
	// pinned, else the present one.
	Digest string `json:"digest,omitempty"`
	// Image is that artifact as an image, <registry>/<repository>@<digest of the image manifest>.
	Image string `json:"image,omitempty"`
	// PullSecret is the Secret in the target namespace that may read the image; empty
	// when the nodes can pull without one.
	PullSecret string `json:"pullSecret,omitempty"`
	// Format of the files: Safetensors, GGUF, Diffusers, or empty when unknown.
	Format string `json:"format,omitempty"`
	// EndpointTypes that the model supports; empty when nothing is known.
	EndpointTypes []string `json:"endpointTypes,omitempty"`
	// ContextWindowTokens is the longest context of the model; 0 when unknown.
	ContextWindowTokens int64 `json:"contextWindowTokens,omitempty"`
	// SizeBytes is the size of the files in bytes; 0 when unknown.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// ParameterCount of the model; 0 when unknown.
	ParameterCount int64 `json:"parameterCount,omitempty"`

	// repository and imageDigest are what Image is made of, see In.
	repository, imageDigest string
}

// Settings of the appliance that rendering needs.
type Settings struct {
	// ModelCache is the folder on the nodes that keeps downloaded files for direct
	// runtimes; empty means that a Pod forgets them when it goes.
	ModelCache string `json:"modelCache,omitempty"`
	// HuggingFaceSecret is the Secret in the target namespace whose key token opens
	// gated repositories; empty means none. A Secret that does not exist does no harm.
	HuggingFaceSecret string `json:"huggingFaceSecret,omitempty"`
}
