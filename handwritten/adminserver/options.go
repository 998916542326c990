package adminserver

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"magicstick.dev/operator/handwritten/identity"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/kube/commandline"
)

// Options are the choices of an installation. Start from DefaultOptions; only
// Tokens.Issuer has no default.
type Options struct {
	// Namespace holds the AppInstances.
	Namespace string
	// Tokens says which access tokens are accepted.
	Tokens identity.TokenRules
	// KeysURL is where the realm publishes its signing keys, inside the cluster.
	KeysURL string
	// MaxCacheAge is how long the guard answers without a word from the API server.
	MaxCacheAge time.Duration

	// GuardAddress, ProbeAddress and MetricsAddress are host:port; the last two
	// may be "0" for none.
	GuardAddress, ProbeAddress, MetricsAddress string
	// DrainDelay is how long the guard goes on answering after it was told to
	// end, so that the gateway learns first.
	DrainDelay time.Duration
	// ShutdownTimeout is how long checks under way may take after that.
	ShutdownTimeout time.Duration

	// Now is the clock.
	Now func() time.Time
}

// DefaultOptions are the names of a standard installation (contract/appliance.md F.2).
func DefaultOptions() Options {
	return Options{
		Namespace: "ai-system",
		Tokens: identity.TokenRules{
			ClientID:    "magicstick-human-gateway-local",
			GroupsClaim: "group_ids",
		},
		KeysURL:         "http://keycloak.identity-system.svc.cluster.local:8080/realms/magicstick/protocol/openid-connect/certs",
		MaxCacheAge:     5 * time.Minute,
		GuardAddress:    fmt.Sprintf(":%d", kube.GuardPort),
		ProbeAddress:    ":8081",
		MetricsAddress:  ":8082",
		DrainDelay:      5 * time.Second,
		ShutdownTimeout: 10 * time.Second,
		Now:             time.Now,
	}
}

// Validate names every option that cannot work.
func (o Options) Validate() error {
	var problems []error
	for _, problem := range validation.IsDNS1123Label(o.Namespace) {
		problems = append(problems, fmt.Errorf("namespace %q: %s", o.Namespace, problem))
	}
	if err := o.Tokens.Validate(); err != nil {
		problems = append(problems, err)
	}
	if o.MaxCacheAge < identity.MinCacheAge {
		problems = append(problems, fmt.Errorf("age of the cache %s: must be at least %s", o.MaxCacheAge, identity.MinCacheAge))
	}
	for _, listener := range []struct{ name, address string }{
		{"guard address", o.GuardAddress}, {"probe address", o.ProbeAddress}, {"metrics address", o.MetricsAddress},
	} {
		if listener.address == "0" && listener.name != "guard address" {
			continue
		}
		if _, _, err := net.SplitHostPort(listener.address); err != nil {
			problems = append(problems, fmt.Errorf("%s %q: want host:port or :port: %w", listener.name, listener.address, err))
		}
	}
	if o.DrainDelay < 0 || o.ShutdownTimeout < 0 {
		problems = append(problems, fmt.Errorf("drain delay %s, shutdown timeout %s: must not be negative", o.DrainDelay, o.ShutdownTimeout))
	}
	if o.Now == nil {
		problems = append(problems, errors.New("clock: missing"))
	}
	return errors.Join(problems...)
}

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

// Register adds the flags to a command.
func (f *Flags) Register(flags *pflag.FlagSet) {
	known := commandline.Flags{FlagSet: flags}
	text, duration := known.Text, known.Duration
	text(&f.Namespace, "appliance-namespace", "APPLIANCE_NAMESPACE", "namespace of the AppInstances")
	text(&f.Tokens.Issuer, "oidc-issuer", "OIDC_ISSUER", "issuer of access tokens, as the gateway's policies name it: https://id.<local domain>/realms/magicstick; required")
	text(&f.KeysURL, "oidc-keys-url", "OIDC_KEYS_URL", "where the realm publishes its signing keys (JSON Web Key Set)")
	text(&f.Tokens.ClientID, "oidc-client-id", "OIDC_CLIENT_ID", "client that access tokens are issued to (azp)")
	text(&f.Tokens.Audience, "oidc-audience", "OIDC_AUDIENCE", "audience that access tokens must name (aud), for clients with an audience mapper; empty: aud is absent or names the client or account, and a token for others only is refused")
	text(&f.Tokens.GroupsClaim, "oidc-groups-claim", "OIDC_GROUPS_CLAIM", "claim with the IDs (not names) of a person's groups; without it in the token, allow-lists of groups admit nobody")
	duration(&f.MaxCacheAge, "guard-max-cache-age", "GUARD_MAX_CACHE_AGE", "deny everything when the API server was not heard from for so long")
	text(&f.GuardAddress, "guard-bind-address", "GUARD_BIND_ADDRESS", "host:port of the guard, for the gateway only")
	text(&f.ProbeAddress, "health-probe-bind-address", "HEALTH_PROBE_BIND_ADDRESS", "host:port for /healthz and /readyz; 0 for none")
	text(&f.MetricsAddress, "metrics-bind-address", "METRICS_BIND_ADDRESS", "host:port for Prometheus metrics at /metrics; 0 for none")
	duration(&f.DrainDelay, "drain-delay", "DRAIN_DELAY", "time between the signal to end and the end of answering")
	duration(&f.ShutdownTimeout, "shutdown-timeout", "SHUTDOWN_TIMEOUT", "time that checks under way may take at the end")
	f.Process.Register(known, "; debug shows every denial with its reason")
}

// Environment fills every flag that was not given from its variable.
func (f *Flags) Environment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	return commandline.Environment(flags, lookup)
}

// Logger writes structured logs to out.
func (f *Flags) Logger(out io.Writer) (*slog.Logger, error) {
	handler, err := f.LogHandler(out)
	if err != nil {
		return nil, err
	}
	return slog.New(handler), nil
}
