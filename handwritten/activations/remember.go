package activations

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	shipped "magicstick.dev/operator/generated/catalogs"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

// remember writes what was resolved into the status, also while the model waits
// (contract/appliance.md C.6 (3), H18, H49). What cannot be told now stays as it
// was told last.
func (p *planner) remember() {
	status, resolved := &p.plan.Status, p.Resolved
	if resolved == nil {
		return
	}
	status.ModelRef = ptr.To(resolved.ModelRef())
	status.CatalogID = ptr.To(resolved.Name)
	status.Engine = appliancev1alpha1.ModelActivationStatusEngine(resolved.Engine)
	status.ComputeTarget = appliancev1alpha1.ModelActivationStatusComputeTarget(resolved.Target)
	status.CPUOffloading = resolved.CPUOffloading
	status.RequestedKVCacheType = appliancev1alpha1.ModelActivationStatusRequestedKVCacheType(resolved.RequestedKVCacheType)
	var cpu *appliancev1alpha1.ModelActivationStatusCPUResources
	if resolved.CPU.RequestMillicores > 0 {
		cpu = &appliancev1alpha1.ModelActivationStatusCPUResources{
			RequestMillicores: int32(resolved.CPU.RequestMillicores), //nolint:gosec // bounded by the schemas
			LimitMillicores:   int32(resolved.CPU.LimitMillicores),   //nolint:gosec // bounded by the schemas
		}
	}
	// A request that waits for its files is not complete.
	partial := p.Refusal != nil
	told(&status.ResolvedResourceProfile, optional(resolved.ResourceProfile()), partial)
	told(&status.VRAMRequiredMi, optional(resolved.VRAMRequiredMi()), partial)
	told(&status.MemoryRequiredMi, optional(resolved.MemoryMi), partial)
	told(&status.CPUResources, cpu, partial)
	if prepared := resolved.Prepared; prepared != nil {
		status.ArtifactDigest = prepared.Digest
		status.ResolvedFormat = appliancev1alpha1.ModelActivationStatusResolvedFormat(prepared.Format)
	} else if !partial {
		status.ArtifactDigest, status.ResolvedFormat = "", ""
	}
}

// told replaces what was told before, unless there is nothing new yet.
func told[T any](field **T, value *T, partial bool) {
	if value != nil || !partial {
		*field = value
	}
}

func optional[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

// effectiveIn reads the precision of a Pod's KV cache in the words of the status.
func effectiveIn(pod *corev1.Pod, engine kubeaiv1.ModelSpecEngine) appliancev1alpha1.ModelActivationStatusEffectiveKVCacheType {
	known := vllmKVCacheTypes(shipped.ComputeTargetNvidiaGPU)
	if engine == kubeaiv1.ModelSpecEngineOLlama {
		known = ollamaKVCacheTypes()
	}
	found := effectiveKVCacheType(pod, known[0])
	if !slices.Contains(known, found) {
		return "" // a name of a newer server, which the status has no word for
	}
	return appliancev1alpha1.ModelActivationStatusEffectiveKVCacheType(found)
}

// steady keeps a report on memory until a figure moves by 1 % or more, so that
// noise costs no write (contract/rulings.md 2).
func steady(have *appliancev1alpha1.ModelActivationStatusMemoryUsage, report MemoryReport) *appliancev1alpha1.ModelActivationStatusMemoryUsage {
	switch {
	case !report.Known:
		return have
	case report.Usage == nil || have == nil:
		return report.Usage.DeepCopy()
	case moved(have.RAMMi, report.Usage.RAMMi), moved(have.VRAMMi, report.Usage.VRAMMi),
		moved(have.TotalMi, report.Usage.TotalMi), have.Replicas != report.Usage.Replicas:
		return report.Usage.DeepCopy()
	}
	return have
}

// moved tells a change of 1 % or more.
func moved(before, after int64) bool {
	difference := after - before
	if difference < 0 {
		difference = -difference
	}
	return difference > 0 && difference*100 >= before
}

// sentence ends a text like one.
func sentence(text string) string {
	if strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}
