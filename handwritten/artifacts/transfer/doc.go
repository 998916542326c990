// Package transfer brings the bytes of a source into an OCI registry: each byte is
// read once, hashed and sent on the way, and nothing is kept on disk.
//
// In go blobs whose bytes can be read from any offset, and a Target; out come
// their digests, after the registry confirmed each of them. The source's promised
// digest of every file is checked before the blob is committed.
//
// Several blobs are under way at once. Every blob is a pipeline: reading, hashing of
// the blob, hashing of the file, sending, with a fixed number of blocks between the
// stages. The memory bound is Parallel * Blocks * BlockSize (16 MiB with the defaults), and the
// buffers of two connections per blob; the size of the model plays no part.
//
// A broken connection, an error of the registry and a killed process all end the same way: the
// registry is asked how many bytes of the upload it has, the hash goes on
// at its last checkpoint, and only the bytes that one of the two lacks are read again.
//
// It is for artifacts/publish, which knows what a model is.
package transfer
