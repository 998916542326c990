package instances

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"
	gatewayv1beta1ac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1beta1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	envoyac "magicstick.dev/operator/generated/external/envoy/applyconfiguration/api/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// Verb is what a Step does.
type Verb string

// The verbs. Steps on policies are carried out only after the API server was
// asked whether the routes have a backend, and OpenRoute only after it was
// asked whether the policy is accepted.
const (
	// ApplyGrant lets the gateway's routes reach the Service.
	ApplyGrant Verb = "ApplyGrant"
	// RemoveGrant takes that back.
	RemoveGrant Verb = "RemoveGrant"
	// CloseRoute writes a route without a backend.
	CloseRoute Verb = "CloseRoute"
	// OpenRoute writes a route with its backend.
	OpenRoute Verb = "OpenRoute"
	// WithdrawBackend takes the backend from a route that cannot be rendered.
	WithdrawBackend Verb = "WithdrawBackend"
	// RemoveRoute deletes a route.
	RemoveRoute Verb = "RemoveRoute"
	// ApplyPolicy writes a policy.
	ApplyPolicy Verb = "ApplyPolicy"
	// ReplacePolicy deletes a policy to which somebody added fields; it is written anew.
	ReplacePolicy Verb = "ReplacePolicy"
	// ReleasePolicy lets a policy go that somebody deleted.
	ReleasePolicy Verb = "ReleasePolicy"
	// RemovePolicy deletes a policy.
	RemovePolicy Verb = "RemovePolicy"
)

// shuts tells the verbs after which a route has no backend.
func (v Verb) shuts() bool { return v == CloseRoute || v == WithdrawBackend || v == RemoveRoute }

// Step is one call on an object of the gateway.
type Step struct {
	Do   Verb
	Name string
	// Routes that must have no backend before a policy is touched.
	Routes []string
	// Policy is the one to write; with OpenRoute the one that must be accepted,
	// and Mark the version of it that the route was written for.
	Policy *envoyac.SecurityPolicyApplyConfiguration
	Mark   string
	Route  *gatewayac.HTTPRouteApplyConfiguration
	Grant  *gatewayv1beta1ac.ReferenceGrantApplyConfiguration
}

// side is one address of an instance with all that belongs to it.
type side struct {
	key                              string
	host, callbackHost, cookieDomain string
	route, policy                    string
	callback                         string // empty without single sign-on
	rendered                         *envoyac.SecurityPolicyApplyConfiguration
	// mark is what the side's routes carry when they were written for its policy
	// as it is wanted and as it is.
	mark  string
	state guardState
}

// routes are the names of the side's routes that are wanted.
func (s *side) routes() []string {
	if s.callback == "" {
		return []string{s.route}
	}
	return []string{s.route, s.callback}
}

