// Package fluxstandin plays Flux's kustomize-controller, for `magicstick dev`
// without Flux.
//
// In: Kustomizations, and the folders that their paths name, from memory instead
// of a source. Out: the objects of these folders, and what Flux says about them:
// the Ready condition with Flux's reasons, the revision, the inventory.
//
// It keeps to what Flux does as far as the operator and a person can see it:
// suspended Kustomizations rest, those that depend on others wait for them,
// variables are replaced, what left the folder is pruned, the finalizer holds
// a Kustomization until its objects are gone, health checks of CRDs are waited
// for. Real Flux can take its objects over: labels, inventory and finalizer are
// Flux's. What it does not: sources, decryption, patches, components, images,
// repair of objects that somebody changed by hand.
package fluxstandin
