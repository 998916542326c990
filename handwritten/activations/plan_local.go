package activations

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/kube"
)

// local brings the runtime of a model into being and follows it. What is wanted
// is there at most once: the objects of another runtime, and the Pods that hold
// its devices, are gone before anything of this one is made (field report D6).
func (p *planner) local() error {
	if conflict := p.conflict(); conflict != "" {
		p.degraded(conditions.ModelActivationReasonRuntimeConflict, conflict)
		return nil
	}
	advice, err := Preflight(p.Resolved, NodesFrom(p.Nodes))
	var refusal *Refusal
	if err != nil && !errors.As(err, &refusal) {
		return err
	}
	changes, err := p.changes()
	if err != nil {
		return err
	}
	if refusal != nil && changes {
		p.forgetChanges()
		p.refused(refusal)
		return nil
	}
	if wait := p.former(); wait != "" && changes {
		p.forgetChanges()
		p.starting(wait)
		return nil
	}
	if refusal != nil {
		// What was made before the nodes changed is kept, and told.
		advice = sentence(refusal.Rule)
	}
	if p.onKubeAI() {
		p.kubeAI(changes)
	} else {
		p.direct()
	}
	p.advise(advice)
	return nil
}

// conflict says which object of somebody else stands in the way; empty when none
// does.
func (p *planner) conflict() string {
	wanted := []client.Object{p.Deployment, p.Service}
	if p.onKubeAI() {
		wanted = []client.Object{p.Model}
	}
	for _, object := range wanted {
		if !none(object) && !ours(object, p.Activation.Name) {
			return title(object) + " has the name that the runtime needs and " + whose(object) +
				", so it is left as it is. Delete it, or name the activation differently"
		}
	}
	return ""
}

// former removes the runtime that the activation had before and says what is
// still waited for, empty for nothing.
func (p *planner) former() string {
	objects := []client.Object{p.Model}
	if p.onKubeAI() {
		objects = []client.Object{p.Deployment, p.Service}
	}
	if left := p.remove(objects...); left != "" {
		return left + ", before the runtime " + string(p.Resolved.Runtime) + " is made"
	}
	kubeAI := p.onKubeAI()
	if left := p.ending(func(pod *corev1.Pod) bool { return (kubeAIOwner(pod) != nil) != kubeAI }); left != "" {
		return left + ", before the runtime " + string(p.Resolved.Runtime) + " is made"
	}
	for _, object := range []client.Object{p.Model, p.Deployment, p.Service} {
		if !none(object) && object.GetDeletionTimestamp() != nil && ours(object, p.Activation.Name) {
			return "Waiting until the former " + title(object) + " is gone"
		}
	}
	return ""
}

// changes plans what has to be written and tells whether that is anything.
func (p *planner) changes() (bool, error) {
	objects := EngineOf(p.Resolved).Render(p.Resolved, p.Settings)
	if objects.Model != nil {
		desired := kube.Render(objects.Model)
		same, err := unchanged(desired, p.Model)
		if err != nil || same {
			return false, err
		}
		if p.Model != nil {
			desired.WithResourceVersion(p.Model.ResourceVersion)
		}
		p.plan.Model = desired
		return true, nil
	}
	same, err := unchanged(objects.Deployment, p.Deployment)
	if err != nil {
		return false, err
	}
	if !same {
		if p.Deployment != nil {
			objects.Deployment.WithResourceVersion(p.Deployment.ResourceVersion)
		}
		p.plan.Deployment = objects.Deployment
	}
	if same, err = unchanged(objects.Service, p.Service); err != nil {
		return false, err
	}
	if !same {
		if p.Service != nil {
			objects.Service.WithResourceVersion(p.Service.ResourceVersion)
		}
		p.plan.Service = objects.Service
	}
	return p.plan.Deployment != nil || p.plan.Service != nil, nil
}

// unchanged tells that an object exists, stays and says what is rendered.
func unchanged(desired any, current client.Object) (bool, error) {
	if none(current) || current.GetDeletionTimestamp() != nil {
		return false, nil
	}
	return kube.Unchanged(desired, current, kube.FieldManager)
}

func (p *planner) forgetChanges() { p.plan.Model, p.plan.Deployment, p.plan.Service = nil, nil, nil }

