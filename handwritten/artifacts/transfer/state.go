package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
)

// State keeps the checkpoint of one push, so that another process can go on. It
// holds capabilities of the registry: keep it like a credential.
type State interface {
	// Load returns what was saved last, nil when there is nothing.
	Load(ctx context.Context) ([]byte, error)
	// Save replaces what was saved. At most some kilobytes per blob.
	Save(ctx context.Context, data []byte) error
}

// Known is a blob that was pushed before.
type Known struct {
	// Digest is that of the blob.
	Digest digest.Digest `json:"digest"`
	// Repository is host/name where it was pushed last.
	Repository string `json:"repository"`
}

// Index remembers which digests the keys of blobs stand for. It must be as trustworthy
// as the checks of this package: what it names is not read again.
type Index interface {
	// Find returns the blob with the key, and whether it is known.
	Find(ctx context.Context, key string) (Known, bool, error)
	// Add remembers a blob.
	Add(ctx context.Context, key string, known Known) error
}

// stateVersion changes when an older checkpoint cannot be read any more.
const stateVersion = 1

// record is a checkpoint.
type record struct {
	Version     int                    `json:"version"`
	Fingerprint string                 `json:"fingerprint"`
	Repository  string                 `json:"repository"`
	Blobs       map[string]*blobRecord `json:"blobs"`
}

// blobRecord is the checkpoint of one blob.
type blobRecord struct {
	// Digest is set when the blob was hashed to its end and all its files were checked.
	Digest digest.Digest `json:"digest,omitempty"`
	// Session is the location of the upload.
	Session string `json:"session,omitempty"`
	// Hashed is how far the hashes are.
	Hashed position `json:"hashed,omitzero"`
}

// ledger is the checkpoint of a running push.
type ledger struct {
	store State
	warn  func(error)

	mu     sync.Mutex
	record record
	dirty  bool

	saving sync.Mutex
	urgent chan struct{}
}

// openLedger reads the checkpoint of the same push, or starts a new one.
func openLedger(ctx context.Context, store State, fingerprint, repository string, warn func(error)) (*ledger, error) {
	l := &ledger{store: store, warn: warn, urgent: make(chan struct{}, 1)}
	l.record = record{Version: stateVersion, Fingerprint: fingerprint, Repository: repository, Blobs: map[string]*blobRecord{}}
	if store == nil {
		return l, nil
	}
	data, err := store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoint: %w", err)
	}
	if len(data) == 0 {
		return l, nil
	}
	var old record
	if err := json.Unmarshal(data, &old); err != nil || old.Version != stateVersion {
		warn(fmt.Errorf("reading the checkpoint: it is not one of this version, and is not used"))
		return l, nil
	}
	if old.Fingerprint != fingerprint || old.Repository != repository {
		return nil, fmt.Errorf("reading the checkpoint: %w", ErrPlanChanged)
	}
	for name, blob := range old.Blobs {
		if blob != nil && blob.Hashed.At >= 0 {
			l.record.Blobs[name] = blob
		}
	}
	return l, nil
}

// blob is a copy of a blob's checkpoint.
func (l *ledger) blob(name string) blobRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.record.Blobs[name]; known != nil {
		return *known
	}
	return blobRecord{}
}

// update changes a blob's checkpoint; it is saved soon, or at once when that is urgent.
func (l *ledger) update(name string, urgent bool, change func(*blobRecord)) {
	l.mu.Lock()
	if l.record.Blobs[name] == nil {
		l.record.Blobs[name] = &blobRecord{}
	}
	change(l.record.Blobs[name])
	l.dirty = true
	l.mu.Unlock()
	if urgent {
		select {
		case l.urgent <- struct{}{}:
		default:
		}
	}
}

// keep saves the checkpoint whenever it changed, every interval or when it is urgent, until ctx ends.
func (l *ledger) keep(ctx context.Context, interval time.Duration) {
	if l.store == nil {
		return
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-l.urgent:
		}
		l.save(ctx)
	}
}

// save writes the checkpoint when it changed. A failure is only reported: the
// push itself does not depend on it.
func (l *ledger) save(ctx context.Context) {
	if l.store == nil {
		return
	}
	l.saving.Lock()
	defer l.saving.Unlock()
	l.mu.Lock()
	if !l.dirty {
		l.mu.Unlock()
		return
	}
	data, err := json.Marshal(l.record)
	l.dirty = false
	l.mu.Unlock()
	if err == nil {
		err = l.store.Save(ctx, data)
	}
	if err != nil && ctx.Err() == nil {
		l.mu.Lock()
		l.dirty = true
		l.mu.Unlock()
		l.warn(fmt.Errorf("saving the checkpoint: %w", err))
	}
}
