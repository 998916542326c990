// Package layout says how the files of a model lie in an OCI artifact. It is
// pure: the same files give the same layers, the same bytes and the same digests on
// every machine and in every order of listing (DESIGN.md, section 6).
//
// In go the paths and sizes of the files, out come layers. Every file of 64 MiB and
// more is a layer of its own, smaller files share one. A layer is an uncompressed
// tar whose every byte has a known place before a single one was read: its length
// is known, and any part of it can be made again from the source, from any offset.
//
// With the digests of the layers, two manifests over the same blobs are made:
// a CNCF ModelPack manifest, and an OCI image manifest that Kubernetes mounts as
// an image volume and that names the first as its subject.
package layout
