package ollama

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Media types of the registry.
const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	ociManifest    = "application/vnd.oci.image.manifest.v1+json"

	modelLayer     = "application/vnd.ollama.image.model"
	projectorLayer = "application/vnd.ollama.image.projector"
	adapterLayer   = "application/vnd.ollama.image.adapter"
	licenseLayer   = "application/vnd.ollama.image.license"
	paramsLayer    = "application/vnd.ollama.image.params"
)

// Bounds in bytes (contract/models.md C.4; that of the manifest is ours).
const (
	maxManifest = 1 << 20
	maxConfig   = 1 << 20
	maxSmall    = 256 << 10
)

// maxFact bounds one text that a model declares, in bytes.
const maxFact = 128

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// descriptor names a blob.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

func (d descriptor) check(limit int64) error {
	switch {
	case d.MediaType == "":
		return errors.New("a layer has no media type")
	case !digestPattern.MatchString(d.Digest):
		return fmt.Errorf("layer %.80s has no SHA-256 digest", d.MediaType)
	case d.Size <= 0 || limit > 0 && d.Size > limit:
		return fmt.Errorf("layer %.80s has the size %d", d.MediaType, d.Size)
	}
	return nil
}

// parts are the blobs of a model that matter here; optional ones may be nil.
type parts struct {
	config, model              descriptor
	projector, license, params *descriptor
}

// parseManifest reads a manifest and chooses the blobs (contract/models.md C.4).
func parseManifest(data []byte) (parts, error) {
	var manifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		return parts{}, errors.New("it is not the JSON of a manifest")
	}
	switch {
	case manifest.SchemaVersion != 2:
		return parts{}, fmt.Errorf("its schemaVersion is %d, supported is 2", manifest.SchemaVersion)
	case manifest.MediaType != "" && manifest.MediaType != dockerManifest && manifest.MediaType != ociManifest:
		return parts{}, fmt.Errorf("its media type %.80q is not supported", manifest.MediaType)
	}
	if err := manifest.Config.check(maxConfig); err != nil {
		return parts{}, fmt.Errorf("config: %w", err)
	}
	chosen := parts{config: manifest.Config}
	models := 0
	for _, layer := range manifest.Layers {
		var err error
		switch layer.MediaType {
		case modelLayer:
			models++
			chosen.model, err = layer, layer.check(0)
		case adapterLayer:
			err = errors.New("it has an adapter, which is no model by itself")
		case projectorLayer:
			if chosen.projector != nil {
				return parts{}, errors.New("it has more than one projector")
			}
			chosen.projector, err = &layer, layer.check(0)
		case paramsLayer:
			if chosen.params != nil {
				return parts{}, errors.New("it has more than one layer of parameters")
			}
			chosen.params, err = &layer, layer.check(maxSmall)
		case licenseLayer:
			// Some models have a second one, the acceptable use policy.
			if chosen.license == nil {
				chosen.license, err = &layer, layer.check(maxSmall)
			}
		}
		if err != nil {
			return parts{}, err
		}
	}
	if models != 1 {
		return parts{}, fmt.Errorf("it has %d model layers, supported is 1", models)
	}
	return chosen, nil
}

// config is what a model's configuration declares; the rest is ignored.
type config struct {
	Format   string   `json:"model_format"`
	Family   string   `json:"model_family"`
	Families []string `json:"model_families"`
	Type     string   `json:"model_type"`
	FileType string   `json:"file_type"`
	Renderer string   `json:"renderer"`
	Parser   string   `json:"parser"`
}

func parseConfig(data []byte) (config, error) {
	var parsed config
	if err := json.Unmarshal(data, &parsed); err != nil {
		return config{}, errors.New("it is not the JSON of a configuration")
	}
	if !strings.EqualFold(parsed.Format, "gguf") {
		return config{}, fmt.Errorf("the model format %.40q is not supported, gguf is", parsed.Format)
	}
	if parsed.Family == "" && len(parsed.Families) > 0 {
		parsed.Family = parsed.Families[0]
	}
	for _, text := range []*string{&parsed.Family, &parsed.Type, &parsed.FileType, &parsed.Renderer, &parsed.Parser} {
		if *text = strings.TrimSpace(*text); len(*text) > maxFact {
			*text = ""
		}
	}
	return parsed, nil
}

// features are the names of the registry's own renderers and parsers.
func (c config) features() []string {
	var names []string
	for _, name := range []string{c.Renderer, c.Parser} {
		if name != "" && (len(names) == 0 || names[0] != name) {
			names = append(names, name)
		}
	}
	return names
}

// fileName is that of the model's file (contract/models.md C.4).
func fileName(reference Reference, fileType string) string {
	name := reference.Name + "-" + reference.Tag
	if fileType = strings.ToLower(fileType); word.MatchString(fileType) {
		name += "-" + fileType
	}
	return name + ".gguf"
}

var countPattern = regexp.MustCompile(`^([0-9]{1,9}(?:\.[0-9]{1,9})?)([BMK])$`)

// parameterCount reads "8.2B", "137M" or "22K"; 0 when it is none of these.
func parameterCount(text string) int64 {
	match := countPattern.FindStringSubmatch(strings.ToUpper(strings.TrimSpace(text)))
	if match == nil {
		return 0
	}
	value, err := strconv.ParseFloat(match[1], 64)
	value = math.Round(value * map[string]float64{"B": 1e9, "M": 1e6, "K": 1e3}[match[2]])
	if err != nil || value >= 1<<53 {
		return 0
	}
	return int64(value)
}

// contextWindow is num_ctx of the params, 0 when they have none.
func contextWindow(data []byte) int64 {
	var params struct {
		Context json.Number `json:"num_ctx"`
	}
	if json.Unmarshal(data, &params) != nil {
		return 0
	}
	tokens, err := params.Context.Int64()
	if err != nil || tokens <= 0 {
		return 0
	}
	return tokens
}

// firstLine is what a licence text is called.
func firstLine(data []byte) string {
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && len(line) <= maxFact && utf8.ValidString(line) {
			return line
		}
	}
	return ""
}
