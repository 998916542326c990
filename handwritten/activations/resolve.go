package activations

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/catalogs"
)

// Annotations that tell consumers of the model its limits (contract/appliance.md C.7).
const (
	// AnnotationContextWindow is the context length in tokens.
	AnnotationContextWindow = "ai-appliance.io/context-window"
	// AnnotationMaxOutputTokens is the longest answer in tokens.
	AnnotationMaxOutputTokens = "ai-appliance.io/max-output-tokens"
)

// AnnotationModelRef on a runtime's object names the prepared model that it
// serves, as <kind>/<name>.
const AnnotationModelRef = "appliance.magicstick.dev/model-ref"

// defaultNamespace is where models run when nobody says otherwise.
const defaultNamespace = "ai"

// targetNamespace is where the model runs; the schema fills it in.
func targetNamespace(activation *appliancev1alpha1.ModelActivation) string {
	return cmp.Or(activation.Spec.TargetNamespace, defaultNamespace)
}

// preparedName is what AnnotationModelRef says of a modelRef.
func preparedName(ref *appliancev1alpha1.ModelActivationSpecLocalModelRef) string {
	return string(ref.Kind) + "/" + ref.Name
}

// Model types.
const (
	typeChat      = "chat"
	typeEmbedding = "embedding"
)

// Resolve turns an activation into a request with nothing left open. The error
// is a *Refusal. It is pure: the same facts give the same result.
//
// A request beside an error says what is wanted, for the status, although it
// must not be carried out: what is waited for is not there (ModelNotReady,
// KubeAIVersionTooOld), or the RAM is known to be too small. Of a request that
// waits for its files, everything that depends on them is missing.
func Resolve(f Facts) (*Resolved, error) {
	spec := &f.Activation.Spec
	out := &Resolved{
		Name:      f.Activation.Name,
		Namespace: targetNamespace(f.Activation),
		Runtime:   runtimeOf(spec),
	}
	if spec.Type != appliancev1alpha1.ModelActivationSpecTypeLocal && spec.Type != appliancev1alpha1.ModelActivationSpecTypeExternal {
		return nil, &Refusal{
			Reason: conditions.ModelActivationReasonUnsupportedType, Field: "spec.type", Value: string(spec.Type),
			Rule: "no such type", Allowed: []string{"local", "external"},
		}
	}
	if len(f.Namespaces) > 0 && !slices.Contains(f.Namespaces, out.Namespace) {
		return nil, invalid("spec.targetNamespace", "the operator runs no models there", out.Namespace, f.Namespaces...)
	}
	engine, known := engines[out.Runtime]
	if !known {
		return nil, invalid("spec.local.engine", "no such engine", out.Runtime, "VLLM", "OLlama", "FreeToken")
	}
	r := &resolution{Facts: f, out: out}
	if spec.Local != nil {
		r.local = *spec.Local
	}
	if err := engine.resolve(r); err != nil {
		var refusal *Refusal
		if errors.As(err, &refusal) && refusal.Reason != conditions.ModelActivationReasonInvalidModelSpec {
			out.Modules = engine.RequiredModules(out)
			return out, err
		}
		return nil, err
	}
	out.Annotations = map[string]string{}
	if out.ContextWindow > 0 {
		out.Annotations[AnnotationContextWindow] = strconv.FormatInt(out.ContextWindow, 10)
	}
	if out.MaxOutputTokens > 0 {
		out.Annotations[AnnotationMaxOutputTokens] = strconv.FormatInt(out.MaxOutputTokens, 10)
	}
	out.Modules = engine.RequiredModules(out)
	out.MemoryFloorMi, _ = out.memoryFloor()
	return out, out.coversHost()
}

// resolution is a request on its way. Engines call its steps in the order that
// their rules need.
type resolution struct {
	Facts
	out *Resolved
	// local is spec.local; empty when the activation has none.
	local appliancev1alpha1.ModelActivationSpecLocal
	// variant and artifact of the preset; nil without one.
	variant  *catalogs.Variant
	artifact *catalogs.Artifact
}

// home is the namespace of KubeAI, LiteLLM and the keys of external models.
func (r *resolution) home() string {
	if len(r.Namespaces) > 0 {
		return r.Namespaces[0]
	}
	return defaultNamespace
}

// steps runs rules until one refuses.
func steps(rules ...func() error) error {
	for _, rule := range rules {
		if err := rule(); err != nil {
			return err
		}
	}
	return nil
}

