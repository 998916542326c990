package modelindex

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// automatic as a default model means the first of its type.
const automatic = "auto"

// Settings are the choices of an installation. Start from DefaultSettings.
type Settings struct {
	// Namespace of LiteLLM, KubeAI, the index and those who read it.
	Namespace string
	// LiteLLMBaseURL is where LiteLLM's admin API answers, without a path.
	LiteLLMBaseURL string
	// LiteLLMAPIBase is what clients are given; empty is LiteLLMBaseURL with /v1.
	LiteLLMAPIBase string
	// KubeAIAPIBase is where LiteLLM reaches the models of KubeAI.
	KubeAIAPIBase string
	// ConfigMap is the name of the index.
	ConfigMap string
	// ExternalConfigMap lists models of providers in its key models.json.
	ExternalConfigMap string
	// MasterKeySecret holds LiteLLM's key under MasterKeyKey.
	MasterKeySecret, MasterKeyKey string

	// DefaultChatModel and DefaultEmbeddingModel are IDs, or auto.
	DefaultChatModel, DefaultEmbeddingModel string
	// OpenCodeContextTokens and OpenCodeOutputTokens hold for models that say nothing.
	OpenCodeContextTokens, OpenCodeOutputTokens int64
	// PaperclipMaxOutputTokens bounds answers in Paperclip's runs, at least 1.
	PaperclipMaxOutputTokens int64
	// PaperclipHeadroomTokens of the context stay free in Paperclip's runs.
	PaperclipHeadroomTokens int64

	// RestartConsumers restarts the Pods that read the index when it changed.
	RestartConsumers bool
	// SyncAgentTemplates keeps the models of KubeOpenCode's AgentTemplates.
	SyncAgentTemplates bool
	// AgentTemplateNames are kept besides those that carry an instance's label.
	AgentTemplateNames []string

	// Retry is the pause after something went wrong.
	Retry time.Duration
	// Recheck is how long at most a change stays unseen that no watch tells: models
	// that LiteLLM lost, and keys of providers that were renewed.
	Recheck time.Duration
	// Debounce gathers events that come in a burst.
	Debounce time.Duration
	// CallTimeout bounds one call to LiteLLM.
	CallTimeout time.Duration
}

// DefaultSettings are those of contract/appliance.md C.11. Watches replace its
// 15 s loop (contract/rulings.md 1).
func DefaultSettings() Settings {
	return Settings{
		Namespace:                "ai",
		LiteLLMBaseURL:           "http://litellm.ai.svc.cluster.local:4000",
		KubeAIAPIBase:            "http://kubeai.ai.svc.cluster.local/openai/v1",
		ConfigMap:                "ai-model-catalog",
		ExternalConfigMap:        "ai-external-models",
		MasterKeySecret:          "litellm-masterkey-secret",
		MasterKeyKey:             "LITELLM_MASTER_KEY",
		DefaultChatModel:         automatic,
		DefaultEmbeddingModel:    automatic,
		OpenCodeContextTokens:    131072,
		OpenCodeOutputTokens:     8192,
		PaperclipMaxOutputTokens: 4096,
		PaperclipHeadroomTokens:  4096,
		RestartConsumers:         true,
		SyncAgentTemplates:       true,
		AgentTemplateNames:       []string{"litellm-default"},
		Retry:                    30 * time.Second,
		Recheck:                  5 * time.Minute,
		Debounce:                 250 * time.Millisecond,
		CallTimeout:              20 * time.Second,
	}
}

// APIBase is the address that clients are given.
func (s Settings) APIBase() string { return cmp.Or(s.LiteLLMAPIBase, s.LiteLLMBaseURL+"/v1") }

// ConfigMapName is the name of the index.
func (s Settings) ConfigMapName() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Namespace, Name: s.ConfigMap}
}

// Validate names every setting that cannot work.
func (s Settings) Validate() error {
	var problems []error
	complain := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, problem := range validation.IsDNS1123Label(s.Namespace) {
		complain("model index namespace %q: %s", s.Namespace, problem)
	}
	for setting, name := range map[string]string{
		"model index ConfigMap": s.ConfigMap, "external models ConfigMap": s.ExternalConfigMap, "LiteLLM master key Secret": s.MasterKeySecret,
	} {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			complain("%s %q: %s", setting, name, problem)
		}
	}
	for _, problem := range validation.IsConfigMapKey(s.MasterKeyKey) {
		complain("key of the LiteLLM master key %q: %s", s.MasterKeyKey, problem)
	}
	for setting, address := range map[string]string{
		"LiteLLM base URL": s.LiteLLMBaseURL, "LiteLLM API base": s.APIBase(), "KubeAI API base": s.KubeAIAPIBase,
	} {
		if problem := badAddress(address); problem != "" {
			complain("%s: %s", setting, problem)
		}
	}
	for setting, number := range map[string]int64{
		"OpenCode context tokens": s.OpenCodeContextTokens, "OpenCode output tokens": s.OpenCodeOutputTokens,
		"Paperclip output tokens": s.PaperclipMaxOutputTokens,
	} {
		if number < 1 {
			complain("%s %d: must be at least 1", setting, number)
		}
	}
	if s.PaperclipHeadroomTokens < 0 {
		complain("Paperclip headroom tokens %d: must not be negative", s.PaperclipHeadroomTokens)
	}
	for setting, pause := range map[string]time.Duration{
		"model index retry": s.Retry, "model index recheck": s.Recheck, "LiteLLM timeout": s.CallTimeout,
	} {
		if pause <= 0 {
			complain("%s %s: must be positive", setting, pause)
		}
	}
	if s.Debounce < 0 {
		complain("model index debounce %s: must not be negative", s.Debounce)
	}
	return errors.Join(problems...)
}

// badAddress says what is wrong with an address, without repeating what may be a
// password in it.
func badAddress(address string) string {
	parsed, err := url.Parse(address)
	switch {
	case err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https":
		return "must be an http or https address"
	case parsed.User != nil:
		return "must not hold a user name or a password"
	case parsed.RawQuery != "" || parsed.Fragment != "":
		return "must not have a query or a fragment"
	}
	return ""
}
