//go:build !linux

package estimates

import (
	"errors"
	"os"
)

// memoryFile needs Linux, where the product runs; elsewhere the package compiles.
func memoryFile([]byte, int64) (*os.File, string, error) {
	return nil, "", errors.New("making a file in memory: GGUF files are read on Linux only")
}
