package layout

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// content is what a file of a test holds: it follows from the path alone.
func content(file File) []byte {
	out := make([]byte, file.Size)
	for i := range out {
		out[i] = byte(i) ^ byte(len(file.Path)) ^ file.Path[0]
	}
	return out
}

// render writes the tar of a layer from an offset on.
func render(layer Layer, from int64) []byte {
	var out bytes.Buffer
	for piece := range layer.Pieces(from) {
		if piece.Literal != nil {
			out.Write(piece.Literal)
			continue
		}
		out.Write(content(layer.Files[piece.File])[piece.Offset : piece.Offset+piece.Length])
	}
	return out.Bytes()
}

// extract reads a tar with the standard library.
func extract(t assert.TestingT, archive []byte) map[string][]byte {
	tree := map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return tree
		}
		if !assert.NoError(t, err) {
			return tree
		}
		assert.Equal(t, int64(fileMode), header.Mode)
		assert.Zero(t, header.Uid+header.Gid)
		assert.Zero(t, header.ModTime.Unix())
		assert.Equal(t, byte(tar.TypeReg), header.Typeflag)
		data, err := io.ReadAll(reader)
		assert.NoError(t, err)
		assert.NotContains(t, tree, header.Name)
		tree[header.Name] = data
	}
}

// someFiles draws a tree without clashes, with short and long, plain and foreign names.
func someFiles(t *rapid.T) []File {
	name := rapid.OneOf(rapid.StringMatching(`[a-z0-9_-]{1,12}`), rapid.StringMatching(`[a-z]{90,200}`), rapid.StringMatching(`[a-zäöя界]{1,20}`))
	count := rapid.IntRange(1, 12).Draw(t, "files")
	files := make([]File, count)
	for i := range files {
		parts := rapid.SliceOfN(name, 0, 3).Draw(t, "folders")
		// The number keeps paths apart, also as folders of one another.
		parts = append(parts, fmt.Sprintf("f%d.%s", i, rapid.SampledFrom([]string{"json", "gguf", "md"}).Draw(t, "suffix")))
		files[i] = File{Path: strings.Join(parts, "/"), Size: rapid.Int64Range(0, 2000).Draw(t, "size")}
	}
	return files
}

func TestTarExtractsToTheSameTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		files := someFiles(t)
		layers, err := Plan(files)
		require.NoError(t, err)
		got := map[string][]byte{}
		for _, layer := range layers {
			archive := render(layer, 0)
			assert.Len(t, archive, int(layer.Size))
			maps.Copy(got, extract(t, archive))
		}
		want := map[string][]byte{}
		for _, file := range files {
			want[file.Path] = content(file)
		}
		assert.Equal(t, want, got)
	})
}

func TestTarCanBeMadeAgainFromAnyOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layer := newLayer(someFiles(t))
		whole := render(layer, 0)
		from := rapid.Int64Range(0, layer.Size).Draw(t, "from")
		assert.Equal(t, whole[from:], append([]byte{}, render(layer, from)...))
	})
}

func TestOrderOfFilesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		files := someFiles(t)
		files = append(files, File{Path: "big-b.gguf", Size: OwnLayerSize}, File{Path: "big-a.gguf", Size: OwnLayerSize + 1})
		shuffled := slices.Clone(files)
		seed := rapid.Uint64().Draw(t, "seed")
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		first, err := Plan(files)
		require.NoError(t, err)
		second, err := Plan(shuffled)
		require.NoError(t, err)
		assert.Equal(t, first, second)
		assert.Equal(t, Fingerprint(first), Fingerprint(second))
	})
}

func TestEveryFileHasOnePiece(t *testing.T) {
	layer := newLayer([]File{{Path: "a"}, {Path: "b", Size: 1}, {Path: "c", Size: 512}})
	var seen []int
	for piece := range layer.Pieces(0) {
		if piece.Literal == nil {
			seen = append(seen, piece.File)
			assert.Equal(t, layer.Files[piece.File].Size, piece.Length)
		}
	}
	assert.Equal(t, []int{0, 1, 2}, seen)
	for range layer.Pieces(layer.Size) {
		t.Error("there is something behind the end")
	}
}

// TestBigFiles reads the headers of files that no test writes.
func TestBigFiles(t *testing.T) {
	for name, size := range map[string]int64{
		"largest_of_ustar": maxOctal, "smallest_of_pax": maxOctal + 1, "100_GiB": 100 << 30, "largest": MaxFileSize,
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"model.gguf", strings.Repeat("d/", 120) + "model.gguf", strings.Repeat("n", 200) + ".gguf", "модель.gguf"} {
				file := File{Path: path, Size: size}
				layer := newLayer([]File{file})
				assert.Equal(t, headerSize(file)+padded(size)+trailerSize, layer.Size)
				header, err := tar.NewReader(bytes.NewReader(header(file))).Next()
				require.NoError(t, err)
				assert.Equal(t, path, header.Name)
				assert.Equal(t, size, header.Size)
				assert.Equal(t, size > maxOctal || path[0] == 'n' || path[0] > 0x7f, headerSize(file) > blockSize)

				// From inside the file no header is made and nothing before the offset is asked for.
				at := headerSize(file) + size - 10
				pieces := slices.Collect(layer.Pieces(at))
				assert.Equal(t, Piece{File: 0, Offset: size - 10, Length: 10}, pieces[0])
				assert.Equal(t, layer.Size-at, 10+padded(size)-size+trailerSize)
			}
		})
	}
}

// TestTarIsThatOfTheStandardLibrary compares with archive/tar where both write ustar.
func TestTarIsThatOfTheStandardLibrary(t *testing.T) {
	files := []File{{Path: "config.json", Size: 700}, {Path: strings.Repeat("folder/", 20) + "tokenizer.json", Size: 512}}
	layer := newLayer(files)
	var want bytes.Buffer
	writer := tar.NewWriter(&want)
	for _, file := range files {
		require.NoError(t, writer.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file.Path, Size: file.Size, Mode: fileMode, Format: tar.FormatUSTAR}))
		_, err := writer.Write(content(file))
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
	assert.Equal(t, digest.FromBytes(want.Bytes()), digest.FromBytes(render(layer, 0)))
}
