package catalogs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"magicstick.dev/operator/generated/catalogs"
)

// DefaultMemoryStrategy is what spec.local.freetoken.memoryStrategy defaults to.
const DefaultMemoryStrategy = "auto"

// computeTargets in the order in which messages and lists show them.
var computeTargets = []catalogs.ComputeTarget{
	catalogs.ComputeTargetNvidiaGPU, catalogs.ComputeTargetAmdGPU, catalogs.ComputeTargetIntelGPU, catalogs.ComputeTargetCPU,
}

// Target is one kind of hardware.
type Target struct {
	// Title is the name as people read it.
	Title string
	// Module makes the hardware usable; empty when none is needed.
	Module string
	// Resources stand for one whole device, the preferred one first; empty on cpu.
	Resources []string
	// MemoryLabel is the label of the nodes that says how much memory one device has, see
	// ParseSizeMi; empty when nobody publishes it.
	MemoryLabel string
	// Tolerations of the taints that keep other workloads away.
	Tolerations []catalogs.EngineToleration
}

// CPU is the CPU time of a Pod in thousandths of a core.
type CPU struct {
	// RequestMillicores is reserved, at least 1.
	RequestMillicores int64
	// LimitMillicores is the most that is given; 0 means no limit.
	LimitMillicores int64
}

// EngineDefaults are the defaults of an engine on a compute target.
type EngineDefaults struct {
	CPU
	// ImageName is the name of the image in KubeAI's configuration of the engine.
	ImageName string
	// Image is what ImageName stands for; empty when KubeAI knows the name itself.
	Image string
	// MemoryMi is the RAM request in Mi.
	MemoryMi int64
	// KVCacheMemoryBytes is the RAM for the KV cache in bytes; 0 where the engine does not keep it in RAM.
	KVCacheMemoryBytes int64
	// CPUFeatures are the extensions that the processor must have, by its architecture
	// as Kubernetes names it; empty when every processor will do.
	CPUFeatures map[string][]string
	// VisionAttention holds the values that are offered to models whose preset names none.
	VisionAttention []string
}

// Engines is the parsed engine catalog.
type Engines struct {
	targets   map[catalogs.ComputeTarget]Target
	defaults  map[catalogs.Engine]map[catalogs.ComputeTarget]EngineDefaults
	direct    CPU
	freeToken catalogs.FreeTokenOptions
}

// EnginesFromConfigMap reads the engine catalog from its ConfigMap.
func EnginesFromConfigMap(configMap *corev1.ConfigMap) (*Engines, error) {
	return fromConfigMap(EnginesSource, configMap, ParseEngines)
}

// ParseEngines reads an engine catalog from JSON. A breach of the schema or of a
// rule between entries is a *catalogs.InvalidError of generated/catalogs.
func ParseEngines(text []byte) (*Engines, error) {
	catalog, err := catalogs.ParseEngineCatalog(text)
	if err != nil {
		return nil, err
	}
	engines := &Engines{
		targets:   make(map[catalogs.ComputeTarget]Target, len(catalog.Targets)),
		defaults:  make(map[catalogs.Engine]map[catalogs.ComputeTarget]EngineDefaults, len(catalog.Engines)),
		direct:    CPU{catalog.Direct.RequestMillicores, ptr.Deref(catalog.Direct.LimitMillicores, 0)},
		freeToken: catalog.Freetoken,
	}
	var problems findings
	for _, name := range sortedKeys(catalog.Targets) {
		engines.targets[catalogs.ComputeTarget(name)] = readTarget("targets."+name, name, catalog.Targets[name], &problems)
	}
	for _, name := range sortedKeys(catalog.Engines) {
		engine := catalogs.Engine(name)
		engines.defaults[engine] = engines.readEngine("engines."+name, engine, catalog.Engines[name], &problems)
	}
	checkCPU("direct", engines.direct, &problems)
	checkFreeToken(catalog.Freetoken, &problems)
	if err := problems.err(EnginesSource); err != nil {
		return nil, err
	}
	return engines, nil
}

// Target finds a compute target.
func (e *Engines) Target(target catalogs.ComputeTarget) (Target, bool) {
	found, known := e.targets[target]
	return found, known
}

// Defaults finds the defaults of an engine that KubeAI runs; not found when the
// engine is not offered on the target.
func (e *Engines) Defaults(engine catalogs.Engine, target catalogs.ComputeTarget) (EngineDefaults, bool) {
	found, known := e.defaults[engine][target]
	return found, known
}

