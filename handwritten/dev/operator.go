package dev

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"magicstick.dev/operator/handwritten/operator"
)

const (
	// embeddedLease is how long the Lease outlives an operator that was killed,
	// on the control plane of a person who starts it again at once.
	embeddedLease = 6 * time.Second
	// electionPatience is how long the Lease may take before the person hears of it.
	electionPatience = time.Second
)

// operatorLog is the name of the log that the operator and the libraries share.
const operatorLog = "operator.log"

// startLog sends what the libraries log to a file, before anything that logs
// starts: the terminal belongs to the table.
func (s *session) startLog(context.Context) (string, error) {
	var err error
	if s.log, err = s.openLog(operatorLog); err != nil {
		return "", err
	}
	ctrl.SetLogger(s.log)
	klog.SetLogger(s.log)
	return "", nil
}

// startOperator runs all controllers in this process.
func (s *session) startOperator(ctx context.Context) (string, error) {
	path := filepath.Join(s.dir, "logs", operatorLog)
	options := operator.DefaultOptions()
	options.MetricsAddress, options.ProbeAddress = "0", "0"
	if s.Kubeconfig == "" {
		options.LeaseDuration = embeddedLease
	}
	s.useStandIns(&options)
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
	// Informers fill whether this process works or stands by.
	synced := make(chan bool, 1)
	go func() { synced <- manager.GetCache().WaitForCacheSync(running) }()
	select {
	case <-synced:
	case <-ended:
		return "", reason()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	select {
	case <-manager.Elected():
		return "log in " + path, nil
	case <-ended:
		return "", reason()
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(electionPatience):
	}
	lease := options.Appliance.Namespace + "/" + operator.LeaseName
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-manager.Elected():
			s.out.line("operator: nobody else holds the Lease %s any more, this one works now", lease)
		case <-ended:
		}
	}()
	s.onStop(func() error { cancel(); <-ended; <-watching; return nil })
	return fmt.Sprintf("stands by for the Lease %s: %s (log in %s)", lease, s.leaseHolder(ctx, options.Appliance.Namespace), path), nil
}

// useStandIns tells the operator where the stand-ins are.
func (s *session) useStandIns(options *operator.Options) {
	if s.liteLLM != "" {
		options.Index.LiteLLMBaseURL = s.liteLLM
	}
}

// leaseHolder describes the operator that works, as well as that can be known.
func (s *session) leaseHolder(ctx context.Context, namespace string) string {
	const unknown = "another operator holds it"
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return unknown
	}
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, operator.LeaseName, metav1.GetOptions{})
	if err != nil || ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		return unknown
	}
	return fmt.Sprintf("the operator %s holds it until it ends, or for %d s after it was killed",
		*lease.Spec.HolderIdentity, ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))
}
