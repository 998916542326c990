package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// AssetsEnv names the folder with etcd and kube-apiserver, the same variable
// that envtest reads.
const AssetsEnv = "KUBEBUILDER_ASSETS"

// modulePattern recognises the go.mod of this repository.
var modulePattern = regexp.MustCompile(`(?m)^module magicstick\.dev/operator$`)

// FindBinary locates one binary of the control plane. When KUBEBUILDER_ASSETS
// is set, etcd, kube-apiserver and kubectl must be there. The folders that
// setup-envtest makes have no kube-controller-manager, so for that one
// .bin/controlplane of the repository around the working directory is the second choice.
func FindBinary(name string) (string, error) {
	assets := os.Getenv(AssetsEnv)
	if assets != "" {
		path := filepath.Join(assets, name)
		err := checkExecutable(path)
		if err == nil {
			return path, nil
		}
		if name != "kube-controller-manager" || !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("looking for %s in %s: %w", name, AssetsEnv, err)
		}
	}
	folder, err := repositoryFolder("controlplane")
	if err != nil {
		return "", fmt.Errorf("looking for %s: %s is not set and %w", name, AssetsEnv, err)
	}
	path := filepath.Join(folder, name)
	if err := checkExecutable(path); err != nil {
		return "", fmt.Errorf("looking for %s: %w", name, err)
	}
	return path, nil
}

// FindPeer locates a program that runs beside the control plane in tests and in
// `magicstick dev`, such as source-controller: it lies in .bin/peers of the
// repository around the working directory, where `make peers` puts it.
func FindPeer(name string) (string, error) {
	folder, err := repositoryFolder("peers")
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", name, err)
	}
	path := filepath.Join(folder, name)
	if err := checkExecutable(path); err != nil {
		return "", fmt.Errorf("looking for %s (run `make peers` to build it): %w", name, err)
	}
	return path, nil
}

// repositoryFolder is .bin/<name> of the repository that holds the working directory.
func repositoryFolder(name string) (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("reading the working directory: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		// #nosec G304 -- the file name is fixed and only its module line is looked at.
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && modulePattern.Match(data) {
			return filepath.Join(dir, ".bin", name), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside the repository, whose .bin/%s would be used", start, name)
		}
	}
}
