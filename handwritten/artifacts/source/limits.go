package source

import (
	"math"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"magicstick.dev/operator/generated/conditions"
)

// Limits of a source (contract/models.md C.3).
const (
	// MaxFiles is the largest number of files of a source.
	MaxFiles = 10_000
	// MaxPathBytes is the longest path of a file in bytes.
	MaxPathBytes = 1024
	// MaxMetadataBytes is the largest file that is read for metadata: 16 MiB.
	MaxMetadataBytes = 16 << 20
	// MaxListBytes is the largest list of files as a provider sends it, all pages
	// together: 32 MiB.
	MaxListBytes = 32 << 20
)

// CheckPath refuses a path of a file that is not relative, clean, slash-separated
// and printable, or too long.
func CheckPath(name string) error {
	refuse := func(rule string) error {
		return Fail(conditions.ModelReasonUnsupportedSource, nil, "path of a file %.80q: %s", name, rule)
	}
	switch {
	case name == "":
		return refuse("it is empty")
	case len(name) > MaxPathBytes:
		return Fail(conditions.ModelReasonUnsupportedSource, ErrTooLarge, "path of a file %.80q: it has %d bytes, allowed are %d", name, len(name), MaxPathBytes)
	case !utf8.ValidString(name):
		return refuse("it is not UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return refuse("it has control characters")
	case strings.Contains(name, `\`):
		return refuse(`it has a \`)
	case path.IsAbs(name) || name != path.Clean(name) || name == "." || name == ".." || strings.HasPrefix(name, "../"):
		return refuse("it must be relative and clean, without . and .. and empty parts")
	}
	return nil
}

// Arrange sorts files by path and refuses too many of them, paths that occur
// twice or break the rules of CheckPath, sizes below -1 and sums beyond int64.
func Arrange(files []File) ([]File, error) {
	if len(files) > MaxFiles {
		return nil, Fail(conditions.ModelReasonUnsupportedSource, ErrTooLarge, "the source has %d files, allowed are %d", len(files), MaxFiles)
	}
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var sum int64
	for i, file := range files {
		if err := CheckPath(file.Path); err != nil {
			return nil, err
		}
		if i > 0 && files[i-1].Path == file.Path {
			return nil, Fail(conditions.ModelReasonUnsupportedSource, nil, "the source lists the file %q twice", file.Path)
		}
		if file.Size < -1 || file.Size > math.MaxInt64-sum {
			return nil, Fail(conditions.ModelReasonUnsupportedSource, ErrTooLarge, "the size of file %q, %d bytes, is impossible", file.Path, file.Size)
		}
		sum += max(file.Size, 0)
	}
	return files, nil
}
