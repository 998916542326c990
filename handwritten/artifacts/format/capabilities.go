package format

import (
	"slices"
	"strings"

	"magicstick.dev/operator/handwritten/artifacts/source"
)

// capability says what a model of some tasks can do (contract/models.md C.9).
type capability struct {
	tasks, endpoints, features []string
}

var capabilities = []capability{
	{[]string{"text-generation", "text2text-generation", "summarization", "conversational"}, []string{"Chat", "TextGeneration"}, nil},
	{[]string{"feature-extraction", "embeddings", "text-embeddings-inference", "sentence-similarity"}, []string{"Embeddings"}, nil},
	{[]string{"rerank", "reranker", "reranking", "text-ranking"}, []string{"Rerank"}, nil},
	{[]string{"automatic-speech-recognition", "speech-to-text"}, []string{"SpeechToText"}, []string{"AudioInput"}},
	{[]string{"text-to-speech"}, []string{"TextToSpeech"}, []string{"AudioOutput"}},
	{[]string{"text-to-audio", "text-to-music", "audio-generation"}, []string{"AudioGeneration"}, []string{"AudioOutput"}},
	{[]string{"translation", "translation_xx_to_yy"}, []string{"Translation"}, nil},
	{[]string{"image-classification", "zero-shot-image-classification"}, []string{"ImageClassification"}, []string{"VisionInput"}},
	{[]string{"object-detection", "zero-shot-object-detection"}, []string{"ObjectDetection"}, []string{"VisionInput"}},
	{[]string{"image-segmentation"}, []string{"ImageSegmentation"}, []string{"VisionInput"}},
	{[]string{"image-to-text", "image-text-to-text"}, []string{"Chat", "ImageToText"}, []string{"VisionInput", "MultiModalInput"}},
	{[]string{"visual-question-answering", "document-question-answering"}, []string{"VisualQuestionAnswering"}, []string{"VisionInput", "MultiModalInput"}},
	{[]string{"text-to-image", "image-generation", "unconditional-image-generation"}, []string{"ImageGeneration"}, []string{"ImageOutput"}},
	{[]string{"image-to-image", "image-variation", "inpainting", "image-inpainting"}, []string{"ImageGeneration"}, []string{"VisionInput", "ImageOutput"}},
	{[]string{"text-to-video", "video-generation"}, []string{"VideoGeneration"}, []string{"VideoOutput"}},
	{[]string{"image-to-video"}, []string{"VideoGeneration"}, []string{"VisionInput", "VideoOutput"}},
	{[]string{"video-to-video"}, []string{"VideoGeneration"}, []string{"VideoInput", "VideoOutput"}},
}

// Capabilities are the endpoint types and features of a task, none for a task
// without any.
func Capabilities(task string) (endpoints, features []string) {
	for _, row := range capabilities {
		if slices.Contains(row.tasks, task) {
			return slices.Clone(row.endpoints), slices.Clone(row.features)
		}
	}
	return nil, nil
}

// Bounds of status.resolved.sourceCapabilities (contract/models.md B.3).
const (
	maxWords     = 32
	maxWordBytes = 128
)

// words trims names of a provider and drops empty, repeated and long ones, and
// all beyond 32.
func words(names []string) []string {
	var kept []string
	for _, name := range names {
		name = strings.TrimSpace(name)
		if name != "" && len(name) <= maxWordBytes && len(kept) < maxWords && !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	return kept
}

// declaredTask is what a provider calls the task: the one type of its model index,
// else its pipeline tag. Only tasks that lead to capabilities count, and
// any-to-any, which the files decide.
func declaredTask(pipelineTag string, taskTypes []string) string {
	task := pipelineTag
	if types := words(taskTypes); len(types) == 1 {
		task = types[0]
	}
	task = strings.ToLower(strings.TrimSpace(task))
	if endpoints, _ := Capabilities(task); len(endpoints) == 0 && task != anyToAny {
		return ""
	}
	return task
}

// SourceTasks are the provider's own names of tasks for
// status.resolved.sourceCapabilities: at most 32 of 128 bytes each.
func SourceTasks(declared source.Declared) []string {
	tasks := declared.TaskTypes
	if len(tasks) == 0 {
		tasks = []string{declared.PipelineTag}
	}
	return words(tasks)
}
