package activations

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/yaml"

	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// Where KubeAI's HelmRelease finds the generated profiles, as an optional entry
// of its valuesFrom (contract/appliance.md H17).
const (
	// ProfilesConfigMap is the name, in Flux's namespace.
	ProfilesConfigMap = "magicstick-kubeai-resource-profiles"
	// ProfilesKey is the key of the values.
	ProfilesKey = "values.yaml"
)

// Profile is a KubeAI resource profile: the resources of one device of a
// replica. KubeAI multiplies requests and limits by the number of devices, so
// CPU time and RAM of the whole replica are divided by it first.
type Profile struct {
	// Name follows from the content: the same content has the same name, on every
	// appliance and after every restart.
	Name string `json:"name"`
	// Count is the number of devices of a replica; 1 on cpu.
	Count int64 `json:"count"`
	// Engine whose images ImageName is looked up in.
	Engine shipped.Engine `json:"engine"`
	// Image is what ImageName stands for; empty when KubeAI knows it.
	Image string `json:"image,omitempty"`
	// Spec is the profile as KubeAI's configuration has it.
	Spec ProfileSpec `json:"spec"`
}

// ProfileSpec is a resource profile in KubeAI's Helm values.
type ProfileSpec struct {
	// ImageName is a key of the engine's images.
	ImageName string `json:"imageName"`
	// Requests and Limits of one device.
	Requests map[string]string `json:"requests"`
	Limits   map[string]string `json:"limits,omitempty"`
	// Tolerations of the Pod.
	Tolerations []ProfileToleration `json:"tolerations,omitempty"`
}

// ProfileToleration is a toleration in KubeAI's Helm values.
type ProfileToleration struct {
	Key      string `json:"key"`
	Operator string `json:"operator"`
	Value    string `json:"value"`
	Effect   string `json:"effect"`
}

// String is the profile as a KubeAI Model names it.
func (p *Profile) String() string { return p.Name + ":" + strconv.FormatInt(p.Count, 10) }

// profileFor makes the profile of a resolved request.
func profileFor(out *Resolved, defaults catalogs.EngineDefaults, engines *catalogs.Engines) *Profile {
	count := max(out.Devices, 1)
	spec := ProfileSpec{
		ImageName: defaults.ImageName,
		Requests: map[string]string{
			"cpu":    strconv.FormatInt(out.CPU.RequestMillicores/count, 10) + "m",
			"memory": strconv.FormatInt(out.MemoryMi/count, 10) + "Mi",
		},
		Limits: map[string]string{},
	}
	if out.CPU.LimitMillicores > 0 {
		spec.Limits["cpu"] = strconv.FormatInt(out.CPU.LimitMillicores/count, 10) + "m"
	}
	if out.MemoryLimited {
		spec.Limits["memory"] = spec.Requests["memory"]
	}
	if out.Devices > 0 {
		spec.Requests[out.Resource], spec.Limits[out.Resource] = "1", "1"
	}
	for _, taint := range out.Tolerations {
		spec.Tolerations = append(spec.Tolerations, ProfileToleration{
			Key: taint.Key, Operator: "Equal", Value: taint.Value, Effect: string(taint.Effect),
		})
	}
	profile := &Profile{Count: count, Engine: out.Engine, Image: defaults.Image, Spec: spec}
	profile.Name = profileName(out, profile, engines)
	return profile
}

// profileName is magicstick-<target> for what vLLM gets by default there, and the
// same with a hash of the content for everything else. Where several resources
// stand for a device, the driver's name tells them apart.
func profileName(out *Resolved, profile *Profile, engines *catalogs.Engines) string {
	base := "magicstick-" + string(out.Target)
	if target, _ := engines.Target(out.Target); len(target.Resources) > 1 {
		_, driver, _ := strings.Cut(out.Resource, "/")
		base += "-" + driver
	}
	if standard, offered := engines.Defaults(shipped.EngineVLLM, out.Target); offered && isStandard(profile, standard) {
		return base
	}
	return base + "-" + profile.Spec.hash()
}

