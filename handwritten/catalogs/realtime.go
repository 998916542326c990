package catalogs

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"magicstick.dev/operator/generated/catalogs"
)

// RealtimeProfile is one way to run vLLM-Omni.
type RealtimeProfile struct {
	catalogs.RealtimeProfile
	// ID is the value of a ModelActivation's spec.local.realtime.profile.
	ID string
	// Target follows from the backend.
	Target catalogs.ComputeTarget
}

// Plan finds the plan for a number of devices.
func (p RealtimeProfile) Plan(devices int64) (catalogs.RealtimePlan, bool) {
	for _, plan := range p.Plans {
		if plan.GPUCount == devices {
			return plan, true
		}
	}
	return catalogs.RealtimePlan{}, false
}

// DeviceCounts lists the numbers of devices that have a plan, the default first.
func (p RealtimeProfile) DeviceCounts() []int64 {
	counts := make([]int64, 0, len(p.Plans))
	for _, plan := range p.Plans {
		counts = append(counts, plan.GPUCount)
	}
	return counts
}

// Realtime is the parsed catalog of realtime profiles.
type Realtime struct {
	byID map[string]RealtimeProfile
}

// RealtimeFromConfigMap reads the realtime profiles from their ConfigMap.
func RealtimeFromConfigMap(configMap *corev1.ConfigMap) (*Realtime, error) {
	return fromConfigMap(RealtimeSource, configMap, ParseRealtime)
}

// ParseRealtime reads realtime profiles from JSON. A breach of the schema or of
// a rule between entries is a *catalogs.InvalidError of generated/catalogs.
func ParseRealtime(text []byte) (*Realtime, error) {
	catalog, err := catalogs.ParseRealtimeCatalog(text)
	if err != nil {
		return nil, err
	}
	realtime := &Realtime{byID: make(map[string]RealtimeProfile, len(catalog.Profiles))}
	var problems findings
	for _, id := range sortedKeys(catalog.Profiles) {
		profile := RealtimeProfile{RealtimeProfile: catalog.Profiles[id], ID: id, Target: backendTarget(catalog.Profiles[id].Backend)}
		checkPlans("profiles"+keyStep(id), profile, &problems)
		realtime.byID[id] = profile
	}
	if err := problems.err(RealtimeSource); err != nil {
		return nil, err
	}
	return realtime, nil
}

// Get finds a profile by its id.
func (r *Realtime) Get(id string) (RealtimeProfile, bool) {
	profile, found := r.byID[id]
	return profile, found
}

// IDs lists the profiles, sorted.
func (r *Realtime) IDs() []string { return sortedKeys(r.byID) }

func backendTarget(backend catalogs.RealtimeProfileBackend) catalogs.ComputeTarget {
	switch backend {
	case catalogs.RealtimeProfileBackendCuda:
		return catalogs.ComputeTargetNvidiaGPU
	case catalogs.RealtimeProfileBackendRocm:
		return catalogs.ComputeTargetAmdGPU
	case catalogs.RealtimeProfileBackendXpu:
		return catalogs.ComputeTargetIntelGPU
	default:
		return catalogs.ComputeTargetCPU
	}
}

func checkPlans(path string, profile RealtimeProfile, problems *findings) {
	onCPU := profile.Target == catalogs.ComputeTargetCPU
	if onCPU && profile.GPUMemoryFraction != 0 {
		problems.add(path+".gpuMemoryFraction", "not for the backend cpu", strconv.FormatFloat(profile.GPUMemoryFraction, 'g', -1, 64))
	}
	first := map[int64]int{}
	for i, plan := range profile.Plans {
		at := fmt.Sprintf("%s.plans[%d].gpuCount", path, i)
		count := strconv.FormatInt(plan.GPUCount, 10)
		if earlier, taken := first[plan.GPUCount]; taken {
			problems.add(at, fmt.Sprintf("already planned by plans[%d]", earlier), count)
			continue
		}
		first[plan.GPUCount] = i
		if onCPU != (plan.GPUCount == 0) {
			problems.add(at, "must be 0 for the backend cpu and at least 1 for every other", count)
		}
	}
}
