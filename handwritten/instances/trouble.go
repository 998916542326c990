package instances

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/kube"
)

// trouble is one thing that is not as it should be.
type trouble struct {
	phase           appliancev1alpha1.AppInstanceStatusPhase
	reason, message string
}

func degraded(reason, message string) trouble {
	return trouble{appliancev1alpha1.AppInstanceStatusPhaseDegraded, reason, message}
}

func underway(reason, message string) trouble {
	return trouble{appliancev1alpha1.AppInstanceStatusPhaseReconciling, reason, message}
}

// installed writes the release and passes on what Flux and the gateway say.
//
// What needs a person comes first and decides phase and reason: a release or a
// route that failed, a policy that the gateway refuses, a namespace that goes
// away. Then comes what passes by itself. The message names everything that
// needs a person, whatever else is not ready.
func (p *planner) installed() error {
	release, ready, err := p.release()
	if err != nil {
		return err
	}
	failures := p.failures()
	waits := p.waits(release)
	switch {
	case len(failures) > 0:
		others := failures[1:]
		if len(waits) > 0 {
			others = append(others, waits[0])
		}
		p.report(failures[0], others...)
	case len(waits) > 0:
		p.report(waits[0], slices.DeleteFunc(waits[1:], func(other trouble) bool {
			return other.reason != conditions.AppInstanceReasonWaitingForNamespace
		})...)
	default:
		p.phase(appliancev1alpha1.AppInstanceStatusPhaseReady, metav1.ConditionTrue, ready, p.releaseTitle()+" is ready.")
	}
	return nil
}

// report shows a trouble, and others behind it.
func (p *planner) report(first trouble, others ...trouble) {
	p.phase(first.phase, metav1.ConditionFalse, first.reason, sentences(first.message, others...))
}

// gate is where an instance waits before anything of it can be judged; what
// fails meanwhile is named first.
func (p *planner) gate(phase appliancev1alpha1.AppInstanceStatusPhase, reason, message string) {
	waiting := trouble{phase, reason, message}
	if failures := p.failures(); len(failures) > 0 {
		message = sentences(failures[0].message, append(failures[1:], waiting)...)
	}
	p.phase(phase, metav1.ConditionFalse, reason, message)
}

// sentences are messages one behind the other.
func sentences(first string, others ...trouble) string {
	parts := make([]string, 0, 1+len(others))
	parts = append(parts, first)
	for _, other := range others {
		parts = append(parts, other.message)
	}
	for i := range parts[:len(parts)-1] {
		parts[i] = strings.TrimSuffix(parts[i], ".")
	}
	return strings.Join(parts, "; ")
}

func (p *planner) releaseTitle() string {
	return "HelmRelease " + p.Instance.Namespace + "/" + p.Instance.Name
}

// release plans the release and says what it waits for, nil for nothing. ready
// is Flux's reason then. That it failed is one of the failures.
func (p *planner) release() (waits *trouble, ready string, err error) {
	title := p.releaseTitle()
	waiting := func(reason, message string) (*trouble, string, error) {
		found := underway(reason, message)
		return &found, "", nil
	}
	if p.Release != nil && p.Release.DeletionTimestamp != nil {
		return waiting(conditions.AppInstanceReasonWaitingForHelmRelease, "Waiting until Flux has removed the former "+title)
	}
	desired, err := p.renderRelease(false)
	if err != nil {
		return nil, "", err
	}
	same := false
	if p.Release != nil {
		if same, err = kube.Unchanged(desired, p.Release, kube.FieldManager); err != nil {
			return nil, "", err
		}
	}
	if !same {
		p.plan.Release = desired
		return waiting(conditions.AppInstanceReasonWaitingForHelmRelease, "Waiting for Flux to reconcile "+title)
	}
	state, message := p.releaseState()
	switch {
	case state.Outdated || state.Status == metav1.ConditionUnknown:
		reason := conditions.AppInstanceReasonWaitingForHelmRelease
		if !state.Outdated && state.Reason == conditions.AppInstanceReasonProgressing {
			reason = conditions.AppInstanceReasonProgressing
		}
		return waiting(reason, "Waiting for Flux to reconcile "+title+message)
	case state.Status == metav1.ConditionFalse && underWay[state.Reason]:
		return waiting(state.Reason, "Flux works on "+title+message)
	}
	return nil, kube.ValidReason(state.Reason, conditions.AppInstanceReasonHelmReleaseReady), nil
}