// hash tells profiles apart by what they say, in 8 hexadecimal digits.
func (s ProfileSpec) hash() string {
	digest := sha256.New()
	fmt.Fprintf(digest, "image %q\n", s.ImageName)
	for _, name := range slices.Sorted(maps.Keys(s.Requests)) {
		fmt.Fprintf(digest, "request %q %q\n", name, s.Requests[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Limits)) {
		fmt.Fprintf(digest, "limit %q %q\n", name, s.Limits[name])
	}
	for _, taint := range s.Tolerations {
		fmt.Fprintf(digest, "toleration %q %q %q %q\n", taint.Key, taint.Operator, taint.Value, taint.Effect)
	}
	return hex.EncodeToString(digest.Sum(nil)[:4])
}

// isStandard compares a profile with the one that vLLM gets by default.
func isStandard(profile *Profile, standard catalogs.EngineDefaults) bool {
	_, limited := profile.Spec.Limits["memory"]
	cpuLimit := ""
	if standard.LimitMillicores > 0 {
		cpuLimit = strconv.FormatInt(standard.LimitMillicores, 10) + "m"
	}
	return profile.Count == 1 && !limited && profile.Spec.ImageName == standard.ImageName &&
		profile.Spec.Requests["cpu"] == strconv.FormatInt(standard.RequestMillicores, 10)+"m" &&
		profile.Spec.Requests["memory"] == strconv.FormatInt(roundUp(standard.MemoryMi, memoryUnitMi), 10)+"Mi" &&
		profile.Spec.Limits["cpu"] == cpuLimit
}

// DefaultProfiles are the profiles of activations that change nothing about
// resources. They are always in KubeAI's configuration, so that such a model
// does not make KubeAI restart.
func DefaultProfiles(engines *catalogs.Engines) []*Profile {
	var profiles []*Profile
	for _, engine := range []shipped.Engine{shipped.EngineVLLM, shipped.EngineOLlama} {
		for _, name := range engines.Offered(engine) {
			target, _ := engines.Target(name)
			defaults, _ := engines.Defaults(engine, name)
			resources := target.Resources
			if len(resources) == 0 {
				resources = []string{""}
			}
			for _, resource := range resources {
				out := &Resolved{
					Engine: engine, Target: name, Resource: resource, Tolerations: target.Tolerations,
					CPU: defaults.CPU, MemoryMi: roundUp(defaults.MemoryMi, memoryUnitMi),
				}
				if resource != "" {
					out.Devices = 1
				}
				profiles = append(profiles, profileFor(out, defaults, engines))
			}
		}
	}
	return profiles
}

// kubeAIValues is the part of KubeAI's Helm values that the operator writes.
type kubeAIValues struct {
	ModelRollouts    rolloutValues                     `json:"modelRollouts"`
	ResourceProfiles map[string]ProfileSpec            `json:"resourceProfiles,omitempty"`
	ModelServers     map[string]map[string]imageValues `json:"modelServers,omitempty"`
}

type imageValues map[string]string

// rolloutValues bound the Pods beyond the wanted ones while a Model changes. There
// are none: on an appliance with one GPU the new Pod would wait for ever for the
// device that the old one keeps (field report D6).
type rolloutValues struct {
	Surge int `json:"surge"`
}

// KubeAIValues writes profiles as Helm values. The order of the profiles does not
// matter, and repeated ones count once.
func KubeAIValues(profiles []*Profile) ([]byte, error) {
	values := kubeAIValues{ResourceProfiles: map[string]ProfileSpec{}, ModelServers: map[string]map[string]imageValues{}}
	for _, profile := range profiles {
		values.ResourceProfiles[profile.Name] = profile.Spec
		if profile.Image == "" {
			continue
		}
		server := values.ModelServers[string(profile.Engine)]
		if server == nil {
			server = map[string]imageValues{"images": {}}
			values.ModelServers[string(profile.Engine)] = server
		}
		server["images"][profile.Spec.ImageName] = profile.Image
	}
	text, err := writeValues(values)
	if err != nil {
		return nil, fmt.Errorf("writing KubeAI's values for %d resource profiles: %w", len(values.ResourceProfiles), err)
	}
	return text, nil
}

// writeValues gives the same text for the same values. The YAML library alone does
// not: it orders keys by the numbers in them, and for names that end in hexadecimal
// digits that is no order, so that KubeAI would start again for nothing.
func writeValues(values kubeAIValues) ([]byte, error) {
	profiles := values.ResourceProfiles
	values.ResourceProfiles = nil
	text, err := yaml.Marshal(values)
	if err != nil {
		return nil, err
	}
	text = append(text, "resourceProfiles:"...)
	if len(profiles) == 0 {
		text = append(text, " {}"...)
	}
	text = append(text, '\n')
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		profile, err := yaml.Marshal(map[string]ProfileSpec{name: profiles[name]})
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(profile)) {
			text = append(append(text, "  "...), line...)
		}
	}
	return text, nil
}

// ProfilesDocument is the ConfigMap from which KubeAI's HelmRelease takes the
// profiles. It holds the default ones and those that are in use.
func ProfilesDocument(namespace string, engines *catalogs.Engines, inUse []*Profile) (*corev1ac.ConfigMapApplyConfiguration, error) {
	text, err := KubeAIValues(slices.Concat(DefaultProfiles(engines), inUse))
	if err != nil {
		return nil, err
	}
	return corev1ac.ConfigMap(ProfilesConfigMap, namespace).
		WithLabels(map[string]string{
			kube.LabelManagedBy: kube.ManagedByOperator,
			// Flux looks at the HelmRelease again when a ConfigMap with this label changes.
			"reconcile.fluxcd.io/watch": "Enabled",
		}).
		WithData(map[string]string{ProfilesKey: string(text)}), nil
}
