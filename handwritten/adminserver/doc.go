// Package adminserver puts the parts of cmd/admin together: the instance guard
// with its watch and its keys, health probes, metrics, and an orderly end. It is
// a composition room; it decides nothing.
//
// Every part has an address of its own, so that a NetworkPolicy can leave the
// guard to the gateway alone, and metrics and probes to those who need them.
package adminserver
