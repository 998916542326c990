package activations

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Node is what a pre-flight needs to know of a node.
type Node struct {
	// Name and UID of the node.
	Name, UID string
	// Ready tells that the kubelet is fine and that nobody cordoned the node.
	Ready bool
	// Architecture as Kubernetes names it, such as amd64; empty when unknown.
	Architecture string
	// MemoryMi is the RAM that Pods can have together, in Mi; 0 when unknown.
	MemoryMi int64
	// Extended resources that Pods can have together.
	Extended map[string]int64
	// Features are the labels by which hardware is made known: those of node feature
	// discovery and of the vendors' own programs.
	Features map[string]string
}

// labelCPUFeature starts the labels by which node feature discovery makes the
// extensions of a processor known; the value is "true".
const labelCPUFeature = "feature.node.kubernetes.io/cpu-cpuid."

// featureDomains are the domains of the labels that Node.Features holds.
var featureDomains = []string{"feature.node.kubernetes.io", "nvidia.com", "amd.com", "gpu.intel.com"}

// NodesFrom reads what a pre-flight needs, in the order of the names. What is
// allocatable counts, or the capacity while the kubelet has not reported that.
func NodesFrom(nodes []corev1.Node) []Node {
	found := make([]Node, 0, len(nodes))
	for i := range nodes {
		found = append(found, nodeFrom(&nodes[i]))
	}
	slices.SortFunc(found, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

func nodeFrom(object *corev1.Node) Node {
	node := Node{
		Name: object.Name, UID: string(object.UID),
		Architecture: cmp.Or(object.Labels[corev1.LabelArchStable], object.Status.NodeInfo.Architecture),
		Extended:     map[string]int64{}, Features: map[string]string{},
	}
	for _, condition := range object.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			node.Ready = condition.Status == corev1.ConditionTrue && !object.Spec.Unschedulable
		}
	}
	offered := object.Status.Allocatable
	if len(offered) == 0 {
		offered = object.Status.Capacity
	}
	for name, quantity := range offered {
		switch {
		case quantity.Sign() <= 0:
		case name == corev1.ResourceMemory:
			node.MemoryMi = quantity.Value() >> 20
		case strings.Contains(string(name), "/"):
			node.Extended[string(name)] = quantity.Value()
		}
	}
	for label, value := range object.Labels {
		domain, _, _ := strings.Cut(label, "/")
		if slices.Contains(featureDomains, domain) {
			node.Features[label] = value
		}
	}
	return node
}

// missing lists the extensions that the node's processor is known not to have.
// Nothing is known of a node without any such label.
func (n *Node) missing(needed map[string][]string) []string {
	publishes := false
	for label := range n.Features {
		publishes = publishes || strings.HasPrefix(label, labelCPUFeature)
	}
	if !publishes {
		return nil
	}
	var missing []string
	for _, feature := range needed[n.Architecture] {
		if n.Features[labelCPUFeature+feature] != "true" {
			missing = append(missing, feature)
		}
	}
	return missing
}