// kubeAI follows a Model of KubeAI and its Pods (contract/appliance.md C.6).
func (p *planner) kubeAI(changes bool) {
	status := &p.plan.Status
	if p.Model == nil {
		status.PodCreation, status.PodRecovery = nil, nil
		p.phase(appliancev1alpha1.ModelActivationStatusPhaseWaitingForPod, metav1.ConditionFalse,
			conditions.ModelActivationReasonWaitingForPod, p.waitingForPod())
		return
	}
	if changes {
		// The Model's next generation is what timer and recovery will be about.
		p.followChange()
		return
	}
	revision, pods := revisionOf(p.Model, p.Activation), p.state.pods
	again := recoverPods(status.PodRecovery, revision, pods.terminal, p.state.ready >= p.state.expected, p.Now)
	status.PodRecovery, p.plan.Replace = again.status, again.remove
	p.wake(again.wait)
	if len(pods.live)+len(pods.terminal) > 0 {
		status.PodCreation = nil
	}
	switch {
	case p.state.ready > 0:
		p.serving()
	case again.exhausted:
		p.degraded(conditions.ModelActivationReasonModelPodRecoveryExhausted,
			fmt.Sprintf("%d Pods have ended and were replaced without success. The first: %s", maxRecoveries, ptr.Deref(status.PodRecovery.Failure, "")))
	case len(pods.terminal) > 0 && again.status != nil:
		p.starting(fmt.Sprintf("%s; the operator replaces it, attempts so far: %d of %d", p.counts(), again.status.Attempts, maxRecoveries))
	case len(pods.live) > 0:
		p.starting(p.counts())
	default:
		p.noPod(revision)
	}
}

// followChange describes a Model that was about something else until now. Its
// Pods serve until KubeAI replaces them.
func (p *planner) followChange() {
	switch pods := p.state.pods; {
	case p.state.ready > 0:
		p.serving()
	case len(pods.live)+len(pods.terminal) > 0:
		p.starting(p.counts())
	default:
		p.phase(appliancev1alpha1.ModelActivationStatusPhaseWaitingForPod, metav1.ConditionFalse,
			conditions.ModelActivationReasonWaitingForPod, p.waitingForPod())
	}
}

func (p *planner) noPod(revision string) {
	status := &p.plan.Status
	creation, left := podCreation(status.PodCreation, revision, p.Now)
	status.PodCreation = creation
	message := p.waitingForPod()
	if pods := p.state.pods.ending; len(pods) > 0 {
		message += "; Pod " + pods[0].Namespace + "/" + pods[0].Name + " is still being deleted"
	}
	if left <= 0 {
		p.degraded(conditions.ModelActivationReasonModelPodCreationStalled, message+
			"; there was none for 2 minutes. KubeAI's log says why: an unknown resource profile, or a patch that does not fit")
		return
	}
	p.wake(left)
	p.phase(appliancev1alpha1.ModelActivationStatusPhaseWaitingForPod, metav1.ConditionFalse,
		conditions.ModelActivationReasonWaitingForPod, message)
}

func (p *planner) waitingForPod() string {
	return "Waiting until KubeAI makes a Pod for Model " + p.Resolved.Namespace + "/" + p.Resolved.Name
}

// direct follows a Deployment. There is no timer and no recovery: a Deployment
// replaces its Pods itself (contract/rulings.md 2).
func (p *planner) direct() {
	p.plan.Status.PodCreation, p.plan.Status.PodRecovery = nil, nil
	switch {
	case p.plan.Deployment != nil:
		// It takes its Pod away before it makes another one.
		p.starting("0/1 replicas are ready")
	case p.state.ready > 0:
		p.serving()
	default:
		p.starting(p.counts())
	}
}

func (p *planner) serving() {
	p.listed(p.counts())
}

// runs takes over into the status what the replicas that exist tell.
func (p *planner) runs() {
	status := &p.plan.Status
	mine := ours(p.Model, p.Activation.Name) || ours(p.Deployment, p.Activation.Name)
	if !mine {
		p.nothingRuns()
		return
	}
	status.Replicas = &appliancev1alpha1.ModelActivationStatusReplicas{
		Ready: int32(p.state.ready), Expected: int32(p.state.expected), //nolint:gosec // counts of Pods
	}
	status.EffectiveKVCacheType = ""
	ready := p.state.pods.ready()
	if p.state.ready == 0 || len(ready) == 0 {
		status.MemoryUsage = nil
		return
	}
	if ours(p.Model, p.Activation.Name) && p.Model.Spec != nil {
		status.EffectiveKVCacheType = effectiveIn(ready[0], p.Model.Spec.Engine)
	}
	status.MemoryUsage = steady(status.MemoryUsage, p.Memory)
}

// nothingRuns clears what only replicas can tell.
func (p *planner) nothingRuns() {
	status := &p.plan.Status
	status.Replicas, status.MemoryUsage, status.EffectiveKVCacheType = nil, nil, ""
	status.PodCreation, status.PodRecovery = nil, nil
}

// advise appends advice to the message of a model that starts or serves.
func (p *planner) advise(advice string) {
	if advice == "" || p.plan.Status.Message == nil {
		return
	}
	condition := kube.FindCondition(p.plan.Status.Conditions, conditions.ModelActivationConditionReady)
	p.phase(p.plan.Status.Phase, condition.Status, condition.Reason, sentence(condition.Message)+" "+advice)
}

// wake asks for another look, at the earliest time that anybody wants one.
func (p *planner) wake(after time.Duration) {
	if after > 0 && (p.plan.Next == 0 || after < p.plan.Next) {
		p.plan.Next = after
	}
}
