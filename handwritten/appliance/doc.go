// Package appliance keeps the Appliance, the one object that tells the whole
// state of the box.
//
// In: Appliance.spec (the defaults that Git owns), ModuleActivations,
// AppInstances and ModelActivations with their status, the catalogs.
// Out: ModuleActivations for enabled defaults that nobody has asked for yet,
// Appliance.status: phase, one condition, and one row per module, instance and
// model.
//
// For: the person who asks "is everything well, and if not, what is the first
// thing to look at" (contract/appliance.md A4). Runtime objects win over the
// defaults: an activation that exists, also a disabled one, is never changed.
// One that was deleted is missing and therefore seeded again; to keep a default
// module off, it is disabled.
//
// seed.go and plan.go decide (pure), controller.go carries out.
package appliance
