package format

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"

	"magicstick.dev/operator/handwritten/artifacts/source"
)

// Bounds of a safetensors header (https://huggingface.co/docs/safetensors): the
// format itself allows 100 MB.
const (
	maxSafetensorsHeader = 100_000_000
	maxSafetensors       = 1 << 18 // tensors of one file
	maxTensorDimensions  = 16
)

// dtypeBits are the bits of an element of each type of the format.
var dtypeBits = map[string]int64{
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
	"U64": 64, "I64": 64, "F64": 64, "C64": 64,
}

// Tensor is one of a safetensors file.
type Tensor struct {
	Name string `json:"-"`
	// Type is one of dtypeBits.
	Type string `json:"dtype"`
	// Shape has at most 16 dimensions, each at least 0.
	Shape []int64 `json:"shape"`
	// Offsets are begin and end behind the header, in bytes.
	Offsets []int64 `json:"data_offsets"`
	// Elements is the product of Shape.
	Elements int64 `json:"-"`
}

// ReadSafetensors reads the header of a file by two ranges and checks it: known
// types, sizes that follow from types and shapes, no gap, no overlap, and an end
// that is the end of the file. Tensors come in the order of their bytes.
func ReadSafetensors(ctx context.Context, file source.File) ([]Tensor, error) {
	prefix, err := readRange(ctx, file, 0, 8)
	if err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(prefix)
	if length < 2 || length > maxSafetensorsHeader || file.Size >= 0 && int64(length) > file.Size-8 {
		return nil, broken(file, fmt.Sprintf("the length of the header must be from 2 to %d and inside of the file", maxSafetensorsHeader), fmt.Sprint(length))
	}
	header, err := readRange(ctx, file, 8, int64(length))
	if err != nil {
		return nil, err
	}
	tensors, err := parseSafetensors(header)
	if err == nil {
		err = checkOffsets(tensors, file.Size-8-int64(length), file.Size >= 0)
	}
	if err != nil {
		return nil, broken(file, err.Error(), "")
	}
	return tensors, nil
}

func broken(file source.File, rule, value string) error {
	if value != "" {
		rule += ", is " + value
	}
	return unsupported("reading the header of %.200q: %s", file.Path, rule)
}

// readRange reads exactly length bytes.
func readRange(ctx context.Context, file source.File, offset, length int64) ([]byte, error) {
	if file.Size >= 0 && (length > file.Size || offset > file.Size-length) {
		return nil, broken(file, fmt.Sprintf("it ends at byte %d, in the middle of a value", file.Size), "")
	}
	reader, err := file.Open(ctx, offset, length)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var data bytes.Buffer // grows with what arrives, not with what the header promises
	if _, err := io.CopyN(&data, reader, length); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, broken(file, fmt.Sprintf("it ends at byte %d, in the middle of a value", offset+int64(data.Len())), "")
		}
		return nil, fmt.Errorf("reading the header of %s: %w", file.Path, err)
	}
	return data.Bytes(), nil
}

// parseSafetensors reads the JSON of a header.
func parseSafetensors(header []byte) ([]Tensor, error) {
	decoder := json.NewDecoder(bytes.NewReader(header))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("the header must be a JSON object")
	}
	var tensors []Tensor
	names := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		name, isText := token.(string)
		switch {
		case err != nil || !isText:
			return nil, errors.New("the header is no JSON")
		case names[name]:
			return nil, fmt.Errorf("%.100q occurs twice", name)
		case len(tensors) >= maxSafetensors:
			return nil, fmt.Errorf("more than %d tensors", maxSafetensors)
		}
		names[name] = true
		if name == "__metadata__" {
			var texts map[string]string
			if err := decoder.Decode(&texts); err != nil {
				return nil, errors.New("__metadata__ must be texts by name")
			}
			continue
		}
		tensor := Tensor{Name: name}
		if err := decoder.Decode(&tensor); err != nil {
			return nil, fmt.Errorf("tensor %.100q must have dtype, shape and data_offsets", name)
		}
		if err := tensor.check(); err != nil {
			return nil, fmt.Errorf("tensor %.100q: %w", name, err)
		}
		tensors = append(tensors, tensor)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, errors.New("the header is no JSON")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object of the header")
	}
	return tensors, nil
}

// check compares the size of a tensor with its type and shape.
func (t *Tensor) check() error {
	bits, known := dtypeBits[t.Type]
	switch {
	case !known:
		return fmt.Errorf("dtype %.20q is none of the format", t.Type)
	case len(t.Shape) > maxTensorDimensions:
		return fmt.Errorf("shape has %d dimensions, allowed are %d", len(t.Shape), maxTensorDimensions)
	case len(t.Offsets) != 2 || t.Offsets[0] < 0 || t.Offsets[1] < t.Offsets[0]:
		return errors.New("data_offsets must be begin and end")
	}
	t.Elements = 1
	for _, dimension := range t.Shape {
		if dimension < 0 || dimension > 0 && t.Elements > math.MaxInt64/64/dimension {
			return errors.New("shape must be whole numbers with a product below 2^57")
		}
		t.Elements *= dimension
	}
	if t.Elements*bits%8 != 0 || t.Elements*bits/8 != t.Offsets[1]-t.Offsets[0] {
		return fmt.Errorf("data_offsets span %d bytes, dtype and shape need %d bits", t.Offsets[1]-t.Offsets[0], t.Elements*bits)
	}
	return nil
}

// checkOffsets sorts tensors by their bytes, which must follow one another from 0
// to size.
func checkOffsets(tensors []Tensor, size int64, sized bool) error {
	slices.SortFunc(tensors, func(a, b Tensor) int {
		if a.Offsets[0] != b.Offsets[0] {
			return int(min(max(a.Offsets[0]-b.Offsets[0], -1), 1))
		}
		return int(min(max(a.Offsets[1]-b.Offsets[1], -1), 1))
	})
	end := int64(0)
	for _, tensor := range tensors {
		if tensor.Offsets[0] != end {
			return fmt.Errorf("tensor %.100q begins at byte %d, the one before it ends at %d", tensor.Name, tensor.Offsets[0], end)
		}
		end = tensor.Offsets[1]
	}
	if sized && end != size {
		return fmt.Errorf("the tensors end at byte %d, the file has %d bytes behind the header", end, size)
	}
	return nil
}

// CheckIndex compares an index file (*.index.json) with the files of a selection:
// every file that it names must be there. total is metadata.total_parameters, 0
// when it is not given.
func CheckIndex(name string, content []byte, weights []string) (total int64, err error) {
	var index struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
		Weights  map[string]string          `json:"weight_map"`
	}
	if err := json.Unmarshal(content, &index); err != nil {
		return 0, unsupported("reading the index %.200q: it must be JSON with a weight_map", name)
	}
	missing := map[string]bool{}
	for _, file := range index.Weights {
		if !slices.Contains(weights, path.Join(path.Dir(name), file)) {
			missing[file] = true
		}
	}
	if len(missing) > 0 {
		first := ""
		for file := range missing {
			if first == "" || file < first {
				first = file
			}
		}
		return 0, unsupported("comparing the index %.200q with the files: %d are missing, the first is %.200q", name, len(missing), first)
	}
	if json.Unmarshal(index.Metadata["total_parameters"], &total) != nil || total < 0 {
		total = 0
	}
	return total, nil
}
