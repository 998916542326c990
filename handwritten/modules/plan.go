package modules

import (
	"fmt"
	"strings"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	kustomizeac "magicstick.dev/operator/generated/external/flux/kustomize/applyconfiguration/api/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// Plan is what one pass over an activation does, in this order.
type Plan struct {
	// AddFinalizer comes before every side effect.
	AddFinalizer bool
	// Enable are the canonical keys of modules to switch on.
	Enable []string
	// Suspend are former Kustomizations of the module, before another takes over.
	Suspend []*kustomizev1.Kustomization
	// Apply is the Kustomization to write, nil when the one in the cluster says the same.
	Apply *kustomizeac.KustomizationApplyConfiguration
	// Remove are Kustomizations to un-suspend, where needed, and delete: Flux
	// takes the objects of a suspended one out of its books but not out of the cluster.
	Remove []*kustomizev1.Kustomization
	// Retire are suspended former Kustomizations whose objects another one has
	// taken over: to be deleted without applying anything once more.
	Retire []*kustomizev1.Kustomization
	// DropFinalizer lets the activation go; no status is written then.
	DropFinalizer bool
	// Status is the whole new status.
	Status appliancev1alpha1.ModuleActivationStatus
}

// Compute decides. It is pure: the same facts give the same plan.
func Compute(f Facts) (Plan, error) {
	p := planner{Facts: f, plan: Plan{Status: *f.Activation.Status.DeepCopy()}}
	if f.Activation.DeletionTimestamp != nil {
		p.deleted()
		return p.plan, nil
	}
	p.plan.Status.ObservedGeneration = ptr.To(f.Activation.Generation)
	var err error
	switch {
	case f.CatalogError != "":
		// The last good state stays: phase, Kustomization and all that runs.
		p.ready(metav1.ConditionUnknown, conditions.ModuleActivationReasonCatalogUnavailable,
			"The module catalog cannot be used: "+kube.Sanitize(f.CatalogError))
		return p.plan, nil
	case f.Module == nil:
		p.unknown()
	case f.Module.Static:
		p.degraded(conditions.ModuleActivationReasonStaticModule, fmt.Sprintf(
			"Module %s is part of the installation (Kustomization %s) and cannot be activated.", f.Module.Key, p.object(kustomizationName(*f.Module))))
	case f.Winner != nil && f.Winner.Name != f.Activation.Name:
		p.degraded(conditions.ModuleActivationReasonDuplicateModule, fmt.Sprintf(
			"ModuleActivation %s is older and decides for module %s.", f.Winner.Name, f.Module.Key))
	case !ptr.Deref(f.Activation.Spec.Enabled, true):
		p.plan.AddFinalizer = true
		p.disabled()
	default:
		p.plan.AddFinalizer = true
		p.note = parameterNote(*f.Module, f.Activation.Spec.Parameters)
		err = p.enabled()
	}
	if err == nil && firstPass(f.Activation) {
		// Nothing of what this pass does was observed yet, so nothing is claimed.
		p.note = ""
		p.plan.Status = appliancev1alpha1.ModuleActivationStatus{
			ObservedGeneration: ptr.To(f.Activation.Generation),
			Conditions:         f.Activation.Status.Conditions,
		}
		p.phase(appliancev1alpha1.ModuleActivationStatusPhaseReconciling, metav1.ConditionUnknown,
			conditions.ModuleActivationReasonReconciling, "The operator has seen the activation and works on it.")
	}
	return p.plan, err
}

// firstPass is true until a status was written.
func firstPass(activation *appliancev1alpha1.ModuleActivation) bool {
	return kube.FindCondition(activation.Status.Conditions, conditions.ModuleActivationConditionReady) == nil
}

type planner struct {
	Facts
	plan Plan
	note string // at the end of every message
}

// deleted comes before anything that a reference could block.
func (p *planner) deleted() {
	if p.Winner != nil || p.Module != nil && p.Module.Static {
		// Another activation has taken the module over, or it belongs to the
		// installation: what runs is not this one's.
		p.plan.DropFinalizer = true
		return
	}
	switch p.Flux.Presence {
	case kube.Absent:
		p.plan.DropFinalizer = true
	case kube.Present:
		if p.remove() {
			p.plan.DropFinalizer = true
		}
	default:
		p.removing(p.Flux.Detail)
	}
}

func (p *planner) disabled() {
	switch p.Flux.Presence {
	case kube.Starting, kube.Unreadable:
		p.removing(p.Flux.Detail)
	case kube.Present:
		if !p.remove() {
			return
		}
		fallthrough
	default:
		p.plan.Status.Kustomization = nil
		p.phase(appliancev1alpha1.ModuleActivationStatusPhaseDisabled, metav1.ConditionTrue,
			conditions.ModuleActivationReasonDisabled, "The module is switched off.")
	}
}

// remove plans the removal of what is installed and reports whether nothing is left.
func (p *planner) remove() bool {
	if len(p.Owned) == 0 {
		return true
	}
	names := make([]string, 0, len(p.Owned))
	detail := ""
	for _, kustomization := range p.Owned {
		names = append(names, p.object(kustomization.Name))
		if kustomization.DeletionTimestamp == nil {
			p.plan.Remove = append(p.plan.Remove, kustomization)
		} else if state := readiness(kustomization); state.Status == metav1.ConditionFalse {
			detail = ": " + state.Reason + ": " + state.Message
		}
	}
	p.plan.Status.Kustomization = ptr.To(p.Owned[0].Name)
	p.removing("Waiting until Flux has removed Kustomization " + strings.Join(names, ", ") + detail)
	return false
}

func (p *planner) removing(message string) {
	if p.Activation.DeletionTimestamp != nil {
		p.plan.Status.ObservedGeneration = ptr.To(p.Activation.Generation)
	}
	p.phase(appliancev1alpha1.ModuleActivationStatusPhaseRemoving, metav1.ConditionFalse,
		conditions.ModuleActivationReasonRemoving, message)
}

// unknown keeps what runs while a person may still repair the catalog, but
// carries out an explicit false.
func (p *planner) unknown() {
	if !ptr.Deref(p.Activation.Spec.Enabled, true) && p.Flux.Presence == kube.Present {
		for _, kustomization := range p.Owned {
			if kustomization.DeletionTimestamp == nil {
				p.plan.Remove = append(p.plan.Remove, kustomization)
			}
		}
	}
	p.degraded(conditions.ModuleActivationReasonUnknownModule,
		fmt.Sprintf("The module catalog has no module %q.", p.Activation.Spec.Module))
	if len(p.Owned) > 0 {
		p.plan.Status.Kustomization = ptr.To(p.Owned[0].Name)
	}
}

func (p *planner) degraded(reason, message string) {
	p.plan.Status.Kustomization = nil
	p.phase(appliancev1alpha1.ModuleActivationStatusPhaseDegraded, metav1.ConditionFalse, reason, message)
}

// conflict leaves what somebody else made alone (field report D15) and says how
// to resolve it.
func (p *planner) conflict() {
	maker := "was not made by the operator"
	if other := p.Kustomization.Labels[kube.LabelModule]; other != "" && other != p.Module.Key {
		maker = fmt.Sprintf("belongs to module %s", other)
	}
	p.degraded(conditions.ModuleActivationReasonKustomizationConflict, fmt.Sprintf(
		"Kustomization %s has the name that module %s uses and %s, so it is left as it is. Delete it, or hand it over with the labels %s=%s and %s=%s.",
		p.object(p.Kustomization.Name), p.Module.Key, maker,
		kube.LabelManagedBy, kube.ManagedByOperator, kube.LabelModule, p.Module.Key))
}

func (p *planner) enabled() error {
	if p.Kustomization != nil && !owned(p.Kustomization, p.Module.Key) {
		p.conflict()
		return nil
	}
	for _, requirement := range p.Requires {
		if requirement.Module != nil && mayEnable(*requirement.Module) && requirement.Activation == nil && requirement.NameTaken == nil {
			p.plan.Enable = append(p.plan.Enable, requirement.Module.Key)
		}
	}
	if p.Flux.Presence != kube.Present {
		p.plan.Status.Kustomization = nil
		p.phase(appliancev1alpha1.ModuleActivationStatusPhaseReconciling, metav1.ConditionFalse,
			conditions.ModuleActivationReasonWaitingForCRDs, "Flux cannot be used: "+p.Flux.Detail+".")
		return nil
	}
	name := kustomizationName(*p.Module)
	p.plan.Status.Kustomization = ptr.To(name)
	if p.Kustomization != nil && p.Kustomization.DeletionTimestamp != nil {
		p.phase(appliancev1alpha1.ModuleActivationStatusPhaseReconciling, metav1.ConditionFalse,
			conditions.ModuleActivationReasonWaitingForKustomization,
			"Waiting until Flux has removed the former Kustomization "+p.object(name))
		return nil
	}

	former := p.former()
	if wait := p.handOver(former); wait != "" {
		p.phase(appliancev1alpha1.ModuleActivationStatusPhaseReconciling, metav1.ConditionFalse,
			conditions.ModuleActivationReasonWaitingForKustomization, wait)
		return nil
	}
	note := p.formerNote(former, "stays, suspended, until this one is ready")

	running := p.Kustomization != nil && !p.Kustomization.Spec.Suspend
	var missing []string
	for _, requirement := range p.Requires {
		if problem := p.missing(requirement, running); problem != "" {
			missing = append(missing, requirement.Key+" ("+problem+")")
		}
	}
	desired := render(p.Facts, len(missing) > 0)
	changes := p.Kustomization == nil
	if !changes {
		same, err := kube.Unchanged(desired, p.Kustomization, kube.FieldManager)
		if err != nil {
			return err
		}
		changes = !same
	}
	if changes {
		p.plan.Apply = desired
	}
	switch {
	case len(missing) > 0:
		p.phase(appliancev1alpha1.ModuleActivationStatusPhaseWaitingForModules, metav1.ConditionFalse,
			conditions.ModuleActivationReasonWaitingForModules, "Waiting for "+strings.Join(missing, ", ")+note)
	case changes:
		p.phase(appliancev1alpha1.ModuleActivationStatusPhaseReconciling, metav1.ConditionFalse,
			conditions.ModuleActivationReasonWaitingForKustomization, "Waiting for Flux to reconcile Kustomization "+p.object(name)+note)
	default:
		p.installed(name, former, note)
	}
	return nil
}

// installed passes on what Flux says of the module's own Kustomization.
func (p *planner) installed(name string, former []*kustomizev1.Kustomization, note string) {
	state := readiness(p.Kustomization)
	message := kube.Sanitize(state.Message)
	if message != "" {
		message = ": " + message
	}
	if state.Outdated {
		message = "" // about something else
	}
	switch {
	case state.Outdated || state.Status == metav1.ConditionUnknown || goesOn(state):
		p.phase(appliancev1alpha1.ModuleActivationStatusPhaseReconciling, metav1.ConditionFalse,
			conditions.ModuleActivationReasonWaitingForKustomization, "Waiting for Flux to reconcile Kustomization "+p.object(name)+message+note)
	case state.Status == metav1.ConditionTrue:
		p.retire(former)
		// Flux puts the revision into its message; ours must not change with it.
		p.phase(appliancev1alpha1.ModuleActivationStatusPhaseReady, metav1.ConditionTrue,
			conditions.ModuleActivationReasonKustomizationReady, "Kustomization "+p.object(name)+" is ready"+p.formerNote(former, "is being removed")+".")
	default:
		p.phase(appliancev1alpha1.ModuleActivationStatusPhaseDegraded, metav1.ConditionFalse,
			kube.ValidReason(state.Reason, conditions.ModuleActivationReasonKustomizationNotReady),
			"Kustomization "+p.object(name)+" is not ready"+message+note)
	}
}

// missing says why a required module does not count as Ready, empty when it does.
//
// running modules are more patient: kustomize-controller sets Ready to Unknown
// at the start of every interval, and a dependency that is merely being looked
// at again must not suspend, and then resume, everything above it.
func (p *planner) missing(requirement Requirement, running bool) string {
	module := requirement.Module
	if module == nil {
		return "not in the module catalog"
	}
	if !module.Static {
		switch activation := requirement.Activation; {
		case activation == nil:
			if taken := requirement.NameTaken; taken != nil {
				return kube.NameTaken(requirement.Key, taken)
			}
			return "being switched on"
		case activation.DeletionTimestamp != nil:
			return "being deleted"
		case !ptr.Deref(activation.Spec.Enabled, true):
			return "disabled"
		}
	}
	name := kustomizationName(*module)
	kustomization := requirement.Kustomization
	switch {
	case kustomization == nil:
		return "Kustomization " + p.object(name) + " does not exist"
	case !module.Static && !owned(kustomization, module.Key):
		return "Kustomization " + p.object(name) + " was made by somebody else"
	case kustomization.DeletionTimestamp != nil:
		return "Kustomization " + p.object(name) + " is being deleted"
	case kustomization.Spec.Suspend && !module.Static:
		return "waits itself"
	}
	state := readiness(kustomization)
	switch {
	case state.Ready():
		return ""
	case running && inProgress(state):
		return ""
	case state.Status == metav1.ConditionFalse:
		return "Kustomization " + p.object(name) + ": " + state.Reason + ": " + kube.Sanitize(state.Message)
	}
	return "Kustomization " + p.object(name) + " is not ready yet"
}

// inProgress is an answer that neither confirms nor denies: Flux is at it, or
// has put it off until what it depends on was looked at.
func inProgress(state kube.Readiness) bool {
	return state.Status == metav1.ConditionUnknown && state.Condition != "" ||
		state.Status == metav1.ConditionTrue && state.Outdated ||
		goesOn(state)
}

// goesOn is a Ready=False that is no failure: kustomize-controller gives these
// reasons while a dependency is being reconciled, while it works itself, and
// when it breaks off waiting because there is something newer to apply.
func goesOn(state kube.Readiness) bool {
	if state.Status != metav1.ConditionFalse {
		return false
	}
	switch state.Reason {
	case meta.DependencyNotReadyReason, meta.ProgressingReason, meta.HealthCheckCanceledReason:
		return true
	}
	return false
}

func readiness(kustomization *kustomizev1.Kustomization) kube.Readiness {
	return kube.ConditionReadiness(kustomization.Status.Conditions, kustomization.Generation, kustomization.Status.ObservedGeneration)
}

// object is how messages name a Kustomization.
func (p *planner) object(name string) string { return p.Settings.FluxNamespace + "/" + name }

func (p *planner) phase(phase appliancev1alpha1.ModuleActivationStatusPhase, status metav1.ConditionStatus, reason, message string) {
	message += p.note
	p.plan.Status.Phase = phase
	p.plan.Status.Message = ptr.To(kube.Truncate(message, kube.MaxStatusMessage))
	p.ready(status, reason, message)
}

func (p *planner) ready(status metav1.ConditionStatus, reason, message string) {
	kube.SetCondition(&p.plan.Status.Conditions, metav1.Condition{
		Type: conditions.ModuleActivationConditionReady, Status: status, Reason: reason, Message: message,
		ObservedGeneration: p.Activation.Generation,
	}, p.Now)
}
