package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"magicstick.dev/operator/handwritten/artifacts/layout"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/transfer"
)

// Plan is what will be published: the files and how they lie in layers.
type Plan struct {
	// Snapshot has the selected files only.
	Snapshot source.Snapshot
	// Layers are in the order of the manifests.
	Layers []layout.Layer
	// Metadata goes into the config of the ModelPack manifest.
	Metadata layout.Metadata
	// SizeBytes is the size of all layers.
	SizeBytes int64
	// Fingerprint is the identity of the plan at its source's revision.
	Fingerprint string
}

// NewPlan lays out the files of a snapshot. It reads none of them.
func NewPlan(snapshot source.Snapshot, metadata layout.Metadata) (Plan, error) {
	files := make([]layout.File, len(snapshot.Files))
	for i, file := range snapshot.Files {
		files[i] = layout.File{Path: file.Path, Size: file.Size, SHA256: file.SHA256}
	}
	layers, err := layout.Plan(files)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Snapshot: snapshot, Layers: layers, Metadata: metadata}
	for _, layer := range layers {
		plan.SizeBytes += layer.Size
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q %s\n", snapshot.Kind, snapshot.Origin, snapshot.Revision, layout.Fingerprint(layers))
	for _, file := range snapshot.Files {
		fmt.Fprintf(hash, "%s\n", file.GitBlob)
	}
	plan.Fingerprint = hex.EncodeToString(hash.Sum(nil))
	return plan, nil
}

// Result is what was published.
type Result struct {
	// Repository is host/name.
	Repository string `json:"repository"`
	// Tag is that of the ModelPack manifest, ImageTag that of the image manifest.
	Tag      string `json:"tag"`
	ImageTag string `json:"imageTag"`
	// ModelPack is the digest of the ModelPack manifest, Image that of the image manifest over the same layers.
	ModelPack digest.Digest `json:"modelPackDigest"`
	Image     digest.Digest `json:"imageDigest"`
	// SizeBytes is the size of the ModelPack config and the layers.
	SizeBytes int64 `json:"sizeBytes"`
	// Files and Layers count them.
	Files  int `json:"files"`
	Layers int `json:"layers"`
	// BytesRead came from the source, BytesUploaded went to the registry; both count repetitions.
	BytesRead     int64 `json:"bytesRead"`
	BytesUploaded int64 `json:"bytesUploaded"`
	// BytesPresent were in the registry already.
	BytesPresent int64 `json:"bytesPresent"`
	// Source and Revision say what was published.
	Source   string `json:"source"`
	Revision string `json:"revision,omitempty"`
}

// Options say how a plan is published. The zero value is the default.
type Options struct {
	// Transfer is handed on; Fingerprint and Meter are set here when empty.
	Transfer transfer.Options
}

// Publish brings a plan into a repository, tags the manifests and reads them back.
func Publish(ctx context.Context, plan Plan, target *transfer.Target, tag string, options Options) (Result, error) {
	imageTag, err := layout.ImageTag(tag)
	if err != nil {
		return Result{}, err
	}
	if options.Transfer.Meter == nil {
		options.Transfer.Meter = &transfer.Meter{}
	}
	if options.Transfer.Fingerprint == "" {
		options.Transfer.Fingerprint = plan.Fingerprint
	}
	p := publication{plan: plan, target: target, tag: tag, imageTag: imageTag, options: options.Transfer}
	blobs, err := p.blobs(ctx)
	if err != nil {
		return Result{}, err
	}
	pushed, err := target.Push(ctx, blobs, p.options)
	if err != nil {
		return p.result(layout.Artifact{}), err
	}
	digests := make([]digest.Digest, len(pushed))
	for i := range pushed {
		digests[i] = pushed[i].Digest
	}
	artifact, err := layout.NewArtifact(plan.Layers, digests, plan.Metadata)
	if err != nil {
		return p.result(layout.Artifact{}), err
	}
	if err := p.push(ctx, artifact); err != nil {
		return p.result(artifact), err
	}
	return p.result(artifact), p.verify(ctx, artifact, digests)
}

// publication is one publishing of a plan.
type publication struct {
	plan          Plan
	target        *transfer.Target
	tag, imageTag string
	options       transfer.Options
}

func (p *publication) result(artifact layout.Artifact) Result {
	totals := p.options.Meter.Totals()
	return Result{
		Repository: p.target.Repository(), Tag: p.tag, ImageTag: p.imageTag,
		ModelPack: artifact.ModelManifest.Descriptor.Digest, Image: artifact.ImageManifest.Descriptor.Digest,
		SizeBytes: artifact.SizeBytes, Files: len(p.plan.Snapshot.Files), Layers: len(p.plan.Layers),
		BytesRead: totals.Read, BytesUploaded: totals.Sent, BytesPresent: totals.Present,
		Source: p.plan.Snapshot.Origin, Revision: p.plan.Snapshot.Revision,
	}
}