// Offered lists the compute targets on which an engine is offered.
func (e *Engines) Offered(engine catalogs.Engine) []catalogs.ComputeTarget {
	if engine == catalogs.EngineFreeToken {
		return []catalogs.ComputeTarget{catalogs.ComputeTargetNvidiaGPU}
	}
	var offered []catalogs.ComputeTarget
	for _, target := range computeTargets {
		if _, known := e.defaults[engine][target]; known {
			offered = append(offered, target)
		}
	}
	return offered
}

// Direct is the CPU time of runtimes without KubeAI.
func (e *Engines) Direct() CPU { return e.direct }

// FreeToken describes the runtime FreeToken and its choices.
func (e *Engines) FreeToken() catalogs.FreeTokenOptions { return e.freeToken }

func readTarget(path, name string, entry catalogs.EngineTarget, problems *findings) Target {
	isCPU := name == string(catalogs.ComputeTargetCPU)
	switch {
	case isCPU && len(entry.Resources) > 0:
		problems.add(path+".resources", "not for cpu", strconv.Quote(strings.Join(entry.Resources, ", ")))
	case !isCPU && len(entry.Resources) == 0:
		problems.add(path+".resources", "required for a target with devices", "")
	}
	if isCPU && entry.MemoryLabel != "" {
		problems.add(path+".memoryLabel", "not for cpu", strconv.Quote(entry.MemoryLabel))
	}
	return Target{
		Title: entry.Title, Module: entry.Module, Resources: entry.Resources,
		MemoryLabel: entry.MemoryLabel, Tolerations: entry.Tolerations,
	}
}

func (e *Engines) readEngine(path string, engine catalogs.Engine, entry catalogs.EngineEntry, problems *findings) map[catalogs.ComputeTarget]EngineDefaults {
	images := map[string]string{}
	read := make(map[catalogs.ComputeTarget]EngineDefaults, len(entry.Targets))
	for _, name := range sortedKeys(entry.Targets) {
		target, values := catalogs.ComputeTarget(name), entry.Targets[name]
		at := path + ".targets." + name
		if _, known := e.targets[target]; !known {
			problems.add(at, "no such target in targets", strconv.Quote(name))
		}
		if !supported(engine, target) {
			problems.add(at, string(engine)+" does not run there", strconv.Quote(name))
		}
		// KubeAI's configuration has one image for a name, whatever the target.
		if image, taken := images[values.ImageName]; taken && image != values.Image {
			problems.add(at+".image", fmt.Sprintf("%s stands for another image on another target", values.ImageName), strconv.Quote(values.Image))
		}
		images[values.ImageName] = values.Image
		defaults := EngineDefaults{
			CPU:                CPU{values.RequestMillicores, ptr.Deref(values.LimitMillicores, 0)},
			ImageName:          values.ImageName,
			Image:              values.Image,
			MemoryMi:           values.MemoryMi,
			KVCacheMemoryBytes: values.KVCacheMemoryBytes,
			CPUFeatures:        values.CPUFeatures,
		}
		if len(defaults.CPUFeatures) > 0 && target != catalogs.ComputeTargetCPU {
			problems.add(at+".cpuFeatures", "only for cpu", strconv.Quote(name))
		}
		for _, value := range values.VisionAttention {
			defaults.VisionAttention = append(defaults.VisionAttention, string(value))
		}
		if len(defaults.VisionAttention) > 0 && engine != catalogs.EngineVLLM {
			problems.add(at+".visionAttention", "only for engine VLLM", strconv.Quote(string(engine)))
		}
		checkCPU(at, defaults.CPU, problems)
		read[target] = defaults
	}
	return read
}

func checkCPU(path string, cpu CPU, problems *findings) {
	if cpu.LimitMillicores > 0 && cpu.LimitMillicores < cpu.RequestMillicores {
		problems.add(path+".limitMillicores", fmt.Sprintf("must be 0 or at least requestMillicores, which is %d", cpu.RequestMillicores),
			strconv.FormatInt(cpu.LimitMillicores, 10))
	}
}

func checkFreeToken(options catalogs.FreeTokenOptions, problems *findings) {
	if _, known := options.MemoryStrategies[DefaultMemoryStrategy]; !known {
		problems.add("freetoken.memoryStrategies."+DefaultMemoryStrategy, "required, activations default to it", "")
	}
	carries := func(path string, args []string) {
		if len(args) > 0 && !slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "{value}") }) {
			problems.add(path, "must carry {value}", strconv.Quote(strings.Join(args, " ")))
		}
	}
	carries("freetoken.contextWindowArgs", options.ContextWindowArgs)
	carries("freetoken.maxNumSeqsArgs", options.MaxNumSeqsArgs)
	for _, key := range sortedKeys(options.Advanced) {
		carries("freetoken.advanced."+key+".args", options.Advanced[key].Args)
	}
}
