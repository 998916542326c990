package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// FileState keeps a checkpoint in a file that only its owner may read.
type FileState string

// Load reads the file.
func (f FileState) Load(context.Context) ([]byte, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Save replaces the file in one step.
func (f FileState) Save(_ context.Context, data []byte) error { return replace(string(f), data) }

// replace writes a file under another name first, so that no reader and no next
// process finds half of it.
func replace(name string, data []byte) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(dir, filepath.Base(name)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), name)
}

// maxIndex is how many blobs a FileIndex remembers; then it starts again.
const maxIndex = 10_000

// FileIndex keeps the known blobs in a file. Two processes that add at the same
// time may lose an entry, which costs a repetition and nothing else.
type FileIndex struct {
	// Path is the file.
	Path string
	mu   sync.Mutex
}

func (f *FileIndex) read() map[string]Known {
	entries := map[string]Known{}
	data, err := os.ReadFile(f.Path)
	if err != nil || json.Unmarshal(data, &entries) != nil || len(entries) >= maxIndex {
		return map[string]Known{}
	}
	return entries
}

// Find looks a key up. A file that cannot be read knows nothing.
func (f *FileIndex) Find(_ context.Context, key string) (Known, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, found := f.read()[key]
	return known, found, nil
}

// Add remembers a blob.
func (f *FileIndex) Add(_ context.Context, key string, known Known) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries := f.read()
	if entries[key] == known {
		return nil
	}
	entries[key] = known
	data, err := json.Marshal(entries)
	if err != nil {
		return fmt.Errorf("encoding the index: %w", err)
	}
	return replace(f.Path, data)
}