// pickTarget takes the compute target of the activation, or fallback, and finds
// out whether the engine is offered there.
func (r *resolution) pickTarget(engine shipped.Engine, fallback shipped.ComputeTarget) error {
	r.out.Engine = engine
	r.out.Target = cmp.Or(shipped.ComputeTarget(r.local.ComputeTarget), fallback)
	target, known := r.Engines.Target(r.out.Target)
	offered := r.Engines.Offered(engine)
	if known && engine != shipped.EngineFreeToken {
		_, known = r.Engines.Defaults(engine, r.out.Target)
	}
	if engine == shipped.EngineFreeToken && r.out.Target != shipped.ComputeTargetNvidiaGPU {
		known = false
	}
	if !known {
		return invalid("spec.local.computeTarget", "engine "+string(engine)+" does not run there", r.out.Target, texts(offered)...)
	}
	r.useTarget(target)
	return nil
}

// useTarget takes over what the catalog says of the target.
func (r *resolution) useTarget(target catalogs.Target) {
	r.out.targetModule, r.out.memoryLabel = target.Module, target.MemoryLabel
	r.out.Tolerations = target.Tolerations
	r.out.Resource = pickResource(target.Resources, r.Published)
}

// onAccelerator tells whether the target has devices.
func (r *resolution) onAccelerator() bool { return r.out.Target != shipped.ComputeTargetCPU }

// limits merges what the variant says of the model's limits with what the
// activation says.
func (r *resolution) limits() error {
	variant := catalogs.Variant{}
	if r.variant != nil {
		variant = *r.variant
	}
	r.out.ContextWindow = cmp.Or(int64(r.local.ContextWindow), variant.ContextWindow)
	r.out.MaxOutputTokens = cmp.Or(int64(r.local.MaxOutputTokens), variant.MaxOutputTokens)
	r.out.MaxNumSeqs = cmp.Or(int64(r.local.MaxNumSeqs), variant.MaxNumSeqs)
	if prepared := r.out.Prepared; prepared != nil && prepared.ContextWindowTokens > 0 && r.out.ContextWindow > prepared.ContextWindowTokens {
		return invalid("spec.local.contextWindow",
			fmt.Sprintf("%s %s has a context of %d tokens", prepared.Kind, prepared.Name, prepared.ContextWindowTokens), r.out.ContextWindow)
	}
	return nil
}

// features merges what the model does. The type of the preset is in out.ModelType
// already, if there is one.
func (r *resolution) features(preset []string) {
	r.out.ModelType = cmp.Or(string(r.local.ModelType), r.out.ModelType, typeChat)
	switch {
	case len(r.local.Features) > 0:
		r.out.Features = texts(r.local.Features)
	case len(preset) > 0 && r.local.ModelType == "":
		r.out.Features = preset
	case r.out.ModelType == typeEmbedding:
		r.out.Features = []string{string(shipped.PresetFeaturesItemTextEmbedding)}
	default:
		r.out.Features = []string{string(shipped.PresetFeaturesItemTextGeneration)}
	}
}

// replicas merges and compares the numbers of replicas.
func (r *resolution) replicas() error {
	r.out.MinReplicas = int64(cmp.Or(r.local.MinReplicas, 1))
	r.out.MaxReplicas = int64(cmp.Or(r.local.MaxReplicas, 1))
	if r.out.MinReplicas > r.out.MaxReplicas {
		rule := fmt.Sprintf("may not exceed maxReplicas, which is %d", r.out.MaxReplicas)
		if r.local.MaxReplicas == 0 {
			rule += " when left out"
		}
		return invalid("spec.local.minReplicas", rule, r.out.MinReplicas)
	}
	return nil
}

// oneReplica refuses several replicas for what can have only one.
func (r *resolution) oneReplica(who string) error {
	r.out.MinReplicas, r.out.MaxReplicas = 1, 1
	if r.local.MinReplicas > 1 {
		return invalid("spec.local.minReplicas", who+" runs one replica", r.local.MinReplicas, "1")
	}
	if r.local.MaxReplicas > 1 {
		return invalid("spec.local.maxReplicas", who+" runs one replica", r.local.MaxReplicas, "1")
	}
	return nil
}

// arguments takes the server's arguments from the activation, or else from the
// variant, and the environment from both. Both are copies.
func (r *resolution) arguments() ([]string, map[string]string) {
	var args []string
	env := map[string]string{}
	if r.variant != nil {
		args = append(args, r.variant.Args...)
		maps.Copy(env, r.variant.Env)
	}
	if r.local.Args != nil {
		args = append([]string(nil), r.local.Args...)
	}
	maps.Copy(env, r.local.Env)
	return args, env
}
