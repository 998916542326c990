package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"magicstick.dev/operator/tools/gobuild"
)

// setupEnvtest is controller-runtime's downloader of etcd, kube-apiserver and kubectl.
type setupEnvtest struct {
	moduleDir string
	folder    *gobuild.Folder // of the downloader itself
	store     string          // of what it downloads
}

func newSetupEnvtest(moduleDir, binDir string) *setupEnvtest {
	return &setupEnvtest{
		moduleDir: moduleDir,
		folder:    &gobuild.Folder{Dir: filepath.Join(binDir, "setup-envtest")},
		store:     filepath.Join(binDir, "envtest"),
	}
}

// prepare builds the downloader.
func (s *setupEnvtest) prepare(ctx context.Context) error {
	unlock, err := s.folder.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return s.folder.Build(ctx, gobuild.Program{
		Name: "setup-envtest", Package: "sigs.k8s.io/controller-runtime/tools/setup-envtest", ModuleDir: s.moduleDir,
	})
}

func (s *setupEnvtest) ask(ctx context.Context, minor string) error {
	output, err := s.run(ctx, "list", minor+".x")
	if err != nil {
		return err
	}
	if !strings.Contains(output, "(available)") && !strings.Contains(output, "(installed)") {
		return fmt.Errorf("it has no Kubernetes %s for %s/%s", minor, runtime.GOOS, runtime.GOARCH)
	}
	return nil
}

func (s *setupEnvtest) fetch(ctx context.Context, minor string) (version, dir string, err error) {
	dir, err = s.run(ctx, "use", "--print", "path", minor+".x")
	if err != nil {
		return "", "", err
	}
	dir = strings.TrimSpace(dir)
	// The folder is named <version>-<os>-<arch>.
	version, _, found := strings.Cut(filepath.Base(dir), "-")
	if !found || !strings.HasPrefix(version, minor+".") {
		return "", "", fmt.Errorf("reading the version from %q: expected %s.PATCH-OS-ARCH", dir, minor)
	}
	return version, dir, nil
}

func (s *setupEnvtest) run(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--bin-dir", s.store, "--os", runtime.GOOS, "--arch", runtime.GOARCH}, args...)
	command := exec.CommandContext(ctx, filepath.Join(s.folder.Dir, "setup-envtest"), args...) // #nosec G204 -- our own build.
	command.WaitDelay = time.Second
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("it did not answer in time: %w", ctx.Err())
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return "", errors.New(lines[len(lines)-1])
	}
	return string(output), nil
}
