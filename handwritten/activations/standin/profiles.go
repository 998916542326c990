package standin

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// configuration is what KubeAI knows after a start: the part of its Helm values
// that decides about Pods.
type configuration struct {
	ResourceProfiles map[string]profile `json:"resourceProfiles"`
	ModelServers     map[string]server  `json:"modelServers"`
	ModelRollouts    struct {
		// Surge is how many Pods more than wanted a rollout may have.
		Surge *int `json:"surge"`
	} `json:"modelRollouts"`
}

// ownSurge is KubeAI's when the values say nothing.
const ownSurge = 1

func (c configuration) surge() int { return max(0, ptr.Deref(c.ModelRollouts.Surge, ownSurge)) }

// profile is the resources of one device of a replica.
type profile struct {
	ImageName    string              `json:"imageName"`
	Requests     corev1.ResourceList `json:"requests"`
	Limits       corev1.ResourceList `json:"limits"`
	NodeSelector map[string]string   `json:"nodeSelector"`
	Tolerations  []corev1.Toleration `json:"tolerations"`
}

// server is what is known of an engine.
type server struct {
	Images map[string]string `json:"images"`
}

// parseConfiguration reads Helm values. What is not about Pods is ignored.
func parseConfiguration(text string) (configuration, error) {
	var c configuration
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return configuration{}, fmt.Errorf("reading KubeAI's values: %w", err)
	}
	return c, nil
}

// resolve looks up <name>:<count>.
func (c configuration) resolve(text string) (profile, int64, error) {
	name, number, found := strings.Cut(text, ":")
	count, err := strconv.ParseInt(number, 10, 32)
	if !found || name == "" || err != nil || count < 1 {
		return profile{}, 0, fmt.Errorf("resource profile %q: want <name>:<count>", text)
	}
	p, found := c.ResourceProfiles[name]
	if !found {
		return profile{}, 0, fmt.Errorf("resource profile %q: there is none of that name", name)
	}
	return p, count, nil
}

// image of an engine for a profile. An image that only KubeAI's own values know
// gets a name that says so; nothing is pulled here.
func (c configuration) image(engine, name string) string {
	if image, found := c.ModelServers[engine].Images[name]; found {
		return image
	}
	return "kubeai.example/" + strings.ToLower(engine) + ":" + strings.ToLower(name)
}

// times multiplies every quantity (contract/appliance.md C.7).
func times(list corev1.ResourceList, count int64) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	product := corev1.ResourceList{}
	for name, quantity := range list {
		sum := quantity.DeepCopy()
		sum.Mul(count)
		product[name] = resource.MustParse(sum.String())
	}
	return product
}
