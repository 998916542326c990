package instances

import (
	"cmp"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// The readers of the spec fill in what the schema does, for objects that never
// went through it.

func (p *planner) targetNamespace() string { return targetNamespace(p.Instance) }

func (p *planner) wantedAccess() appliancev1alpha1.AppInstanceSpecAccess {
	if p.Instance.Spec.Access == nil {
		return appliancev1alpha1.AppInstanceSpecAccess{}
	}
	return *p.Instance.Spec.Access
}

func (p *planner) authentication() appliancev1alpha1.AppInstanceSpecAccessAuthentication {
	return cmp.Or(p.wantedAccess().Authentication, appliancev1alpha1.AppInstanceSpecAccessAuthenticationSSO)
}

func (p *planner) role() appliancev1alpha1.AppInstanceSpecAccessRole {
	return cmp.Or(p.wantedAccess().Role, appliancev1alpha1.AppInstanceSpecAccessRoleUser)
}

func (p *planner) exposure() appliancev1alpha1.AppInstanceSpecAccessExposure {
	return cmp.Or(p.wantedAccess().Exposure, appliancev1alpha1.AppInstanceSpecAccessExposureLocalAndPublic)
}

// hosts are the local and the public host name (contract/appliance.md C.3).
func (p *planner) hosts() (local, public string) {
	name := p.Short + "." + p.Instance.Spec.Application + "."
	return name + p.Domains.MDNS, name + p.Domains.Public
}

func (p *planner) labels() map[string]string {
	return map[string]string{
		kube.LabelManagedBy:   kube.ManagedByOperator,
		kube.LabelInstance:    p.Instance.Name,
		kube.LabelApplication: p.Instance.Spec.Application,
	}
}
