package modules

import (
	"strings"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A catalog that gives a module another Kustomization name hands the module
// over from one Kustomization to another while it runs. Flux notes on every
// object the Kustomization that applied it last, and the deletion of a
// Kustomization prunes the objects that still carry its note. So nothing is
// lost when the former one applies nothing any more once the new one has begun:
//
//  1. the former one is suspended, while Flux is not at work on it;
//  2. the new one is applied and takes the objects over;
//  3. when the new one is Ready, the former one is deleted. What the new one
//     does not know goes with it.

// former are the Kustomizations that the operator made for this module under
// names that the catalog no longer uses.
func (p *planner) former() []*kustomizev1.Kustomization {
	var found []*kustomizev1.Kustomization
	for _, kustomization := range p.Owned {
		// A label alone, which anybody can write, is too little to delete by
		// while the module is wanted.
		if kustomization.Name != kustomizationName(*p.Module) && applied(kustomization) {
			found = append(found, kustomization)
		}
	}
	return found
}

// handOver plans step 1 and says what step 2 has to wait for, empty for nothing.
func (p *planner) handOver(former []*kustomizev1.Kustomization) string {
	for _, kustomization := range former {
		name := p.object(kustomization.Name)
		state := readiness(kustomization)
		switch {
		case kustomization.DeletionTimestamp != nil && p.Kustomization == nil:
			return "Waiting until Flux has removed the former Kustomization " + name
		case kustomization.DeletionTimestamp != nil, kustomization.Spec.Suspend:
		case state.Status == metav1.ConditionUnknown && state.Condition != "":
			return "Waiting until Flux has finished its work on Kustomization " + name + ", which " + p.object(kustomizationName(*p.Module)) + " replaces"
		default:
			p.plan.Suspend = append(p.plan.Suspend, kustomization)
		}
	}
	return ""
}

// retire plans step 3.
func (p *planner) retire(former []*kustomizev1.Kustomization) {
	for _, kustomization := range former {
		if kustomization.DeletionTimestamp == nil && kustomization.Spec.Suspend {
			p.plan.Retire = append(p.plan.Retire, kustomization)
		}
	}
}

// formerNote tells people about the other Kustomization that they see.
func (p *planner) formerNote(former []*kustomizev1.Kustomization, fate string) string {
	if len(former) == 0 {
		return ""
	}
	objects := make([]string, 0, len(former))
	for _, kustomization := range former {
		objects = append(objects, p.object(kustomization.Name))
	}
	return "; the former Kustomization " + strings.Join(objects, ", ") + " " + fate
}
