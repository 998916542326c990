package publish

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/distribution/distribution/v3/registry/storage"
	"github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/artifacts/registrytest"
)

// TestGarbageCollectionKeepsBothManifests runs the strictest collection of Distribution over what was
// published, and over what an earlier model of the same tag left behind.
func TestGarbageCollectionKeepsBothManifests(t *testing.T) {
	t.Parallel()
	stored, folder := t.TempDir(), t.TempDir()
	registry := startRegistry(t, registrytest.Options{Folder: stored})
	write := func(text string) Result {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "model.gguf"), []byte(text), 0o600))
		result, err := Publish(t.Context(), planOf(t, nil, folder), targetOf(t, registry, "ai/model"), "v1", quick())
		require.NoError(t, err)
		return result
	}
	old, now := write("GGUF one"), write("GGUF two")
	require.NotEqual(t, old.ModelPack, now.ModelPack)
	registry.Stop()
	driver, err := filesystem.FromParameters(map[string]any{"rootdirectory": stored})
	require.NoError(t, err)
	repositories, err := storage.NewRegistry(t.Context(), driver)
	require.NoError(t, err)
	require.NoError(t, storage.MarkAndSweep(t.Context(), driver, repositories, storage.GCOpts{RemoveUntagged: true, Quiet: true}))
	require.NoError(t, registry.Restart())

	_, model := pull(t, registry, "ai/model", now.ModelPack.String())
	_, image := pull(t, registry, "ai/model", now.Image.String())
	blobs, uploads, err := registrytest.Blobs(stored)
	require.NoError(t, err)
	assert.Zero(t, uploads)
	for _, kept := range []string{model.Config.Digest.String(), image.Config.Digest.String(), model.Layers[0].Digest.String()} {
		assert.Contains(t, blobs, kept)
	}
	assert.NotContains(t, blobs, old.ModelPack.String())
}
