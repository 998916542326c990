// Package fetch asks foreign HTTP servers for model files without trusting them
// (contract/models.md C.3, hardening, and G.1).
//
// In: URLs that a provider made. Out: answers with bounded bodies, after retries
// with growing pauses, Retry-After, and redirects that are followed only to
// allowed hosts, over https, without credentials.
//
// client.go sends, redirect.go decides where a redirect may lead, guard.go where a
// connection may lead, and remote.go makes a file that is read by ranges and
// notices when its content changes.
package fetch
