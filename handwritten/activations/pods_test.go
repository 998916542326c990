package activations

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func endedPod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: name, UID: types.UID("uid-" + name)},
		Status:     corev1.PodStatus{Phase: phase, Reason: "Evicted", Message: "The node was low on resource: memory."},
	}
}

func TestPodCreationTimer(t *testing.T) {
	at := func(after time.Duration) *appliancev1alpha1.ModelActivationStatusPodCreation {
		return &appliancev1alpha1.ModelActivationStatusPodCreation{Revision: "u.1.1", Since: metav1.NewTime(noon.Add(after))}
	}
	for name, c := range map[string]struct {
		before   *appliancev1alpha1.ModelActivationStatusPodCreation
		revision string
		now      time.Duration
		since    time.Duration
		left     time.Duration
	}{
		"starts when a Pod is first missed":                      {nil, "u.1.1", 0, 0, 120 * time.Second},
		"S038: goes on after 10 s":                               {at(0), "u.1.1", 10 * time.Second, 0, 110 * time.Second},
		"S039: has run out at 120 s":                             {at(0), "u.1.1", 120 * time.Second, 0, 0},
		"S039: stays run out":                                    {at(0), "u.1.1", time.Hour, 0, 120*time.Second - time.Hour},
		"S041: a changed activation starts it again":             {at(0), "u.1.2", 90 * time.Second, 90 * time.Second, 120 * time.Second},
		"a changed Model starts it again":                        {at(0), "u.2.1", 90 * time.Second, 90 * time.Second, 120 * time.Second},
		"a Model that was made anew starts it again":             {at(0), "v.1.1", 90 * time.Second, 90 * time.Second, 120 * time.Second},
		"a clock that was set back gives more time, not less":    {at(0), "u.1.1", -time.Minute, 0, 180 * time.Second},
		"S040: a restart of the operator changes nothing at all": {at(-30 * time.Second), "u.1.1", 0, -30 * time.Second, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			creation, left := podCreation(c.before, c.revision, noon.Add(c.now))
			assert.Equal(t, c.revision, creation.Revision)
			assert.True(t, noon.Add(c.since).Equal(creation.Since.Time), creation.Since)
			assert.Equal(t, c.left, left)
		})
	}
}

// contract/appliance.md C.6: terminal Pod recovery, with a clock that the test sets.
func TestPodRecovery(t *testing.T) {
	const revision = "u.1.1"
	status := func(attempts int32, last time.Duration, pod string) *appliancev1alpha1.ModelActivationStatusPodRecovery {
		at := metav1.NewTime(noon.Add(last))
		return &appliancev1alpha1.ModelActivationStatusPodRecovery{
			Revision: revision, Attempts: attempts, LastAttemptAt: &at, PodUID: ptr.To("uid-" + pod), Failure: ptr.To("the first failure"),
		}
	}
	first := "Pod ai/a: Evicted: The node was low on resource: memory."
	a, b, done := endedPod("a", corev1.PodFailed), endedPod("b", corev1.PodFailed), endedPod("done", corev1.PodSucceeded)
	for name, c := range map[string]struct {
		before    *appliancev1alpha1.ModelActivationStatusPodRecovery
		revision  string
		terminal  []*corev1.Pod
		healthy   bool
		attempts  int32
		pod       string
		failure   string
		remove    string
		exhausted bool
		wait      time.Duration
	}{
		"nothing ended, nothing kept":                    {},
		"the first attempt is written down first":        {terminal: []*corev1.Pod{a}, attempts: 1, pod: "a", failure: first},
		"a written attempt is made":                      {before: status(1, 0, "a"), terminal: []*corev1.Pod{a}, attempts: 1, pod: "a", failure: "the first failure", remove: "a"},
		"and made again after a crash, not counted":      {before: status(5, -time.Hour, "a"), terminal: []*corev1.Pod{a}, attempts: 5, pod: "a", failure: "the first failure", remove: "a"},
		"a Pod that Succeeded counts too":                {terminal: []*corev1.Pod{done}, attempts: 1, pod: "done", failure: "Pod ai/done: it has ended although a model server never should"},
		"the next one waits 30 s":                        {before: status(1, -10*time.Second, "a"), terminal: []*corev1.Pod{b}, attempts: 1, pod: "a", failure: "the first failure", wait: 20 * time.Second},
		"and is made then, with the first failure":       {before: status(1, -30*time.Second, "a"), terminal: []*corev1.Pod{b}, attempts: 2, pod: "b", failure: "the first failure"},
		"the fifth is the last":                          {before: status(4, -time.Minute, "a"), terminal: []*corev1.Pod{b}, attempts: 5, pod: "b", failure: "the first failure"},
		"S047: exhausted with the sixth":                 {before: status(5, -time.Minute, "a"), terminal: []*corev1.Pod{b}, attempts: 5, pod: "a", failure: "the first failure", exhausted: true},
		"exhausted at once, without the pause":           {before: status(5, 0, "a"), terminal: []*corev1.Pod{b}, attempts: 5, pod: "a", failure: "the first failure", exhausted: true},
		"S048: readiness resets":                         {before: status(5, 0, "a"), healthy: true},
		"a running Pod that is not ready resets nothing": {before: status(3, 0, "a"), attempts: 3, pod: "a", failure: "the first failure"},
		"S048: a changed revision resets":                {before: status(5, 0, "a"), revision: "u.1.2", terminal: []*corev1.Pod{a}, attempts: 1, pod: "a", failure: first},
		"one at a time":                                  {terminal: []*corev1.Pod{a, b}, attempts: 1, pod: "a", failure: first},
		"readiness of one replica, the other ended":      {before: status(2, -10*time.Second, "a"), terminal: []*corev1.Pod{b}, healthy: false, attempts: 2, pod: "a", failure: "the first failure", wait: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if c.revision == "" {
				c.revision = revision
			}
			before := c.before.DeepCopy()
			have := recoverPods(c.before, c.revision, c.terminal, c.healthy, noon)
			assert.Equal(t, before, c.before, "the status that was read is not touched")
			if c.attempts == 0 {
				assert.Nil(t, have.status)
			} else {
				require.NotNil(t, have.status)
				assert.Equal(t, c.revision, have.status.Revision)
				assert.Equal(t, c.attempts, have.status.Attempts)
				assert.Equal(t, "uid-"+c.pod, *have.status.PodUID)
				assert.Equal(t, c.failure, *have.status.Failure)
				if before == nil || before.Attempts != c.attempts || before.Revision != c.revision {
					assert.True(t, noon.Equal(have.status.LastAttemptAt.Time))
				} else {
					assert.Equal(t, before.LastAttemptAt, have.status.LastAttemptAt)
				}
			}
			removed := ""
			if have.remove != nil {
				removed = have.remove.Name
			}
			assert.Equal(t, c.remove, removed)
			assert.Equal(t, c.exhausted, have.exhausted)
			assert.Equal(t, c.wait, have.wait)
		})
	}
}