// releaseState is what Flux says of the release as it is, with its message.
func (p *planner) releaseState() (state kube.Readiness, message string) {
	if p.Release == nil {
		return kube.Readiness{Status: metav1.ConditionUnknown}, ""
	}
	state = kube.ConditionReadiness(p.Release.Status.Conditions, p.Release.Generation, p.Release.Status.ObservedGeneration)
	if text := kube.Sanitize(state.Message); text != "" && !state.Outdated {
		message = ": " + text
	}
	return state, message
}

// underWay are the reasons with which Flux says "not yet" instead of "failed"
// (contract/appliance.md B.3).
var underWay = map[string]bool{
	conditions.AppInstanceReasonProgressing:      true,
	conditions.AppInstanceReasonInstallSucceeded: true,
	conditions.AppInstanceReasonUpgradeSucceeded: true,
}

// failures are the troubles that a person has to see to, the worst first.
func (p *planner) failures() []trouble {
	var found []trouble
	state, message := p.releaseState()
	if state.Status == metav1.ConditionFalse && !state.Outdated && !underWay[state.Reason] &&
		p.Release.DeletionTimestamp == nil && p.plan.Release == nil {
		found = append(found, degraded(kube.ValidReason(state.Reason, conditions.AppInstanceReasonHelmReleaseNotReady),
			p.releaseTitle()+" is not ready"+message))
	}
	if problem := p.refusedRoute(state.Ready()); problem != "" {
		found = append(found, degraded(conditions.AppInstanceReasonRouteNotAccepted, problem))
	}
	for _, s := range p.wanted {
		if s.state.refused {
			found = append(found, underway(conditions.AppInstanceReasonWaitingForAccessGuard, s.state.problem))
		}
	}
	if p.Namespace != nil && p.Namespace.DeletionTimestamp != nil {
		found = append(found, underway(conditions.AppInstanceReasonWaitingForNamespace, "Namespace "+p.targetNamespace()+" is being deleted."))
	}
	return found
}

// waits are the troubles that pass by themselves, what the others wait for first.
func (p *planner) waits(release *trouble) []trouble {
	var found []trouble
	if release != nil {
		found = append(found, *release)
	}
	if p.Namespace == nil {
		// Flux makes it with the release.
		found = append(found, underway(conditions.AppInstanceReasonWaitingForNamespace, "Namespace "+p.targetNamespace()+" does not exist."))
	}
	for _, s := range p.wanted {
		if !s.state.accepted && !s.state.refused {
			found = append(found, underway(conditions.AppInstanceReasonWaitingForAccessGuard, s.state.problem))
		}
	}
	if p.guarded && (p.closed || !p.granted) {
		found = append(found, underway(conditions.AppInstanceReasonWaitingForAccessGuard, "The guard is accepted; the routes are being opened."))
	}
	return found
}

// refusedRoute is why the gateway refuses a route as it is now; empty when it
// does not. Silence is no refusal, nor is the absence of a Service that the
// release is still to bring.
func (p *planner) refusedRoute(installed bool) string {
	names := make([]string, 0, len(p.Routes))
	for name := range p.Routes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		route := p.Routes[name]
		asked := []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted}
		if hasBackend(route) && installed {
			asked = append(asked, gatewayv1.RouteConditionResolvedRefs)
		}
		for _, parent := range route.Status.Parents {
			if string(parent.ParentRef.Name) != p.Settings.Gateway {
				continue
			}
			for _, condition := range asked {
				found := kube.FindCondition(parent.Conditions, string(condition))
				if found != nil && found.Status == metav1.ConditionFalse && found.ObservedGeneration == route.Generation {
					return "HTTPRoute " + route.Namespace + "/" + name + " is refused by the gateway: " + found.Reason + ": " + kube.Sanitize(found.Message)
				}
			}
		}
	}
	return ""
}
