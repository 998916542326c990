// Command magicstick is the command line of a person who works with the Magic
// Stick operator: it starts everything on one machine, checks manifests, and
// says its version.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run()) }

func run() int {
	// The first Ctrl-C asks for a clean end; stop() then gives the signal back
	// to the system, so that a second one ends at once.
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		// The terminal was closed; nohup would have us ignore that.
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := newRootCommand().ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if message := err.Error(); message != "" {
		fmt.Fprintln(os.Stderr, "magicstick:", message)
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}

// newRootCommand assembles the command line. A sub-command may return an error
// with an ExitCode method to choose the exit code; any other error means 1. An
// error with an empty message was already reported.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "magicstick",
		Short:         "Run and check a private AI appliance on Kubernetes",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newDevCommand(), newPublishCommand(), newValidateCommand(), newVersionCommand())
	return root
}
