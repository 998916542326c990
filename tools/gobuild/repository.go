package gobuild

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// RepositoryDir is the nearest folder at or above start that holds tools/gobuild.
func RepositoryDir(start string) (string, error) {
	for dir := start; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "tools", "gobuild"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("looking for the repository: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("looking for the repository: %s is not inside it", start)
		}
	}
}
