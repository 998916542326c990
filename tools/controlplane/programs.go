package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/mod/modfile"

	"magicstick.dev/operator/tools/gobuild"
)

const kubernetesModule = "k8s.io/kubernetes"

// kubeVersion is the pinned version of Kubernetes in parts.
type kubeVersion struct{ full, major, minor string }

var versionPattern = regexp.MustCompile(`^v(\d+)\.(\d+)\.\d+$`)

// pinnedVersion reads the version of Kubernetes from the module that builds it,
// so that it is written in one place only.
func pinnedVersion(moduleDir string) (kubeVersion, error) {
	path := filepath.Join(moduleDir, "go.mod")
	data, err := os.ReadFile(path) // #nosec G304 -- a module of the repository.
	if err != nil {
		return kubeVersion{}, fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	file, err := modfile.Parse(path, data, nil)
	if err != nil {
		return kubeVersion{}, fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	for _, require := range file.Require {
		if require.Mod.Path != kubernetesModule {
			continue
		}
		parts := versionPattern.FindStringSubmatch(require.Mod.Version)
		if parts == nil {
			return kubeVersion{}, fmt.Errorf("reading the version of Kubernetes: %s: %q is not vMAJOR.MINOR.PATCH", path, require.Mod.Version)
		}
		return kubeVersion{full: parts[0], major: parts[1], minor: parts[2]}, nil
	}
	return kubeVersion{}, fmt.Errorf("reading the version of Kubernetes: %s does not require %s", path, kubernetesModule)
}

// programs lists what is built, in the order in which it is most useful to
// have: the first two are enough for most tests.
func programs(moduleDir string, version kubeVersion) []gobuild.Program {
	// Without these clients cannot parse the server's version.
	const component = "k8s.io/component-base/version"
	flags := fmt.Sprintf("-s -w -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean",
		component, version.full, version.major, version.minor)
	// etcd has no such variables; the same flags for all keep one rule simple.
	packages := []struct{ name, path string }{
		{"etcd", "magicstick.dev/operator/tools/controlplane/build/etcd"},
		{"kube-apiserver", kubernetesModule + "/cmd/kube-apiserver"},
		{"kube-controller-manager", kubernetesModule + "/cmd/kube-controller-manager"},
		{"kubectl", kubernetesModule + "/cmd/kubectl"},
	}
	var list []gobuild.Program
	for _, p := range packages {
		list = append(list, gobuild.Program{Name: p.name, Package: p.path, ModuleDir: moduleDir, LDFlags: flags})
	}
	return list
}
