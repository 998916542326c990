// Package pipeline runs the steps of the generator, in their order where one
// needs another and at the same time where not, and says how long each took.
package pipeline

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// Step is one part of the generator.
type Step struct {
	// Name is shown to the person and used in After.
	Name string
	// After names the steps whose output this one reads.
	After []string
	// Generate writes the step's files into the staging module.
	Generate func(context.Context, *workspace.Workspace) error
}

// Run executes the steps and writes one line per finished step to progress. The
// first error stops the steps that have not begun yet and is returned with the
// step's name.
func Run(ctx context.Context, ws *workspace.Workspace, steps []Step, progress io.Writer) error {
	done := make(map[string]chan struct{}, len(steps))
	for _, step := range steps {
		for _, earlier := range step.After {
			if _, known := done[earlier]; !known {
				return fmt.Errorf("ordering the steps: %s comes after %q, which is not an earlier step", step.Name, earlier)
			}
		}
		if _, twice := done[step.Name]; twice {
			return fmt.Errorf("ordering the steps: %q appears twice", step.Name)
		}
		done[step.Name] = make(chan struct{})
	}
	var printing sync.Mutex
	report := func(name string, took time.Duration) {
		printing.Lock()
		defer printing.Unlock()
		_, _ = fmt.Fprintf(progress, "  %-12s %6.2f s\n", name, took.Seconds())
	}
	// A step that waits holds no slot, so a full house cannot lock itself up.
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	group, ctx := errgroup.WithContext(ctx)
	for _, step := range steps {
		group.Go(func() error {
			for _, earlier := range step.After {
				select {
				case <-done[earlier]:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			defer func() { <-slots }()
			if err := ctx.Err(); err != nil {
				return err
			}
			start := time.Now()
			if err := step.Generate(ctx, ws); err != nil {
				return fmt.Errorf("%s: %w", step.Name, err)
			}
			report(step.Name, time.Since(start))
			close(done[step.Name])
			return nil
		})
	}
	return group.Wait()
}
