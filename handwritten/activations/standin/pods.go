package standin

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

const (
	// LabelModel of a Pod names its Model (contract/appliance.md C.6).
	LabelModel = "model"
	// labelHash tells Pods of an older content of the Model apart.
	labelHash = "pod-hash"
	// labelManagedBy and managedByKubeAI mark our Pods.
	labelManagedBy  = "app.kubernetes.io/managed-by"
	managedByKubeAI = "kubeai"
	// labelEngine of a Pod is the engine in small letters.
	labelEngine  = "app.kubernetes.io/name"
	engineOllama = "ollama"
	// serverContainer is the container of the engine.
	serverContainer = "server"
	// port of every engine in a Pod of KubeAI.
	port = 8000
)

// podFor makes the Pod that KubeAI would make for a Model, or says why it
// would make none.
func podFor(model *kubeaiv1.Model, config configuration) (*corev1.Pod, error) {
	used, count, err := config.resolve(model.Spec.ResourceProfile)
	if err != nil {
		return nil, err
	}
	args, env, err := commandLine(model)
	if err != nil {
		return nil, err
	}
	container := corev1.Container{
		Name:  serverContainer,
		Image: cmp.Or(model.Spec.Image, config.image(string(model.Spec.Engine), used.ImageName)),
		Args:  append(args, model.Spec.Args...),
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port}},
		Resources: corev1.ResourceRequirements{
			Requests: times(used.Requests, count), Limits: times(used.Limits, count),
		},
	}
	maps.Copy(env, model.Spec.Env)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: env[name]})
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: model.Namespace,
			Labels: map[string]string{
				LabelModel: model.Name, labelManagedBy: managedByKubeAI,
				labelEngine: strings.ToLower(string(model.Spec.Engine)),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(model, schema.GroupVersionKind{Group: "kubeai.org", Version: "v1", Kind: "Model"})},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container}, NodeSelector: used.NodeSelector, Tolerations: used.Tolerations,
			PriorityClassName: model.Spec.PriorityClassName,
		},
	}
	hash, err := hashOf(pod.Spec)
	if err != nil {
		return nil, err
	}
	pod.Labels[labelHash] = hash
	pod.GenerateName = "model-" + model.Name + "-" + hash + "-"
	return pod, nil
}

// commandLine is what the engine gets before the arguments of the Model.
func commandLine(model *kubeaiv1.Model) (args []string, env map[string]string, err error) {
	scheme, path, _ := strings.Cut(model.Spec.URL, "://")
	env = map[string]string{}
	switch {
	case model.Spec.Engine == kubeaiv1.ModelSpecEngineOLlama && (scheme == "ollama" || scheme == "pvc"):
		env["OLLAMA_HOST"] = fmt.Sprintf("0.0.0.0:%d", port)
		return nil, env, nil
	case model.Spec.Engine == kubeaiv1.ModelSpecEngineOLlama:
		return nil, nil, fmt.Errorf("url %q: engine OLlama does not take it", model.Spec.URL)
	case scheme == "pvc" || scheme == "oci":
		path = "/model"
	case scheme == "s3" || scheme == "gs" || scheme == "oss":
		path = model.Spec.URL
	case scheme != "hf":
		return nil, nil, fmt.Errorf("url %q: engine %s does not take it", model.Spec.URL, model.Spec.Engine)
	}
	return []string{"--model=" + path, "--served-model-name=" + model.Name}, env, nil
}

func hashOf(spec corev1.PodSpec) (string, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("hashing a Pod: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:5]), nil
}

// replicas is the number of Pods that KubeAI keeps without any load: what
// spec.replicas says, between the bounds.
func replicas(spec *kubeaiv1.ModelSpec) int32 {
	wanted, least := int32(0), int32(0)
	if spec.MinReplicas != nil {
		least = *spec.MinReplicas
	}
	if spec.Replicas != nil {
		wanted = *spec.Replicas
	}
	if spec.MaxReplicas > 0 {
		wanted = min(wanted, spec.MaxReplicas)
	}
	return max(wanted, least)
}

// rollout is the next step towards the wanted Pods.
type rollout struct {
	create int
	remove []*corev1.Pod
}

// planRollout keeps Ready Pods until as many new ones are Ready, and never has
// more than surge Pods above the wanted number. Pods that are going away do not
// count.
func planRollout(pods []*corev1.Pod, hash string, wanted, surge int) rollout {
	var current, old []*corev1.Pod
	ready := 0
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if isReady(pod) {
			ready++
		}
		if pod.Labels[labelHash] == hash {
			current = append(current, pod)
		} else {
			old = append(old, pod)
		}
	}
	var step rollout
	kept := len(current) + len(old)
	drop := func(pod *corev1.Pod) {
		step.remove = append(step.remove, pod)
		kept--
		if isReady(pod) {
			ready--
		}
	}
	unreadyFirst(current)
	for surplus := len(current) - wanted; surplus > 0; surplus-- {
		drop(current[0])
		current = current[1:]
	}
	unreadyFirst(old)
	for _, pod := range old {
		if !isReady(pod) || ready > wanted || surge == 0 && len(current) < wanted && kept >= wanted {
			drop(pod)
		}
	}
	step.create = max(0, min(wanted-len(current), wanted+surge-kept))
	return step
}

// unreadyFirst puts what is missed least at the front.
func unreadyFirst(pods []*corev1.Pod) {
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		if isReady(a) != isReady(b) {
			if isReady(b) {
				return -1
			}
			return 1
		}
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
}
