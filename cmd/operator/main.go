// Command operator runs all controllers of the appliance in a cluster.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"magicstick.dev/operator/handwritten/operator"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	flags := operator.NewFlags()
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Runs the controllers of a Magic Stick appliance",
		Long: `Runs the controllers of a Magic Stick appliance.

The operator reads what people want (Appliance, ModuleActivation) and what the
shipped catalogs say, and keeps Flux Kustomizations and the status of every
object in line with it. It needs the CRDs of appliance.magicstick.dev; Flux may
be installed later.

Every flag can be set by the environment variable in brackets; a flag wins.
The cluster is found through --kubeconfig, $KUBECONFIG, the Pod's service
account, or ~/.kube/config, in this order.`,
		Example: `  operator                                   # in a Pod
  operator --kubeconfig ~/.kube/config --leader-elect=false --log-format text`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.Environment(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			handler, err := flags.LogHandler(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			logger := logr.FromSlogHandler(handler)
			ctrl.SetLogger(logger)
			klog.SetSlogLogger(slog.New(handler))
			connection, err := config.GetConfigWithContext(flags.Context)
			if err != nil {
				return fmt.Errorf("finding the cluster: %w", err)
			}
			mgr, err := operator.New(cmd.Context(), connection, flags.Options)
			if err != nil {
				return err
			}
			return mgr.Start(cmd.Context())
		},
	}
	flags.Register(cmd.Flags())
	return cmd
}
