// Package httpserver is what every request to an HTTP API of the product passes
// before it reaches an operation, and every error on its way out. It makes
// spec/http/README.md executable.
//
// In goes a bundled OpenAPI document and the generated table of routes, out
// comes an http.Handler that gives each request an identifier, authenticates the
// caller and checks the role of the route, refuses cross-site changes, enforces the
// size and form of bodies, and checks parameters and bodies against the document. Whatever
// goes wrong, here or in the operation, is answered with a problem document
// (RFC 9457) that never repeats a refused value or a foreign error.
//
// The package also holds the small rules that operations of all APIs share:
// revisions (ETag, If-Match), conditional reads and pages of lists.
//
// Like handwritten/kube it is a room that other rooms may import.
package httpserver
