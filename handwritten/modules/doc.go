// Package modules turns ModuleActivations into Flux Kustomizations.
//
// In: ModuleActivation (what a person or the operator wants), the module
// catalog (how a module is installed and what it needs), Appliance (where the
// manifests come from), Kustomizations (what Flux says).
// Out: one Kustomization per activation in Flux's namespace, activations for
// required modules that nobody asked for yet, ModuleActivation.status.
//
// For: the person who switches capabilities on and off and wants to read, on
// one object, why one is not there (contract/appliance.md A4, A5). A module
// that waits is suspended, never deleted; only an explicit false, or deleting
// the activation, takes it out of the cluster.
//
// What the operator did not make for the module is never changed or deleted,
// whatever its name.
//
// observe.go collects the facts, ownership.go tells ours from others', plan.go
// decides (pure), handover.go decides over a change of the Kustomization's name,
// render.go writes the Kustomization, controller.go carries out.
package modules
