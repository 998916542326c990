package publish

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"magicstick.dev/operator/handwritten/artifacts/transfer"
)

// Checkpoint is what a person's machine remembers of a publishing: how far it is, and
// which blobs were pushed before.
type Checkpoint struct {
	// State is of this plan and repository alone.
	State transfer.FileState
	// Index is shared by all publishings of the folder.
	Index *transfer.FileIndex

	lock *os.File
}

// OpenCheckpoint finds the checkpoint of a plan in a folder, or makes one. It fails
// when another process publishes the same at this moment: they would take each other's uploads.
func OpenCheckpoint(dir, repository string, plan Plan) (*Checkpoint, error) {
	if dir == "" {
		return nil, errors.New("opening the checkpoint: there is no cache folder")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the checkpoint: %w", err)
	}
	sum := sha256.Sum256([]byte(repository + "\n" + plan.Fingerprint))
	base := filepath.Join(dir, hex.EncodeToString(sum[:16]))
	lock, err := os.OpenFile(base+".lock", os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a hash in a folder of the person
	if err != nil {
		return nil, fmt.Errorf("opening the checkpoint: %w", err)
	}
	if err := tryLock(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the checkpoint: another process publishes the same"), lock.Close())
	}
	return &Checkpoint{
		State: transfer.FileState(base + ".json"), Index: &transfer.FileIndex{Path: filepath.Join(dir, "index.json")}, lock: lock,
	}, nil
}

// Done forgets how far the publishing is, because it is at its end.
func (c *Checkpoint) Done() {
	_ = os.Remove(string(c.State))
	_ = os.Remove(c.lock.Name())
}

// Close lets other processes have the checkpoint.
func (c *Checkpoint) Close() { _ = c.lock.Close() }
