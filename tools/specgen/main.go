// Command specgen rebuilds generated/ from spec/, and proves that it did so.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/pipeline"
	"magicstick.dev/operator/tools/specgen/roundtrip"
	"magicstick.dev/operator/tools/specgen/verify"
	"magicstick.dev/operator/tools/specgen/workspace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "specgen: "+err.Error())
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var repo string
	root := &cobra.Command{
		Use:           "specgen",
		Short:         "Rebuild generated/ from spec/",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&repo, "repo", ".", "root of the repository")
	root.AddCommand(
		&cobra.Command{
			Use:   "generate",
			Short: "Run every step and bring generated/ up to date; nothing is written when a step fails",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return generate(cmd.Context(), repo, cmd.OutOrStdout())
			},
		},
		&cobra.Command{
			Use:   "verify",
			Short: "Fail when generated/ is not what spec/ gives, or an import breaks the direction rule",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return verifyTree(cmd.Context(), repo, cmd.OutOrStdout())
			},
		},
		&cobra.Command{
			Use:   "roundtrip PATH...",
			Short: "Turn the CRDs of files or folders into Go types and back; fail unless each comes back the same",
			Args:  cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, paths []string) error {
				return roundtrip.Run(cmd.Context(), repo, paths, cmd.OutOrStdout())
			},
		},
		&cobra.Command{
			Use:   "cost",
			Short: "Print what each validation rule of spec/crds may cost the API server",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return crd.WriteCosts(cmd.Context(), filepath.Join(repo, "spec", "crds"), cmd.OutOrStdout())
			},
		},
	)
	return root
}

// stampFile remembers the fingerprint of the last successful run. It is a
// cache: without it the next run does everything again.
const stampFile = ".bin/specgen.stamp"

func generate(ctx context.Context, repo string, out io.Writer) error {
	return generateWith(ctx, repo, steps(out), out)
}

func generateWith(ctx context.Context, repo string, steps []pipeline.Step, out io.Writer) error {
	start := time.Now()
	root, err := os.OpenRoot(repo)
	if err != nil {
		return fmt.Errorf("opening the repository: %w", err)
	}
	defer func() { _ = root.Close() }()
	before, err := workspace.Fingerprint(repo)
	if err != nil {
		return err
	}
	if last, err := root.ReadFile(stampFile); err == nil && string(last) == before {
		_, err := fmt.Fprintf(out, "generated/ is up to date (%.2f s)\n", time.Since(start).Seconds())
		return err
	}
	return withWorkspace(repo, func(ws *workspace.Workspace) error {
		if err := pipeline.Run(ctx, ws, steps, out); err != nil {
			return err
		}
		changes, err := ws.Sync()
		if err != nil {
			return err
		}
		files, err := ws.Files()
		if err != nil {
			return err
		}
		if err := remember(ws, root, out); err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%d files, %s (%.2f s)\n", len(files), describe(changes), time.Since(start).Seconds())
		return err
	})
}

// remember stores the fingerprint of what this run has read and written. When
// someone edited the spec or the generator meanwhile there is no telling which
// state the generator itself was built from, so nothing is remembered.
func remember(ws *workspace.Workspace, root *os.Root, out io.Writer) error {
	changed, err := ws.InputsChanged()
	if err != nil {
		return err
	}
	if changed {
		if err := root.Remove(stampFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forgetting the last run in %s: %w", stampFile, err)
		}
		_, err := fmt.Fprintln(out, "spec/, the generator or go.mod changed during the run; generated/ is made from what they were at its start. Run it again.")
		return err
	}
	fingerprint, err := ws.Fingerprint()
	if err == nil {
		err = root.MkdirAll(path.Dir(stampFile), 0o750)
	}
	if err == nil {
		err = root.WriteFile(stampFile, []byte(fingerprint), 0o600)
	}
	if err != nil {
		return fmt.Errorf("remembering the run in %s: %w", stampFile, err)
	}
	return nil
}

func describe(changes []workspace.Difference) string {
	if len(changes) == 0 {
		return "none changed"
	}
	count := map[workspace.Change]int{}
	for _, change := range changes {
		count[change.Change]++
	}
	return fmt.Sprintf("%d new, %d changed, %d removed",
		count[workspace.Missing], count[workspace.Edited], count[workspace.Extra])
}

func verifyTree(ctx context.Context, repo string, out io.Writer) error {
	return withWorkspace(repo, func(ws *workspace.Workspace) error {
		if err := pipeline.Run(ctx, ws, steps(out), out); err != nil {
			return err
		}
		return verify.Tree(ctx, ws, out)
	})
}

// withWorkspace runs do with a staging module that is removed afterwards.
func withWorkspace(repo string, do func(*workspace.Workspace) error) error {
	ws, err := workspace.New(repo)
	if err != nil {
		return err
	}
	return errors.Join(relative(do(ws), ws), ws.Close())
}

// relative lets an error name the files of the spec as they lie in the repository
// rather than the copy that the run has read.
func relative(err error, ws *workspace.Workspace) error {
	if err == nil || !strings.Contains(err.Error(), ws.ModuleDir) {
		return err
	}
	return &relativeError{err, ws.ModuleDir + string(filepath.Separator)}
}

type relativeError struct {
	err error
	dir string
}

func (e *relativeError) Error() string { return strings.ReplaceAll(e.err.Error(), e.dir, "") }
func (e *relativeError) Unwrap() error { return e.err }
