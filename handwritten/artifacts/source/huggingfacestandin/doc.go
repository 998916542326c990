// Package huggingfacestandin stands in for the Hugging Face Hub, as
// https://huggingface.co/docs/hub/api and its client @huggingface/hub describe it:
// whoami, the info of models, the tree with pages, paths-info, and "resolve", which
// sends large files from a second host, behind a redirect with a signature that
// expires. tools/hubclient checks it with the real client.
//
// For tests, benchmarks and a try-out without internet; it listens on loopback.
package huggingfacestandin
