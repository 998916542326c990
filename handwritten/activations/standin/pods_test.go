package standin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

func configured(t *testing.T) configuration {
	t.Helper()
	c, err := parseConfiguration(`
resourceProfiles:
  gpu:
    imageName: cuda
    requests: {cpu: 1500m, memory: 6Gi, nvidia.com/gpu: "1"}
    limits: {nvidia.com/gpu: "1"}
    tolerations: [{key: nvidia.com/gpu, operator: Equal, value: present, effect: NoSchedule}]
  cpu: {imageName: cpu, requests: {cpu: 500m}}
modelServers:
  VLLM: {images: {cuda: registry.example/vllm:1}}
replicaCount: 1
modelRollouts: {surge: 2}
`)
	require.NoError(t, err)
	return c
}

func TestResolve_takes_only_known_profiles_with_a_count(t *testing.T) {
	c := configured(t)
	for text, words := range map[string]string{
		"gpu": "want <name>:<count>", "gpu:": "want <name>:<count>", ":1": "want <name>:<count>", "gpu:0": "want <name>:<count>",
		"gpu:x": "want <name>:<count>", "gpu:1:2": "want <name>:<count>", "": "want <name>:<count>", "other:1": "there is none of that name",
	} {
		_, _, err := c.resolve(text)
		require.ErrorContains(t, err, words, text)
	}
	p, count, err := c.resolve("gpu:2")
	require.NoError(t, err)
	assert.Equal(t, int64(2), count)
	assert.Equal(t, "cuda", p.ImageName)
}

func TestSurge_is_KubeAIs_own_unless_the_values_say_another(t *testing.T) {
	assert.Equal(t, 2, configured(t).surge())
	assert.Equal(t, 1, configuration{}.surge())
	c, err := parseConfiguration("modelRollouts: {surge: 0}")
	require.NoError(t, err)
	assert.Equal(t, 0, c.surge())
}

func TestParseConfiguration_names_what_it_reads(t *testing.T) {
	_, err := parseConfiguration("resourceProfiles: [")
	require.ErrorContains(t, err, "reading KubeAI's values")
}

func modelFrom(t *testing.T, text string) *kubeaiv1.Model {
	t.Helper()
	model := &kubeaiv1.Model{}
	require.NoError(t, yaml.UnmarshalStrict([]byte("metadata: {name: m, namespace: ai, uid: u}\nspec: "+text), model))
	return model
}

func TestPodFor_multiplies_requests_and_limits_by_the_count(t *testing.T) {
	pod, err := podFor(modelFrom(t, `{engine: VLLM, url: "hf://a/b", resourceProfile: "gpu:2", args: [--x=1], env: {B: "2", A: "1"}}`), configured(t))
	require.NoError(t, err)
	container := pod.Spec.Containers[0]
	assert.Equal(t, "3", container.Resources.Requests.Cpu().String())
	assert.Equal(t, "12Gi", container.Resources.Requests.Memory().String())
	assert.Equal(t, "2", ptr.To(container.Resources.Limits["nvidia.com/gpu"]).String())
	assert.Equal(t, "registry.example/vllm:1", container.Image)
	assert.Equal(t, []string{"--model=a/b", "--served-model-name=m", "--x=1"}, container.Args)
	assert.Equal(t, []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}, container.Env)
	assert.Len(t, pod.Spec.Tolerations, 1)
	assert.Equal(t, "m", pod.Labels[LabelModel])
	owner := metav1.GetControllerOf(pod)
	require.NotNil(t, owner)
	assert.Equal(t, "kubeai.org/v1 Model m u", owner.APIVersion+" "+owner.Kind+" "+owner.Name+" "+string(owner.UID))
}

