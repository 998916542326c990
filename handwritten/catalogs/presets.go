package catalogs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"magicstick.dev/operator/generated/catalogs"
)

// ImplicitArtifact is the id of the only artifact of a flat preset.
const ImplicitArtifact = "default"

// maxMemoryMi bounds every amount of memory in the catalogs, in Mi (16 TiB).
const maxMemoryMi = 1 << 24

// Preset is one model with its variants. Flat presets appear as one variant.
type Preset struct {
	// ID is the value of a ModelActivation's spec.local.preset.
	ID string
	// Title is the name as people read it.
	Title string
	// Type is chat or embedding.
	Type catalogs.PresetType
	// Features are KubeAI features; those of the type when the catalog names none.
	Features []string
	// Variants in catalog order; an engine and target pair occurs in one of them only.
	Variants []Variant
}

// Variant is the model on one engine and a group of compute targets.
type Variant struct {
	// Engine that serves the model.
	Engine catalogs.Engine
	// ComputeTargets that the variant is for.
	ComputeTargets []catalogs.ComputeTarget
	// DefaultArtifact is the id of the artifact that is used when an activation names none.
	DefaultArtifact string
	// Artifacts by id.
	Artifacts map[string]Artifact
	// ContextWindow in tokens; 0 when the catalog says nothing.
	ContextWindow int64
	// MaxOutputTokens is the longest answer in tokens; 0 when the catalog says nothing.
	MaxOutputTokens int64
	// MaxNumSeqs is the number of requests at the same time; 0 when the catalog says nothing.
	MaxNumSeqs int64
	// Args and Env of the model server.
	Args []string
	Env  map[string]string
	// VisionAttention holds the values of spec.local.vllm.visionAttention that the variant offers.
	VisionAttention []string
}

// Artifact is one set of files of the model and the memory that it needs.
type Artifact struct {
	// ID is the value of a ModelActivation's spec.local.artifact.
	ID string
	// URL of the files, hf:// or ollama://.
	URL string
	// Precision in which the model computes; may be empty.
	Precision string
	// Quantization of the weights; empty when they are not quantized.
	Quantization string
	// VRAM is the GPU memory budget as written in the catalog; empty when it only has a number or nothing.
	VRAM string
	// VRAMMi is the GPU memory budget in Mi; 0 when the catalog says nothing.
	VRAMMi int64
	// MemoryRequiredMi is the RAM of the Pod in Mi; 0 when the catalog says nothing.
	MemoryRequiredMi int64
	// KVCacheMemoryBytes is the RAM for the KV cache of vLLM on cpu, in bytes; 0 when the catalog says nothing.
	KVCacheMemoryBytes int64
}

// Variant finds the variant for an engine on a compute target.
func (p Preset) Variant(engine catalogs.Engine, target catalogs.ComputeTarget) (Variant, bool) {
	for _, variant := range p.Variants {
		if variant.Engine == engine && slices.Contains(variant.ComputeTargets, target) {
			return variant, true
		}
	}
	return Variant{}, false
}

// Artifact finds an artifact by id; the empty id means the default.
func (v Variant) Artifact(id string) (Artifact, bool) {
	artifact, found := v.Artifacts[cmp.Or(id, v.DefaultArtifact)]
	return artifact, found
}

// ArtifactIDs lists the variant's artifacts, the default first.
func (v Variant) ArtifactIDs() []string {
	ids := []string{v.DefaultArtifact}
	for _, id := range sortedKeys(v.Artifacts) {
		if id != v.DefaultArtifact {
			ids = append(ids, id)
		}
	}
	return ids
}

// Presets is the parsed preset catalog.
type Presets struct {
	byID            map[string]Preset
	visionAttention map[string]catalogs.VisionAttention
}

// PresetsFromConfigMap reads the preset catalog from its ConfigMap.
func PresetsFromConfigMap(configMap *corev1.ConfigMap) (*Presets, error) {
	return fromConfigMap(PresetsSource, configMap, ParsePresets)
}

