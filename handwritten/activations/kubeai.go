package activations

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// LabelActivation names the activation that an object was made for.
const LabelActivation = "appliance.magicstick.dev/modelactivation"

// kubeAINameLimit is the longest name of a KubeAI Model, in characters
// (contract/appliance.md H48).
const kubeAINameLimit = 40

// kubeAIWithOCI says which KubeAI can serve prepared models.
const kubeAIWithOCI = "a KubeAI release that has kubeai-project/kubeai#661 (merged June 2026)"

// partitionKeys are variables that divide a GPU. They are the appliance's
// business and never a model's (contract/appliance.md C.7).
var partitionKeys = []string{
	"MAGICSTICK_VLLM_ACTIVE_THREAD_PERCENTAGE",
	"MAGICSTICK_MPS_DEVICE",
	"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
	"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
	"CUDA_MPS_PIPE_DIRECTORY",
}

// What the wrapper around the model server reads (contract/appliance.md H47).
const (
	envEngine        = "MAGICSTICK_ENGINE"
	envComputeTarget = "MAGICSTICK_COMPUTE_TARGET"
)

// maxDevices bounds the devices of one replica.
const maxDevices = 16

// kubeAI is what both engines of KubeAI share.
type kubeAI struct {
	engine  shipped.Engine
	schemes []string
}

func (k kubeAI) Runtime() Runtime { return Runtime(k.engine) }

func (k kubeAI) Reasons() APIReasons { return APIReasons{} }

// RequiredModules is the target's module, if it has one, before KubeAI
// (contract/appliance.md C.6).
func (k kubeAI) RequiredModules(out *Resolved) []string {
	return append(targetModules(out), moduleKubeAI, moduleLiteLLM, moduleModelCatalog)
}

// targetModules is the module that makes the target's devices usable.
func targetModules(out *Resolved) []string {
	if out.targetModule == "" {
		return nil
	}
	return []string{out.targetModule}
}

// common resolves what does not depend on the engine. It leaves profile and
// environment to the engine.
func (k kubeAI) common(r *resolution) (defaults catalogs.EngineDefaults, err error) {
	if len(r.out.Name) > kubeAINameLimit {
		return defaults, invalid("metadata.name", fmt.Sprintf("KubeAI takes names of at most %d characters", kubeAINameLimit), r.out.Name)
	}
	err = steps(
		func() error { return r.pickTarget(k.engine, shipped.ComputeTargetNvidiaGPU) },
		func() error { return forbidden(r.local.Freetoken != nil, "freetoken", "only for engine FreeToken") },
		func() error { return r.source(k.schemes...) },
	)
	defaults, _ = r.Engines.Defaults(k.engine, r.out.Target)
	r.out.cpuFeatures = defaults.CPUFeatures
	return defaults, err
}

// fromPrepared lets KubeAI mount a prepared model by the digest of its image.
func (k kubeAI) fromPrepared(r *resolution, formats ...string) error {
	if r.local.ModelRef == nil {
		return nil
	}
	if err := r.usePrepared(formats...); err != nil {
		return err
	}
	if !r.KubeAITakesOCI {
		return &Refusal{
			Reason: conditions.ModelActivationReasonKubeAIVersionTooOld, Field: "spec.local.modelRef",
			Rule: "the installed KubeAI does not accept oci:// addresses; it needs " + kubeAIWithOCI,
		}
	}
	r.out.URL = "oci://" + r.out.Prepared.Image
	return nil
}

// kvCacheType checks the precision of the KV cache against what the engine takes
// on the target; the first is what the engine does by itself.
func (r *resolution) kvCacheType(allowed []string) error {
	r.out.KVCacheType = string(r.local.KVCacheType)
	r.out.RequestedKVCacheType = allowed[0]
	if r.out.KVCacheType == "" {
		return nil
	}
	if !slices.Contains(allowed, r.out.KVCacheType) {
		return invalid("spec.local.kvCacheType", fmt.Sprintf("%s on %s does not take it", r.out.Engine, r.out.Target), r.out.KVCacheType, allowed...)
	}
	r.out.RequestedKVCacheType = r.out.KVCacheType
	return nil
}

