// Package standin is what the stand-ins of model sources share: content that is
// served by ranges, switches for faults, and a record of the requests.
//
// It serves tests, benchmarks and a try-out without internet. It binds loopback
// addresses only, and it is no registry for production.
package standin