// Five attempts are five, whenever the process dies: after every write of the
// status and after every deletion the same decision comes again.
func TestPodRecoveryCountsEveryPodOnce(t *testing.T) {
	var status *appliancev1alpha1.ModelActivationStatusPodRecovery
	now, deleted := noon, 0
	for i := 0; ; i++ {
		pod := endedPod(fmt.Sprintf("p%d", i), corev1.PodFailed)
		for {
			have := recoverPods(status, "u.1.1", []*corev1.Pod{pod}, false, now)
			require.Equal(t, have, recoverPods(status, "u.1.1", []*corev1.Pod{pod}, false, now))
			if have.exhausted {
				require.Equal(t, maxRecoveries, deleted)
				require.Equal(t, 5, i)
				require.Equal(t, 2*time.Minute, now.Sub(noon), "four pauses of 30 s between five attempts")
				require.Contains(t, *status.Failure, "ai/p0")
				return
			}
			now = now.Add(have.wait)
			status = have.status
			if have.remove != nil {
				// The process may die here and find the Pod still there.
				require.Equal(t, pod, recoverPods(status, "u.1.1", []*corev1.Pod{pod}, false, now).remove)
				deleted++
				break
			}
		}
	}
}

// S045, S046: who owns a Pod, and what it is good for.
func TestPodsOfAModel(t *testing.T) {
	model := &kubeaiv1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: "m", UID: "right"}}
	owned := func(name string, uid types.UID, edit func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: name, Labels: map[string]string{"model": "m"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubeai.org/v1", Kind: "Model", Name: "m", UID: uid, Controller: ptr.To(true)}}}}
		pod.Status.Phase = corev1.PodFailed
		if edit != nil {
			edit(pod)
		}
		return pod
	}
	now := metav1.NewTime(noon)
	pods := []*corev1.Pod{
		owned("mine", "right", nil),
		owned("of-a-former-model", "wrong", nil),
		owned("label-only", "right", func(pod *corev1.Pod) { pod.OwnerReferences = nil }),
		owned("not-its-controller", "right", func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil }),
		owned("of-another-kind", "right", func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "ReplicaSet" }),
		owned("of-another-group", "right", func(pod *corev1.Pod) { pod.OwnerReferences[0].APIVersion = "ai.deckhouse.io/v1alpha1" }),
		owned("pending", "right", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }),
		owned("running", "right", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning }),
		owned("succeeded", "right", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }),
		owned("going", "right", func(pod *corev1.Pod) { pod.DeletionTimestamp = &now }),
	}
	state := kubeAIState(model, pods)
	assert.Equal(t, []string{"mine", "succeeded"}, podNames(state.pods.terminal), "only these are ever deleted")
	assert.Equal(t, []string{"pending", "running"}, podNames(state.pods.live))
	assert.Equal(t, []string{"going"}, podNames(state.pods.ending))
}

