package format

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
)

// Formats of models, as status.resolved.format names them (contract/models.md B.3).
const (
	Safetensors = "Safetensors"
	GGUF        = "GGUF"
	Diffusers   = "Diffusers"
)

// maxChoices bounds how many quantizations an error names.
const maxChoices = 20

// Options say what a person or the configuration wants.
type Options struct {
	// AllowPickle accepts weights that run code when they are loaded
	// (publication.allowPickle).
	AllowPickle bool
	// Wanted is the path of the GGUF file that a reference named, "" for none; one
	// part stands for all.
	Wanted string
}

// Selection is what belongs to a model.
type Selection struct {
	// Format is Safetensors, GGUF or Diffusers.
	Format string
	// Files are in the order of the source.
	Files []source.File
	// Config is the path of config.json or model_index.json, "" for GGUF.
	Config string
	// Weights are the paths of the files with weights, projectors not included.
	Weights []string
}

// Select finds the format of files and those that belong to the model. Exactly one
// format must match, except when Wanted names a GGUF file. A single file without
// an extension is looked into: its first four bytes tell GGUF.
func Select(ctx context.Context, files []source.File, options Options) (Selection, error) {
	if len(files) == 1 && path.Ext(files[0].Path) == "" && !isIgnored(files[0].Path) {
		known, err := startsWith(ctx, files[0], "GGUF")
		if err != nil {
			return Selection{}, err
		}
		if known {
			return Selection{Format: GGUF, Files: files, Weights: []string{files[0].Path}}, nil
		}
	}
	if hasSuffix(options.Wanted, ".gguf") {
		return selectGGUF(files, options)
	}
	var matches []Selection
	var reasons, names []string
	for _, try := range []func([]source.File, Options) (Selection, error){selectDiffusers, selectSafetensors, selectGGUF} {
		selection, err := try(files, options)
		if err != nil {
			reasons = append(reasons, err.Error())
			continue
		}
		matches, names = append(matches, selection), append(names, selection.Format)
	}
	switch len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		return Selection{}, unsupported("finding the format of %d files: %s", len(files), strings.Join(reasons, "; "))
	}
	return Selection{}, unsupported("finding the format of %d files: they match %s; include or exclude files until one is left",
		len(files), strings.Join(names, " and "))
}

func unsupported(format string, arguments ...any) error {
	return source.Fail(conditions.ModelReasonUnsupportedFormat, nil, format, arguments...)
}

// startsWith reads the first bytes of a file. A file that is shorter does not have them.
func startsWith(ctx context.Context, file source.File, magic string) (bool, error) {
	if file.Size >= 0 && file.Size < int64(len(magic)) {
		return false, nil
	}
	reader, err := file.Open(ctx, 0, int64(len(magic)))
	if err != nil {
		return false, err
	}
	defer reader.Close()
	first, err := io.ReadAll(io.LimitReader(reader, int64(len(magic))))
	if err != nil {
		return false, fmt.Errorf("reading the first bytes of %s: %w", file.Path, err)
	}
	return string(first) == magic, nil
}

func selectSafetensors(files []source.File, _ Options) (Selection, error) {
	selection := Selection{Format: Safetensors}
	pickle := false
	for _, file := range files {
		name := file.Path
		switch {
		case isIgnored(name):
		case name == "model_index.json":
			return Selection{}, unsupported("%s: model_index.json makes it a Diffusers model", Safetensors)
		case name == "config.json":
			selection.Config = name
			selection.Files = append(selection.Files, file)
		case isCompanion(name):
			selection.Files = append(selection.Files, file)
		case isRefused(name):
			return Selection{}, unsupported("%s: the file %q may not be in a model", Safetensors, name)
		case hasSuffix(name, ".safetensors"):
			selection.Files, selection.Weights = append(selection.Files, file), append(selection.Weights, name)
		default:
			pickle = pickle || hasSuffix(name, ".bin") || hasSuffix(name, ".pt") || hasSuffix(name, ".pth")
		}
	}
	switch {
	case len(selection.Weights) == 0 && pickle:
		return Selection{}, unsupported("%s: no file with weights (*.safetensors); weights as pickle are refused, because loading them runs code", Safetensors)
	case len(selection.Weights) == 0:
		return Selection{}, unsupported("%s: no file with weights (*.safetensors)", Safetensors)
	case selection.Config == "":
		return Selection{}, unsupported("%s: no config.json beside the weights", Safetensors)
	}
	return selection, nil
}

