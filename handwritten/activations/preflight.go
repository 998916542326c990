package activations

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/handwritten/catalogs"
)

// Preflight judges a resolved request against the nodes, before its runtime is
// created and while it is kept (contract/rulings.md 2, pre-flight). It looks at
// nothing else: no registry, no repository, no device.
//
// advice is for the message of the status, in whole sentences; empty when there
// is nothing to say. It never keeps a runtime from being created.
//
// err is a *Refusal with the numbers, for what a rule forbids: host RAM that does
// not cover what is taken off the GPU, RAM below what vLLM needs on cpu - both
// waived by allowMemoryRisk - and a realtime profile on a node without the RAM.
// That a device is not there is no matter for a pre-flight: the activation waits.
func Preflight(resolved *Resolved, nodes []Node) (advice string, err error) {
	if resolved.Runtime == RuntimeExternal {
		return "", nil
	}
	if err := resolved.coversHost(); err != nil {
		return "", err
	}
	check := preflight{Resolved: resolved, places: places(resolved, nodes)}
	if err := check.nodeMemory(); err != nil {
		return "", err
	}
	sentences := []string{
		check.hostRisk(), check.weights(), check.planned(), check.plannedMemory(),
		check.node(), check.memory(), check.devices(), check.deviceMemory(), check.processor(),
	}
	return strings.Join(slices.DeleteFunc(sentences, func(sentence string) bool { return sentence == "" }), " "), nil
}

// memoryFloor is the RAM in Mi that a replica is known to fill, and with what; 0
// when nothing is known (contract/appliance.md B.4 on CPU offloading). An engine
// needs more than that: for itself and for what it works on.
func (r *Resolved) memoryFloor() (floorMi int64, what string) {
	weights := r.Prepared.weightsMi()
	switch {
	case r.Runtime == RuntimeVLLM && r.offloads():
		floor := r.CPUOffloadMi
		if weights > 0 {
			floor = min(floor, weights)
		}
		return floor, fmt.Sprintf("a replica with %d Mi of its weights in RAM", floor)
	case r.Runtime == RuntimeVLLM && r.Target == shipped.ComputeTargetCPU:
		cache := roundUp(r.KVCacheMemoryBytes, 1<<20) >> 20
		if weights > 0 {
			return cache + weights, fmt.Sprintf("a replica with %d Mi of weights and a KV cache of %d bytes", weights, r.KVCacheMemoryBytes)
		}
		return cache, fmt.Sprintf("a replica with a KV cache of %d bytes", r.KVCacheMemoryBytes)
	case r.Runtime == RuntimeOLlama && r.offloads() && r.catalogVRAMMi > r.VRAMMi:
		return r.catalogVRAMMi - r.VRAMMi, fmt.Sprintf("artifact %s, planned with %d Mi on the GPU and given %d Mi there,", r.Artifact, r.catalogVRAMMi, r.VRAMMi)
	}
	return 0, ""
}

// coversHost refuses RAM that does not even hold what memoryFloor knows of.
func (r *Resolved) coversHost() error {
	floor, what := r.memoryFloor()
	if floor == 0 {
		return nil
	}
	return r.CoversMemory(floor+1, what)
}

// preflight is a request beside the nodes on which it can end up.
type preflight struct {
	*Resolved
	places []*Node
}

// places are the nodes that could run the request: the one that it names, those
// with the device, or all. Whether they are Ready does not matter.
func places(resolved *Resolved, nodes []Node) []*Node {
	var found []*Node
	for i := range nodes {
		node := &nodes[i]
		switch {
		case resolved.Direct != nil:
			if node.Name != resolved.Direct.Node {
				continue
			}
		case resolved.Devices > 0 && node.Extended[resolved.Resource] == 0:
			continue
		}
		found = append(found, node)
	}
	return found
}

// nodeMemory holds a realtime profile to the RAM of its node. Nothing waives it
// (contract/appliance.md B.4 on Realtime).
func (p *preflight) nodeMemory() error {
	if p.Runtime != RuntimeRealtime || len(p.places) == 0 {
		return nil
	}
	node := p.places[0]
	if node.MemoryMi == 0 || p.MemoryMi <= node.MemoryMi {
		return nil
	}
	return invalid("spec.local.realtime.systemMemoryMi", fmt.Sprintf("node %s has %d Mi of RAM for Pods", node.Name, node.MemoryMi), p.MemoryMi)
}

// hostRisk names the numbers of a risk that was accepted.
func (p *preflight) hostRisk() string {
	floor, what := p.memoryFloor()
	if !p.AllowMemoryRisk || p.MemoryMi > floor {
		return ""
	}
	return fmt.Sprintf("By allowMemoryRisk, %s gets %d Mi of RAM instead of at least %d Mi.", what, p.MemoryMi, floor+1)
}