func podNames(pods []*corev1.Pod) (names []string) {
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

// KubeAI's count stands still while KubeAI is away; Pods do not.
func TestReadyReplicas(t *testing.T) {
	ready := func(name string, is corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "kubeai.org/v1", Kind: "Model", UID: "u", Controller: ptr.To(true)}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}},
		}
	}
	for name, c := range map[string]struct {
		counted         *kubeaiv1.ModelStatusReplicas
		least           int32
		pods            []*corev1.Pod
		ready, expected int64
	}{
		"nothing known":                         {nil, 1, nil, 0, 1},
		"a Pod that KubeAI has not counted yet": {nil, 1, []*corev1.Pod{ready("a", "True")}, 0, 1},
		"counted and ready":                     {&kubeaiv1.ModelStatusReplicas{All: 1, Ready: 1}, 1, []*corev1.Pod{ready("a", "True")}, 1, 1},
		"counted, but the Pod is gone":          {&kubeaiv1.ModelStatusReplicas{All: 1, Ready: 1}, 1, nil, 0, 1},
		"counted, but the Pod is not ready":     {&kubeaiv1.ModelStatusReplicas{All: 1, Ready: 1}, 1, []*corev1.Pod{ready("a", "False")}, 0, 1},
		"more wanted than there are":            {&kubeaiv1.ModelStatusReplicas{All: 1, Ready: 1}, 3, []*corev1.Pod{ready("a", "True")}, 1, 3},
		"more there than wanted":                {&kubeaiv1.ModelStatusReplicas{All: 2, Ready: 2}, 1, []*corev1.Pod{ready("a", "True"), ready("b", "True")}, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			model := &kubeaiv1.Model{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: &kubeaiv1.ModelSpec{MinReplicas: &c.least}}
			model.Status.Replicas = c.counted
			state := kubeAIState(model, c.pods)
			assert.Equal(t, c.ready, state.ready)
			assert.Equal(t, c.expected, state.expected)
		})
	}
}

// D7: container, reason and message of what fails, and nothing about what only begins.
func TestTrouble(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := func(code int32, reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
	}
	server := func(state, last corev1.ContainerState, restarts int32) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "server", State: state, LastTerminationState: last, RestartCount: restarts}}
	}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"nothing said":      {corev1.PodStatus{Phase: corev1.PodPending}, ""},
		"being created":     {corev1.PodStatus{ContainerStatuses: server(waiting("ContainerCreating", ""), corev1.ContainerState{}, 0)}, ""},
		"S043: pulling":     {corev1.PodStatus{ContainerStatuses: server(waiting("ContainerCreating", "pulling for 3 h"), corev1.ContainerState{}, 0)}, ""},
		"initializing":      {corev1.PodStatus{ContainerStatuses: server(waiting("PodInitializing", ""), corev1.ContainerState{}, 0)}, ""},
		"image":             {corev1.PodStatus{ContainerStatuses: server(waiting("ImagePullBackOff", "Back-off pulling image \"x\""), corev1.ContainerState{}, 0)}, `container server is waiting: ImagePullBackOff: Back-off pulling image "x"`},
		"config":            {corev1.PodStatus{ContainerStatuses: server(waiting("CreateContainerConfigError", "secret \"s\" not found"), corev1.ContainerState{}, 0)}, `container server is waiting: CreateContainerConfigError: secret "s" not found`},
		"crash loop":        {corev1.PodStatus{ContainerStatuses: server(waiting("CrashLoopBackOff", "back-off 5m0s restarting"), ended(137, "OOMKilled", ""), 7)}, "container server CrashLoopBackOff, it ended with exit code 137: OOMKilled"},
		"crash, no past":    {corev1.PodStatus{ContainerStatuses: server(waiting("CrashLoopBackOff", "back-off"), corev1.ContainerState{}, 1)}, "container server is waiting: CrashLoopBackOff: back-off"},
		"just ended":        {corev1.PodStatus{ContainerStatuses: server(ended(1, "Error", "ValueError:\n  no\tsuch   model"), corev1.ContainerState{}, 0)}, "container server ended with exit code 1: Error: ValueError: no such model"},
		"ended well":        {corev1.PodStatus{ContainerStatuses: server(ended(0, "Completed", ""), corev1.ContainerState{}, 0)}, ""},
		"started again":     {corev1.PodStatus{ContainerStatuses: server(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, ended(1, "", "boom"), 2)}, "container server ended with exit code 1: Error: boom and was started again"},
		"long over":         {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "server", Ready: true, RestartCount: 2, LastTerminationState: ended(1, "", "boom")}}}, ""},
		"init first":        {corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{Name: "loader", State: ended(2, "Error", "")}}, ContainerStatuses: server(waiting("PodInitializing", ""), corev1.ContainerState{}, 0)}, "container loader ended with exit code 2: Error"},
		"evicted":           {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}, "Evicted: low on memory"},
		"failed, no word":   {corev1.PodStatus{Phase: corev1.PodFailed}, "Failed"},
		"no node":           {corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."}}}, "it finds no node: Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."},
		"secrets are taken": {corev1.PodStatus{ContainerStatuses: server(ended(1, "Error", "GET https://u:p@h/x?sig=1 with hf_abcdefghij failed"), corev1.ContainerState{}, 0)}, "container server ended with exit code 1: Error: GET https://h/x with hf_[removed] failed"},
	} {
		t.Run(name, func(t *testing.T) {
			have := trouble(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ai", Name: "p"}, Status: c.status})
			if c.want != "" {
				c.want = "Pod ai/p: " + c.want
			}
			assert.Equal(t, c.want, have)
		})
	}
	long := trouble(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: server(ended(1, "Error", strings.Repeat("é", 4000)), corev1.ContainerState{}, 0)}})
	assert.LessOrEqual(t, len(long), maxTrouble)
}

