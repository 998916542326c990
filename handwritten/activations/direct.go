package activations

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

// Interface of direct runtimes (contract/appliance.md C.8).
const (
	// RuntimePort is where a direct runtime answers.
	RuntimePort = 8000
	// AnnotationRestartNonce makes a new Pod when it changes.
	AnnotationRestartNonce = "appliance.magicstick.dev/restart-nonce"
	// AnnotationGPUDevice names the device that the activation was planned for.
	AnnotationGPUDevice = "appliance.magicstick.dev/gpu-device"

	// KubeAI copies a Model's labels to its Pods; the component keeps them out of the
	// Service when an activation changes its engine.
	labelComponent   = "app.kubernetes.io/component"
	componentRuntime = "model-runtime"

	runtimeSuffix  = "-runtime"
	serverName     = "server"
	preparedFolder = "/model"
	cacheFolder    = "/root/.cache"
	patchFolder    = "/opt/magicstick/patch"
)

// runtimeName is a name to which the suffix can be added and that is still the
// name of a Service (RFC 1035 label).
var runtimeName = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

// maxRuntimeName leaves room for the suffix, in characters.
const maxRuntimeName = 63 - len(runtimeSuffix)

// RuntimeName is the name of a direct runtime's Deployment and Service.
func RuntimeName(activation string) string { return activation + runtimeSuffix }

