// Package instances turns AppInstances into running, reachable and guarded
// applications.
//
// In: AppInstance (what a person wants and for whom), the application catalog
// (how an application is installed and reached), the module catalog and
// ModuleActivations (what it needs), Appliance (where the charts come from),
// the appliance's settings (its domains), and what Flux and the gateway say.
// Out: one HelmRelease, HTTPRoutes, SecurityPolicies and a ReferenceGrant per
// instance, activations for required modules that nobody asked for yet,
// AppInstance.status.
//
// For: the operator who gives a team an application at its own address, and the
// team, into which nobody else gets (contract/appliance.md A2, A3).
//
// The rule that everything here serves: a route has a backend only while the
// gateway has accepted the policy in front of it as it is written now. A policy
// is touched only when the API server has confirmed that its routes have no
// backend, and carries a finalizer, so that this holds when a person deletes it
// as well (contract/appliance.md C.4). A route is opened for one generation of one
// policy object, which it names; the write fails when either has changed. What
// cannot be told apart is an answer that the gateway computed for a former policy
// of the same name and generation and writes to its successor: answers name no
// object.
//
// observe.go collects the facts, plan.go, requirements.go, access.go and
// trouble.go decide (pure), release.go, routes.go and policies.go render,
// controller.go and carryout.go carry out.
package instances
