package operator_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// Pods that read the index start again once for each change, also when the
// operator is new, and nobody else does.
func TestModelIndexRestartsItsConsumersOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.litellm()
	w.start()
	w.lists([]string{}, indexReady)
	w.rested()
	first := w.consumer("first")
	bystander := w.consumer("bystander")
	bystander.Labels = map[string]string{"app": "litellm"}
	require.NoError(t, w.client.Update(t.Context(), bystander))

	w.served("chat", 1)
	w.lists([]string{"chat"})
	w.vanished(&corev1.Pod{}, first.Name)
	w.rested()
	second := w.consumer("second")
	w.stop()
	w.start()
	w.rested()
	require.True(t, w.in(&corev1.Pod{}, second.Name), "a new operator knows that this change was told")
	require.True(t, w.in(&corev1.Pod{}, bystander.Name))

	// A change while nobody looks is told by the next operator.
	w.stop()
	w.counts("chat", 1, 0)
	w.start()
	w.lists([]string{})
	w.vanished(&corev1.Pod{}, second.Name)

	w.stop()
	w.options.Index.RestartConsumers = false
	w.start()
	third := w.consumer("third")
	w.counts("chat", 1, 1)
	w.lists([]string{"chat"})
	w.rested()
	require.True(t, w.in(&corev1.Pod{}, third.Name), "switched off")
}

// Every write of a change is once the last that the operator makes before it dies,
// seen by the API server or not: taking a model out, publishing, restarting those
// who read, noting that.
func TestModelIndexKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for step := range 4 {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("write_%d_seen_%t", step+1, late), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, controlplanetest.Shared(t))
				server := w.litellm()
				w.served("gone", 1)
				w.start()
				w.lists([]string{"gone"}, consumersTold)
				w.rested()
				old := w.consumer("old")
				w.stop()
				w.counts("gone", 1, 0)
				w.served("chat", 1)
				require.True(t, w.live(step, late), "the operator did not die")
				_, ids := w.theIndex()
				published := slices.Equal(ids, []string{"chat"})
				require.Equal(t, step >= 2 || step == 1 && late, published, "what the operator got to do: %v", ids)
				time.Sleep(1100 * time.Millisecond) // times of Pods are cut to the second
				fresh := w.consumer("fresh")
				w.start()
				w.lists([]string{"chat"}, indexReady, consumersTold)
				w.gatewayHas(server, "chat")
				w.vanished(&corev1.Pod{}, old.Name)
				w.rested()
				require.Equal(t, published, w.in(&corev1.Pod{}, fresh.Name), "only who started before the change starts again")
			})
		}
	}
}
