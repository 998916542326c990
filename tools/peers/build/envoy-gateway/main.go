// Command envoy-gateway is Envoy Gateway's own command, with two additions for
// a machine that is not a cluster node:
//
//	--certificates DIR   stands before the command and shows it DIR at /certs, where it
//	                     looks for its certificates, without touching the machine's /certs
//	snapshot             prints what Envoy Gateway sends to the Envoy proxies of a Gateway
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/envoyproxy/gateway/cmd/envoy-gateway/root"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	err := run()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && exit.Exited(): // it has said why
		os.Exit(exit.ExitCode())
	default:
		fmt.Fprintln(os.Stderr, "envoy-gateway:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 2 && os.Args[1] == optionCertificates {
		dir, args := os.Args[2], os.Args[3:]
		if os.Getenv(envApart) == "" {
			return runApart()
		}
		if err := showCertificates(dir); err != nil {
			return fmt.Errorf("showing %s at %s: %w", dir, certificates, err)
		}
		os.Args = append(os.Args[:1], args...)
	}
	command := root.GetRootCommand(nil)
	command.AddCommand(snapshotCommand())
	return command.ExecuteContext(ctrl.SetupSignalHandler())
}
