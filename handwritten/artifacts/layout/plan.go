package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// OwnLayerSize is the size in bytes from which a file is a layer of its own
	// (DESIGN.md, section 6).
	OwnLayerSize = 64 << 20
	// MaxLayers is the largest number of layers of an artifact. An overlay mount
	// of Linux takes at most 500 (OVL_MAX_STACK), and a container runtime adds its
	// own. Beyond it, neighbouring files share a layer.
	MaxLayers = 480
	// MaxFiles is the largest number of files of a model (contract/models.md C.7).
	MaxFiles = 100_000
	// MaxFileSize is the largest size in bytes of one file, 2 TiB (contract/models.md C.7).
	MaxFileSize = 2 << 40
	// maxPath and maxName are the bounds of Linux for a path and for one name in it, in bytes.
	maxPath, maxName = 4096, 255
	// version is part of the identity of every layer: it changes when the
	// bytes of a tar would.
	version = "1"
)

// File is one file of a model.
type File struct {
	// Path is relative, clean and slash-separated. The tar holds the file under it.
	Path string
	// Size is in bytes.
	Size int64
	// SHA256 is the digest in lower-case hexadecimal that the source promises, ""
	// when it promises none. It changes no byte of the layout.
	SHA256 string
}

// Layer is one tar of an artifact.
type Layer struct {
	// Files are in the order of the tar.
	Files []File
	// Size is that of the whole tar in bytes.
	Size int64
	// offsets are where the headers of the files start.
	offsets []int64
}

// Plan orders the files into layers: the shared one first, then those of single
// files by path. The error names the file and the rule it breaks.
func Plan(files []File) ([]Layer, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("planning the layers: there is no file")
	}
	if len(files) > MaxFiles {
		return nil, fmt.Errorf("planning the layers: %d files, at most %d are allowed", len(files), MaxFiles)
	}
	sorted := slices.Clone(files)
	slices.SortFunc(sorted, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	if err := check(sorted); err != nil {
		return nil, fmt.Errorf("planning the layers: %w", err)
	}
	var shared, own []File
	for _, file := range sorted {
		if file.Size >= OwnLayerSize {
			own = append(own, file)
		} else {
			shared = append(shared, file)
		}
	}
	var layers []Layer
	room := MaxLayers
	if len(shared) > 0 {
		layers = append(layers, newLayer(shared))
		room--
	}
	if len(own) == 0 {
		return layers, nil
	}
	together := (len(own) + room - 1) / room
	for group := range slices.Chunk(own, together) {
		layers = append(layers, newLayer(slices.Clone(group)))
	}
	return layers, nil
}

// check holds sorted files to the rules of a tree that a person can extract anywhere.
func check(sorted []File) error {
	folded := make(map[string]string, len(sorted))
	folders := map[string]string{}
	for i, file := range sorted {
		if err := checkFile(file); err != nil {
			return err
		}
		if i > 0 && sorted[i-1].Path == file.Path {
			return fmt.Errorf("file %q: it is listed twice", file.Path)
		}
		fold := strings.ToLower(file.Path)
		if other, taken := folded[fold]; taken {
			return fmt.Errorf("file %q: it differs from %q in upper and lower case only", file.Path, other)
		}
		folded[fold] = file.Path
		for dir := path.Dir(fold); dir != "."; dir = path.Dir(dir) {
			if _, known := folders[dir]; known {
				break
			}
			folders[dir] = file.Path
		}
	}
	for _, file := range sorted {
		if below, taken := folders[strings.ToLower(file.Path)]; taken {
			return fmt.Errorf("file %q: it is a folder of %q at the same time", file.Path, below)
		}
	}
	return nil
}

func checkFile(file File) error {
	fail := func(rule string) error { return fmt.Errorf("file %.300q: %s", file.Path, rule) }
	switch {
	case file.Path == "":
		return fail("its path is empty")
	case len(file.Path) > maxPath:
		return fail(fmt.Sprintf("its path has %d bytes, at most %d are allowed", len(file.Path), maxPath))
	case !utf8.ValidString(file.Path):
		return fail("its path is not UTF-8")
	case strings.ContainsFunc(file.Path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return fail("its path has a backslash or a control character")
	case path.IsAbs(file.Path), path.Clean(file.Path) != file.Path, file.Path == ".", file.Path == "..", strings.HasPrefix(file.Path, "../"):
		return fail("its path is not relative and clean")
	case len(file.Path) > 1 && file.Path[1] == ':':
		return fail("its path starts with a drive letter")
	case file.Size < 0:
		return fail("its size is unknown")
	case file.Size > MaxFileSize:
		return fail(fmt.Sprintf("it has %d bytes, at most %d are allowed", file.Size, int64(MaxFileSize)))
	}
	for name := range strings.SplitSeq(file.Path, "/") {
		if len(name) > maxName {
			return fail(fmt.Sprintf("a name in its path has %d bytes, at most %d are allowed", len(name), maxName))
		}
		if strings.HasPrefix(name, ".wh.") {
			return fail("a name in its path starts with .wh., which an image layer reads as a deletion")
		}
	}
	return nil
}

func newLayer(files []File) Layer {
	layer := Layer{Files: files, offsets: make([]int64, len(files))}
	for i, file := range files {
		layer.offsets[i] = layer.Size
		layer.Size += headerSize(file) + padded(file.Size)
	}
	layer.Size += trailerSize
	return layer
}

// Path is what the layer is called in annotations and messages: the path of its
// file, or "." when several files share it.
func (l Layer) Path() string {
	if len(l.Files) == 1 {
		return l.Files[0].Path
	}
	return "."
}

// Key is the identity of the layer's bytes as far as the source vouches for them: layers
// with the same key have the same digest. It is "" when the source promises no
// digest for one of the files.
func (l Layer) Key() string {
	hash := sha256.New()
	fmt.Fprintf(hash, "layout %s\n", version)
	for _, file := range l.Files {
		if file.SHA256 == "" {
			return ""
		}
		fmt.Fprintf(hash, "%q %d %s\n", file.Path, file.Size, file.SHA256)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Fingerprint is the identity of a whole plan: of the layers, their files and
// what the source promises for them.
func Fingerprint(layers []Layer) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "layout %s\n", version)
	for i, layer := range layers {
		for _, file := range layer.Files {
			fmt.Fprintf(hash, "%d %q %d %s\n", i, file.Path, file.Size, file.SHA256)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}