func selectDiffusers(files []source.File, options Options) (Selection, error) {
	selection := Selection{Format: Diffusers}
	safe := map[string]bool{}
	var pickles []source.File
	for _, file := range files {
		name := file.Path
		switch {
		case isIgnored(name):
		case name == "model_index.json":
			selection.Config = name
			selection.Files = append(selection.Files, file)
		case isCompanion(name):
			selection.Files = append(selection.Files, file)
		case isRefused(name):
			return Selection{}, unsupported("%s: the file %q may not be in a model", Diffusers, name)
		case hasSuffix(name, ".safetensors"):
			safe[path.Dir(name)] = true
			selection.Files, selection.Weights = append(selection.Files, file), append(selection.Weights, name)
		case isPickle(name):
			pickles = append(pickles, file)
		}
	}
	if selection.Config == "" {
		return Selection{}, unsupported("%s: no model_index.json", Diffusers)
	}
	for _, file := range pickles {
		if options.AllowPickle {
			selection.Files, selection.Weights = append(selection.Files, file), append(selection.Weights, file.Path)
		} else if !safe[path.Dir(file.Path)] {
			return Selection{}, unsupported("%s: the weights %q are a pickle, refused because loading them runs code", Diffusers, file.Path)
		}
	}
	if len(selection.Weights) == 0 {
		return Selection{}, unsupported("%s: no file with weights (*.safetensors)", Diffusers)
	}
	slices.SortFunc(selection.Files, func(a, b source.File) int { return strings.Compare(a.Path, b.Path) })
	return selection, nil
}

func selectGGUF(files []source.File, options Options) (Selection, error) {
	sets := map[string][]string{}
	var projectors []string
	for _, file := range files {
		switch name := file.Path; {
		case isIgnored(name) || isCompanion(name):
		case isRefused(name):
			return Selection{}, unsupported("%s: the file %q may not be in a model", GGUF, name)
		case !hasSuffix(name, ".gguf"):
		case isProjector(name):
			projectors = append(projectors, name)
		default:
			set, _, _ := ggufSet(name)
			sets[set] = append(sets[set], name)
		}
	}
	weights, err := chooseSet(sets, options.Wanted)
	if err != nil {
		return Selection{}, err
	}
	if err := complete(weights); err != nil {
		return Selection{}, err
	}
	selection := Selection{Format: GGUF, Weights: weights}
	projector := chooseProjector(projectors)
	for _, file := range files {
		belongs := isCompanion(file.Path) && !isIgnored(file.Path) || file.Path == projector || slices.Contains(weights, file.Path)
		if belongs {
			selection.Files = append(selection.Files, file)
		}
	}
	return selection, nil
}

// chooseSet takes the one model of a repository, or the one that was named.
func chooseSet(sets map[string][]string, wanted string) ([]string, error) {
	if wanted != "" {
		set, _, _ := ggufSet(wanted)
		if weights := sets[set]; len(weights) > 0 {
			return weights, nil
		}
		return nil, unsupported("%s: the file %q is not among the weights", GGUF, wanted)
	}
	choices := make([]string, 0, len(sets))
	for _, weights := range sets {
		choices = append(choices, weights[0])
	}
	slices.Sort(choices)
	switch len(choices) {
	case 0:
		return nil, unsupported("%s: no file with weights (*.gguf)", GGUF)
	case 1:
		set, _, _ := ggufSet(choices[0])
		return sets[set], nil
	}
	return nil, unsupported("%s: %d models in one repository, name the file of one: %s", GGUF, len(choices),
		strings.Join(choices[:min(len(choices), maxChoices)], ", "))
}

// complete refuses a model in several files of which one is missing or too many.
func complete(weights []string) error {
	_, _, parts := ggufSet(weights[0])
	if parts == 0 {
		return nil
	}
	have := map[int]bool{}
	for _, name := range weights {
		_, part, _ := ggufSet(name)
		if part < 1 || part > parts || have[part] {
			return unsupported("%s: the file %q is not one of the parts 1 to %d", GGUF, name, parts)
		}
		have[part] = true
	}
	for part := 1; part <= parts; part++ {
		if !have[part] {
			return unsupported("%s: part %d of %d is missing beside %q", GGUF, part, parts, weights[0])
		}
	}
	return nil
}

// chooseProjector takes one of several precisions: 16 bits when there are some, as
// the runtimes do, else the first by name; "" for none.
func chooseProjector(projectors []string) string {
	if len(projectors) == 0 {
		return ""
	}
	slices.Sort(projectors)
	for _, word := range []string{"f16", "bf16"} {
		for _, name := range projectors {
			base := strings.ToLower(path.Base(name))
			if strings.Contains(base, word) && (word == "bf16" || !strings.Contains(base, "bf16")) {
				return name
			}
		}
	}
	return projectors[0]
}
