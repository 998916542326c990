package format

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// The tables of this file are those of contract/models.md C.7. Names are compared
// in lower case.
var (
	ignoredFolders = []string{
		"__macosx", "assets", "benchmark", "benchmarks", "docs", "encoding", "eval", "evaluation", "example",
		"examples", "figures", "images", "notebooks", "onnx", "openvino", "coreml", "tflite", "original", "metal",
		"scripts", "test", "tests",
	}
	companionNames = []string{
		"generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
		"preprocessor_config.json", "processor_config.json", "added_tokens.json", "vocab.json", "vocab.txt",
		"merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "chat_template.jinja",
		"modules.json", "dtypes.json", "params", "params.json",
	}
	companionSuffixes = []string{".json", ".yaml", ".yml", ".xml", ".jinja", ".model", ".txt"}
	companionWords    = []string{
		"config", "tokenizer", "vocab", "merge", "special_tokens", "added_tokens", "preprocessor", "processor",
		"chat_template", "module", "pooling", "params", "dtype", "template",
	}
	refusedSuffixes = []string{
		".so", ".dll", ".dylib", ".exe", ".jar", ".class", ".wasm", ".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz",
		".7z", ".rar",
	}
)

// splitPart is a part of a GGUF model in several files, as llama.cpp names it.
var splitPart = regexp.MustCompile(`(?i)^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// isIgnored tells a file in a folder, or with a name, that belongs to no model.
func isIgnored(name string) bool {
	for part := range strings.SplitSeq(strings.ToLower(name), "/") {
		if strings.HasPrefix(part, ".") || slices.Contains(ignoredFolders, part) {
			return true
		}
	}
	return false
}

// isCompanion tells a file that configures a model beside its config.json.
func isCompanion(name string) bool {
	name = strings.ToLower(name)
	base := path.Base(name)
	if slices.Contains(companionNames, name) || strings.HasSuffix(base, ".index.json") {
		return true
	}
	contains := func(word string) bool { return strings.Contains(base, word) }
	return slices.Contains(companionSuffixes, path.Ext(base)) && slices.ContainsFunc(companionWords, contains)
}

// isRefused tells a file that makes the whole model suspicious: code, or an
// archive that nobody would look into.
func isRefused(name string) bool {
	return slices.Contains(refusedSuffixes, strings.ToLower(path.Ext(name)))
}

// hasSuffix compares the end of a name in lower case.
func hasSuffix(name, suffix string) bool { return strings.HasSuffix(strings.ToLower(name), suffix) }

// isPickle tells weights of a Diffusers model that run code when they are loaded.
func isPickle(name string) bool {
	folder, base := path.Split(strings.ToLower(name))
	return folder != "" && strings.HasSuffix(base, ".bin") && (strings.Contains(base, "pytorch_model") || base == "model.bin")
}

// isProjector tells the companion of a GGUF model that reads images or sound.
func isProjector(name string) bool {
	return strings.HasPrefix(strings.ToLower(path.Base(name)), "mmproj")
}

// ggufSet names the model that a GGUF file belongs to: its own path, or the path of
// all parts without their numbers. part and parts are 0 for a single file.
func ggufSet(name string) (set string, part, parts int) {
	found := splitPart.FindStringSubmatch(name)
	if found == nil {
		return name, 0, 0
	}
	return found[1] + "-of-" + found[3] + ".gguf", number(found[2]), number(found[3])
}

// number reads five digits.
func number(digits string) int {
	value := 0
	for _, digit := range digits {
		value = value*10 + int(digit-'0')
	}
	return value
}