// weights compares the weights of a prepared model with the memory for them.
func (p *preflight) weights() string {
	weights := p.Prepared.weightsMi()
	switch {
	case weights == 0 || p.VRAMMi == 0:
	case p.Runtime == RuntimeFreeToken && weights > p.VRAMMi+p.MemoryMi:
		return fmt.Sprintf("The weights take %d Mi, GPU memory and RAM together are %d Mi.", weights, p.VRAMMi+p.MemoryMi)
	case p.Runtime == RuntimeVLLM && weights-p.CPUOffloadMi > p.VRAMMi:
		return fmt.Sprintf("The weights alone take %d Mi of GPU memory, the budget is %d Mi.", weights-p.CPUOffloadMi, p.VRAMMi)
	}
	return ""
}

// planned compares the GPU budget with the one that the catalog has for the
// artifact.
func (p *preflight) planned() string {
	given := p.VRAMMi + p.CPUOffloadMi
	if p.Runtime == RuntimeOLlama && p.offloads() || given >= p.catalogVRAMMi {
		return ""
	}
	return fmt.Sprintf("The catalog plans %d Mi of GPU memory for artifact %s, the budget is %d Mi.", p.catalogVRAMMi, p.Artifact, p.VRAMMi)
}

// plannedMemory does the same for RAM.
func (p *preflight) plannedMemory() string {
	if p.MemoryMi >= p.catalogMemoryMi {
		return ""
	}
	return fmt.Sprintf("The catalog plans %d Mi of RAM for artifact %s, the request is %d Mi.", p.catalogMemoryMi, p.Artifact, p.MemoryMi)
}

// node says what is the matter with the nodes as such.
func (p *preflight) node() string {
	if p.Direct != nil && len(p.places) == 0 {
		return fmt.Sprintf("There is no node %s.", p.Direct.Node)
	}
	if len(p.places) == 0 || slices.ContainsFunc(p.places, func(node *Node) bool { return node.Ready }) {
		return ""
	}
	return fmt.Sprintf("No node that could run the model is Ready: %s.", nodeNames(p.places))
}

// memory compares the RAM request with the largest node that is Ready.
func (p *preflight) memory() string {
	var largest *Node
	for _, node := range p.places {
		switch {
		case !node.Ready:
		case node.MemoryMi == 0:
			return "" // may have enough
		case largest == nil || node.MemoryMi > largest.MemoryMi:
			largest = node
		}
	}
	if largest == nil || p.MemoryMi <= largest.MemoryMi {
		return ""
	}
	return fmt.Sprintf("No ready node can give %d Mi of RAM; %s has the most for Pods, %d Mi.", p.MemoryMi, largest.Name, largest.MemoryMi)
}

// devices compares the number of devices of a replica, which must be on one node,
// with the node that has most.
func (p *preflight) devices() string {
	var most *Node
	for _, node := range p.places {
		if most == nil || node.Extended[p.Resource] > most.Extended[p.Resource] {
			most = node
		}
	}
	if most == nil || p.Devices <= most.Extended[p.Resource] {
		return ""
	}
	return fmt.Sprintf("No node has the %d %s that a replica needs; %s has %d.", p.Devices, p.Resource, most.Name, most.Extended[p.Resource])
}

// deviceMemory compares the budget of one device with the largest one, where all
// nodes make known what they have.
func (p *preflight) deviceMemory() string {
	if p.VRAMMi == 0 || p.Devices == 0 || p.memoryLabel == "" {
		return ""
	}
	wanted := roundUp(p.VRAMMi, p.Devices) / p.Devices
	largest, where := int64(0), ""
	for _, node := range p.places {
		size, readable := catalogs.ParseSizeMi(node.Features[p.memoryLabel])
		if !readable || size <= 0 {
			return ""
		}
		if size > largest {
			largest, where = size, node.Name
		}
	}
	if largest == 0 || wanted <= largest {
		return ""
	}
	return fmt.Sprintf("The GPU budget of %d Mi for a device is more than any has; the largest is on %s and has %d Mi.", wanted, where, largest)
}

// processor names the nodes whose processor cannot run the engine.
func (p *preflight) processor() string {
	var lacking []*Node
	var missing []string
	for _, node := range p.places {
		if without := node.missing(p.cpuFeatures); len(without) > 0 {
			lacking, missing = append(lacking, node), append(missing, without...)
		}
	}
	if len(lacking) == 0 {
		return ""
	}
	slices.Sort(missing)
	return fmt.Sprintf("%s on cpu needs a processor with %s, which is missing on: %s.",
		p.Engine, strings.Join(slices.Compact(missing), ", "), nodeNames(lacking))
}

// maxNamesInMessage bounds lists of names in messages.
const maxNamesInMessage = 3

// nodeNames lists nodes for a message.
func nodeNames(nodes []*Node) string {
	var list []string
	for _, node := range nodes[:min(len(nodes), maxNamesInMessage)] {
		list = append(list, node.Name)
	}
	text := strings.Join(list, ", ")
	if more := len(nodes) - len(list); more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}
