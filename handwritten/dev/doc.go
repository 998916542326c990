// Package dev is `magicstick dev`: everything of the product on one machine,
// for a person who tries it out or works on it.
//
// In: nothing, or a kubeconfig. Out: a real control plane with the product's
// CRDs, shipped catalogs and example objects, the operator running in this
// process, an OCI registry, on request Flux's own controllers with a small Git
// source, and a table of all objects that stays up to date. Flux, KubeAI and
// LiteLLM are played where they do not run, never on the cluster of a
// kubeconfig, and the screen says that no model runs.
//
// It is a composition room: it may import the other rooms.
package dev
