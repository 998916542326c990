package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	temporaryPrefix = "magicstick-controlplane-"
	lockName        = "lock"
	// sweepAge is the age from which a temporary folder without a lock file was
	// certainly left behind: a start writes the lock right after making the folder.
	sweepAge = time.Minute
)

// dataDir is a folder that one control plane at a time holds.
type dataDir struct {
	path      string
	temporary bool
	lock      *os.File
}

// openDataDir makes and locks the folder. Without a path it makes a temporary
// one, after removing those whose owners were killed before they could clean up.
func openDataDir(path string) (*dataDir, error) {
	dir := &dataDir{path: path}
	if path == "" {
		sweepTemporary(os.TempDir())
		made, err := os.MkdirTemp("", temporaryPrefix)
		if err != nil {
			return nil, fmt.Errorf("making a temporary data folder: %w", err)
		}
		dir.path, dir.temporary = made, true
	}
	absolute, err := filepath.Abs(dir.path)
	if err != nil {
		return nil, fmt.Errorf("locating the data folder %q: %w", path, err)
	}
	dir.path = absolute
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return nil, fmt.Errorf("making the data folder: %w", err)
	}
	lock, err := lockFile(filepath.Join(absolute, lockName))
	if err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("opening the data folder %s: another control plane is running in it", absolute)
		}
		return nil, fmt.Errorf("locking the data folder %s: %w", absolute, err)
	}
	dir.lock = lock
	return dir, nil
}

// close releases the folder, and removes it when it is temporary.
func (d *dataDir) close() error {
	var err error
	if d.temporary {
		if err = os.RemoveAll(d.path); err != nil {
			err = fmt.Errorf("removing the temporary data folder: %w", err)
		}
	}
	// Closing the file releases the lock.
	return errors.Join(err, d.lock.Close())
}

// lockFile takes an exclusive lock that ends with our process at the latest.
func lockFile(path string) (*os.File, error) {
	// #nosec G304 -- a fixed name below our own data folder.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// sweepTemporary removes the temporary folders of owners that were killed. It
// only touches real folders of our own user, and errors do not matter: the
// next start tries again.
func sweepTemporary(parent string) {
	paths, err := filepath.Glob(filepath.Join(parent, temporaryPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Getuid() {
			continue
		}
		lockPath := filepath.Join(path, lockName)
		if _, err := os.Lstat(lockPath); err != nil && time.Since(info.ModTime()) < sweepAge {
			continue
		}
		lock, err := lockFile(lockPath)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path)
		_ = lock.Close()
	}
}
