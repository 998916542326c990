//go:build unix && !linux

package child

import (
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// guard ties the life of a child to ours with a small shell that waits for us:
// it reads from a pipe whose other end only we hold. An end of file without a
// word before it means that we were killed.
type guard struct {
	stdin io.WriteCloser
	shell *exec.Cmd
}

// startGuarded starts cmd and the shell that watches over it.
func startGuarded(cmd *exec.Cmd) (*guard, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// #nosec G204 -- the only variable part is a number.
	shell := exec.Command("/bin/sh", "-c", `read word || kill -9 "$1"`, "sh", strconv.Itoa(cmd.Process.Pid))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("starting its watchdog: %w", err)
	}
	return &guard{stdin: stdin, shell: shell}, nil
}

func (g *guard) release() {
	_, _ = io.WriteString(g.stdin, "ended\n")
	_ = g.stdin.Close()
	_ = g.shell.Wait()
}
