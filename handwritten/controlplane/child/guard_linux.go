package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// guard ties the life of a child to ours. On Linux the kernel does it.
type guard struct{}

func (*guard) release() {}

// spawner hands functions to a goroutine that never leaves its operating system
// thread. The kernel sends the parent-death signal when the *thread* that
// forked ends, and the Go runtime ends threads when it likes; a goroutine that
// stays locked to its thread keeps it until the whole process is gone.
var spawner = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// startGuarded starts cmd so that the kernel kills it when we end in any way.
// The standard library closes the gap between fork and prctl: a child whose
// parent has gone by then kills itself.
func startGuarded(cmd *exec.Cmd) (*guard, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	spawner() <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return nil, err
	}
	return &guard{}, nil
}
