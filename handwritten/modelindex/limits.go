package modelindex

// limits are what OpenCode is told of a model, in tokens.
type limits struct {
	Context int64 `json:"context"`
	Output  int64 `json:"output"`
}

// openCodeLimits fills in what the model does not say. No answer is longer than
// the context (contract/appliance.md C.11).
func openCodeLimits(entry Entry, settings Settings) limits {
	l := limits{Context: settings.OpenCodeContextTokens, Output: settings.OpenCodeOutputTokens}
	if entry.ContextWindow > 0 {
		l.Context = entry.ContextWindow
	}
	if entry.MaxOutputTokens > 0 {
		l.Output = entry.MaxOutputTokens
	}
	l.Output = min(l.Output, l.Context)
	return l
}

// paperclipLimits keep a part of the context free, for what Paperclip adds to a
// run, and answers short.
func paperclipLimits(entry Entry, settings Settings) limits {
	l := openCodeLimits(entry, settings)
	if l.Context > 1 {
		l.Context -= min(settings.PaperclipHeadroomTokens, max(1, l.Context/4), l.Context-1)
	}
	l.Output = min(l.Output, settings.PaperclipMaxOutputTokens, max(1, l.Context/4))
	return l
}

// smallContext is up to where OpenClaw must keep less free than its own floor, in
// tokens.
const smallContext = 32768

// compaction is how much OpenClaw keeps free before it shortens a conversation,
// for the default chat model.
func (i Index) compaction() map[string]int64 {
	entry, _ := i.find(i.DefaultChat)
	if entry.ContextWindow > 0 && entry.ContextWindow <= smallContext {
		return map[string]int64{"reserveTokens": max(1024, min(4096, entry.ContextWindow/4)), "reserveTokensFloor": 0}
	}
	return map[string]int64{"reserveTokensFloor": 20000}
}