// offloading checks the rules that both engines share (contract/appliance.md M7).
// The merged numbers count, not only those that the activation names.
func (r *resolution) offloading() error {
	r.out.CPUOffloading = r.local.CPUOffloading
	if !r.out.offloads() {
		return nil
	}
	if r.out.Target != shipped.ComputeTargetNvidiaGPU {
		return invalid("spec.local.computeTarget", "cpuOffloading does not run there", r.out.Target, string(shipped.ComputeTargetNvidiaGPU))
	}
	if err := r.oneReplica("cpuOffloading"); err != nil {
		return err
	}
	if r.local.MemoryRequiredMi == 0 {
		return invalid("spec.local.memoryRequiredMi", "required with cpuOffloading: the total host RAM of the model", nil)
	}
	r.out.MemoryLimited = true
	return nil
}

// withoutPartitions drops variables that divide a GPU and adds those that tell
// the wrapper what it wraps.
func (r *resolution) withoutPartitions(env map[string]string) {
	for _, key := range partitionKeys {
		delete(env, key)
	}
	env[envEngine] = string(r.out.Engine)
	env[envComputeTarget] = string(r.out.Target)
}

// Render gives the KubeAI Model (contract/appliance.md C.7).
func (k kubeAI) Render(out *Resolved, _ Settings) Objects {
	spec := &kubeaiv1.ModelSpec{
		Engine:          kubeaiv1.ModelSpecEngine(out.Engine),
		URL:             out.URL,
		ResourceProfile: out.ResourceProfile(),
		MinReplicas:     ptr.To(int32(out.MinReplicas)), //nolint:gosec // at most 100, by the schema
		MaxReplicas:     int32(out.MaxReplicas),         //nolint:gosec // at most 100, by the schema
		Args:            out.Args,
		Env:             out.Env,
	}
	for _, feature := range out.Features {
		spec.Features = append(spec.Features, kubeaiv1.ModelSpecFeaturesItem(feature))
	}
	return Objects{
		Profile: out.Profile,
		Model: &kubeaiv1.Model{
			TypeMeta: metav1.TypeMeta{APIVersion: "kubeai.org/v1", Kind: "Model"},
			ObjectMeta: metav1.ObjectMeta{
				Name:        out.Name,
				Namespace:   out.Namespace,
				Labels:      labels(out),
				Annotations: out.Annotations,
			},
			Spec: spec,
		},
	}
}

// labels of every object that is made for an activation.
func labels(out *Resolved) map[string]string {
	return map[string]string{kube.LabelManagedBy: kube.ManagedByOperator, LabelActivation: out.Name}
}

// deviceCount reads how many devices vLLM spreads a replica over. The number of
// devices that KubeAI asks for must be the same, or the server does not start.
func deviceCount(args []string) (int64, error) {
	devices := int64(1)
	for _, parallel := range []struct{ name, short string }{{"tensor-parallel-size", "tp"}, {"pipeline-parallel-size", "pp"}} {
		text, found := flagValue(args, parallel.name, parallel.short)
		if !found {
			continue
		}
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil || number < 1 || number > maxDevices {
			return 0, invalid("spec.local.args", fmt.Sprintf("--%s must be a number from 1 to %d", parallel.name, maxDevices), text)
		}
		devices *= number
	}
	if devices > maxDevices {
		return 0, invalid("spec.local.args", fmt.Sprintf("a replica can have at most %d devices", maxDevices), devices)
	}
	return devices, nil
}

// TakesOCI tells from KubeAI's CustomResourceDefinition whether it accepts
// oci:// addresses. A definition that says nothing about addresses accepts all.
func TakesOCI(definition *apiextensionsv1.CustomResourceDefinition) bool {
	for _, version := range definition.Spec.Versions {
		if version.Name != "v1" || version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
			continue
		}
		restricted := false
		for _, rule := range version.Schema.OpenAPIV3Schema.Properties["spec"].Properties["url"].XValidations {
			if strings.Contains(rule.Rule, "oci://") {
				return true
			}
			restricted = restricted || strings.Contains(rule.Rule, "://")
		}
		return !restricted
	}
	return false
}
