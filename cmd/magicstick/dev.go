package main

import (
	"os"

	"github.com/spf13/cobra"

	"magicstick.dev/operator/handwritten/dev"
)

func newDevCommand() *cobra.Command {
	options := dev.Options{Out: os.Stdout}
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine: a real control plane, the operator, and example objects",
		Long: `Run everything on this machine, without root: etcd, kube-apiserver and
kube-controller-manager, the CRDs and shipped catalogs, an OCI registry, the
operator, and the example objects. A table shows every object until Ctrl-C.

With the environment variable KUBECONFIG set, that cluster is used instead of a
built-in one: CRDs, catalogs and examples are installed there, and stay.

The binaries of the control plane come from KUBEBUILDER_ASSETS, or from
.bin/controlplane of the repository, which "make controlplane" fills.`,
		Example: `  magicstick dev                       # until Ctrl-C
  magicstick dev --once                # print the table when all is at rest, and end
  magicstick dev --flux                # with Flux's controllers, so that modules become Ready
  magicstick dev --data-dir ./my-data  # keep the objects for the next time`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			options.Kubeconfig = os.Getenv("KUBECONFIG")
			return dev.Run(command.Context(), options)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&options.Once, "once", false, "print the table when nothing changes any more, and end")
	flags.BoolVar(&options.Flux, "flux", false, `also run Flux's source-controller and kustomize-controller ("make peers" builds them)`)
	flags.StringVar(&options.DataDir, "data-dir", "", "folder that keeps objects, artifacts and logs (default: a temporary one)")
	flags.IntVar(&options.Port, "port", 0, "port of the API server on 127.0.0.1 (default: any free one)")
	flags.DurationVar(&options.Timeout, "timeout", dev.DefaultTimeout, "how long --once waits")
	return command
}
