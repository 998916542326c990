package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// layerType is the media type of a ModelPack layer (contract/models.md C.8).
var layerType = regexp.MustCompile(`^application/vnd\.cncf\.model\.(\w+(?:\.\w+)?)\.v1\.(\w+)(?:\+?(\w+))?$`)

// chunkedTypes start with this in a layout that we neither write nor read.
const chunkedTypes = "application/vnd.deckhouse.ai-models.modelpack."

// CheckModelManifest holds a ModelPack manifest and its config, as a registry gave
// them back, to the rules of contract/models.md C.8.
func CheckModelManifest(manifest, config []byte) error {
	fail := func(err error) error { return fmt.Errorf("checking the ModelPack manifest: %w", err) }
	var m ocispec.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return fail(err)
	}
	switch {
	case m.SchemaVersion != 2:
		return fail(fmt.Errorf("schemaVersion is %d, not 2", m.SchemaVersion))
	case m.ArtifactType != ArtifactType:
		return fail(fmt.Errorf("artifactType is %q, not %q", m.ArtifactType, ArtifactType))
	case m.Config.MediaType != ModelConfigType:
		return fail(fmt.Errorf("config.mediaType is %q, not %q", m.Config.MediaType, ModelConfigType))
	case m.Config.Digest != digest.FromBytes(config):
		return fail(fmt.Errorf("config.digest is %q, and the config's is %q", m.Config.Digest, digest.FromBytes(config)))
	case len(m.Layers) == 0:
		return fail(errors.New("layers is empty"))
	}
	for i, layer := range m.Layers {
		if err := checkLayer(layer); err != nil {
			return fail(fmt.Errorf("layers[%d]: %w", i, err))
		}
	}
	var c modelConfig
	if err := json.Unmarshal(config, &c); err != nil {
		return fail(fmt.Errorf("reading the config: %w", err))
	}
	if c.ModelFS.Type != "layers" {
		return fail(fmt.Errorf("modelfs.type is %q, not \"layers\"", c.ModelFS.Type))
	}
	return checkDiffIDs("modelfs.diffIds", c.ModelFS.DiffIDs, m.Layers, fail)
}

// CheckImageManifest holds an image manifest and its config to the rules under
// which a container runtime mounts it, and to its subject.
func CheckImageManifest(manifest, config []byte, subject digest.Digest) error {
	fail := func(err error) error { return fmt.Errorf("checking the image manifest: %w", err) }
	var m ocispec.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return fail(err)
	}
	switch {
	case m.SchemaVersion != 2:
		return fail(fmt.Errorf("schemaVersion is %d, not 2", m.SchemaVersion))
	case m.Config.MediaType != ocispec.MediaTypeImageConfig:
		return fail(fmt.Errorf("config.mediaType is %q, not %q", m.Config.MediaType, ocispec.MediaTypeImageConfig))
	case m.Config.Digest != digest.FromBytes(config):
		return fail(fmt.Errorf("config.digest is %q, and the config's is %q", m.Config.Digest, digest.FromBytes(config)))
	case m.Subject == nil || m.Subject.Digest != subject:
		return fail(fmt.Errorf("subject is not %q", subject))
	}
	var c imageConfig
	if err := json.Unmarshal(config, &c); err != nil {
		return fail(fmt.Errorf("reading the config: %w", err))
	}
	return checkDiffIDs("rootfs.diff_ids", c.RootFS.DiffIDs, m.Layers, fail)
}

func checkLayer(layer ocispec.Descriptor) error {
	match := layerType.FindStringSubmatch(layer.MediaType)
	switch {
	case len(layer.MediaType) > len(chunkedTypes) && layer.MediaType[:len(chunkedTypes)] == chunkedTypes:
		return fmt.Errorf("mediaType %q is of the chunked layout, which is not supported", layer.MediaType)
	case match == nil:
		return fmt.Errorf("mediaType %q is not that of a model layer", layer.MediaType)
	case match[2] == "raw" && match[3] != "":
		return fmt.Errorf("mediaType %q: a raw layer declares no compression", layer.MediaType)
	case layer.Annotations[AnnotationFilepath] == "":
		return fmt.Errorf("annotation %s is missing", AnnotationFilepath)
	}
	if err := layer.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %q: %w", layer.Digest, err)
	}
	return nil
}

// checkDiffIDs compares the diff IDs with the layers, whose tars are uncompressed.
func checkDiffIDs(field string, ids []digest.Digest, layers []ocispec.Descriptor, fail func(error) error) error {
	if len(ids) != len(layers) {
		return fail(fmt.Errorf("%s has %d entries for %d layers", field, len(ids), len(layers)))
	}
	for i, id := range ids {
		if id != layers[i].Digest {
			return fail(fmt.Errorf("%s[%d] is %q, and the uncompressed layer's digest is %q", field, i, id, layers[i].Digest))
		}
	}
	return nil
}
