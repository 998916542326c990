//go:build unix

package publish

import (
	"os"
	"syscall"
)

// tryLock takes a lock that ends with the process.
func tryLock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
