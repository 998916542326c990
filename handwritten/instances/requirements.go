package instances

import (
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/kube"

	"k8s.io/utils/ptr"
)

// missingModules are the required modules that are not Ready, with what keeps them.
func (p *planner) missingModules() []string {
	running := p.running()
	var missing []string
	for _, requirement := range p.Requires {
		if state := requirement.missing(running); state != "" {
			missing = append(missing, requirement.Key+" ("+state+")")
		}
	}
	return missing
}

// running instances were installed and do not wait for modules already.
func (p *planner) running() bool {
	return p.Release != nil && p.Release.DeletionTimestamp == nil && !p.Release.Spec.Suspend &&
		p.Instance.Status.Phase != appliancev1alpha1.AppInstanceStatusPhaseWaitingForModules
}

// missing says why a module does not count as Ready, empty when it does.
//
// running instances are more patient: Flux looks at every module again and
// again, and a module that is merely being looked at must not take an instance
// back to where it waits for modules. One that waits goes on when the module is
// Ready and not before.
func (r Requirement) missing(running bool) string {
	activation := r.Activation
	switch {
	case !r.Known:
		return "not in the module catalog"
	case r.Static:
		return ""
	case activation == nil && r.NameTaken != nil:
		return kube.NameTaken(r.Key, r.NameTaken)
	case activation == nil:
		return "being switched on"
	case activation.DeletionTimestamp != nil:
		return "being deleted"
	case !ptr.Deref(activation.Spec.Enabled, true):
		return "disabled"
	}
	status := activation.Status
	ready := status.Phase == appliancev1alpha1.ModuleActivationStatusPhaseReady
	atWork := running && (ready || relooked(activation))
	switch {
	case ptr.Deref(status.ObservedGeneration, -1) < activation.Generation:
		if atWork {
			return ""
		}
		return "not looked at yet"
	case ready || atWork:
		return ""
	}
	state := string(status.Phase)
	if message := ptr.Deref(status.Message, ""); message != "" {
		state += ": " + message
	}
	return state
}

// relooked reports whether Flux is at work on the module and has come to no
// result yet; a failure has another phase.
func relooked(activation *appliancev1alpha1.ModuleActivation) bool {
	ready := kube.FindCondition(activation.Status.Conditions, conditions.ModuleActivationConditionReady)
	return activation.Status.Phase == appliancev1alpha1.ModuleActivationStatusPhaseReconciling &&
		ready != nil && ready.Reason == conditions.ModuleActivationReasonWaitingForKustomization
}
