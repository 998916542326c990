package operator

import (
	"github.com/spf13/pflag"

	"magicstick.dev/operator/handwritten/kube/commandline"
)

// Flags are Options as a person writes them on a command line or in a Pod's
// environment.
type Flags struct {
	Options
	commandline.Process
}

// NewFlags starts from DefaultOptions.
func NewFlags() *Flags {
	return &Flags{Options: DefaultOptions(), Process: commandline.NewProcess()}
}

// Register adds the flags to a command. The variables are those of
// contract/appliance.md C.0; where there is none, the flag's own name in
// capitals.
func (f *Flags) Register(flags *pflag.FlagSet) {
	known := commandline.Flags{FlagSet: flags}
	text := known.Text
	text(&f.Appliance.Namespace, "appliance-namespace", "APPLIANCE_NAMESPACE", "namespace of the Appliance and of all runtime objects")
	text(&f.Appliance.Name, "appliance-name", "APPLIANCE_NAME", "name of the Appliance")
	text(&f.ModuleCatalog.Namespace, "module-catalog-namespace", "MODULE_CATALOG_NAMESPACE", "namespace of the module catalog")
	text(&f.ModuleCatalog.Name, "module-catalog-name", "MODULE_CATALOG_NAME", "ConfigMap of the module catalog")
	text(&f.ApplicationCatalog.Namespace, "app-catalog-namespace", "APP_CATALOG_NAMESPACE", "namespace of the application catalog")
	text(&f.ApplicationCatalog.Name, "app-catalog-name", "APP_CATALOG_NAME", "ConfigMap of the application catalog")
	text(&f.ModelPresets.Namespace, "model-presets-namespace", "MODEL_PRESETS_NAMESPACE", "namespace of the model presets")
	text(&f.ModelPresets.Name, "model-presets-name", "MODEL_PRESETS_NAME", "ConfigMap of the model presets")
	text(&f.EngineCatalog.Namespace, "engine-catalog-namespace", "ENGINE_CATALOG_NAMESPACE", "namespace of the catalog of engines and targets")
	text(&f.EngineCatalog.Name, "engine-catalog-name", "ENGINE_CATALOG_NAME", "ConfigMap of the catalog of engines and targets")
	text(&f.RealtimeProfiles.Namespace, "realtime-profiles-namespace", "REALTIME_PROFILES_NAMESPACE", "namespace of the realtime profiles")
	text(&f.RealtimeProfiles.Name, "realtime-profiles-name", "REALTIME_PROFILES_NAME", "ConfigMap of the realtime profiles")
	text(&f.ModelNamespace, "model-namespace", "LITELLM_NAMESPACE", "namespace of KubeAI, LiteLLM and the models")
	text(&f.ModelIndex, "model-index-name", "CATALOG_CONFIGMAP", "ConfigMap there that lists the models in service")
	text(&f.ModelRegistry, "model-registry", "MODEL_REGISTRY", "registry with the images of prepared models, <host>[:<port>][/<prefix>]; empty for none")
	text(&f.ModelCache, "model-cache", "MODEL_CACHE", "folder on the nodes where runtimes without KubeAI keep the files of models; empty for none")
	text(&f.HuggingFaceSecret, "huggingface-secret-name", "HUGGINGFACE_SECRET_NAME", "Secret with the key token for gated repositories, in the namespace of the models; empty for none")
	f.registerIndex(known)
	text(&f.FluxNamespace, "flux-namespace", "FLUX_NAMESPACE", "namespace of Flux, where Kustomizations are made")
	text(&f.SettingsConfigMap, "settings-configmap-name", "SETTINGS_CONFIGMAP_NAME", "ConfigMap with the appliance's settings, in the namespace of Flux")
	text(&f.IdentityNamespace, "identity-namespace", "IDENTITY_NAMESPACE", "namespace of the gateway, its routes and policies, Keycloak and the guard")
	text(&f.Gateway, "identity-gateway-name", "IDENTITY_GATEWAY_NAME", "Gateway that instances are reached through")
	text(&f.OIDCClientID, "oidc-client-id", "OIDC_CLIENT_ID", "client of people's sign-in")
	text(&f.OIDCClientSecret, "oidc-client-secret-name", "OIDC_CLIENT_SECRET_NAME", "Secret with that client's key client-secret")
	text(&f.Domains.MDNS, "default-mdns-domain", "DEFAULT_MDNS_DOMAIN", "local domain while the settings name none")
	text(&f.Domains.Public, "default-public-domain", "DEFAULT_PUBLIC_DOMAIN", "public domain while the settings name none")
	text(&f.MetricsAddress, "metrics-bind-address", "METRICS_BIND_ADDRESS", "host:port for Prometheus metrics at /metrics; 0 for none")
	text(&f.ProbeAddress, "health-probe-bind-address", "HEALTH_PROBE_BIND_ADDRESS", "host:port for /healthz and /readyz; 0 for none")
	known.Switch(&f.LeaderElection, "leader-elect", "LEADER_ELECT", "let only one of several processes work, by a Lease in the Appliance's namespace")
	known.Duration(&f.ShutdownTimeout, "shutdown-timeout", "SHUTDOWN_TIMEOUT", "time that passes under way may take at the end")
	f.Process.Register(known, "")
}

// Environment fills every flag that was not given from its variable.
func (f *Flags) Environment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	return commandline.Environment(flags, lookup)
}
