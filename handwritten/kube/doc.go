// Package kube holds what every controller of the operator does the same way:
// conditions that move only when they must, status patches that are skipped
// when nothing changed, server-side apply that is skipped when the cached child
// already says what is rendered, finalizers, events, the reading of other
// programs' readiness, and watches on kinds whose CRD may come and go.
//
// It knows Kubernetes and the names that our objects share. It knows no
// catalog and decides nothing about a kind.
package kube