// ParsePresets reads a preset catalog from JSON. A breach of the schema or of a
// rule between variants is a *catalogs.InvalidError of generated/catalogs.
func ParsePresets(text []byte) (*Presets, error) {
	catalog, err := catalogs.ParsePresetCatalog(text)
	if err != nil {
		return nil, err
	}
	presets := &Presets{byID: make(map[string]Preset, len(catalog.Presets)), visionAttention: catalog.VisionAttention}
	var problems findings
	for _, id := range sortedKeys(catalog.Presets) {
		presets.byID[id] = readPreset(id, catalog.Presets[id], catalog.VisionAttention, &problems)
	}
	if err := problems.err(PresetsSource); err != nil {
		return nil, err
	}
	return presets, nil
}

// Get finds a preset by its id.
func (p *Presets) Get(id string) (Preset, bool) {
	preset, found := p.byID[id]
	return preset, found
}

// IDs lists the presets, sorted.
func (p *Presets) IDs() []string { return sortedKeys(p.byID) }

// VisionAttention maps each value of spec.local.vllm.visionAttention to the
// arguments and environment that select it.
func (p *Presets) VisionAttention() map[string]catalogs.VisionAttention { return p.visionAttention }

func readPreset(id string, entry catalogs.Preset, vision map[string]catalogs.VisionAttention, problems *findings) Preset {
	path := presetPath(id)
	preset := Preset{ID: id, Title: entry.Title, Type: cmp.Or(entry.Type, catalogs.PresetTypeChat)}
	for _, feature := range entry.Features {
		preset.Features = append(preset.Features, string(feature))
	}
	if len(preset.Features) == 0 {
		feature := catalogs.PresetFeaturesItemTextGeneration
		if preset.Type == catalogs.PresetTypeEmbedding {
			feature = catalogs.PresetFeaturesItemTextEmbedding
		}
		preset.Features = []string{string(feature)}
	}
	if len(entry.Variants) == 0 {
		preset.Variants = []Variant{readVariant(path, path, flatVariant(entry), problems)}
		return preset
	}
	taken := map[string]int{}
	for i, variant := range entry.Variants {
		variantPath := fmt.Sprintf("%s.variants[%d]", path, i)
		checkVision(variantPath, variant, vision, problems)
		for j, target := range variant.ComputeTargets {
			pair := string(variant.Engine) + " on " + string(target)
			if first, twice := taken[pair]; twice {
				problems.add(fmt.Sprintf("%s.computeTargets[%d]", variantPath, j),
					fmt.Sprintf("%s is already covered by variants[%d]", pair, first), strconv.Quote(string(target)))
				continue
			}
			taken[pair] = i
		}
		preset.Variants = append(preset.Variants, readVariant(variantPath, "", variant, problems))
	}
	return preset
}

// flatVariant reads the older shape of a preset as a variant. The camelCase
// spelling wins over its snake_case twin.
func flatVariant(entry catalogs.Preset) catalogs.PresetVariant {
	return catalogs.PresetVariant{
		Engine:          cmp.Or(entry.Engine, catalogs.EngineVLLM),
		ComputeTargets:  []catalogs.ComputeTarget{catalogs.ComputeTargetNvidiaGPU},
		DefaultArtifact: ImplicitArtifact,
		Artifacts: map[string]catalogs.PresetArtifact{ImplicitArtifact: {
			URL:              entry.URL,
			VRAM:             entry.VRAM,
			VRAMMi:           entry.VRAMMi,
			MemoryRequiredMi: entry.MemoryRequiredMi,
		}},
		ContextWindow:   cmp.Or(entry.ContextWindow, entry.LegacyContextWindow),
		MaxOutputTokens: cmp.Or(entry.MaxOutputTokens, entry.LegacyMaxOutputTokens),
		MaxNumSeqs:      cmp.Or(entry.MaxNumSeqs, entry.LegacyMaxNumSeqs),
		Args:            entry.Args,
		Env:             entry.Env,
	}
}

