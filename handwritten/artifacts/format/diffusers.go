package format

import (
	"strings"

	"magicstick.dev/operator/handwritten/artifacts/source"
)

// meaning is what a part of a pipeline's name says.
type meaning struct {
	word   string
	tokens []string
}

// pipelineTasks and pipelineFamilies: the first that matches counts (contract/models.md C.9).
var (
	pipelineTasks = []meaning{
		{"image-to-video", []string{"imagetovideo", "image2video", "stablevideodiffusion"}},
		{"text-to-video", []string{"texttovideo", "text2video"}},
		{"video-to-video", []string{"videotovideo", "video2video"}},
		{"image-to-image", []string{"img2img", "imagetoimage"}},
		{"inpainting", []string{"inpaint"}},
		{"text-to-image", []string{"texttoimage", "text2image", "stablediffusionpipeline", "stablediffusionxlpipeline", "fluxpipeline", "pixart", "kandinsky"}},
		{"text-to-audio", []string{"audioldm", "audiogen"}},
	}
	pipelineFamilies = []meaning{
		{"stable-diffusion", []string{"stablediffusion"}},
		{"flux", []string{"flux"}},
		{"cogvideo", []string{"cogvideo"}},
		{"hunyuan-video", []string{"hunyuan"}},
		{"wan", []string{"wan"}},
		{"audioldm", []string{"audioldm"}},
	}
)

// DiffusersMetadata reads the facts of a Diffusers model from its model_index.json.
func DiffusersMetadata(index []byte, weightsBytes int64, declared source.Declared) (Metadata, error) {
	config, err := parseObject("model_index.json", index)
	if err != nil {
		return Metadata{}, err
	}
	class := value[string](config, "_class_name")
	name := strings.NewReplacer("-", "", "_", "", " ", "", ".", "").Replace(strings.ToLower(class))
	m := Metadata{Format: Diffusers, WeightsBytes: weightsBytes, Architecture: text(class, Exact)}
	m.Family = text(firstMeaning(pipelineFamilies, name), Derived)
	m.Task = text(firstMeaning(pipelineTasks, name), Derived)
	m.withDeclared(source.Declared{PipelineTag: declared.PipelineTag, TaskTypes: declared.TaskTypes, License: declared.License}, false)
	return m, nil
}

func firstMeaning(meanings []meaning, name string) string {
	for _, row := range meanings {
		for _, token := range row.tokens {
			if strings.Contains(name, token) {
				return row.word
			}
		}
	}
	return ""
}
