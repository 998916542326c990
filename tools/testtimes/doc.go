// Package testtimes is the script that `make test` runs: `go test`, followed by
// how long each part of the product took.
package testtimes
