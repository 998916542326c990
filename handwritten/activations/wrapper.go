package activations

import (
	_ "embed"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"magicstick.dev/operator/handwritten/kube"
)

// WrapperConfigMap is what KubeAI mounts into the Pods of model servers to start
// them, in KubeAI's namespace (contract/appliance.md C.7, H47).
const WrapperConfigMap = "magicstick-vllm-wrapper"

// Keys of WrapperConfigMap.
const (
	// WrapperKey is the Python program that starts vLLM.
	WrapperKey = "wrapper.py"
	// WrapperShellKey is the command for the Pods of every engine: Ollama's image has
	// no Python, and KubeAI has one command for all.
	WrapperShellKey = "wrapper.sh"
)

var (
	//go:embed wrapper/wrapper.py
	wrapperProgram string
	//go:embed wrapper/wrapper.sh
	wrapperShell string
)

// WrapperDocument is the ConfigMap with the programs around model servers.
func WrapperDocument(namespace string) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(WrapperConfigMap, namespace).
		WithLabels(map[string]string{kube.LabelManagedBy: kube.ManagedByOperator}).
		WithData(map[string]string{WrapperKey: wrapperProgram, WrapperShellKey: wrapperShell})
}