// readVariant checks and copies a variant. artifactPath replaces the path of the
// artifacts in messages about flat presets, which have none.
func readVariant(path, artifactPath string, entry catalogs.PresetVariant, problems *findings) Variant {
	variant := Variant{
		Engine:          entry.Engine,
		ComputeTargets:  entry.ComputeTargets,
		DefaultArtifact: entry.DefaultArtifact,
		Artifacts:       make(map[string]Artifact, len(entry.Artifacts)),
		ContextWindow:   entry.ContextWindow,
		MaxOutputTokens: entry.MaxOutputTokens,
		MaxNumSeqs:      entry.MaxNumSeqs,
		Args:            entry.Args,
		Env:             entry.Env,
	}
	for _, value := range entry.VisionAttention {
		variant.VisionAttention = append(variant.VisionAttention, string(value))
	}
	for i, target := range entry.ComputeTargets {
		if !supported(entry.Engine, target) {
			problems.add(fmt.Sprintf("%s.computeTargets[%d]", path, i), string(entry.Engine)+" does not run there", strconv.Quote(string(target)))
		}
	}
	if _, exists := entry.Artifacts[entry.DefaultArtifact]; !exists {
		problems.add(path+".defaultArtifact", "no such artifact", strconv.Quote(entry.DefaultArtifact))
	}
	for _, id := range sortedKeys(entry.Artifacts) {
		at := artifactPath
		if at == "" {
			at = fmt.Sprintf("%s.artifacts%s", path, keyStep(id))
		}
		variant.Artifacts[id] = readArtifact(at, id, entry.Engine, entry.Artifacts[id], problems)
	}
	return variant
}

func readArtifact(path, id string, engine catalogs.Engine, entry catalogs.PresetArtifact, problems *findings) Artifact {
	artifact := Artifact{
		ID:                 id,
		URL:                entry.URL,
		Precision:          entry.Precision,
		Quantization:       entry.Quantization,
		VRAM:               entry.VRAM,
		VRAMMi:             entry.VRAMMi,
		MemoryRequiredMi:   entry.MemoryRequiredMi,
		KVCacheMemoryBytes: entry.KVCacheMemoryBytes,
	}
	// KubeAI's Ollama engine takes nothing but ollama:// references, and no other engine takes them.
	if (engine == catalogs.EngineOLlama) != strings.HasPrefix(entry.URL, "ollama://") {
		problems.add(path+".url", string(engine)+" cannot load this kind of address", strconv.Quote(entry.URL))
	}
	if entry.VRAM == "" {
		return artifact
	}
	budget, readable := ParseSizeMi(entry.VRAM)
	switch {
	case !readable || budget < 1 || budget > maxMemoryMi:
		problems.add(path+".vram", fmt.Sprintf("must be between 1Mi and %dMi", maxMemoryMi), strconv.Quote(entry.VRAM))
	case entry.VRAMMi != 0 && entry.VRAMMi != budget:
		problems.add(path+".vramMi", fmt.Sprintf("must equal vram, which is %d", budget), strconv.FormatInt(entry.VRAMMi, 10))
	}
	artifact.VRAMMi = budget
	return artifact
}

// checkVision finds offered values that nothing says how to select. The value
// auto needs nothing: it removes the settings of the others.
func checkVision(path string, variant catalogs.PresetVariant, table map[string]catalogs.VisionAttention, problems *findings) {
	if len(variant.VisionAttention) > 0 && variant.Engine != catalogs.EngineVLLM {
		problems.add(path+".visionAttention", "only for engine VLLM", strconv.Quote(string(variant.Engine)))
		return
	}
	for i, value := range variant.VisionAttention {
		if _, known := table[string(value)]; !known && value != catalogs.PresetVariantVisionAttentionItemAuto {
			problems.add(fmt.Sprintf("%s.visionAttention[%d]", path, i), "has no entry in the catalog's visionAttention table",
				strconv.Quote(string(value)))
		}
	}
}

// supported is the engine and target matrix (contract/appliance.md B.4).
func supported(engine catalogs.Engine, target catalogs.ComputeTarget) bool {
	switch engine {
	case catalogs.EngineOLlama:
		return target != catalogs.ComputeTargetIntelGPU
	case catalogs.EngineFreeToken:
		return target == catalogs.ComputeTargetNvidiaGPU
	}
	return true
}

func presetPath(id string) string { return "presets" + keyStep(id) }

// keyStep appends a key to a path; keys with a dot are quoted.
func keyStep(key string) string {
	if strings.Contains(key, ".") {
		return "[" + strconv.Quote(key) + "]"
	}
	return "." + key
}
