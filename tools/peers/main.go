// Command peers builds the programs of others that run beside the operator into
// .bin/peers of the repository: Flux's source-controller and
// kustomize-controller, for tests and `make run FLUX=1`, and Envoy Gateway, for tests.
//
// The tests serve Flux a Git repository and no OCI artifact, because
// Appliance.spec.source.kind admits GitRepository only: what the operator
// renders could not refer to anything else.
//
// Each has a module of its own below build/, because their dependencies
// disagree with each other's and with ours. Arguments name the programs to
// build; without any, all are.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"magicstick.dev/operator/tools/gobuild"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, wanted []string) error {
	workingDir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("reading the working directory: %w", err)
	}
	repository, err := gobuild.RepositoryDir(workingDir)
	if err != nil {
		return err
	}
	folder := &gobuild.Folder{Dir: filepath.Join(repository, ".bin", "peers"), Log: os.Stderr}
	unlock, err := folder.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	list, err := programs(filepath.Join(repository, "tools", "peers", "build"))
	if err == nil {
		list, err = only(list, wanted)
	}
	if err != nil {
		return err
	}
	return folder.Build(ctx, list...)
}

func programs(modules string) ([]gobuild.Program, error) {
	var list []gobuild.Program
	for _, name := range []string{"kustomize-controller", "source-controller"} {
		list = append(list, gobuild.Program{
			Name: name, Package: "github.com/fluxcd/" + name, ModuleDir: filepath.Join(modules, name), LDFlags: "-s -w",
		})
	}
	gateway := filepath.Join(modules, "envoy-gateway")
	sources, err := digest(gateway)
	if err != nil {
		return nil, err
	}
	return append(list, gobuild.Program{
		Name: "envoy-gateway", Package: "magicstick.dev/operator/tools/peers/build/envoy-gateway", ModuleDir: gateway,
		// The listeners that its configuration cannot move are switched off: several
		// programs of a development machine want these ports. main.sources makes
		// a change of our own files part of what a build is recognised by.
		LDFlags: "-s -w" +
			" -X github.com/envoyproxy/gateway/internal/provider/kubernetes.healthProbeBindAddress=0" +
			" -X sigs.k8s.io/controller-runtime/pkg/metrics/server.DefaultBindAddress=0" +
			" -X main.sources=" + sources,
	}), nil
}

// only keeps the programs with the wanted names, or all when none is wanted.
func only(list []gobuild.Program, wanted []string) ([]gobuild.Program, error) {
	if len(wanted) == 0 {
		return list, nil
	}
	var kept []gobuild.Program
	for _, name := range wanted {
		found := slices.IndexFunc(list, func(program gobuild.Program) bool { return program.Name == name })
		if found < 0 {
			return nil, fmt.Errorf("choosing what to build: no program is called %q", name)
		}
		kept = append(kept, list[found])
	}
	return kept, nil
}

// digest identifies the Go files of a folder.
func digest(dir string) (string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", fmt.Errorf("listing %s: %w", dir, err)
	}
	sum := sha256.New()
	for _, name := range names {
		data, err := os.ReadFile(name) // #nosec G304 -- a file of the repository.
		if err != nil {
			return "", fmt.Errorf("reading a source of envoy-gateway: %w", err)
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n", filepath.Base(name), len(data))
		_, _ = sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}
