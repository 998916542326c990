package activations

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"magicstick.dev/operator/generated/conditions"
)

// source finds the model's files: a preset's artifact, an address, or the
// prepared model that modelRef names. schemes are the kinds of address that the
// engine can load, without modelRef.
func (r *resolution) source(schemes ...string) error {
	switch {
	case r.local.ModelRef != nil:
		return nil // usePrepared, after the engine has agreed
	case r.local.URL != "":
		r.out.URL = r.local.URL
		return checkURL("spec.local.url", r.local.URL, schemes)
	}
	return r.preset(schemes)
}

// preset resolves preset -> variant -> artifact. Without a name of a preset the
// activation's own name is tried, as older activations rely on.
func (r *resolution) preset(schemes []string) error {
	id := r.local.Preset
	if id == "" {
		id = r.out.Name
	}
	preset, known := r.Presets.Get(id)
	if !known {
		if r.local.Preset == "" {
			return invalid("spec.local.preset", fmt.Sprintf("the activation names no preset, url or modelRef, and no preset is called %q", id), nil, r.Presets.IDs()...)
		}
		return invalid("spec.local.preset", "no such preset", id, r.Presets.IDs()...)
	}
	variant, known := preset.Variant(r.out.Engine, r.out.Target)
	if !known {
		var pairs []string
		for _, other := range preset.Variants {
			for _, target := range other.ComputeTargets {
				pairs = append(pairs, string(other.Engine)+" on "+string(target))
			}
		}
		return invalid("spec.local.preset", fmt.Sprintf("the preset has no variant for %s on %s", r.out.Engine, r.out.Target), id, pairs...)
	}
	artifact, known := variant.Artifact(r.local.Artifact)
	if !known {
		return invalid("spec.local.artifact", fmt.Sprintf("preset %s has no such artifact for %s on %s", id, r.out.Engine, r.out.Target),
			r.local.Artifact, variant.ArtifactIDs()...)
	}
	r.variant, r.artifact = &variant, &artifact
	r.out.Preset, r.out.Artifact = id, artifact.ID
	r.out.Precision, r.out.Quantization = artifact.Precision, artifact.Quantization
	r.out.URL = artifact.URL
	r.out.ModelType = string(preset.Type)
	return checkURL("spec.local.preset", artifact.URL, schemes)
}

// presetFeatures are the features of the preset; empty without one.
func (r *resolution) presetFeatures() []string {
	preset, _ := r.Presets.Get(r.out.Preset)
	return preset.Features
}

// reference is what KubeAI can read after the scheme; it makes no Pod for
// anything else, and says so in its log only (contract/appliance.md C.7).
var reference = regexp.MustCompile(`^[a-zA-Z0-9._:/-]+(\?.*)?$`)

func checkURL(field, url string, schemes []string) error {
	scheme, rest, _ := strings.Cut(url, "://")
	if !slices.Contains(schemes, scheme) {
		allowed := make([]string, 0, len(schemes))
		for _, known := range schemes {
			allowed = append(allowed, known+"://")
		}
		return invalid(field, "the engine cannot load this kind of address", url, allowed...)
	}
	if !reference.MatchString(rest) {
		return invalid(field, "must consist of letters, digits and . _ : / - behind the scheme", url)
	}
	return nil
}

// usePrepared takes the model's files from modelRef. formats are what the engine
// reads; none means that nobody looks (contract/appliance.md B.4 on Realtime).
func (r *resolution) usePrepared(formats ...string) error {
	ref := r.local.ModelRef
	if ref == nil {
		return nil
	}
	where := fmt.Sprintf("%s %s", ref.Kind, ref.Name)
	if ref.Kind == "Model" {
		where = fmt.Sprintf("%s %s/%s", ref.Kind, r.out.Namespace, ref.Name)
	}
	notReady := func(detail string) error {
		return &Refusal{Reason: conditions.ModelActivationReasonModelNotReady, Field: "spec.local.modelRef", Rule: where + " " + detail}
	}
	prepared := r.Prepared
	switch {
	case prepared == nil:
		return notReady("does not exist")
	case !prepared.Ready && prepared.Detail != "":
		return notReady("is not Ready: " + prepared.Detail)
	case !prepared.Ready, prepared.Image == "":
		return notReady("is not Ready")
	}
	if len(formats) > 0 && !slices.Contains(formats, prepared.Format) {
		got := prepared.Format
		if got == "" {
			got = "unknown"
		}
		return invalid("spec.local.modelRef", where+" has files in a format that "+string(r.out.Runtime)+" does not serve", got, formats...)
	}
	if len(formats) > 0 {
		if err := r.checkEndpoints(where, prepared); err != nil {
			return err
		}
	}
	r.out.Prepared = prepared
	return nil
}

// checkEndpoints compares what the activation wants with what the model can. A
// model of which nothing is known may do anything.
func (r *resolution) checkEndpoints(where string, prepared *PreparedModel) error {
	if len(prepared.EndpointTypes) == 0 {
		return nil
	}
	can := func(names ...string) bool {
		return slices.ContainsFunc(prepared.EndpointTypes, func(have string) bool { return slices.Contains(names, have) })
	}
	chats, embeds := can("Chat", "TextGeneration"), can("Embeddings")
	wanted := string(r.local.ModelType)
	if wanted == "" && !chats && embeds {
		r.out.ModelType = typeEmbedding
		return nil
	}
	if wanted == typeEmbedding && !embeds || wanted != typeEmbedding && !chats {
		if wanted == "" {
			wanted = typeChat
		}
		return invalid("spec.local.modelRef", fmt.Sprintf("%s does not serve models of type %s", where, wanted),
			strings.Join(prepared.EndpointTypes, ", "))
	}
	return nil
}

// offline keeps libraries from asking the internet about a model that lies on
// the disk.
func offline(env map[string]string) {
	env["HF_HUB_OFFLINE"] = "1"
	env["TRANSFORMERS_OFFLINE"] = "1"
}
