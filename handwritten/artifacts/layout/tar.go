package layout

import (
	"fmt"
	"iter"
	"sort"
	"strconv"
	"strings"
)

// The format is that of POSIX.1-2017, pax(1): ustar headers, and an extended header in
// front of a file whose path or size a ustar header cannot hold.
const (
	blockSize = 512
	// trailerSize is that of the two empty blocks at the end of an archive.
	trailerSize = 2 * blockSize
	// maxOctal is the largest size that the 11 octal digits of a header hold: 8 GiB less one byte.
	maxOctal = 1<<33 - 1
	// fileMode lets everybody read, and only root write, as in an image volume.
	fileMode = 0o644
	// paxName is the name of every extended header. Readers pass over it.
	paxName = "PaxHeaders.0"
)

// Places and lengths of the fields of a header that we fill in, in bytes.
const (
	nameLength, prefixLength                          = 100, 155
	modeAt, uidAt, gidAt, sizeAt, mtimeAt, checksumAt = 100, 108, 116, 124, 136, 148
	typeAt, magicAt, devMajorAt, devMinorAt, prefixAt = 156, 257, 329, 337, 345
)

// Piece is a run of bytes of a layer: Literal ones, or Length bytes of the file
// with the index File from Offset.
type Piece struct {
	// Literal are the bytes themselves; nil for a part of a file.
	Literal []byte
	// File is the index in Layer.Files.
	File int
	// Offset and Length are in bytes, within the file.
	Offset, Length int64
}

// Pieces are the bytes of the tar from an offset to its end, in order. Every file
// has one piece, also when it is empty, so that its end can be noticed.
// An offset beyond the end yields nothing.
func (l Layer) Pieces(from int64) iter.Seq[Piece] {
	return func(yield func(Piece) bool) {
		if from >= l.Size {
			return
		}
		first := max(sort.Search(len(l.offsets), func(i int) bool { return l.offsets[i] > from })-1, 0)
		for i := first; i < len(l.Files); i++ {
			for _, piece := range l.piecesOf(i, from) {
				if !yield(piece) {
					return
				}
			}
		}
		end := l.Size - trailerSize
		yield(Piece{Literal: make([]byte, trailerSize-max(from-end, 0))})
	}
}

// piecesOf are the header, the bytes and the padding of a file, from an offset of the tar.
func (l Layer) piecesOf(index int, from int64) []Piece {
	file := l.Files[index]
	at := l.offsets[index]
	var pieces []Piece
	literal := func(bytes []byte) {
		if skip := max(from-at, 0); skip < int64(len(bytes)) {
			pieces = append(pieces, Piece{Literal: bytes[skip:]})
		}
		at += int64(len(bytes))
	}
	literal(header(file))
	// A file that is read to its end is not opened again only to see the end.
	if skip := max(from-at, 0); skip < file.Size || file.Size == 0 && skip == 0 {
		pieces = append(pieces, Piece{File: index, Offset: skip, Length: file.Size - skip})
	}
	at += file.Size
	literal(make([]byte, padded(file.Size)-file.Size))
	return pieces
}

// padded rounds a size up to whole blocks.
func padded(size int64) int64 { return (size + blockSize - 1) / blockSize * blockSize }

// headerSize is the length of what stands before a file's bytes.
func headerSize(file File) int64 {
	if records := paxRecords(file); records != "" {
		return 2*blockSize + padded(int64(len(records)))
	}
	return blockSize
}

// header is what stands before a file's bytes.
func header(file File) []byte {
	records := paxRecords(file)
	prefix, name, fits := split(file.Path)
	if !fits {
		// Old readers see the beginning of the path, all others the extended header.
		prefix, name = "", strings.ToValidUTF8(ascii(file.Path)[:min(len(ascii(file.Path)), nameLength)], "")
	}
	size := file.Size
	if size > maxOctal {
		size = 0
	}
	own := ustar(prefix, name, size, '0')
	if records == "" {
		return own
	}
	extended := ustar("", paxName, int64(len(records)), 'x')
	extended = append(extended, records...)
	extended = append(extended, make([]byte, padded(int64(len(records)))-int64(len(records)))...)
	return append(extended, own...)
}

// paxRecords are the records of a file's extended header, "" when it needs none.
func paxRecords(file File) string {
	var records string
	if _, _, fits := split(file.Path); !fits {
		records += paxRecord("path", file.Path)
	}
	if file.Size > maxOctal {
		records += paxRecord("size", strconv.FormatInt(file.Size, 10))
	}
	return records
}

// paxRecord is "length key=value\n", where the length counts itself.
func paxRecord(key, value string) string {
	rest := len(key) + len(value) + 3
	length := rest + len(strconv.Itoa(rest))
	if rest+len(strconv.Itoa(length)) != length {
		length = rest + len(strconv.Itoa(length))
	}
	return fmt.Sprintf("%d %s=%s\n", length, key, value)
}

// split cuts a path at a slash so that it fits the two fields of a ustar header.
func split(path string) (prefix, name string, fits bool) {
	if ascii(path) != path {
		return "", "", false
	}
	if len(path) <= nameLength {
		return "", path, true
	}
	cut := strings.LastIndexByte(path[:min(len(path), prefixLength+1)], '/')
	if cut <= 0 || len(path)-cut-1 > nameLength {
		return "", "", false
	}
	return path[:cut], path[cut+1:], true
}

// ascii leaves out what is not ASCII.
func ascii(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 0x80 {
			return -1
		}
		return r
	}, text)
}

// ustar is one header block.
func ustar(prefix, name string, size int64, kind byte) []byte {
	block := make([]byte, blockSize)
	octal := func(at, length int, value int64) {
		copy(block[at:], fmt.Sprintf("%0*o\x00", length-1, value))
	}
	copy(block[:nameLength], name)
	octal(modeAt, 8, fileMode)
	octal(uidAt, 8, 0)
	octal(gidAt, 8, 0)
	octal(sizeAt, 12, size)
	octal(mtimeAt, 12, 0)
	copy(block[checksumAt:], "        ")
	block[typeAt] = kind
	copy(block[magicAt:], "ustar\x0000")
	octal(devMajorAt, 8, 0)
	octal(devMinorAt, 8, 0)
	copy(block[prefixAt:], prefix)
	sum := int64(0)
	for _, b := range block {
		sum += int64(b)
	}
	copy(block[checksumAt:], fmt.Sprintf("%06o\x00 ", sum))
	return block
}