// Direct is the Pod of a runtime that the operator runs without KubeAI.
type Direct struct {
	// Node that the Pod must run on.
	Node string `json:"node"`
	// Image of the server.
	Image string `json:"image"`
	// Command of the server; empty means the image's.
	Command []string `json:"command,omitempty"`
	// PodAnnotations change the Pod when they change.
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`
	// Patch corrects the image's sources before the server starts; nil when nothing
	// is to be corrected.
	Patch *SourcePatch `json:"patch,omitempty"`
}

// SourcePatch is a unified diff in a ConfigMap of the runtime's namespace.
type SourcePatch struct {
	ConfigMap string `json:"configMap"`
	Key       string `json:"key"`
	// Root is the folder inside the image to which the diff's paths are relative.
	Root string `json:"root"`
}

// checkRuntimeName refuses names that cannot become the name of a Service.
func (r *resolution) checkRuntimeName() error {
	if len(r.out.Name) > maxRuntimeName || !runtimeName.MatchString(r.out.Name) {
		return invalid("metadata.name", fmt.Sprintf("%s needs a name of at most %d small letters, digits and dashes that begins with a letter",
			r.out.Runtime, maxRuntimeName), r.out.Name)
	}
	return nil
}

// modelReference is what the server loads: a repository of Hugging Face, or the
// folder where the prepared model is mounted.
func modelReference(out *Resolved) string {
	if out.Prepared != nil {
		return preparedFolder
	}
	_, repository, _ := strings.Cut(out.URL, "://")
	return repository
}

// podAnnotations holds what restarts the Pod when it changes.
func podAnnotations(nonce *string) map[string]string {
	annotations := map[string]string{}
	if nonce != nil && *nonce != "" {
		annotations[AnnotationRestartNonce] = *nonce
	}
	return annotations
}

// renderDirect gives Deployment and Service of a direct runtime.
func renderDirect(out *Resolved, settings Settings) Objects {
	name := RuntimeName(out.Name)
	selector := map[string]string{LabelActivation: out.Name, labelComponent: componentRuntime}
	// One Pod at a time: the old one must give its devices back first.
	strategy := appsv1ac.DeploymentStrategy().WithType(appsv1.RecreateDeploymentStrategyType)
	deployment := appsv1ac.Deployment(name, out.Namespace).
		WithLabels(labels(out)).
		WithAnnotations(out.Annotations).
		WithSpec(appsv1ac.DeploymentSpec().
			WithReplicas(1).
			WithRevisionHistoryLimit(1).
			WithStrategy(strategy).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(selector)).
			WithTemplate(corev1ac.PodTemplateSpec().
				WithLabels(labels(out)).
				WithLabels(selector).
				WithAnnotations(out.Direct.PodAnnotations).
				WithSpec(directPod(out, settings))))
	service := corev1ac.Service(name, out.Namespace).
		WithLabels(labels(out)).
		WithSpec(corev1ac.ServiceSpec().
			WithType(corev1.ServiceTypeClusterIP).
			WithSelector(selector).
			WithPorts(corev1ac.ServicePort().
				WithName("http").
				WithProtocol(corev1.ProtocolTCP).
				WithPort(RuntimePort).
				WithTargetPort(intstr.FromString("http"))))
	return Objects{Deployment: deployment, Service: service}
}

func directPod(out *Resolved, settings Settings) *corev1ac.PodSpecApplyConfiguration {
	pod := corev1ac.PodSpec().
		WithAutomountServiceAccountToken(false).
		// A Service called vllm would set VLLM_PORT, which vLLM takes for its own setting.
		WithEnableServiceLinks(false).
		WithAffinity(onNode(out.Direct.Node)).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault)))
	for _, taint := range out.Tolerations {
		pod.WithTolerations(corev1ac.Toleration().
			WithKey(taint.Key).WithOperator(corev1.TolerationOpEqual).WithValue(taint.Value).WithEffect(corev1.TaintEffect(taint.Effect)))
	}
	container := corev1ac.Container().
		WithName(serverName).
		WithImage(out.Direct.Image).
		WithCommand(out.Direct.Command...).
		WithArgs(out.Args...).
		WithPorts(corev1ac.ContainerPort().WithName("http").WithContainerPort(RuntimePort).WithProtocol(corev1.ProtocolTCP)).
		// No liveness: downloading and loading may take as long as they take.
		WithReadinessProbe(corev1ac.Probe().
			WithHTTPGet(corev1ac.HTTPGetAction().WithPath("/health").WithPort(intstr.FromString("http"))).
			WithPeriodSeconds(10).WithTimeoutSeconds(3).WithFailureThreshold(3)).
		WithResources(directResources(out)).
		WithSecurityContext(corev1ac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithCapabilities(corev1ac.Capabilities().WithDrop("ALL")))
	for _, key := range slices.Sorted(maps.Keys(out.Env)) {
		container.WithEnv(corev1ac.EnvVar().WithName(key).WithValue(out.Env[key]))
	}
	mountFolders(pod, container, out, settings)
	return pod.WithContainers(container)
}

// mountFolders gives the server shared memory, its model, and what it keeps.
func mountFolders(pod *corev1ac.PodSpecApplyConfiguration, container *corev1ac.ContainerApplyConfiguration, out *Resolved, settings Settings) {
	mount := func(name, path string, readOnly bool, volume *corev1ac.VolumeApplyConfiguration) {
		at := corev1ac.VolumeMount().WithName(name).WithMountPath(path)
		if readOnly {
			at.WithReadOnly(true)
		}
		pod.WithVolumes(volume.WithName(name))
		container.WithVolumeMounts(at)
	}
	mount("dshm", "/dev/shm", false, corev1ac.Volume().
		WithEmptyDir(corev1ac.EmptyDirVolumeSource().WithMedium(corev1.StorageMediumMemory)))
	if out.Prepared != nil {
		mount("model", preparedFolder, true, corev1ac.Volume().
			WithImage(corev1ac.ImageVolumeSource().WithReference(out.Prepared.Image).WithPullPolicy(corev1.PullIfNotPresent)))
		if out.Prepared.PullSecret != "" {
			pod.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(out.Prepared.PullSecret))
		}
	} else {
		cache := corev1ac.Volume().WithEmptyDir(corev1ac.EmptyDirVolumeSource())
		if settings.ModelCache != "" {
			cache = corev1ac.Volume().WithHostPath(corev1ac.HostPathVolumeSource().
				WithPath(settings.ModelCache).WithType(corev1.HostPathDirectoryOrCreate))
		}
		mount("model-cache", cacheFolder, false, cache)
		if _, own := out.Env["HF_TOKEN"]; settings.HuggingFaceSecret != "" && !own {
			container.WithEnv(corev1ac.EnvVar().WithName("HF_TOKEN").WithValueFrom(corev1ac.EnvVarSource().
				WithSecretKeyRef(corev1ac.SecretKeySelector().WithName(settings.HuggingFaceSecret).WithKey("token").WithOptional(true))))
		}
	}
	if patch := out.Direct.Patch; patch != nil {
		mount("source-patch", patchFolder, true, corev1ac.Volume().
			WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(patch.ConfigMap)))
	}
}

// onNode binds a Pod to a node by its name, which is not always its host name.
func onNode(name string) *corev1ac.AffinityApplyConfiguration {
	return corev1ac.Affinity().WithNodeAffinity(corev1ac.NodeAffinity().
		WithRequiredDuringSchedulingIgnoredDuringExecution(corev1ac.NodeSelector().
			WithNodeSelectorTerms(corev1ac.NodeSelectorTerm().
				WithMatchFields(corev1ac.NodeSelectorRequirement().
					WithKey("metadata.name").WithOperator(corev1.NodeSelectorOpIn).WithValues(name)))))
}

// directResources asks for RAM with request and limit alike, and for whole devices.
func directResources(out *Resolved) *corev1ac.ResourceRequirementsApplyConfiguration {
	memory := *resource.NewQuantity(out.MemoryMi<<20, resource.BinarySI)
	requests := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(out.CPU.RequestMillicores, resource.DecimalSI),
		corev1.ResourceMemory: memory,
	}
	limits := corev1.ResourceList{corev1.ResourceMemory: memory}
	if out.CPU.LimitMillicores > 0 {
		limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(out.CPU.LimitMillicores, resource.DecimalSI)
	}
	if out.Devices > 0 {
		devices := resource.MustParse(strconv.FormatInt(out.Devices, 10))
		requests[corev1.ResourceName(out.Resource)], limits[corev1.ResourceName(out.Resource)] = devices, devices
	}
	return corev1ac.ResourceRequirements().WithRequests(requests).WithLimits(limits)
}
