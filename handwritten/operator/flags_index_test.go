package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/modelindex"
)

// The variables and defaults of contract/appliance.md C.11.
func TestFlagsOfTheModelIndex(t *testing.T) {
	t.Parallel()
	flags, err := parse(t, nil)
	require.NoError(t, err)
	require.Equal(t, modelindex.DefaultSettings(), flags.Index)
	require.NoError(t, flags.Validate())

	flags, err = parse(t, map[string]string{
		"LITELLM_BASE_URL": "http://a:1", "LITELLM_API_BASE": "http://b/v1", "KUBEAI_API_BASE": "http://c/v1",
		"EXTERNAL_MODELS_CONFIGMAP": "d", "AI_APPLIANCE_DEFAULT_CHAT_MODEL": "e", "AI_APPLIANCE_DEFAULT_EMBEDDING_MODEL": "f",
		"OPENCODE_DEFAULT_CONTEXT_TOKENS": "1", "OPENCODE_DEFAULT_OUTPUT_TOKENS": "2", "PAPERCLIP_OPENCODE_MAX_OUTPUT_TOKENS": "3",
		"PAPERCLIP_OPENCODE_CONTEXT_HEADROOM_TOKENS": "0", "CONSUMER_RESTART_ENABLED": "false", "AGENT_TEMPLATE_SYNC_ENABLED": "false",
		"AGENT_TEMPLATE_NAMES": "g,h", "CATALOG_POLL_SECONDS": "7", "CATALOG_RECHECK_SECONDS": "2m",
	})
	require.NoError(t, err)
	want := modelindex.DefaultSettings()
	want.LiteLLMBaseURL, want.LiteLLMAPIBase, want.KubeAIAPIBase = "http://a:1", "http://b/v1", "http://c/v1"
	want.ExternalConfigMap, want.DefaultChatModel, want.DefaultEmbeddingModel = "d", "e", "f"
	want.OpenCodeContextTokens, want.OpenCodeOutputTokens, want.PaperclipMaxOutputTokens, want.PaperclipHeadroomTokens = 1, 2, 3, 0
	want.RestartConsumers, want.SyncAgentTemplates, want.AgentTemplateNames = false, false, []string{"g", "h"}
	want.Retry, want.Recheck = 7*time.Second, 2*time.Minute
	require.Equal(t, want, flags.Index)

	flags, err = parse(t, nil, "--paperclip-max-output-tokens=0", "--litellm-base-url=http://user:hidden@h", "--model-index-retry=0")
	require.NoError(t, err)
	err = flags.Validate()
	require.ErrorContains(t, err, "Paperclip output tokens 0: must be at least 1")
	require.ErrorContains(t, err, "LiteLLM base URL: must not hold a user name or a password")
	require.ErrorContains(t, err, "model index retry 0s: must be positive")
	require.NotContains(t, err.Error(), "hidden")

	_, err = parse(t, map[string]string{"CATALOG_POLL_SECONDS": "soon"})
	require.ErrorContains(t, err, "$CATALOG_POLL_SECONDS for --model-index-retry (duration)")
}
