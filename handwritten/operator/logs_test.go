package operator_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/operator"
)

type lockedBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}

func logHandler(t *testing.T, out io.Writer, arguments ...string) slog.Handler {
	t.Helper()
	flags := operator.NewFlags()
	set := pflag.NewFlagSet("operator", pflag.ContinueOnError)
	flags.Register(set)
	require.NoError(t, set.Parse(arguments))
	handler, err := flags.LogHandler(out)
	require.NoError(t, err)
	return handler
}

// A leader that is told to end gives its Lease back and reports no error.
func TestOrderlyEndOfALeaderIsNoError(t *testing.T) {
	t.Parallel()
	config := controlplanetest.Shared(t)
	namespace := controlplanetest.Namespace(t, config)
	out := &lockedBuffer{}
	mgr, err := ctrl.NewManager(config, manager.Options{
		Logger:         logr.FromSlogHandler(logHandler(t, out)),
		LeaderElection: true, LeaderElectionID: operator.LeaseName, LeaderElectionNamespace: namespace, LeaderElectionReleaseOnCancel: true,
		Metrics: server.Options{BindAddress: "0"}, GracefulShutdownTimeout: ptr.To(20 * time.Second),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case <-mgr.Elected():
	case <-time.After(patience):
		t.Fatal("not elected")
	}
	cancel()
	require.NoError(t, <-ended)
	// The report comes from a routine of its own.
	require.Eventually(t, func() bool { return bytes.Contains([]byte(out.String()), []byte("gave the Lease back")) }, patience, 10*time.Millisecond, "%s", out)
	require.NotContains(t, out.String(), "ERROR")
	w := newWorld(t, config)
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = namespace, operator.LeaseName
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
	require.Empty(t, ptr.Deref(lease.Spec.HolderIdentity, ""))
}

// Every other error stays one.
func TestOtherErrorsAtTheEndStayErrors(t *testing.T) {
	for name, log := range map[string]func(*slog.Logger){
		"another error": func(l *slog.Logger) {
			l.Error("error received after stop sequence was engaged", "err", errors.New("disk full"))
		},
		"lost at another moment": func(l *slog.Logger) { l.Error("leader election lost", "err", errors.New("leader election lost")) },
	} {
		t.Run(name, func(t *testing.T) {
			out := &lockedBuffer{}
			log(slog.New(logHandler(t, out)).With("a", "b").WithGroup("c"))
			require.Contains(t, out.String(), `"level":"ERROR"`)
		})
	}
	out := &lockedBuffer{}
	slog.New(logHandler(t, out, "--log-level", "error")).Error("error received after stop sequence was engaged", "err", errors.New("leader election lost"))
	require.Empty(t, out.String())
}
