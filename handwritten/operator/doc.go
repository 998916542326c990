// Package operator puts all controllers into one manager. cmd/operator runs it
// as a process of its own, "magicstick dev" inside another.
//
// It is a composition room: it may import the other rooms, and what they may
// not know of one another is joined here.
package operator
