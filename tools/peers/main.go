// Command peers builds the programs of others that run beside the operator in
// tests and in `make run FLUX=1` - Flux's source-controller and
// kustomize-controller - into .bin/peers of the repository.
//
// Each has a module of its own below build/, because their dependencies
// disagree with each other's and with ours.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"magicstick.dev/operator/tools/gobuild"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
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
	return folder.Build(ctx, programs(filepath.Join(repository, "tools", "peers", "build"))...)
}

func programs(modules string) []gobuild.Program {
	var list []gobuild.Program
	for _, name := range []string{"kustomize-controller", "source-controller"} {
		list = append(list, gobuild.Program{
			Name: name, Package: "github.com/fluxcd/" + name, ModuleDir: filepath.Join(modules, name), LDFlags: "-s -w",
		})
	}
	return list
}
