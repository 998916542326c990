package operator

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/modelindex"
)

// Options are the choices of an installation. The zero value is not useful;
// start from DefaultOptions.
type Options struct {
	// Appliance is the object that the operator keeps; activations, instances
	// and models live in its namespace.
	Appliance types.NamespacedName
	// ModuleCatalog, ApplicationCatalog are the ConfigMaps of the shipped catalogs.
	ModuleCatalog, ApplicationCatalog types.NamespacedName
	// ModelPresets, EngineCatalog and RealtimeProfiles are the ConfigMaps of the
	// catalogs of models.
	ModelPresets, EngineCatalog, RealtimeProfiles types.NamespacedName
	// ModelNamespace is where KubeAI, LiteLLM and the models run.
	ModelNamespace string
	// ModelIndex is the ConfigMap there that lists the models in service.
	ModelIndex string
	// Index are the settings of the model index; its namespace and name are those above.
	Index modelindex.Settings
	// ModelRegistry has the images of prepared models, <host>[:<port>][/<prefix>];
	// empty when there is none.
	ModelRegistry string
	// ModelCache is the folder on the nodes where runtimes without KubeAI keep the
	// files of models; empty means that a Pod forgets them.
	ModelCache string
	// HuggingFaceSecret is the Secret in ModelNamespace whose key token opens gated
	// repositories; empty or absent means none.
	HuggingFaceSecret string
	// FluxNamespace holds Kustomizations and the settings.
	FluxNamespace string
	// SettingsConfigMap, in FluxNamespace, holds the variables of the appliance.
	SettingsConfigMap string
	// IdentityNamespace holds the gateway, its routes and policies, Keycloak and the guard.
	IdentityNamespace string
	// Gateway is the Gateway that instances are reached through.
	Gateway string
	// OIDCClientID and OIDCClientSecret, a Secret's name, are the client of people's sign-in.
	OIDCClientID, OIDCClientSecret string
	// Domains apply where the settings say nothing; the dashboard's host always
	// follows from the settings and the public domain.
	Domains kube.Domains

	// LeaderElection makes sure that of several processes one works.
	LeaderElection bool
	// LeaseDuration is how long one that was killed keeps the others waiting.
	LeaseDuration time.Duration
	// MetricsAddress serves Prometheus metrics over HTTP; "0" switches it off.
	MetricsAddress string
	// ProbeAddress serves /healthz and /readyz; "0" switches it off.
	ProbeAddress string
	// ShutdownTimeout is how long passes under way may take at the end.
	ShutdownTimeout time.Duration
	// ProfilesQuiet and ProfilesInterval are the pauses around writes of KubeAI's
	// resource profiles; 0 means activations.DefaultProfilesQuiet and
	// DefaultProfilesInterval, unless a test sets them.
	ProfilesQuiet, ProfilesInterval time.Duration
	// Now is the clock, time.Now unless a test sets it.
	Now func() time.Time
}

// DefaultOptions are the names of a standard installation (contract/appliance.md C.0).
func DefaultOptions() Options {
	return Options{
		Appliance:          types.NamespacedName{Namespace: "ai-system", Name: "local"},
		ModuleCatalog:      types.NamespacedName{Namespace: "ai-system", Name: "magicstick-module-catalog"},
		ApplicationCatalog: types.NamespacedName{Namespace: "ai-system", Name: "magicstick-app-catalog"},
		ModelPresets:       types.NamespacedName{Namespace: "ai-system", Name: catalogs.PresetsSource.Name},
		EngineCatalog:      types.NamespacedName{Namespace: "ai-system", Name: catalogs.EnginesSource.Name},
		RealtimeProfiles:   types.NamespacedName{Namespace: "ai-system", Name: catalogs.RealtimeSource.Name},
		ModelNamespace:     "ai",
		ModelIndex:         "ai-model-catalog",
		Index:              modelindex.DefaultSettings(),
		ModelCache:         "/var/lib/magicstick/model-cache",
		HuggingFaceSecret:  "kubeai-huggingface",
		FluxNamespace:      "flux-system",
		SettingsConfigMap:  "ai-appliance-settings",
		IdentityNamespace:  kube.GuardNamespace,
		Gateway:            "identity-pilot",
		OIDCClientID:       "magicstick-human-gateway-local",
		OIDCClientSecret:   "magicstick-human-gateway-client",
		Domains:            kube.DefaultDomains,
		LeaderElection:     true,
		LeaseDuration:      15 * time.Second,
		MetricsAddress:     ":8080",
		ProbeAddress:       ":8081",
		ShutdownTimeout:    20 * time.Second,
		Now:                time.Now,
	}
}

