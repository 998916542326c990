package instances

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"
	gatewayv1beta1ac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1beta1"
)

const (
	// annotationMDNS tells kdns to announce the host names of a route.
	annotationMDNS = "lab42.io/mdns.enabled"
	// annotationGuard is the mark of the policy that a route was last written for:
	// what is wanted of it, and which version of which object it was. It changes
	// before the policy does, and once more when the policy has changed, so that a
	// write with a backend that is still on its way fails on the route's resource
	// version.
	annotationGuard = "appliance.magicstick.dev/access-guard"
	// listener is the one with TLS; the other only redirects (contract/appliance.md H12).
	listener = "https"
	// noTimeout keeps streams open.
	noTimeout = "0s"
)

// backend is the Service behind an instance.
type backend struct {
	service, namespace string
	port               int32
}

// route is what an HTTPRoute is rendered from. Defaults of the CRD are written
// out, so that the cached route can be compared.
func (p *planner) renderRoute(s *side, name string, open bool) *gatewayac.HTTPRouteApplyConfiguration {
	callback := name == s.callback
	rule := gatewayac.HTTPRouteRule()
	host, match := s.host, gatewayac.HTTPPathMatch().WithType(gatewayv1.PathMatchPathPrefix).WithValue("/")
	if callback {
		host, match = s.callbackHost, gatewayac.HTTPPathMatch().WithType(gatewayv1.PathMatchExact).WithValue(callbackPath(s.route))
	}
	rule.WithMatches(gatewayac.HTTPRouteMatch().WithPath(match))
	if !callback && p.Application.Route.StripCookies {
		rule.WithFilters(gatewayac.HTTPRouteFilter().
			WithType(gatewayv1.HTTPRouteFilterRequestHeaderModifier).
			WithRequestHeaderModifier(gatewayac.HTTPHeaderFilter().WithRemove("Cookie")))
	}
	if !callback && p.Application.Route.RequestTimeout != "" {
		rule.WithTimeouts(gatewayac.HTTPRouteTimeouts().WithRequest(noTimeout))
	}
	if open {
		rule.WithBackendRefs(gatewayac.HTTPBackendRef().
			WithGroup("").WithKind("Service").
			WithName(gatewayv1.ObjectName(p.backend.service)).
			WithNamespace(gatewayv1.Namespace(p.backend.namespace)).
			WithPort(p.backend.port).
			WithWeight(1))
	}
	annotations := map[string]string{annotationGuard: s.mark}
	if name == s.route && s.key == suffixLocal {
		annotations[annotationMDNS] = "true"
	}
	return gatewayac.HTTPRoute(name, p.Settings.IdentityNamespace).
		WithLabels(p.labels()).
		WithAnnotations(annotations).
		WithSpec(gatewayac.HTTPRouteSpec().
			WithParentRefs(gatewayac.ParentReference().
				WithGroup(gatewayv1.GroupName).WithKind("Gateway").
				WithName(gatewayv1.ObjectName(p.Settings.Gateway)).
				WithSectionName(listener)).
			WithHostnames(gatewayv1.Hostname(host)).
			WithRules(rule))
}

// renderGrant lets routes of the gateway's namespace reach the Service, and
// nothing else in the namespace.
func (p *planner) renderGrant() *gatewayv1beta1ac.ReferenceGrantApplyConfiguration {
	return gatewayv1beta1ac.ReferenceGrant(objectName(p.Instance.Name, suffixGrant), p.targetNamespace()).
		WithLabels(p.labels()).
		WithSpec(gatewayac.ReferenceGrantSpec().
			WithFrom(gatewayac.ReferenceGrantFrom().
				WithGroup(gatewayv1.GroupName).WithKind("HTTPRoute").
				WithNamespace(gatewayv1.Namespace(p.Settings.IdentityNamespace))).
			WithTo(gatewayac.ReferenceGrantTo().
				WithGroup("").WithKind("Service").WithName(gatewayv1.ObjectName(p.backend.service))))
}

// hasBackend reports whether a route leads anywhere. A mirrored request leads
// somewhere, too.
func hasBackend(route *gatewayv1.HTTPRoute) bool {
	if route == nil {
		return false
	}
	for _, rule := range route.Spec.Rules {
		if len(rule.BackendRefs) > 0 || slices.ContainsFunc(rule.Filters, mirrors) {
			return true
		}
	}
	return false
}

func mirrors(filter gatewayv1.HTTPRouteFilter) bool {
	return filter.Type == gatewayv1.HTTPRouteFilterRequestMirror || filter.RequestMirror != nil
}

// withoutBackends is a copy of a route that leads nowhere.
func withoutBackends(route *gatewayv1.HTTPRoute) *gatewayv1.HTTPRoute {
	closed := route.DeepCopy()
	for i := range closed.Spec.Rules {
		rule := &closed.Spec.Rules[i]
		rule.BackendRefs = nil
		rule.Filters = slices.DeleteFunc(rule.Filters, mirrors)
	}
	return closed
}
