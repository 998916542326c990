package activations

import (
	corev1 "k8s.io/api/core/v1"
)

// PublishedResources sums the extended resources of all nodes: what a node has
// allocatable, or its capacity while the kubelet has not reported what is
// allocatable (contract/appliance.md C.6).
func PublishedResources(nodes []corev1.Node, names []string) map[string]int64 {
	published := make(map[string]int64, len(names))
	for i := range nodes {
		offered := nodes[i].Status.Allocatable
		if len(offered) == 0 {
			offered = nodes[i].Status.Capacity
		}
		for _, name := range names {
			if quantity, found := offered[corev1.ResourceName(name)]; found && quantity.Sign() > 0 {
				published[name] += quantity.Value()
			}
		}
	}
	return published
}

// pickResource chooses among the resources that stand for the same kind of
// device: the first that the cluster publishes, else the preferred one, for
// which the activation then waits.
func pickResource(resources []string, published map[string]int64) string {
	for _, resource := range resources {
		if published[resource] > 0 {
			return resource
		}
	}
	if len(resources) == 0 {
		return ""
	}
	return resources[0]
}
