package activations

import (
	"cmp"
	"fmt"
	"strconv"

	"magicstick.dev/operator/handwritten/catalogs"
)

// memoryUnitMi is the step in which RAM is handed out, in Mi
// (contract/appliance.md B.4, H18).
const memoryUnitMi = 16

// maxMemoryMi bounds every amount of memory, in Mi (16 TiB).
const maxMemoryMi = 1 << 24

// roundUp rounds up to a multiple of unit.
func roundUp(amount, unit int64) int64 { return (amount + unit - 1) / unit * unit }

// vram merges the GPU budget: the activation's vram when it can be read, else
// its vramMi, else the artifact's (contract/appliance.md H11). It is not planned
// on cpu.
func (r *resolution) vram() error {
	if !r.onAccelerator() {
		return nil
	}
	if r.artifact != nil {
		r.out.catalogVRAMMi = r.artifact.VRAMMi
	}
	if r.local.VRAM != "" {
		budget, readable := catalogs.ParseSizeMi(r.local.VRAM)
		if readable && budget >= 1 && budget <= maxMemoryMi {
			r.out.VRAM, r.out.VRAMMi = r.local.VRAM, budget
			return nil
		}
		if r.local.VRAMMi == 0 {
			return invalid("spec.local.vram", fmt.Sprintf("must be an amount of memory between 1Mi and %dMi, such as 5Gi or 24062Mi", maxMemoryMi), r.local.VRAM)
		}
	}
	switch {
	case r.local.VRAMMi > 0:
		r.out.VRAM, r.out.VRAMMi = strconv.FormatInt(r.local.VRAMMi, 10), r.local.VRAMMi
	case r.artifact != nil && r.artifact.VRAMMi > 0:
		r.out.VRAM, r.out.VRAMMi = r.artifact.VRAM, r.artifact.VRAMMi
		if r.out.VRAM == "" {
			r.out.VRAM = strconv.FormatInt(r.out.VRAMMi, 10)
		}
	default:
		return invalid("spec.local.vram", fmt.Sprintf("required for %s on %s; give vram or vramMi", r.out.Engine, r.out.Target), nil)
	}
	return nil
}

// memory merges the RAM of a replica and rounds it up to what KubeAI can hand
// out: whole units for each device.
func (r *resolution) memory(fallback int64) {
	wanted := r.local.MemoryRequiredMi
	if r.artifact != nil {
		r.out.catalogMemoryMi = r.artifact.MemoryRequiredMi
		wanted = cmp.Or(wanted, r.out.catalogMemoryMi)
	}
	if wanted == 0 {
		wanted = fallback
	}
	r.out.MemoryMi = roundUp(wanted, memoryUnitMi*max(r.out.Devices, 1))
	r.out.AllowMemoryRisk = r.local.AllowMemoryRisk != nil && *r.local.AllowMemoryRisk
}

// cpu merges the CPU time of a replica. What the activation leaves out is
// inherited; a positive limit must reach the request, whoever said either
// (contract/appliance.md B.4).
func (r *resolution) cpu(inherited catalogs.CPU) error {
	cpu := inherited
	given := r.local.CPUResources
	if given != nil && given.RequestMillicores > 0 {
		cpu.RequestMillicores = int64(given.RequestMillicores)
	}
	if given != nil && given.LimitMillicores != nil {
		cpu.LimitMillicores = int64(*given.LimitMillicores)
	}
	if cpu.LimitMillicores > 0 && cpu.LimitMillicores < cpu.RequestMillicores {
		if given.LimitMillicores == nil {
			return invalid("spec.local.cpuResources.requestMillicores",
				fmt.Sprintf("may not exceed the inherited limit of %d millicores", cpu.LimitMillicores), cpu.RequestMillicores)
		}
		origin := "request"
		if given.RequestMillicores == 0 {
			origin = "inherited request"
		}
		return invalid("spec.local.cpuResources.limitMillicores",
			fmt.Sprintf("must be 0 or at least the %s of %d millicores", origin, cpu.RequestMillicores), cpu.LimitMillicores)
	}
	devices := max(r.out.Devices, 1)
	r.out.CPU = catalogs.CPU{
		RequestMillicores: roundUp(cpu.RequestMillicores, devices),
		LimitMillicores:   roundUp(cpu.LimitMillicores, devices),
	}
	return nil
}

// CoversMemory checks the RAM of a replica against what it is known or estimated
// to need, in Mi, unless the activation takes the risk. what says what needs it.
// Nothing else changes with the risk: requests, limits, caches and every other
// rule stay (contract/appliance.md B.4 on allowMemoryRisk).
func (r *Resolved) CoversMemory(minimumMi int64, what string) error {
	if r.AllowMemoryRisk || r.MemoryMi >= minimumMi {
		return nil
	}
	return invalid("spec.local.memoryRequiredMi",
		fmt.Sprintf("%s needs at least %d Mi of RAM; set allowMemoryRisk to try with less", what, minimumMi), r.MemoryMi)
}
