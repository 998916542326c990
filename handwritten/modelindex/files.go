package modelindex

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

const (
	// toolsProfile is what OpenClaw's agents may use.
	toolsProfile = "coding"
	// openClawKey and openCodeKey name the variable that holds the key where the
	// application runs; the key itself is never in the index.
	openClawKey = "${LITELLM_API_KEY}"
	openCodeKey = "{env:OPENAI_API_KEY}"
	// openCodePackage speaks to LiteLLM for OpenCode.
	openCodePackage = "@ai-sdk/openai-compatible"
	// maxIndexBytes of data fit into a ConfigMap (k8s.io/api/core/v1 MaxSecretSize),
	// with room for names of keys.
	maxIndexBytes = 1<<20 - 4096
)

// Files is the content of the index's ConfigMap.
type Files struct {
	// Data are all managed keys.
	Data map[string]string
	// Hash of the content.
	Hash string
	// Omitted is how many models did not fit.
	Omitted int
}

// Render writes every key of the ConfigMap (contract/appliance.md C.11).
func Render(index Index, settings Settings) Files {
	files := render(index, settings, index.Hash(settings), "true", false)
	if files.size() > maxIndexBytes {
		// Without the spaces it is a third smaller and says the same.
		files = render(index, settings, files.Hash, "true", true)
	}
	if files.size() <= maxIndexBytes {
		return files
	}
	// The longest beginning that fits, so that what is there stays current.
	fitting := sort.Search(len(index.Models), func(n int) bool {
		return cut(index, n+1, settings).size() > maxIndexBytes
	})
	files = cut(index, fitting, settings)
	files.Omitted = len(index.Models) - fitting
	return files
}

func cut(index Index, n int, settings Settings) Files {
	part := indexOfEntries(slices.Clone(index.Models[:n]), settings)
	return render(part, settings, part.Hash(settings), "true", true)
}

// Bootstrap is the content while the index was never made.
func Bootstrap(settings Settings) Files {
	return render(Index{}, settings, BootstrapHash, "false", false)
}

func (f Files) size() int {
	size := 0
	for key, content := range f.Data {
		size += len(key) + len(content)
	}
	return size
}

func render(index Index, settings Settings, hash, ready string, tight bool) Files {
	chat, embedding := index.ofType(typeChat), index.ofType(typeEmbedding)
	defaults := [][2]string{
		{KeyReady, ready},
		{KeyHash, hash},
		{KeyDefaultChat, index.DefaultChat},
		{KeyDefaultEmbedding, index.DefaultEmbedding},
		{KeyDefaultOpenCode, index.openCodeRef()},
		{"AI_APPLIANCE_MODEL_COUNT", strconv.Itoa(len(index.Models))},
		{"AI_APPLIANCE_CHAT_MODEL_COUNT", strconv.Itoa(len(chat))},
		{"AI_APPLIANCE_EMBEDDING_MODEL_COUNT", strconv.Itoa(len(embedding))},
	}
	var lines strings.Builder
	for _, line := range defaults {
		fmt.Fprintf(&lines, "%s=%s\n", line[0], line[1])
	}
	models := index.Models
	if models == nil {
		models = []Entry{}
	}
	data := map[string]string{
		KeyDefaults: lines.String(),
		KeyCatalog: encode(map[string]any{
			"hash": hash, "models": models, "defaultChatModel": index.DefaultChat, "defaultEmbeddingModel": index.DefaultEmbedding,
		}, tight),
		KeyChat:              encode(map[string]any{"models": chat, "defaultModel": index.DefaultChat}, tight),
		KeyEmbedding:         encode(map[string]any{"models": embedding, "defaultModel": index.DefaultEmbedding}, tight),
		KeyOpenClaw:          encode(openClaw(index, chat, settings), tight),
		KeyHermes:            encode(hermes(index, chat, settings), tight),
		KeyOpenCode:          encode(openCodeProviders(chat, settings, openCodeLimits), tight),
		KeyPaperclipOpenCode: encode(openCodeProviders(chat, settings, paperclipLimits), tight),
		KeyPaperclipAdapter:  encode(paperclipAdapter(chat), tight),
	}
	for _, line := range defaults[:5] {
		data[line[0]] = line[1]
	}
	return Files{Data: data, Hash: hash}
}

// openClaw is configuration of OpenClaw, which fills in the key from its environment.
func openClaw(index Index, chat []Entry, settings Settings) map[string]any {
	models := []map[string]any{}
	for _, entry := range chat {
		model := map[string]any{"id": entry.ID, "name": entry.Name}
		if entry.ContextWindow > 0 {
			model["contextWindow"] = entry.ContextWindow
		}
		models = append(models, model)
	}
	defaults := map[string]any{"compaction": index.compaction()}
	if ref := index.openCodeRef(); ref != "" {
		defaults["model"] = map[string]any{"primary": ref}
	}
	return map[string]any{
		"models": map[string]any{"providers": map[string]any{provider: map[string]any{
			"baseUrl": settings.APIBase(), "apiKey": openClawKey, "api": "openai-completions", "models": models,
		}}},
		"agents": map[string]any{"defaults": defaults},
		"tools":  map[string]any{"profile": toolsProfile},
	}
}

// hermes is configuration of Hermes, which reads the key from its environment.
func hermes(index Index, chat []Entry, settings Settings) map[string]any {
	models := map[string]any{}
	for _, entry := range chat {
		model := map[string]any{"name": entry.Name}
		if entry.ContextWindow > 0 {
			model["context_length"] = entry.ContextWindow
		}
		models[entry.ID] = model
	}
	const mode = "chat_completions"
	return map[string]any{
		"model": map[string]any{
			"default": index.DefaultChat, "provider": provider, "base_url": settings.APIBase(), "api_mode": mode,
		},
		"providers": map[string]any{provider: map[string]any{
			"name": "LiteLLM", "base_url": settings.APIBase(), "key_env": "OPENAI_API_KEY", "api_mode": mode,
			"default_model": index.DefaultChat, "discover_models": false, "models": models,
		}},
	}
}

// openCodeModels are the models as OpenCode's configuration lists them.
func openCodeModels(chat []Entry, settings Settings, bounds func(Entry, Settings) limits) map[string]any {
	models := map[string]any{}
	for _, entry := range chat {
		l := bounds(entry, settings)
		models[entry.ID] = map[string]any{
			"name":  entry.Name,
			"limit": map[string]any{"context": l.Context, "output": l.Output},
		}
	}
	return models
}

func openCodeProviders(chat []Entry, settings Settings, bounds func(Entry, Settings) limits) map[string]any {
	return map[string]any{provider: map[string]any{
		"npm": openCodePackage, "name": "LiteLLM",
		"options": map[string]any{"baseURL": settings.APIBase(), "apiKey": openCodeKey},
		"models":  openCodeModels(chat, settings, bounds),
	}}
}

func paperclipAdapter(chat []Entry) map[string]any {
	models := []map[string]any{}
	for _, entry := range chat {
		models = append(models, map[string]any{"id": entry.ModelRef, "label": entry.Name})
	}
	return map[string]any{"opencode_local": models}
}