// A Pod tells what its server was started with; the Model may have changed since.
func TestEffectiveKVCacheType(t *testing.T) {
	pod := func(args []string, env ...corev1.EnvVar) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Args: args, Env: env}}}}
	}
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		engine kubeaiv1.ModelSpecEngine
		want   string
	}{
		"vLLM, nothing said":  {pod(nil), "VLLM", "auto"},
		"vLLM, joined":        {pod([]string{"--kv-cache-dtype=fp8"}), "VLLM", "fp8"},
		"vLLM, apart":         {pod([]string{"--kv_cache_dtype", "fp8"}), "VLLM", "fp8"},
		"vLLM, unknown name":  {pod([]string{"--kv-cache-dtype=fp4"}), "VLLM", ""},
		"Ollama nothing said": {pod(nil), "OLlama", "f16"},
		"Ollama":              {pod(nil, corev1.EnvVar{Name: "OLLAMA_KV_CACHE_TYPE", Value: "q8_0"}), "OLlama", "q8_0"},
	} {
		t.Run(name, func(t *testing.T) {
			stripped, err := StripPod(c.pod.DeepCopy())
			require.NoError(t, err)
			for _, p := range []*corev1.Pod{c.pod, stripped.(*corev1.Pod)} { //nolint:forcetypeassert // StripPod gives Pods back
				assert.EqualValues(t, c.want, effectiveIn(p, c.engine))
			}
		})
	}
}

// contract/rulings.md 2: a figure that moves by less than 1 % costs no write (S103).
func TestMemoryUsageIsSteady(t *testing.T) {
	usage := func(ram, vram int64, replicas int32) *appliancev1alpha1.ModelActivationStatusMemoryUsage {
		return &appliancev1alpha1.ModelActivationStatusMemoryUsage{RAMMi: ram, VRAMMi: vram, TotalMi: ram + vram, Replicas: replicas, Source: "ollama-api-ps"}
	}
	old := usage(1000, 2000, 1)
	for name, c := range map[string]struct {
		have   *appliancev1alpha1.ModelActivationStatusMemoryUsage
		report MemoryReport
		want   *appliancev1alpha1.ModelActivationStatusMemoryUsage
	}{
		"nobody was asked since the restart": {old, MemoryReport{}, old},
		"S103: the sample is missing":        {old, MemoryReport{Known: true}, nil},
		"the first sample":                   {nil, MemoryReport{Known: true, Usage: old}, old},
		"less than 1 %":                      {old, MemoryReport{Known: true, Usage: usage(1009, 2000, 1)}, old},
		"1 %":                                {old, MemoryReport{Known: true, Usage: usage(1010, 2000, 1)}, usage(1010, 2000, 1)},
		"1 % less":                           {old, MemoryReport{Known: true, Usage: usage(1000, 1980, 1)}, usage(1000, 1980, 1)},
		"from nothing":                       {usage(0, 2000, 1), MemoryReport{Known: true, Usage: usage(1, 2000, 1)}, usage(1, 2000, 1)},
		"another replica":                    {old, MemoryReport{Known: true, Usage: usage(1000, 2000, 2)}, usage(1000, 2000, 2)},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, steady(c.have, c.report)) })
	}
}
