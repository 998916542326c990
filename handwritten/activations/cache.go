package activations

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"magicstick.dev/operator/handwritten/kube"
)

// annotationTakesOCI is on the cached definition of KubeAI's Models only, whose
// schema is not kept.
const annotationTakesOCI = "appliance.magicstick.dev/takes-oci"

// StripCRD is kube.StripCRD that remembers of KubeAI's definition what TakesOCI
// reads from its schema.
func StripCRD(object any) (any, error) {
	takes := false
	definition, ok := object.(*apiextensionsv1.CustomResourceDefinition)
	if ok && definition.Name == kubeAIKind.CRD {
		// An object that was stripped already comes by a second time after a restart of its watch.
		takes = definition.Annotations[annotationTakesOCI] == "true" || TakesOCI(definition)
	}
	stripped, err := kube.StripCRD(object)
	if takes {
		definition.Annotations = map[string]string{annotationTakesOCI: "true"}
	}
	return stripped, err
}

// StripPod is a cache transform that keeps of a Pod what tells its owner, how it
// is, where it answers and how its KV cache was set up. Environments and volumes
// may hold secrets.
func StripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields, pod.Annotations = nil, nil
	containers := make([]corev1.Container, 0, len(pod.Spec.Containers))
	for _, container := range pod.Spec.Containers {
		kept := corev1.Container{Name: container.Name, Ports: container.Ports}
		if value, found := flagValue(container.Args, flagKVCacheType, ""); found {
			kept.Args = []string{"--" + flagKVCacheType + "=" + value}
		}
		for _, variable := range container.Env {
			if variable.Name == envOllamaKVCacheType {
				kept.Env = []corev1.EnvVar{{Name: variable.Name, Value: variable.Value}}
			}
		}
		containers = append(containers, kept)
	}
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, Containers: containers}
	return pod, nil
}

// StripNode is a cache transform that keeps of a node what it offers and what is
// known of its hardware; images and volumes make up most of it.
func StripNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	node.ManagedFields, node.Annotations = nil, nil
	status := corev1.NodeStatus{
		Capacity: node.Status.Capacity, Allocatable: node.Status.Allocatable,
		NodeInfo: corev1.NodeSystemInfo{Architecture: node.Status.NodeInfo.Architecture},
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			status.Conditions = []corev1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	node.Status = status
	node.Spec = corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable}
	for label := range node.Labels {
		if !hardwareLabel(label) {
			delete(node.Labels, label)
		}
	}
	return node, nil
}

func hardwareLabel(label string) bool {
	domain, _, _ := strings.Cut(label, "/")
	for _, known := range featureDomains {
		if domain == known {
			return true
		}
	}
	return strings.HasPrefix(label, "kubernetes.io/")
}
