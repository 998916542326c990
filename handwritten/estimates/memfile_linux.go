package estimates

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile makes a file that lies in memory, begins with data and has a size in
// bytes; the rest is a hole that takes no memory. It is gone when it is closed.
func memoryFile(data []byte, size int64) (*os.File, string, error) {
	descriptor, err := unix.MemfdCreate("gguf-header", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, "", fmt.Errorf("making a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(descriptor), "gguf-header")
	if _, err := file.Write(data); err != nil {
		return nil, "", closing(file, fmt.Errorf("writing a file in memory: %w", err))
	}
	if err := file.Truncate(size); err != nil {
		return nil, "", closing(file, fmt.Errorf("growing a file in memory: %w", err))
	}
	return file, fmt.Sprintf("/proc/self/fd/%d", descriptor), nil
}

func closing(file *os.File, err error) error {
	file.Close()
	return err
}