func TestPodFor_reads_the_address_as_the_engine_does(t *testing.T) {
	for url, want := range map[string]struct {
		engine, argument, refused string
	}{
		"hf://a/b":               {"VLLM", "--model=a/b", ""},
		"oci://r/a@sha256:1":     {"VLLM", "--model=/model", ""},
		"pvc://claim/x":          {"VLLM", "--model=/model", ""},
		"s3://bucket/x":          {"VLLM", "--model=s3://bucket/x", ""},
		"ollama://qwen":          {"OLlama", "", ""},
		"ollama://other":         {"VLLM", "", "engine VLLM does not take it"},
		"hf://other/b":           {"OLlama", "", "engine OLlama does not take it"},
		"oci://r/other@sha256:1": {"OLlama", "", "engine OLlama does not take it"},
	} {
		t.Run(url+" on "+want.engine, func(t *testing.T) {
			pod, err := podFor(modelFrom(t, `{engine: `+want.engine+`, url: "`+url+`", resourceProfile: "cpu:1"}`), configured(t))
			if want.refused != "" {
				require.ErrorContains(t, err, want.refused)
				return
			}
			require.NoError(t, err)
			if want.argument == "" {
				assert.Empty(t, pod.Spec.Containers[0].Args)
				assert.Equal(t, []corev1.EnvVar{{Name: "OLLAMA_HOST", Value: "0.0.0.0:8000"}}, pod.Spec.Containers[0].Env)
				return
			}
			assert.Equal(t, want.argument, pod.Spec.Containers[0].Args[0])
		})
	}
}

func TestPodFor_changes_its_hash_with_the_content_only(t *testing.T) {
	hash := func(text string) string {
		pod, err := podFor(modelFrom(t, text), configured(t))
		require.NoError(t, err)
		return pod.Labels[labelHash]
	}
	first := hash(`{engine: VLLM, url: "hf://a/b", resourceProfile: "cpu:1"}`)
	assert.Equal(t, first, hash(`{engine: VLLM, url: "hf://a/b", resourceProfile: "cpu:1", minReplicas: 3, replicas: 3}`))
	assert.NotEqual(t, first, hash(`{engine: VLLM, url: "hf://a/b", resourceProfile: "cpu:1", args: [x]}`))
	assert.NotEqual(t, first, hash(`{engine: VLLM, url: "hf://a/b", resourceProfile: "cpu:2"}`))
}

func TestReplicas_stay_between_the_bounds(t *testing.T) {
	for text, want := range map[string]int32{
		"{}": 0, "{minReplicas: 1}": 1, "{minReplicas: 2, replicas: 1}": 2, "{replicas: 5, maxReplicas: 3}": 3,
		"{replicas: 5}": 5, "{minReplicas: 0, maxReplicas: 1}": 0, "{minReplicas: 1, replicas: 2, maxReplicas: 3}": 2,
	} {
		assert.Equal(t, want, replicas(modelFrom(t, text).Spec), text)
	}
}

// somePods makes Pods from letters: n of the present content, o of an older
// one, in upper case when Ready, g for one that is going away.
func somePods(letters string) []*corev1.Pod {
	var pods []*corev1.Pod
	for i, letter := range letters {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: string(letter), Labels: map[string]string{labelHash: "new"},
			CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0)),
		}}
		if letter == 'o' || letter == 'O' {
			pod.Labels[labelHash] = "old"
		}
		if letter == 'N' || letter == 'O' || letter == 'g' {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		if letter == 'g' {
			pod.DeletionTimestamp = &metav1.Time{}
		}
		pods = append(pods, pod)
	}
	return pods
}

func TestPlanRollout(t *testing.T) {
	for name, test := range map[string]struct {
		pods          string
		wanted, surge int
		create        int
		remove        string
	}{
		"the first Pods":                                {"", 2, 1, 2, ""},
		"nothing to do":                                 {"NN", 2, 1, 0, ""},
		"not Ready yet is no reason for another":        {"n", 1, 1, 0, ""},
		"one that is going away does not count":         {"g", 1, 1, 1, ""},
		"a new one beside the old one":                  {"O", 1, 1, 1, ""},
		"the old one stays until the new one is Ready":  {"On", 1, 1, 0, ""},
		"the old one goes when the new one is Ready":    {"ON", 1, 1, 0, "O"},
		"an old one that is not Ready goes at once":     {"o", 1, 1, 1, "o"},
		"without surge the old one goes first":          {"O", 1, 0, 1, "O"},
		"one after the other":                           {"OOO", 3, 1, 1, ""},
		"one after the other, later":                    {"OOON", 3, 1, 1, "O"},
		"fewer wanted: those that are not Ready first":  {"NnN", 1, 1, 0, "nN"},
		"none wanted":                                   {"NO", 0, 1, 0, "NO"},
		"none wanted, and none of the present contents": {"O", 0, 1, 0, "O"},
	} {
		t.Run(name, func(t *testing.T) {
			step := planRollout(somePods(test.pods), "new", test.wanted, test.surge)
			removed := ""
			for _, pod := range step.remove {
				removed += pod.Name
			}
			assert.Equal(t, test.create, step.create)
			assert.Equal(t, test.remove, removed)
		})
	}
}