// sides are the addresses that the instance should have.
func (p *planner) sides() ([]*side, error) {
	local, public := p.hosts()
	wanted := []*side{{key: suffixLocal, host: local, callbackHost: p.Domains.MDNS, cookieDomain: p.Domains.MDNS}}
	if p.exposure() == appliancev1alpha1.AppInstanceSpecAccessExposureLocalAndPublic {
		wanted = append(wanted, &side{key: suffixPublic, host: public, callbackHost: p.Domains.Dashboard, cookieDomain: p.Domains.Public})
	}
	for _, s := range wanted {
		s.route = objectName(p.Instance.Name, s.key)
		s.policy = objectName(p.Instance.Name, s.key+suffixPolicy)
		if p.authentication() == appliancev1alpha1.AppInstanceSpecAccessAuthenticationSSO {
			s.callback = objectName(p.Instance.Name, s.key+suffixCallback)
		}
		s.rendered = p.renderPolicy(s)
		var err error
		if s.mark, err = mark(s.rendered, p.Policies[s.policy]); err != nil {
			return nil, err
		}
		if !p.Kinds.Policy.present() {
			s.state = guardState{problem: "SecurityPolicy " + p.Settings.IdentityNamespace + "/" + s.policy + " cannot be used: " + p.Kinds.Policy.Detail}
			continue
		}
		if s.state, err = judge(s.rendered, p.Policies[s.policy], p.Settings.Gateway, p.Settings.IdentityNamespace); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

// access plans what leads to the instance. With renderable false the routes
// cannot be written, because the catalog or a value is missing; what exists
// stays, but is closed as soon as its guard is not in order.
func (p *planner) access(renderable bool) error {
	sides, err := p.sides()
	if err != nil {
		return err
	}
	p.removeAccess(sides)
	if !renderable {
		sides = slices.DeleteFunc(sides, p.untouched)
	}
	p.wanted = sides
	p.guarded = len(sides) > 0 && !slices.ContainsFunc(sides, func(s *side) bool { return !s.state.accepted })
	if renderable {
		if err := p.grant(); err != nil {
			return err
		}
	}
	for _, s := range sides {
		if err := p.routesOf(s, renderable); err != nil {
			return err
		}
		p.policyOf(s)
	}
	return nil
}

// untouched sides have nothing that needs a guard.
func (p *planner) untouched(s *side) bool {
	return p.Policies[s.policy] == nil && !slices.ContainsFunc(s.routes(), func(name string) bool { return p.Routes[name] != nil })
}

func (p *planner) grant() error {
	if !p.Kinds.Grant.present() || p.Namespace == nil || p.Namespace.DeletionTimestamp != nil {
		return nil
	}
	desired := p.renderGrant()
	if p.Grant != nil && p.Grant.DeletionTimestamp == nil {
		same, err := kube.Unchanged(desired, p.Grant, kube.FieldManager)
		if err != nil {
			return err
		}
		p.granted = same
	}
	if !p.granted {
		p.step(Step{Do: ApplyGrant, Name: *desired.Name, Grant: desired})
	}
	return nil
}

// routesOf opens the routes of a side when its guard is accepted, and closes
// them when it is not.
//
// A side that was open stays open while its own policy is in order; a closed
// one opens when all policies of the instance are, so that a new instance
// appears everywhere at once.
func (p *planner) routesOf(s *side, renderable bool) error {
	if !p.Kinds.Route.present() {
		return nil
	}
	for _, name := range s.routes() {
		current := p.Routes[name]
		if !renderable {
			if hasBackend(current) && !s.state.accepted {
				p.closed = true
				p.step(Step{Do: WithdrawBackend, Name: name})
			}
			continue
		}
		if current != nil && current.DeletionTimestamp != nil {
			p.closed = true
			if hasBackend(current) && !s.state.accepted {
				p.step(Step{Do: WithdrawBackend, Name: name})
			}
			continue
		}
		mayOpen := s.state.accepted && (hasBackend(current) || p.guarded && p.granted && current != nil) &&
			current.Annotations[annotationGuard] == s.mark
		desired := p.renderRoute(s, name, mayOpen)
		if current != nil {
			same, err := kube.Unchanged(desired, current, kube.FieldManager)
			if err != nil {
				return err
			}
			if same {
				p.closed = p.closed || !mayOpen
				continue
			}
		}
		p.closed = true
		if mayOpen {
			p.step(Step{Do: OpenRoute, Name: name, Route: desired, Policy: s.rendered, Mark: s.mark})
		} else {
			p.step(Step{Do: CloseRoute, Name: name, Route: desired})
		}
	}
	return nil
}

func (p *planner) policyOf(s *side) {
	step := Step{Name: s.policy, Policy: s.rendered, Routes: []string{s.route, objectName(p.Instance.Name, s.key+suffixCallback)}}
	live := p.Policies[s.policy]
	switch {
	case !p.Kinds.Policy.present():
		// The CRD may be on its way out, and waits for our finalizer.
		if p.Kinds.Policy.Presence == kube.Absent {
			step.Do, step.Policy = ReleasePolicy, nil
			p.step(step)
		}
		return
	case live != nil && live.DeletionTimestamp != nil:
		if !slices.Contains(live.Finalizers, finalizerGuard) {
			return
		}
		step.Do, step.Policy = ReleasePolicy, nil
	case s.state.rendered:
		return
	case s.state.extended:
		step.Do = ReplacePolicy
	default:
		step.Do = ApplyPolicy
	}
	p.step(step)
}

// removeAccess plans the removal of everything but the wanted sides: routes,
// then policies, then, with no side at all, the grant. It reports whether
// nothing is left.
func (p *planner) removeAccess(wanted []*side) bool {
	keep := map[string]bool{}
	for _, s := range wanted {
		keep[s.policy] = true
		for _, route := range s.routes() {
			keep[route] = true
		}
	}
	gone := true
	var policies []Step
	for _, suffix := range []string{suffixLocal, suffixPublic} {
		var routes []string
		for _, name := range []string{objectName(p.Instance.Name, suffix), objectName(p.Instance.Name, suffix+suffixCallback)} {
			routes = append(routes, name)
			if route := p.Routes[name]; route != nil && !keep[name] && p.ours(route) {
				gone = false
				if route.DeletionTimestamp == nil {
					p.step(Step{Do: RemoveRoute, Name: name})
				} else if hasBackend(route) {
					p.step(Step{Do: WithdrawBackend, Name: name})
				}
			}
		}
		name := objectName(p.Instance.Name, suffix+suffixPolicy)
		if policy := p.Policies[name]; policy != nil && !keep[name] && p.ours(policy) {
			gone = false
			policies = append(policies, Step{Do: RemovePolicy, Name: name, Routes: routes})
		} else if p.Kinds.Policy.Presence == kube.Absent && !keep[name] {
			policies = append(policies, Step{Do: ReleasePolicy, Name: name, Routes: routes})
		}
	}
	for _, policy := range policies {
		p.step(policy)
	}
	if len(wanted) == 0 && p.Grant != nil && p.ours(p.Grant) {
		gone = false
		if p.Grant.DeletionTimestamp == nil {
			p.step(Step{Do: RemoveGrant, Name: p.Grant.Name})
		}
	}
	return gone
}

// ours tells the operator's objects for this instance from those of people.
func (p *planner) ours(object metav1.Object) bool {
	labels := object.GetLabels()
	if labels[kube.LabelManagedBy] == kube.ManagedByOperator && labels[kube.LabelInstance] == p.Instance.Name {
		return true
	}
	for _, entry := range object.GetManagedFields() {
		if entry.Manager == kube.FieldManager && entry.Subresource == "" {
			return true
		}
	}
	return false
}

// exists reports whether anything leads to the instance, or was meant to.
func (p *planner) exists() bool { return len(p.Routes)+len(p.Policies) > 0 }

func (p *planner) step(step Step) { p.plan.Access = append(p.plan.Access, step) }
