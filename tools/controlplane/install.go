package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"magicstick.dev/operator/tools/gobuild"
)

// binarySource offers ready binaries of a minor version of Kubernetes.
type binarySource interface {
	// prepare makes the source usable.
	prepare(ctx context.Context) error
	// ask says whether the source has them; it returns when ctx ends.
	ask(ctx context.Context, minor string) error
	// fetch downloads them and returns their version and folder.
	fetch(ctx context.Context, minor string) (version, dir string, err error)
}

const (
	// prepareTimeout bounds the build of the downloader, which takes seconds.
	prepareTimeout = time.Minute
	// fetchTimeout bounds the download, once the source has answered in time.
	fetchTimeout = 5 * time.Minute
)

type installer struct {
	folder   *gobuild.Folder
	log      io.Writer
	version  kubeVersion
	programs []gobuild.Program
	// assets is the folder of KUBEBUILDER_ASSETS, empty when not set.
	assets string
	// envtest is asked before anything is built; nil means never.
	envtest    binarySource
	askTimeout time.Duration
}

// install makes every program available.
func (i *installer) install(ctx context.Context) error {
	if i.assets != "" {
		return i.completeAssets(ctx)
	}
	unlock, err := i.folder.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	missing, err := i.missing()
	if err != nil || len(missing) == 0 {
		i.say("control plane %s is up to date in %s", i.version.full, i.folder.Dir)
		return err
	}
	if i.envtest != nil && offered(missing) {
		if err := i.fetch(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			i.say("setup-envtest cannot help here (%v); building from source instead", err)
		}
		if missing, err = i.missing(); err != nil {
			return err
		}
	}
	for _, program := range missing {
		// What is built carries its own stamp.
		if err := os.Remove(i.stamp(program.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the old stamp: %w", err)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return i.folder.Build(ctx, missing...)
}

// completeAssets checks the user's folder and builds what setup-envtest never has.
func (i *installer) completeAssets(ctx context.Context) error {
	var lacking []gobuild.Program
	for _, program := range i.programs {
		info, err := os.Stat(filepath.Join(i.assets, program.Name))
		switch {
		case err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0:
		case err == nil:
			return fmt.Errorf("checking KUBEBUILDER_ASSETS: %s is not an executable file", filepath.Join(i.assets, program.Name))
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("checking KUBEBUILDER_ASSETS: %w", err)
		case program.Name == "etcd" || program.Name == "kube-apiserver":
			return fmt.Errorf("checking KUBEBUILDER_ASSETS: %s has no %s; unset the variable to use binaries that are built here", i.assets, program.Name)
		case program.Name == "kube-controller-manager":
			lacking = append(lacking, program)
		}
	}
	i.say("using the control plane in %s (KUBEBUILDER_ASSETS)", i.assets)
	if len(lacking) == 0 {
		return nil
	}
	unlock, err := i.folder.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return i.folder.Build(ctx, lacking...)
}

// missing lists the programs that are neither built as wanted nor fetched.
func (i *installer) missing() ([]gobuild.Program, error) {
	var missing []gobuild.Program
	for _, program := range i.programs {
		if i.fetched(program.Name) {
			continue
		}
		reason, err := i.folder.Stale(program)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			missing = append(missing, program)
		}
	}
	return missing, nil
}

// offered says whether setup-envtest has any of the programs.
func offered(programs []gobuild.Program) bool {
	for _, program := range programs {
		if program.Name != "kube-controller-manager" {
			return true
		}
	}
	return false
}

// fetch installs the ready binaries with a stamp beside each.
func (i *installer) fetch(ctx context.Context) error {
	minor := i.version.major + "." + i.version.minor
	if err := bounded(ctx, prepareTimeout, i.envtest.prepare); err != nil {
		return err
	}
	i.say("asking setup-envtest for Kubernetes %s (at most %s)", minor, i.askTimeout)
	ask := func(ctx context.Context) error { return i.envtest.ask(ctx, minor) }
	if err := bounded(ctx, i.askTimeout, ask); err != nil {
		return err
	}
	began := time.Now()
	fetchCtx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	version, dir, err := i.envtest.fetch(fetchCtx, minor)
	if err != nil {
		return err
	}
	for _, program := range i.programs {
		if err := i.adopt(program.Name, version, filepath.Join(dir, program.Name)); err != nil {
			return err
		}
	}
	i.say("setup-envtest brought Kubernetes %s in %s", version, time.Since(began).Round(time.Second))
	return nil
}

func bounded(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

// adopt copies one fetched binary and then writes its stamp. A kill in between
// leaves a binary without a stamp, which counts as missing.
func (i *installer) adopt(name, version, from string) error {
	source, err := os.Open(from) // #nosec G304 -- what setup-envtest downloaded.
	if errors.Is(err, fs.ErrNotExist) {
		return nil // setup-envtest does not have every program
	}
	if err != nil {
		return fmt.Errorf("installing %s: %w", name, err)
	}
	defer func() { _ = source.Close() }()
	temporary := i.folder.Temporary(name)
	// #nosec G302 G304 -- a program in our own folder.
	target, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o700)
	if err != nil {
		return fmt.Errorf("installing %s: %w", name, err)
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(target, hash), source)
	if err := errors.Join(err, target.Close()); err != nil {
		return fmt.Errorf("installing %s: %w", name, err)
	}
	if err := i.folder.Install(name, temporary); err != nil {
		return err
	}
	stamp := fmt.Sprintf("envtest %s %x\n", version, hash.Sum(nil))
	if err := os.WriteFile(i.stamp(name), []byte(stamp), 0o600); err != nil {
		return fmt.Errorf("stamping %s: %w", name, err)
	}
	return nil
}

func (i *installer) stamp(name string) string { return filepath.Join(i.folder.Dir, name+".stamp") }

// fetched says whether a binary is the one that its stamp describes, and of the
// pinned minor version.
func (i *installer) fetched(name string) bool {
	data, err := os.ReadFile(i.stamp(name))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(data))
	if len(fields) != 3 || fields[0] != "envtest" || !strings.HasPrefix(fields[1], i.version.major+"."+i.version.minor+".") {
		return false
	}
	file, err := os.Open(filepath.Join(i.folder.Dir, name)) // #nosec G304 -- our own folder.
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return false
	}
	return fmt.Sprintf("%x", hash.Sum(nil)) == fields[2]
}

func (i *installer) say(format string, args ...any) {
	_, _ = fmt.Fprintf(i.log, format+"\n", args...)
}
