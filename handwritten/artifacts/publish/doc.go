// Package publish makes one verified OCI artifact of a source of model files: it
// plans the layers, streams them into a registry, and pushes the two manifests
// over them (DESIGN.md, section 6).
//
// In: a source.Snapshot, a repository and a tag. Out: a Result with the digests
// of both manifests, after the registry confirmed every blob and gave both
// manifests back. Nothing is tagged before every byte was compared with what its source promised.
//
// It is for "magicstick publish", for the Jobs that the operator starts and, in
// "magicstick dev", for the operator itself. All of them go on where an earlier
// attempt with the same State stopped.
package publish
