// Package controlplane runs a real Kubernetes control plane - etcd,
// kube-apiserver and, when asked, kube-controller-manager - as child processes
// of the calling program, without root and without a container runtime.
//
// It serves two people: whoever types `magicstick dev`, and whoever writes a
// test that needs the answers of a real API server (see controlplanetest).
//
// In: a folder with the binaries (KUBEBUILDER_ASSETS, else .bin/controlplane of
// the repository, which `make controlplane` fills). Out: a rest.Config, a
// kubeconfig file, and the promise that no process outlives the caller, even
// when the caller is killed with SIGKILL.
//
// Everything listens on 127.0.0.1 only and every connection, also the one to
// etcd, is authenticated by a certificate of an authority made at each start.
package controlplane
