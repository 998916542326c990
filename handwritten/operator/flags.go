package operator

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
)

// Flags are Options as a person writes them on a command line or in a Pod's
// environment.
type Flags struct {
	Options
	// Context of the kubeconfig; empty means its current one.
	Context string

	logFormat, logLevel string
}

// NewFlags starts from DefaultOptions.
func NewFlags() *Flags {
	return &Flags{Options: DefaultOptions(), logFormat: "json", logLevel: "info"}
}

// environmentAnnotation holds the name of the variable that sets a flag.
const environmentAnnotation = "environment"

// Register adds the flags to a command. The variables are those of
// contract/appliance.md C.0; where there is none, the flag's own name in
// capitals.
func (f *Flags) Register(flags *pflag.FlagSet) {
	text := func(target *string, name, variable, usage string) {
		flags.StringVar(target, name, *target, fmt.Sprintf("%s [$%s]", usage, variable))
		annotate(flags, name, variable)
	}
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
	f.registerIndex(flags)
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
	text(&f.logFormat, "log-format", "LOG_FORMAT", "json or text")
	text(&f.logLevel, "log-level", "LOG_LEVEL", "debug, info, warn or error")
	text(&f.Context, "context", "KUBECONTEXT", "context of the kubeconfig; empty for its current one")
	flags.BoolVar(&f.LeaderElection, "leader-elect", f.LeaderElection, "let only one of several processes work, by a Lease in the Appliance's namespace [$LEADER_ELECT]")
	annotate(flags, "leader-elect", "LEADER_ELECT")
	flags.DurationVar(&f.ShutdownTimeout, "shutdown-timeout", f.ShutdownTimeout, "time that passes under way may take at the end [$SHUTDOWN_TIMEOUT]")
	annotate(flags, "shutdown-timeout", "SHUTDOWN_TIMEOUT")

	// --kubeconfig belongs to controller-runtime's own lookup.
	lookup := flag.NewFlagSet("kubeconfig", flag.ContinueOnError)
	config.RegisterFlags(lookup)
	flags.AddGoFlagSet(lookup)
	flags.Lookup(config.KubeconfigFlagName).Usage = "file that says how to reach the cluster; not needed in a Pod [$KUBECONFIG]"
	flags.SortFlags = false
}

func annotate(flags *pflag.FlagSet, name, variable string) {
	// SetAnnotation fails only for a flag that does not exist.
	if err := flags.SetAnnotation(name, environmentAnnotation, []string{variable}); err != nil {
		panic(err)
	}
}

// Environment fills every flag that was not given from its variable. An error
// names the variable, not its value.
func (f *Flags) Environment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var problems []error
	flags.VisitAll(func(known *pflag.Flag) {
		variables := known.Annotations[environmentAnnotation]
		if known.Changed || len(variables) == 0 {
			return
		}
		value, found := lookup(variables[0])
		if !found || value == "" {
			return
		}
		if err := known.Value.Set(value); err != nil {
			problems = append(problems, fmt.Errorf("reading $%s for --%s (%s): %w", variables[0], known.Name, known.Value.Type(), err))
		}
	})
	return errors.Join(problems...)
}

// LogHandler writes structured logs to out.
func (f *Flags) LogHandler(out io.Writer) (slog.Handler, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", f.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "json":
		return orderly{slog.NewJSONHandler(out, options)}, nil
	case "text":
		return orderly{slog.NewTextHandler(out, options)}, nil
	}
	return nil, fmt.Errorf("--log-format %q: want json or text", f.logFormat)
}
