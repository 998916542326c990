package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"magicstick.dev/operator/handwritten/dev"
)

// parentInterval is how often a process looks whether its parent is still there.
const parentInterval = time.Second

func newDevCommand() *cobra.Command {
	endWithParent := false
	standIns := true
	options := dev.Options{Out: os.Stdout}
	command := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine: a real control plane, the operator, and example objects",
		Long: `Run everything on this machine, without root: etcd, kube-apiserver and
kube-controller-manager, the CRDs and shipped catalogs, an OCI registry, the
operator, and the example objects. A table shows every object until Ctrl-C.

That control plane has no node, and neither Flux nor KubeAI nor LiteLLM run on
it. Small programs play them, so that models go through all their phases: no
model really runs. With --flux, Flux is real. With --stand-ins=false nobody
plays anything, and what needs the others waits.

With the environment variable KUBECONFIG set, that cluster is used instead of a
built-in one, and the first line says which: CRDs, catalogs and examples that
are missing are created there, and stay; nothing is played. CRDs of the product
that differ are updated; nothing else that exists is changed.

The binaries of the control plane come from KUBEBUILDER_ASSETS, or from
.bin/controlplane of the repository, which "make controlplane" fills.`,
		Example: `  magicstick dev                       # until Ctrl-C
  magicstick dev --once                # print the table when all is at rest, and end
  magicstick dev --flux                # with Flux's controllers
  magicstick dev --data-dir ./my-data  # keep the objects for the next time`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			options.Kubeconfig = os.Getenv("KUBECONFIG")
			options.StandIns = standIns && (options.Kubeconfig == "" || command.Flags().Changed("stand-ins"))
			ctx := command.Context()
			if endWithParent {
				var cancel context.CancelFunc
				ctx, cancel = whileParentLives(ctx)
				defer cancel()
			}
			return dev.Run(ctx, options)
		},
	}
	flags := command.Flags()
	flags.BoolVar(&options.Once, "once", false, "print the table when nothing changes any more, and end")
	flags.BoolVar(&options.Flux, "flux", false, `also run Flux's source-controller and kustomize-controller ("make peers" builds them)`)
	flags.BoolVar(&standIns, "stand-ins", true, "play KubeAI, LiteLLM and, without --flux, Flux; never on the cluster of KUBECONFIG")
	flags.StringVar(&options.DataDir, "data-dir", "", "folder that keeps objects, artifacts and logs (default: a temporary one)")
	flags.IntVar(&options.Port, "port", 0, "port of the API server on 127.0.0.1 (default: any free one)")
	flags.BoolVar(&endWithParent, "end-with-parent", false, "end when the process that started this one ends, even by kill -9 (make run does this)")
	flags.DurationVar(&options.Timeout, "timeout", dev.DefaultTimeout, "how long --once waits")
	return command
}

// whileParentLives ends the context when the parent does. A process whose parent
// has ended gets another one, so that a look at its ID now and then is enough.
func whileParentLives(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	parent := os.Getppid()
	go func() {
		ticker := time.NewTicker(parentInterval)
		defer ticker.Stop()
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
		cancel()
	}()
	return ctx, cancel
}
