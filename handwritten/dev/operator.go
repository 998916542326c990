package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"log/slog"

	"magicstick.dev/operator/handwritten/operator"
)

// startOperator runs all controllers in this process, with their log in a file:
// the terminal belongs to the table.
func (s *session) startOperator(ctx context.Context) (string, error) {
	path := filepath.Join(s.dir, "logs", "operator.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("starting the operator: making the log folder: %w", err)
	}
	// #nosec G304 -- a file below our own data folder.
	log, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", fmt.Errorf("starting the operator: opening its log: %w", err)
	}
	s.onStop(log.Close)
	logger := logr.FromSlogHandler(slog.NewTextHandler(log, nil))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)

	options := operator.DefaultOptions()
	// Ports and a Lease are for a process in a cluster. On a cluster of somebody
	// else the Lease keeps two operators from working against each other.
	options.MetricsAddress, options.ProbeAddress = "0", "0"
	options.LeaderElection = s.Kubeconfig != ""
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	manager, err := operator.New(running, s.config, options)
	if err != nil {
		cancel()
		return "", err
	}
	ended := make(chan struct{})
	var failed error
	go func() {
		defer close(ended)
		if failed = manager.Start(running); failed == nil && running.Err() == nil {
			failed = errors.New("it ended on its own")
		}
	}()
	reason := func() error {
		if failed == nil {
			return nil
		}
		return fmt.Errorf("running the operator (log in %s): %w", path, failed)
	}
	s.onStop(func() error {
		cancel()
		<-ended
		return nil // a failure was reported when it happened
	})
	s.failures = append(s.failures, failure{ended, reason})
	if options.LeaderElection {
		return "waits for its Lease, log in " + path, nil
	}
	synced := make(chan bool, 1)
	go func() { synced <- manager.GetCache().WaitForCacheSync(running) }()
	select {
	case <-synced:
		return "log in " + path, nil
	case <-ended:
		return "", reason()
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