// Validate names every option that cannot work.
func (o Options) Validate() error {
	var problems []error
	name := func(option, value string, rule func(string) []string) {
		for _, problem := range rule(value) {
			problems = append(problems, fmt.Errorf("%s %q: %s", option, value, problem))
		}
	}
	subdomain := func(value string) []string { return validation.IsDNS1123Subdomain(value) }
	name("appliance namespace", o.Appliance.Namespace, validation.IsDNS1123Label)
	name("appliance name", o.Appliance.Name, subdomain)
	name("module catalog namespace", o.ModuleCatalog.Namespace, validation.IsDNS1123Label)
	name("module catalog name", o.ModuleCatalog.Name, subdomain)
	name("application catalog namespace", o.ApplicationCatalog.Namespace, validation.IsDNS1123Label)
	name("application catalog name", o.ApplicationCatalog.Name, subdomain)
	for option, catalog := range map[string]types.NamespacedName{
		"model presets": o.ModelPresets, "engine catalog": o.EngineCatalog, "realtime profiles": o.RealtimeProfiles,
	} {
		name(option+" namespace", catalog.Namespace, validation.IsDNS1123Label)
		name(option+" name", catalog.Name, subdomain)
	}
	name("model namespace", o.ModelNamespace, validation.IsDNS1123Label)
	name("model index", o.ModelIndex, subdomain)
	if o.HuggingFaceSecret != "" {
		name("Hugging Face secret", o.HuggingFaceSecret, subdomain)
	}
	if o.ModelCache != "" && (!path.IsAbs(o.ModelCache) || path.Clean(o.ModelCache) != o.ModelCache || o.ModelCache == "/") {
		problems = append(problems, fmt.Errorf("model cache %q: must be an absolute path below the root, written without dot segments", o.ModelCache))
	}
	if strings.Contains(o.ModelRegistry, "://") {
		problems = append(problems, fmt.Errorf("model registry %q: must be host, host:port or host/prefix, without a scheme", o.ModelRegistry))
	}
	name("Flux namespace", o.FluxNamespace, validation.IsDNS1123Label)
	name("settings ConfigMap", o.SettingsConfigMap, subdomain)
	name("identity namespace", o.IdentityNamespace, validation.IsDNS1123Label)
	name("gateway", o.Gateway, subdomain)
	name("OIDC client secret", o.OIDCClientSecret, subdomain)
	name("default mDNS domain", o.Domains.MDNS, subdomain)
	name("default public domain", o.Domains.Public, subdomain)
	if !strings.HasSuffix(o.Domains.MDNS, ".local") {
		problems = append(problems, fmt.Errorf("default mDNS domain %q: must end in .local", o.Domains.MDNS))
	}
	if o.OIDCClientID == "" {
		problems = append(problems, errors.New("OIDC client ID: must not be empty"))
	}
	for option, address := range map[string]string{"metrics address": o.MetricsAddress, "probe address": o.ProbeAddress} {
		if address == "0" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			problems = append(problems, fmt.Errorf("%s %q: want host:port, :port, or 0 for none: %w", option, address, err))
		}
	}
	if err := o.indexSettings().Validate(); err != nil {
		problems = append(problems, err)
	}
	if o.LeaseDuration < time.Second {
		problems = append(problems, fmt.Errorf("lease duration %s: must be at least 1 s", o.LeaseDuration))
	}
	if o.ShutdownTimeout < 0 {
		problems = append(problems, fmt.Errorf("shutdown timeout %s: must not be negative", o.ShutdownTimeout))
	}
	if o.Now == nil {
		problems = append(problems, errors.New("clock: missing"))
	}
	return errors.Join(problems...)
}

// indexSettings are those of the index at the place where this installation has it.
func (o Options) indexSettings() modelindex.Settings {
	settings := o.Index
	settings.Namespace, settings.ConfigMap = o.ModelNamespace, o.ModelIndex
	return settings
}
