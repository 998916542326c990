// Command controlplane puts etcd, kube-apiserver, kube-controller-manager and
// kubectl into .bin/controlplane of the repository, for tests and for `make run`.
//
// A machine with internet gets what setup-envtest offers, in seconds; it has no
// kube-controller-manager, which is built then. Any other machine builds all
// four from their Go modules, which takes about ten minutes once. With
// KUBEBUILDER_ASSETS set, that folder is used and only what it lacks is built.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"magicstick.dev/operator/tools/gobuild"
)

func main() {
	fromSource := flag.Bool("from-source", false, "do not ask setup-envtest, build everything")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *fromSource); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, fromSource bool) error {
	workingDir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("reading the working directory: %w", err)
	}
	repository, err := gobuild.RepositoryDir(workingDir)
	if err != nil {
		return err
	}
	modules := filepath.Join(repository, "tools", "controlplane")
	version, err := pinnedVersion(filepath.Join(modules, "build"))
	if err != nil {
		return err
	}
	i := &installer{
		folder:     &gobuild.Folder{Dir: filepath.Join(repository, ".bin", "controlplane"), Log: os.Stderr},
		log:        os.Stderr,
		version:    version,
		programs:   programs(filepath.Join(modules, "build"), version),
		assets:     os.Getenv("KUBEBUILDER_ASSETS"),
		askTimeout: 10 * time.Second,
	}
	if !fromSource {
		i.envtest = newSetupEnvtest(filepath.Join(modules, "envtest"), filepath.Join(repository, ".bin"))
	}
	return i.install(ctx)
}
