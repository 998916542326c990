// Command admin answers people's programs and the gateway.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"magicstick.dev/operator/handwritten/adminserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "admin:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	flags := adminserver.NewFlags()
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Guards the applications of a Magic Stick appliance",
		Long: `Guards the applications of a Magic Stick appliance.

Before a request reaches an application, the gateway (Envoy Gateway, extAuth of a
SecurityPolicy) asks this process. It answers 200 when the AppInstance exists, is
enabled, is protected the way the policy says, and the person's role and the
allow-list of the instance admit them; otherwise 403, with no detail. What it does
not know, it denies. Any number of replicas may run.

The gateway's EnvoyProxy must order envoy.filters.http.ext_authz after
envoy.filters.http.jwt_authn, or nobody can sign in.

Every flag can be set by the environment variable in brackets; a flag wins.
The cluster is found through --kubeconfig, $KUBECONFIG, the Pod's service
account, or ~/.kube/config, in this order.`,
		Example: `  admin --oidc-issuer https://id.magicstick.local/realms/magicstick      # in a Pod
  admin --kubeconfig ~/.kube/config --log-format text --log-level debug \
    --oidc-issuer https://id.magicstick.local/realms/magicstick \
    --oidc-keys-url https://id.magicstick.local/realms/magicstick/protocol/openid-connect/certs`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.Environment(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			logger, err := flags.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			klog.SetSlogLogger(logger)
			if err := flags.Validate(); err != nil {
				return err
			}
			connection, err := config.GetConfigWithContext(flags.Context)
			if err != nil {
				return fmt.Errorf("finding the cluster: %w", err)
			}
			server, err := adminserver.New(connection, flags.Options, metrics.Registry, logger)
			if err != nil {
				return err
			}
			return server.Run(cmd.Context())
		},
	}
	flags.Register(cmd.Flags())
	return cmd
}
