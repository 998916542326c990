package activations

import (
	"maps"
	"slices"
	"strings"

	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

// Runtime is a way of putting a model into service.
type Runtime string

// Runtimes that an activation can end up with.
const (
	// RuntimeVLLM is vLLM in Pods of KubeAI.
	RuntimeVLLM Runtime = "VLLM"
	// RuntimeOLlama is Ollama in Pods of KubeAI.
	RuntimeOLlama Runtime = "OLlama"
	// RuntimeFreeToken is FreeToken in a Deployment.
	RuntimeFreeToken Runtime = "FreeToken"
	// RuntimeRealtime is vLLM-Omni in a Deployment.
	RuntimeRealtime Runtime = "Realtime"
	// RuntimeExternal is a provider's API behind LiteLLM; nothing runs here.
	RuntimeExternal Runtime = "External"
)

// prefix is how status.modelRef names the runtime.
func (r Runtime) prefix() string {
	switch r {
	case RuntimeVLLM, RuntimeOLlama:
		return "kubeai"
	case RuntimeExternal:
		return "litellm"
	}
	return strings.ToLower(string(r))
}

// Modules that an activation can need besides the one of its target.
const (
	moduleKubeAI       = "kubeai"
	moduleLiteLLM      = "litellm"
	moduleModelCatalog = "model-catalog"
)

// Engine knows the rules and the objects of one runtime.
type Engine interface {
	// Runtime that the engine stands for.
	Runtime() Runtime
	// RequiredModules lists the modules that the model needs, in the order in which
	// they become Ready.
	RequiredModules(resolved *Resolved) []string
	// Render gives the objects of the runtime. The same request gives the same objects.
	Render(resolved *Resolved, settings Settings) Objects
	// Reasons of the Ready condition for what the API server answers to these objects.
	Reasons() APIReasons

	// resolve applies the engine's rules; r.out has name, namespace and runtime.
	resolve(r *resolution) error
}

// Objects of a runtime. Either Model and Profile, or Deployment and Service, or
// nothing for external models.
type Objects struct {
	// Model is the KubeAI Model. It needs Profile in KubeAI's configuration.
	Model   *kubeaiv1.Model
	Profile *Profile
	// Deployment and Service of a runtime without KubeAI.
	Deployment *appsv1ac.DeploymentApplyConfiguration
	Service    *corev1ac.ServiceApplyConfiguration
}

// APIReasons are the reasons for what the API server answers when the objects of
// a runtime are applied (contract/appliance.md C.8). Empty strings mean that the
// runtime has no reasons of its own.
type APIReasons struct {
	// PermissionDenied is for 401 and 403.
	PermissionDenied string
	// Rejected is for every other refusal.
	Rejected string
	// Unavailable is for an API server that cannot answer now.
	Unavailable string
}

// engines by runtime. Each engine's file adds its own.
var engines = map[Runtime]Engine{}

func register(engine Engine) Engine {
	engines[engine.Runtime()] = engine
	return engine
}

// EngineOf finds the engine of a resolved request.
func EngineOf(resolved *Resolved) Engine { return engines[resolved.Runtime] }

// Runtimes lists what can be asked for, sorted.
func Runtimes() []Runtime { return slices.Sorted(maps.Keys(engines)) }

// runtimeOf picks the runtime that an activation asks for. It does not look at
// anything that could be wrong, so that the runtime to remove is known even for
// an activation that is refused.
func runtimeOf(spec *appliancev1alpha1.ModelActivationSpec) Runtime {
	switch {
	case spec.Type == appliancev1alpha1.ModelActivationSpecTypeExternal:
		return RuntimeExternal
	case spec.Local != nil && spec.Local.Realtime != nil:
		return RuntimeRealtime
	case spec.Local == nil || spec.Local.Engine == "":
		return RuntimeVLLM
	}
	return Runtime(spec.Local.Engine)
}
