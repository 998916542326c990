// Package gotypes turns CustomResourceDefinitions into Go API types.
//
// Emit takes definitions and returns files; it touches no disk, so the generator
// step (Generate), the round trip and the tests share it. For every group and
// version it writes doc.go and one types_<kind>.go per kind.
//
// The types say everything that the schema says, in the Go type where Go can say
// it and in standard kubebuilder and code-generator markers where it cannot, so
// that controller-tools makes the same schema from them again (package roundtrip
// is the proof). Keywords for which no standard marker exists, or which the
// standard marker refuses on that node, ride on one marker of our own, see
// KeywordsMarker.
//
// What a type promises beyond the schema: every object that is valid under the
// schema decodes into it and encodes to an equal object. That decides between
// value and pointer (absent and zero must stay apart where both are valid) and is
// why an object with preserved unknown fields has an Extra map.
//
// Type names are the kind and the Go names of the path, so a new CRD renames
// nothing. Structurally identical structs of one kind share the first one's name.
package gotypes
