package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// certificates is where Envoy Gateway has its certificates mounted in a cluster.
	// The path is a constant of its code.
	certificates = "/certs"
	// state is where it would write below; in a cluster that is the container's own.
	state = "/var/lib"
)

// showCertificates makes the file system of this process look like the real
// one, with dir at /certs and nothing in /var/lib. Nobody else sees it, because
// the process has a mount namespace of its own.
func showCertificates(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	// What is mounted from here on stays in this namespace.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts private: %w", err)
	}
	top, err := os.MkdirTemp("", "envoy-gateway-")
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", top, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting a file system: %w", err)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join("/", entry.Name())
		if path == certificates {
			continue
		}
		if err := show(path, filepath.Join(top, path), entry); err != nil {
			return fmt.Errorf("mounting %s: %w", path, err)
		}
	}
	if err := bind(dir, filepath.Join(top, certificates)); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", filepath.Join(top, state), "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("covering %s: %w", state, err)
	}
	workingDir, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := unix.Chroot(top); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	return os.Chdir(workingDir)
}

func show(from, to string, entry os.DirEntry) error {
	switch {
	case entry.Type()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case entry.IsDir():
		return bind(from, to)
	default:
		return nil // nothing that Envoy Gateway needs
	}
}

func bind(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("binding %s: %w", from, err)
	}
	return nil
}
