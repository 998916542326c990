package modelindex

// Names that other programs rely on (contract/appliance.md C.11, annex 1).
const (
	// AnnotationContextWindow of a runtime is its context length in tokens.
	AnnotationContextWindow = "ai-appliance.io/context-window"
	// AnnotationMaxOutputTokens of a runtime is its longest answer in tokens.
	AnnotationMaxOutputTokens = "ai-appliance.io/max-output-tokens"
	// AnnotationConsumer marks Pods that read the index, as a label or an annotation.
	AnnotationConsumer = "ai-appliance.io/model-catalog-consumer"
	// AnnotationHash of the index is the hash of its content.
	AnnotationHash = "ai-appliance.io/catalog-hash"
	// AnnotationLastSync of the index is when its content last changed, RFC 3339.
	AnnotationLastSync = "ai-appliance.io/last-sync"

	// AnnotationConsumersRestarted of the index is the hash for which consumers were
	// last restarted.
	AnnotationConsumersRestarted = "ai-appliance.io/consumers-restarted"

	// LabelApp of the index has the value LabelAppValue.
	LabelApp = "app"
	// LabelAppValue is the value of LabelApp.
	LabelAppValue = "ai-model-catalog"
)

// Keys of the index.
const (
	// KeyReady is "true" once the index was made, "false" before.
	KeyReady = "AI_APPLIANCE_MODEL_CATALOG_READY"
	// KeyHash is the hash of the content, or BootstrapHash.
	KeyHash = "AI_APPLIANCE_MODEL_CATALOG_HASH"
	// KeyDefaultChat is the ID of the default chat model, may be empty.
	KeyDefaultChat = "AI_APPLIANCE_DEFAULT_CHAT_MODEL"
	// KeyDefaultEmbedding is the ID of the default embedding model, may be empty.
	KeyDefaultEmbedding = "AI_APPLIANCE_DEFAULT_EMBEDDING_MODEL"
	// KeyDefaultOpenCode is litellm/<default chat model>, may be empty.
	KeyDefaultOpenCode = "AI_APPLIANCE_DEFAULT_OPENCODE_MODEL"
	// KeyDefaults is a file of KEY=value lines.
	KeyDefaults = "defaults.env"
	// KeyCatalog is the whole index.
	KeyCatalog = "catalog.json"
	// KeyChat and KeyEmbedding are the models of one type.
	KeyChat = "chat-models.json"
	// KeyEmbedding are the models for embeddings.
	KeyEmbedding = "embedding-models.json"
	// KeyOpenClaw is configuration of OpenClaw.
	KeyOpenClaw = "openclaw.json"
	// KeyHermes is configuration of Hermes: JSON, which is YAML.
	KeyHermes = "hermes.yaml"
	// KeyOpenCode are the providers of OpenCode.
	KeyOpenCode = "opencode-providers.json"
	// KeyPaperclipOpenCode are the providers of OpenCode in Paperclip's runs.
	KeyPaperclipOpenCode = "paperclip-opencode-providers.json"
	// KeyPaperclipAdapter are the models that Paperclip's adapters offer.
	KeyPaperclipAdapter = "paperclip-adapter-models.json"
)

// BootstrapHash stands in an index that was not made yet.
const BootstrapHash = "bootstrap"

const (
	// labelActivation names the activation that a runtime was made for.
	labelActivation = "appliance.magicstick.dev/modelactivation"
	// externalKey of the ConfigMap of external models.
	externalKey = "models.json"
	// externalNamespace is what external activations must have as their target.
	externalNamespace = "ai"
	// runtimePort is where direct runtimes answer (contract/appliance.md C.8).
	runtimePort = 8000
)
