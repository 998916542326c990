package activations

import (
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// Plan is what one pass over an activation does, in this order.
type Plan struct {
	// AddFinalizer comes before every side effect.
	AddFinalizer bool
	// Enable are the canonical keys of modules to switch on.
	Enable []string
	// Remove are objects of a runtime that is not wanted any more.
	Remove []client.Object
	// Model, Deployment and Service are to be written; nil when the ones in the
	// cluster say the same.
	Model      *kube.Rendered
	Deployment *appsv1ac.DeploymentApplyConfiguration
	Service    *corev1ac.ServiceApplyConfiguration
	// Replace is a Pod of KubeAI's that has ended for good and that KubeAI does not
	// replace while it is there; nil when there is none.
	Replace *corev1.Pod
	// DropFinalizer lets the activation go; no status is written then.
	DropFinalizer bool
	// Status is the whole new status.
	Status appliancev1alpha1.ModelActivationStatus
	// Next is when to look again although nothing happened; 0 for never.
	Next time.Duration
}

// Compute decides. It is pure: the same facts give the same plan.
func Compute(o Observed) (Plan, error) {
	p := planner{Observed: o, plan: Plan{Status: *o.Activation.Status.DeepCopy()}, state: runtimeState(o)}
	p.plan.Status.ObservedGeneration = ptr.To(o.Activation.Generation)
	if o.Activation.DeletionTimestamp != nil {
		// Before anything that a reference could block.
		p.deleted()
		return p.plan, nil
	}
	p.plan.AddFinalizer = true
	p.remember()
	trouble := ""
	if o.CatalogProblem != "" {
		trouble = "A catalog cannot be used, the last good one holds: " + kube.Sanitize(o.CatalogProblem)
	}
	var err error
	switch {
	case !ptr.Deref(o.Activation.Spec.Enabled, true):
		// Switching off needs no catalog.
		p.disabled()
		trouble = ""
	case o.Resolved == nil && o.Refusal == nil:
		// The last good state stays: phase, runtime and all that runs.
		p.plan = Plan{Status: *o.Activation.Status.DeepCopy()}
		p.plan.Status.ObservedGeneration = ptr.To(o.Activation.Generation)
		trouble = "A catalog cannot be used, everything stays as it is: " + kube.Sanitize(o.CatalogProblem)
	default:
		err = p.enabled()
	}
	if err == nil && firstPass(o.Activation) {
		// Nothing of what this pass does was observed yet, so nothing is claimed.
		p.plan.Status = appliancev1alpha1.ModelActivationStatus{ObservedGeneration: ptr.To(o.Activation.Generation)}
		p.plan.Next = 0
		p.phase(appliancev1alpha1.ModelActivationStatusPhaseReconciling, metav1.ConditionUnknown,
			conditions.ModelActivationReasonReconciling, "The operator has seen the activation and works on it.")
	}
	if trouble != "" {
		p.ready(metav1.ConditionUnknown, conditions.ModelActivationReasonCatalogUnavailable, trouble)
	}
	return p.plan, err
}

// firstPass is true until a status was written.
func firstPass(activation *appliancev1alpha1.ModelActivation) bool {
	return kube.FindCondition(activation.Status.Conditions, conditions.ModelActivationConditionReady) == nil
}

type planner struct {
	Observed
	plan Plan
	// state of the runtime that exists, whatever is wanted.
	state replicas
}

// deleted removes the runtime and lets the activation go when it is gone
// (contract/appliance.md C.6 (1)). Pods that still end are Kubernetes' business.
func (p *planner) deleted() {
	left := p.removeAll()
	if left == "" && p.kubeAIUnknown() {
		left = p.KubeAI.Detail
	}
	if left == "" {
		p.plan.DropFinalizer = true
		return
	}
	p.removing(left)
}

// disabled removes the runtime and waits until nothing of it runs.
func (p *planner) disabled() {
	left := p.removeAll()
	switch {
	case left != "":
	case p.kubeAIUnknown():
		left = p.KubeAI.Detail
	default:
		left = p.ending(func(*corev1.Pod) bool { return true })
	}
	p.nothingRuns()
	p.plan.Status.ArtifactDigest, p.plan.Status.ResolvedFormat = "", ""
	if left != "" {
		p.removing(left)
		return
	}
	p.phase(appliancev1alpha1.ModelActivationStatusPhaseDisabled, metav1.ConditionTrue,
		conditions.ModelActivationReasonDisabled, "The model is switched off.")
}

// kubeAIUnknown tells that there may be a Model that cannot be seen now.
func (p *planner) kubeAIUnknown() bool {
	return !p.external() && (p.KubeAI.Presence == kube.Starting || p.KubeAI.Presence == kube.Unreadable)
}

func (p *planner) external() bool {
	return p.Activation.Spec.Type == appliancev1alpha1.ModelActivationSpecTypeExternal
}

// removeAll plans the removal of whatever the operator made and names what is
// still there, empty for nothing.
func (p *planner) removeAll() string {
	return p.remove(p.Model, p.Deployment, p.Service)
}

// remove plans the removal of those of the objects that are ours.
func (p *planner) remove(objects ...client.Object) string {
	var left []string
	for _, object := range objects {
		if !ours(object, p.Activation.Name) {
			continue
		}
		left = append(left, title(object))
		if object.GetDeletionTimestamp() == nil {
			p.plan.Remove = append(p.plan.Remove, object)
		}
	}
	if len(left) == 0 {
		return ""
	}
	if len(left) == 1 {
		return "Waiting until " + left[0] + " is gone"
	}
	return "Waiting until " + strings.Join(left, " and ") + " are gone"
}

// ending names the first Pod that still holds its devices, empty for none. A
// Model of somebody else keeps its Pods.
func (p *planner) ending(which func(*corev1.Pod) bool) string {
	foreign := !none(p.Model) && !ours(p.Model, p.Activation.Name)
	pods := group(p.Pods, func(pod *corev1.Pod) bool {
		return which(pod) && !(foreign && kubeAIOwner(pod) != nil)
	}).all()
	if len(pods) == 0 {
		return ""
	}
	text := fmt.Sprintf("Waiting until Pod %s/%s has ended", pods[0].Namespace, pods[0].Name)
	if more := len(pods) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func title(object client.Object) string {
	kind := ""
	switch object.(type) {
	case *kubeaiv1.Model:
		kind = "KubeAI Model "
	case *appsv1.Deployment:
		kind = "Deployment "
	case *corev1.Service:
		kind = "Service "
	}
	return kind + object.GetNamespace() + "/" + object.GetName()
}

func (p *planner) removing(message string) {
	p.phase(appliancev1alpha1.ModelActivationStatusPhaseRemoving, metav1.ConditionFalse,
		conditions.ModelActivationReasonRemoving, message)
}

// enabled follows the sequence of contract/appliance.md C.6.
func (p *planner) enabled() error {
	p.runs()
	var refusal *Refusal
	if p.Refusal != nil && !errors.As(p.Refusal, &refusal) {
		return p.Refusal
	}
	if refusal != nil && !waits(refusal) {
		p.refused(refusal)
		return nil
	}
	if missing := p.missingModules(); len(missing) > 0 {
		p.phase(appliancev1alpha1.ModelActivationStatusPhaseWaitingForModules, metav1.ConditionFalse,
			conditions.ModelActivationReasonWaitingForModules, "Waiting for "+strings.Join(missing, ", "))
		return nil
	}
	if p.external() {
		p.listed("The model is external")
		return nil
	}
	if wanted := p.Resolved.Resource; wanted != "" && p.Resolved.Devices > 0 && p.Published[wanted] < 1 && p.state.ready == 0 {
		p.phase(appliancev1alpha1.ModelActivationStatusPhaseWaitingForGPU, metav1.ConditionFalse,
			conditions.ModelActivationReasonWaitingForGPU,
			fmt.Sprintf("No node offers %s, of which a replica needs %d", wanted, p.Resolved.Devices))
		return nil
	}
	if !p.KubeAI.present() && (p.onKubeAI() || p.kubeAIUnknown()) {
		p.phase(appliancev1alpha1.ModelActivationStatusPhaseWaitingForCRDs, metav1.ConditionFalse,
			conditions.ModelActivationReasonWaitingForCRDs, "KubeAI cannot be used: "+p.KubeAI.Detail)
		return nil
	}
	if refusal != nil {
		p.refused(refusal)
		return nil
	}
	return p.local()
}

// waits tells the refusals that say what is not there yet, which is looked at
// after the modules, from those that say what is wrong.
func waits(refusal *Refusal) bool {
	return refusal.Reason == conditions.ModelActivationReasonModelNotReady ||
		refusal.Reason == conditions.ModelActivationReasonKubeAIVersionTooOld
}

func (p *planner) onKubeAI() bool {
	return p.Resolved.Runtime == RuntimeVLLM || p.Resolved.Runtime == RuntimeOLlama
}

// refused leaves what runs as it is: a catalog that changed under a model in
// service, or a slip of the pen, does not take the model away from its users.
func (p *planner) refused(refusal *Refusal) {
	message := refusal.Error()
	if ours(p.Model, p.Activation.Name) || ours(p.Deployment, p.Activation.Name) {
		message = kube.Truncate(message, kube.MaxStatusMessage-len(stays)) + stays
	}
	if refusal.Reason == conditions.ModelActivationReasonModelNotReady {
		p.phase(appliancev1alpha1.ModelActivationStatusPhaseReconciling, metav1.ConditionFalse, refusal.Reason, message)
		return
	}
	p.degraded(refusal.Reason, message)
}

const stays = "; the runtime that exists stays as it is"

func (p *planner) degraded(reason, message string) {
	p.phase(appliancev1alpha1.ModelActivationStatusPhaseDegraded, metav1.ConditionFalse, reason, message)
}

func (p *planner) starting(message string) {
	p.phase(appliancev1alpha1.ModelActivationStatusPhaseStarting, metav1.ConditionFalse,
		conditions.ModelActivationReasonWaitingForReadyReplica, message)
}

// missingModules switches on what nobody asked for and lists what is not Ready.
func (p *planner) missingModules() []string {
	running := p.running()
	var missing []string
	for _, required := range p.Requires {
		if required.ToEnable() {
			p.plan.Enable = append(p.plan.Enable, required.Key)
		}
		if problem := required.Missing(running); problem != "" {
			missing = append(missing, required.Key+" ("+kube.Sanitize(problem)+")")
		}
	}
	return missing
}

// running models have got past their modules already.
func (p *planner) running() bool {
	switch p.Activation.Status.Phase {
	case appliancev1alpha1.ModelActivationStatusPhaseWaitingForModules, "":
		return false
	}
	return p.external() || ours(p.Model, p.Activation.Name) || ours(p.Deployment, p.Activation.Name)
}

// listed is the end of the way: what serves the model is there, and the catalog
// has to say so.
func (p *planner) listed(there string) {
	switch {
	case p.Listing.Listed:
		message := "Model is available in the generated model catalog."
		if p.state.ready < p.state.expected {
			message += " " + p.counts()
		}
		p.phase(appliancev1alpha1.ModelActivationStatusPhaseReady, metav1.ConditionTrue,
			conditions.ModelActivationReasonCatalogReady, message)
	case p.Listing.Problem != "":
		p.waitsForCatalog(there + "; waiting until the generated catalog can be read: " + kube.Sanitize(p.Listing.Problem))
	case p.Listing.Why != "":
		p.waitsForCatalog(there + "; the generated catalog does not list it: " + kube.Sanitize(p.Listing.Why))
	default:
		p.waitsForCatalog(there + "; waiting until the generated catalog lists it")
	}
}

func (p *planner) waitsForCatalog(message string) {
	p.phase(appliancev1alpha1.ModelActivationStatusPhaseReconciling, metav1.ConditionFalse,
		conditions.ModelActivationReasonWaitingForCatalog, message)
}

// counts says how many replicas are ready, and what keeps the others.
func (p *planner) counts() string {
	text := fmt.Sprintf("%d/%d replicas are ready", p.state.ready, p.state.expected)
	if trouble := p.state.trouble(); trouble != "" {
		text += "; " + trouble
	}
	return text
}

// phase sets phase, message and the Ready condition. Phase and reason are a pair
// of spec/conditions.
func (p *planner) phase(phase appliancev1alpha1.ModelActivationStatusPhase, status metav1.ConditionStatus, reason, message string) {
	p.plan.Status.Phase = phase
	p.plan.Status.Message = ptr.To(kube.Truncate(message, kube.MaxStatusMessage))
	p.ready(status, reason, message)
}

func (p *planner) ready(status metav1.ConditionStatus, reason, message string) {
	setReady(&p.plan.Status, p.Activation, status, reason, message, p.Now)
}

func setReady(into *appliancev1alpha1.ModelActivationStatus, activation *appliancev1alpha1.ModelActivation, status metav1.ConditionStatus, reason, message string, now time.Time) {
	// The condition in the activation says since when its status holds.
	into.Conditions = activation.Status.DeepCopy().Conditions
	kube.SetCondition(&into.Conditions, metav1.Condition{
		Type: conditions.ModelActivationConditionReady, Status: status, Reason: reason, Message: message,
		ObservedGeneration: activation.Generation,
	}, now)
}