// blobs are the layers as the engine takes them.
func (p *publication) blobs(ctx context.Context) ([]transfer.Blob, error) {
	expected, err := p.expected(ctx)
	if err != nil {
		return nil, err
	}
	from := newOpener(p.plan, p.options.Parallel)
	byPath := make(map[string]source.File, len(p.plan.Snapshot.Files))
	for _, file := range p.plan.Snapshot.Files {
		byPath[file.Path] = file
	}
	blobs := make([]transfer.Blob, len(p.plan.Layers))
	for i, layer := range p.plan.Layers {
		files := make([]*transfer.File, len(layer.Files))
		unpinned := false
		for j, file := range layer.Files {
			files[j] = from.file(byPath[file.Path])
			unpinned = unpinned || files[j].Algorithm == transfer.Unpromised && p.plan.Snapshot.Revision == ""
		}
		blobs[i] = transfer.Blob{
			Name: fmt.Sprintf("%03d %s", i, layer.Path()), Size: layer.Size, Key: layer.Key(), Unpinned: unpinned,
			Expected: expected[present{layer.Path(), layer.Size}], Pieces: pieces(layer, files),
		}
	}
	return blobs, nil
}

// pieces joins the plan of a layer with its files.
func pieces(layer layout.Layer, files []*transfer.File) func(int64) iter.Seq[transfer.Piece] {
	return func(from int64) iter.Seq[transfer.Piece] {
		return func(yield func(transfer.Piece) bool) {
			for piece := range layer.Pieces(from) {
				next := transfer.Piece{Literal: piece.Literal}
				if piece.Literal == nil {
					next = transfer.Piece{File: files[piece.File], Offset: piece.Offset, Length: piece.Length}
				}
				if !yield(next) {
					return
				}
			}
		}
	}
}

// present is a layer that an earlier artifact of the same name has.
type present struct {
	path string
	size int64
}

// expected looks at the artifact that the tag names now. Its layers of the same
// name and size may be those that we are about to push.
func (p *publication) expected(ctx context.Context) (map[present]digest.Digest, error) {
	content, err := p.target.Manifest(ctx, p.options.Retry, p.tag)
	if err != nil || content == nil {
		return nil, err
	}
	var manifest ocispec.Manifest
	if json.Unmarshal(content, &manifest) != nil {
		return nil, nil // something else has the name
	}
	layers := map[present]digest.Digest{}
	for _, layer := range manifest.Layers {
		if layer.Digest.Validate() == nil {
			layers[present{layer.Annotations[layout.AnnotationFilepath], layer.Size}] = layer.Digest
		}
	}
	return layers, nil
}

// push sends configs and manifests.
func (p *publication) push(ctx context.Context, artifact layout.Artifact) error {
	for _, config := range []layout.Document{artifact.ModelConfig, artifact.ImageConfig} {
		if err := p.target.PushBytes(ctx, p.options.Retry, config.Descriptor, config.Bytes, p.options.Meter); err != nil {
			return err
		}
	}
	if err := p.target.PushManifest(ctx, p.options.Retry, artifact.ModelManifest.Descriptor, artifact.ModelManifest.Bytes, p.tag); err != nil {
		return err
	}
	return p.target.PushManifest(ctx, p.options.Retry, artifact.ImageManifest.Descriptor, artifact.ImageManifest.Bytes, p.imageTag)
}

// verify asks the registry for everything that was published: it is what others will get.
func (p *publication) verify(ctx context.Context, artifact layout.Artifact, digests []digest.Digest) error {
	for i, layer := range p.plan.Layers {
		if err := p.target.Confirm(ctx, p.options.Retry, digests[i], layer.Size); err != nil {
			return err
		}
	}
	model, err := p.readBack(ctx, artifact.ModelManifest, artifact.ModelConfig, p.tag)
	if err != nil {
		return err
	}
	image, err := p.readBack(ctx, artifact.ImageManifest, artifact.ImageConfig, p.imageTag)
	if err != nil {
		return err
	}
	if err := layout.CheckModelManifest(model.manifest, model.config); err != nil {
		return err
	}
	return layout.CheckImageManifest(image.manifest, image.config, artifact.ModelManifest.Descriptor.Digest)
}

type read struct{ manifest, config []byte }

// readBack reads a manifest by its digest and by its tag, and its config.
func (p *publication) readBack(ctx context.Context, manifest, config layout.Document, tag string) (read, error) {
	var out read
	var err error
	for _, reference := range []string{manifest.Descriptor.Digest.String(), tag} {
		if out.manifest, err = p.target.Manifest(ctx, p.options.Retry, reference); err != nil {
			return out, err
		}
		if string(out.manifest) != string(manifest.Bytes) {
			return out, fmt.Errorf("reading the manifest %q back: %w: %s instead of %s", reference, transfer.ErrRegistryBytes,
				digest.FromBytes(out.manifest), manifest.Descriptor.Digest)
		}
	}
	out.config, err = p.target.Blob(ctx, p.options.Retry, config.Descriptor)
	return out, err
}
