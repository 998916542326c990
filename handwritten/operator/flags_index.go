package operator

import (
	"errors"
	"strconv"
	"time"

	"magicstick.dev/operator/handwritten/kube/commandline"
)

// registerIndex adds the flags of the model index. The variables are those of
// contract/appliance.md C.11.
func (f *Flags) registerIndex(flags commandline.Flags) {
	index := &f.Index
	text, number, yes := flags.Text, flags.Number, flags.Switch
	pause := func(target *time.Duration, name, variable, usage string) {
		flags.Value((*seconds)(target), name, variable, usage)
	}
	text(&index.LiteLLMBaseURL, "litellm-base-url", "LITELLM_BASE_URL", "address of LiteLLM's admin API, without a path")
	text(&index.LiteLLMAPIBase, "litellm-api-base", "LITELLM_API_BASE", "address that applications are given; empty for the base URL with /v1")
	text(&index.MasterKeySecret, "litellm-master-key-secret-name", "LITELLM_MASTER_KEY_SECRET_NAME", "Secret with the master key, in the namespace of the models")
	text(&index.KubeAIAPIBase, "kubeai-api-base", "KUBEAI_API_BASE", "address where LiteLLM reaches the models of KubeAI")
	text(&index.ExternalConfigMap, "external-models-configmap-name", "EXTERNAL_MODELS_CONFIGMAP", "ConfigMap with models of providers, in the namespace of the models")
	text(&index.DefaultChatModel, "default-chat-model", "AI_APPLIANCE_DEFAULT_CHAT_MODEL", "chat model that applications begin with; auto for the first")
	text(&index.DefaultEmbeddingModel, "default-embedding-model", "AI_APPLIANCE_DEFAULT_EMBEDDING_MODEL", "embedding model that applications begin with; auto for the first")
	number(&index.OpenCodeContextTokens, "opencode-default-context-tokens", "OPENCODE_DEFAULT_CONTEXT_TOKENS", "context in tokens of models that say nothing")
	number(&index.OpenCodeOutputTokens, "opencode-default-output-tokens", "OPENCODE_DEFAULT_OUTPUT_TOKENS", "longest answer in tokens of models that say nothing")
	number(&index.PaperclipMaxOutputTokens, "paperclip-max-output-tokens", "PAPERCLIP_OPENCODE_MAX_OUTPUT_TOKENS", "longest answer in tokens in runs of Paperclip, at least 1")
	number(&index.PaperclipHeadroomTokens, "paperclip-context-headroom-tokens", "PAPERCLIP_OPENCODE_CONTEXT_HEADROOM_TOKENS", "tokens of the context that stay free in runs of Paperclip")
	yes(&index.RestartConsumers, "consumer-restart", "CONSUMER_RESTART_ENABLED", "restart the Pods that read the model index when it changed")
	yes(&index.SyncAgentTemplates, "agent-template-sync", "AGENT_TEMPLATE_SYNC_ENABLED", "keep the models of KubeOpenCode's AgentTemplates")
	flags.StringSliceVar(&index.AgentTemplateNames, "agent-template-names", index.AgentTemplateNames, "AgentTemplates to keep besides those of instances, with commas between them [$AGENT_TEMPLATE_NAMES]")
	flags.From("agent-template-names", "AGENT_TEMPLATE_NAMES")
	pause(&index.Retry, "model-index-retry", "CATALOG_POLL_SECONDS", "pause after LiteLLM failed, or while a model is left out")
	pause(&index.Recheck, "model-index-recheck", "CATALOG_RECHECK_SECONDS", "how long at most a model that LiteLLM lost, or a renewed key of a provider, stays unseen")
}

// seconds is a duration that is also written as a plain number of seconds.
type seconds time.Duration

func (s *seconds) String() string { return time.Duration(*s).String() }

func (s *seconds) Type() string { return "duration" }

func (s *seconds) Set(text string) error {
	if number, err := strconv.ParseInt(text, 10, 32); err == nil {
		*s = seconds(time.Duration(number) * time.Second)
		return nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want a number of seconds, or a duration such as 30s or 5m")
	}
	*s = seconds(parsed)
	return nil
}
