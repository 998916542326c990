// Package httpapi turns the OpenAPI documents of spec/http into code: for each
// spec/http/<name>.openapi.yaml it writes generated/httpapi/<name> (bundled
// document, models, strict net/http server, client, table of routes with roles)
// and generated/docs/http-<name>.md. What all documents share, the problem
// schema and the roles, becomes the package generated/httpapi.
//
// A document is first bundled: references into conventions.yaml and into the
// CRDs of spec/crds are resolved, and every CRD becomes one component that is
// bound to the Go type in generated/apis. Then it is checked against the
// conventions of spec/http/README.md. Every finding names the file and the JSON
// path; nothing is written unless all documents are clean.
package httpapi
