// Package tenants fences the namespaces that Paperclip makes for its companies.
//
// In: Namespaces that Paperclip's plugin labelled, AppInstances of the
// application paperclip.
// Out: a NetworkPolicy, a ResourceQuota and a LimitRange in each such namespace.
//
// For: the operator who lets a team run agents in sandboxes and wants them to
// reach the model gateway and their Paperclip, nothing else, and to use no more
// than they were given (contract/appliance.md C.5).
//
// plan.go decides and renders (pure), controller.go carries out.
package tenants
