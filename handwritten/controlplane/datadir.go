package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Purposes of data folders.
const (
	// PurposeControlPlane holds etcd's data and everything else of a control plane.
	PurposeControlPlane = "controlplane"
	// PurposeDev holds what "magicstick dev" keeps beside a cluster of somebody else.
	PurposeDev = "dev"
)

const (
	temporaryPrefix = "magicstick-"
	lockName        = "lock"
	// sweepAge is the age from which a temporary folder without a lock file was
	// certainly left behind: a start writes the lock right after making the folder.
	sweepAge = time.Minute
)

// DataDir is a folder that one process at a time holds.
type DataDir struct {
	path      string
	temporary bool
	lock      *os.File
}

// OpenDataDir makes and locks the folder. Without a path it makes a temporary
// one, with the purpose as part of its name, after removing the temporary
// folders, of any purpose, whose owners were killed before they could clean up.
func OpenDataDir(path, purpose string) (*DataDir, error) {
	dir := &DataDir{path: path}
	if path == "" {
		sweepTemporary(os.TempDir())
		made, err := os.MkdirTemp("", temporaryPrefix+purpose+"-")
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
			return nil, fmt.Errorf("opening the data folder %s: another control plane is running in it, or another magicstick works in it", absolute)
		}
		return nil, fmt.Errorf("locking the data folder %s: %w", absolute, err)
	}
	dir.lock = lock
	return dir, nil
}

// Path is the absolute path.
func (d *DataDir) Path() string { return d.path }

// Close releases the folder, and removes it when it is temporary.
func (d *DataDir) Close() error {
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

// temporaryName is what OpenDataDir calls temporary folders: purpose, then a number.
var temporaryName = regexp.MustCompile(`^` + temporaryPrefix + `(` + PurposeControlPlane + `|` + PurposeDev + `)-[0-9]+$`)

// sweepTemporary removes the temporary folders of owners that were killed. It
// only touches real folders of our own user, and errors do not matter: the
// next start tries again.
func sweepTemporary(parent string) {
	paths, err := filepath.Glob(filepath.Join(parent, temporaryPrefix+"*"))
	if err != nil {
		return
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return !temporaryName.MatchString(filepath.Base(path)) })
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