func TestPodStatus(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: serverContainer, Image: "i"}}}}
	for name, test := range map[string]struct {
		fate    Fate
		message string
		age     time.Duration
		phase   corev1.PodPhase
		ready   bool
		says    string
		after   time.Duration
	}{
		"starting":                   {"", "", time.Second, corev1.PodPending, false, "ContainerCreating", 4 * time.Second},
		"started":                    {"", "", 5 * time.Second, corev1.PodRunning, true, "", 0},
		"loading for ever":           {Loading, "", time.Hour, corev1.PodRunning, false, "", 0},
		"crashing":                   {Crash, "no memory", time.Hour, corev1.PodRunning, false, "CrashLoopBackOff no memory", 0},
		"crashing, without a reason": {Crash, "", time.Hour, corev1.PodRunning, false, "CrashLoopBackOff the server ended", 0},
		"pulling in vain":            {PullFailure, "no such tag", 0, corev1.PodPending, false, "ImagePullBackOff no such tag", 0},
		"without room":               {Unschedulable, "0/1 nodes", 0, corev1.PodPending, false, "Unschedulable 0/1 nodes", 0},
		"failed":                     {Failed, "evicted", 0, corev1.PodFailed, false, "Evicted evicted", 0},
		"succeeded":                  {Succeeded, "", 0, corev1.PodSucceeded, false, "", 0},
		"of an unknown fate":         {"nonsense", "", 5 * time.Second, corev1.PodRunning, true, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			status, after := podStatus(pod, test.fate, test.message, test.age, 5*time.Second)
			assert.Equal(t, test.phase, status.Phase)
			assert.Equal(t, test.after, after)
			assert.Equal(t, test.ready, isReady(&corev1.Pod{Status: status}))
			assert.Equal(t, test.says, says(status))
		})
	}
}

// says joins reason and message of what a person would look at.
func says(status corev1.PodStatus) string {
	text := status.Reason + " " + status.Message
	for _, container := range status.ContainerStatuses {
		if waiting := container.State.Waiting; waiting != nil {
			text = waiting.Reason + " " + waiting.Message
			if last := container.LastTerminationState.Terminated; last != nil {
				text = waiting.Reason + " " + last.Message
			}
		}
	}
	for _, condition := range status.Conditions {
		if condition.Reason == corev1.PodReasonUnschedulable {
			text = condition.Reason + " " + condition.Message
		}
	}
	for len(text) > 0 && text[len(text)-1] == ' ' {
		text = text[:len(text)-1]
	}
	return text
}

func TestKeepTimes_dates_only_what_changed(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: serverContainer}}}}
	first, _ := podStatus(pod, Loading, "", 0, 0)
	at := func(second int64) metav1.Time { return metav1.NewTime(time.Unix(second, 0)) }
	keepTimes(&first, &corev1.PodStatus{}, at(1))
	second, _ := podStatus(pod, Ready, "", 0, 0)
	keepTimes(&second, &first, at(2))
	times := map[corev1.PodConditionType]int64{}
	for _, condition := range second.Conditions {
		times[condition.Type] = condition.LastTransitionTime.Unix()
	}
	assert.Equal(t, map[corev1.PodConditionType]int64{corev1.PodScheduled: 1, corev1.ContainersReady: 2, corev1.PodReady: 2}, times)
	assert.Equal(t, int64(1), second.StartTime.Unix())
	assert.Equal(t, int64(1), second.ContainerStatuses[0].State.Running.StartedAt.Unix())
}
