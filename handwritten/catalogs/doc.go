// Package catalogs reads the shipped catalogs - modules, applications, model
// presets, engines and realtime profiles - from the ConfigMaps that hold them at
// run time, and answers the questions that the controllers and the admin API ask
// about them.
//
// A catalog is judged twice: by its JSON Schema (generated/catalogs) and by the
// rules that span several entries, which live here: references that lead
// nowhere, names that collide, dependencies in a circle. A catalog that breaks
// either is refused as a whole, with every breach named by path, rule and value.
//
// The package is pure: bytes or ConfigMaps in, indexes out. Indexes never
// change after parsing and may be shared; callers must not modify the slices
// and maps that they hand out.
//
// Contract: contract/appliance.md D.1 to D.4.
package catalogs
