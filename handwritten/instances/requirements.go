package instances

import (
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

// missingModules are the required modules that are not Ready, with what keeps them.
func (p *planner) missingModules() []string {
	running := p.running()
	var missing []string
	for _, requirement := range p.Requires {
		if state := requirement.Missing(running); state != "" {
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
