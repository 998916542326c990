package controlplane

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// reservedPort is a TCP port of 127.0.0.1 that nobody else can take.
type reservedPort struct {
	port int
	fd   int
}

// reservePort reserves a port, any free one for 0.
//
// The usual way - listen, close, tell the child - leaves a moment in which
// another process may take the port. Instead we keep a socket bound to it, with
// SO_REUSEPORT and without listening: the kernel refuses the port to everyone
// else, while the child, which sets SO_REUSEPORT too (etcd --socket-reuse-port,
// Kubernetes --permit-port-sharing), may listen on it. A socket that does not
// listen gets no connections.
func reservePort(port int) (*reservedPort, error) {
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	bound, err := bindLoopback(fd, port)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &reservedPort{port: bound, fd: fd}, nil
}

func bindLoopback(fd, port int) (int, error) {
	address := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	// First without sharing: this is what tells whether the port is free, even
	// when its holder allows sharing.
	if port != 0 {
		if err := probeFree(address); err != nil {
			return 0, err
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, fmt.Errorf("sharing the socket with the child: %w", err)
	}
	if err := unix.Bind(fd, address); err != nil {
		return 0, takenError(port, err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("reading the chosen port: %w", err)
	}
	inet, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("reading the chosen port: unexpected address %T", name)
	}
	return inet.Port, nil
}

func probeFree(address *unix.SockaddrInet4) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Connections of an earlier run that linger in TIME_WAIT do not count.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("preparing the socket: %w", err)
	}
	if err := unix.Bind(fd, address); err != nil {
		return takenError(address.Port, err)
	}
	return nil
}

func takenError(port int, err error) error {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Errorf("port %d of 127.0.0.1 is taken by another process: %w", port, err)
	}
	return fmt.Errorf("binding port %d of 127.0.0.1: %w", port, err)
}

func (r *reservedPort) release() error {
	if err := unix.Close(r.fd); err != nil {
		return fmt.Errorf("releasing port %d: %w", r.port, err)
	}
	return nil
}
