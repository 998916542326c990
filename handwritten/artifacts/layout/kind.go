package layout

import (
	"path"
	"strings"
)

// Base names what a ModelPack layer is for. It is part of the layer's media
// type (contract/models.md C.8).
type Base string

// The bases of the CNCF ModelPack specification.
const (
	Weight       Base = "weight"
	WeightConfig Base = "weight.config"
	Code         Base = "code"
	Doc          Base = "doc"
	Dataset      Base = "dataset"
)

// weightSuffixes are files with weights (contract/models.md C.8).
var weightSuffixes = []string{".safetensors", ".gguf", ".bin", ".onnx", ".pt", ".pth", ".ckpt", ".pb", ".tflite"}

// baseBySuffix are the files that are neither weights nor configuration.
var baseBySuffix = map[string]Base{
	".md": Doc, ".pdf": Doc, ".rst": Doc, ".html": Doc,
	".py": Code, ".sh": Code, ".ipynb": Code, ".cpp": Code, ".cu": Code,
	".parquet": Dataset, ".csv": Dataset, ".arrow": Dataset, ".jsonl": Dataset,
}

// IsWeight tells by its name whether a file holds weights.
func IsWeight(name string) bool {
	suffix := strings.ToLower(path.Ext(name))
	for _, weight := range weightSuffixes {
		if suffix == weight {
			return true
		}
	}
	return false
}

// baseOf tells what one file is for. A file that is large enough for a layer of its own
// and has no known name holds weights; a small one configures them.
func baseOf(file File) Base {
	name := strings.ToLower(path.Base(file.Path))
	if IsWeight(name) {
		return Weight
	}
	if base, known := baseBySuffix[path.Ext(name)]; known {
		return base
	}
	if strings.HasPrefix(name, "license") || strings.HasPrefix(name, "readme") || strings.HasPrefix(name, "notice") {
		return Doc
	}
	if file.Size >= OwnLayerSize && path.Ext(name) != ".json" && path.Ext(name) != ".txt" && path.Ext(name) != ".model" {
		return Weight
	}
	return WeightConfig
}

// Base tells what the layer is for: weights when one of its files holds some,
// configuration when one of them is that, otherwise what its first file is for.
func (l Layer) Base() Base {
	first := baseOf(l.Files[0])
	found := first
	for _, file := range l.Files {
		switch base := baseOf(file); base {
		case Weight:
			return Weight
		case WeightConfig:
			found = WeightConfig
		case Code, Doc, Dataset:
		}
	}
	return found
}

// primary is the path of the file that names the model: the first with weights, else the first.
func primary(layers []Layer) string {
	for _, layer := range layers {
		for _, file := range layer.Files {
			if IsWeight(file.Path) {
				return file.Path
			}
		}
	}
	return layers[0].Files[0].Path
}
