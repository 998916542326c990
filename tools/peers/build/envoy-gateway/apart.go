package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	optionCertificates = "--certificates"
	// envApart tells a process that it has a mount namespace of its own.
	envApart = "ENVOY_GATEWAY_APART"
)

// runApart runs this program again with a mount namespace of its own, which
// takes root or the right to make user namespaces, and waits for its end.
func runApart() error {
	// The kernel ends the other process when this thread does.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	command, err := startApart(unix.CLONE_NEWNS)
	if errors.Is(err, syscall.EPERM) {
		command, err = startApart(unix.CLONE_NEWNS | unix.CLONE_NEWUSER)
	}
	if err != nil {
		return fmt.Errorf("starting in a mount namespace (it takes root, or user namespaces that are open to everybody): %w", err)
	}
	go func() {
		for received := range signals {
			_ = command.Process.Signal(received) // it may have ended
		}
	}()
	return command.Wait()
}

func startApart(flags uintptr) (*exec.Cmd, error) {
	command := exec.Command("/proc/self/exe", os.Args[1:]...)
	command.Args[0] = os.Args[0]
	command.Env = append(os.Environ(), envApart+"=1")
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	if flags&unix.CLONE_NEWUSER != 0 {
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return command, command.Start()
}
