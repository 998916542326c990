package modelindex

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		context, output     int64
		openCode, paperclip limits
	}{
		"U032_U034_what_the_model_says":                   {20000, 8192, limits{20000, 8192}, limits{15904, 3976}},
		"U033_no_answer_longer_than_the_context":          {4096, 32000, limits{4096, 4096}, limits{3072, 768}},
		"nothing_known":                                   {0, 0, limits{131072, 8192}, limits{126976, 4096}},
		"only_the_context":                                {8192, 0, limits{8192, 8192}, limits{6144, 1536}},
		"smallest_context":                                {1, 5, limits{1, 1}, limits{1, 1}},
		"context_of_two_keeps_one":                        {2, 5, limits{2, 2}, limits{1, 1}},
		"context_of_five":                                 {5, 5, limits{5, 5}, limits{4, 1}},
		"headroom_is_at_most_4096":                        {1 << 20, 1 << 19, limits{1 << 20, 1 << 19}, limits{1<<20 - 4096, 4096}},
		"small_answer_stays_small":                        {100000, 10, limits{100000, 10}, limits{95904, 10}},
		"default_output_does_not_pass_an_unknown_context": {0, 200000, limits{131072, 131072}, limits{126976, 4096}},
	} {
		t.Run(name, func(t *testing.T) {
			entry := Entry{ContextWindow: test.context, MaxOutputTokens: test.output}
			assert.Equal(t, test.openCode, openCodeLimits(entry, DefaultSettings()))
			assert.Equal(t, test.paperclip, paperclipLimits(entry, DefaultSettings()))
		})
	}
	settings := DefaultSettings()
	settings.PaperclipHeadroomTokens = 0
	assert.Equal(t, limits{20000, 4096}, paperclipLimits(Entry{ContextWindow: 20000, MaxOutputTokens: 8192}, settings), "without headroom")
}

func TestCompaction(t *testing.T) {
	large := map[string]int64{"reserveTokensFloor": 20000}
	small := func(reserve int64) map[string]int64 {
		return map[string]int64{"reserveTokens": reserve, "reserveTokensFloor": 0}
	}
	for name, test := range map[string]struct {
		context int64
		want    map[string]int64
	}{
		"U038_20000":     {20000, small(4096)},
		"U039_128000":    {128000, large},
		"U040_8192":      {8192, small(2048)},
		"32768_is_small": {32768, small(4096)},
		"32769_is_large": {32769, large},
		"tiny":           {1000, small(1024)},
		"unknown":        {0, large},
	} {
		t.Run(name, func(t *testing.T) {
			index := indexOfEntries([]Entry{{ID: "m", Type: typeChat, ContextWindow: test.context}}, DefaultSettings())
			assert.Equal(t, test.want, index.compaction())
		})
	}
	assert.Equal(t, large, Index{}.compaction(), "U041 without a model")
}

// U041: in the file that Flux ships, the reference is escaped; what is made here
// is not sent through Flux.
func TestBootstrap(t *testing.T) {
	files := Bootstrap(DefaultSettings())
	assert.Equal(t, "false", files.Data[KeyReady])
	assert.Equal(t, BootstrapHash, files.Data[KeyHash])
	assert.Equal(t, "", files.Data[KeyDefaultChat])
	assert.Contains(t, files.Data[KeyOpenClaw], `"${LITELLM_API_KEY}"`)
	assert.Contains(t, files.Data[KeyOpenClaw], `"reserveTokensFloor": 20000`)
	assert.Contains(t, files.Data[KeyOpenClaw], `"profile": "coding"`)
	assert.NotContains(t, files.Data[KeyOpenClaw], "primary")
	assert.Len(t, files.Data, 14)
	for key, content := range files.Data {
		if strings.HasSuffix(key, ".json") || strings.HasSuffix(key, ".yaml") {
			assert.True(t, json.Valid([]byte(content)), key)
			assert.True(t, strings.HasSuffix(content, "}\n"), key)
			assert.Contains(t, content, "\n  \"", key)
		}
	}
}

func TestDefaults(t *testing.T) {
	entries := []Entry{
		{ID: "b", Type: typeChat}, {ID: "a", Type: typeChat}, {ID: "e", Type: typeEmbedding}, {ID: "picture", Type: "image_generation"},
	}
	for name, test := range map[string]struct{ chat, embedding, wantChat, wantEmbedding string }{
		"automatic":           {"auto", "auto", "a", "e"},
		"asked_for":           {"b", "e", "b", "e"},
		"of_another_type":     {"e", "a", "a", "e"},
		"unknown":             {"x", "x", "a", "e"},
		"nothing_asked_for":   {"", "", "a", "e"},
		"neither_of_the_type": {"picture", "picture", "a", "e"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := DefaultSettings()
			settings.DefaultChatModel, settings.DefaultEmbeddingModel = test.chat, test.embedding
			index := indexOfEntries(slices.Clone(entries), settings)
			assert.Equal(t, test.wantChat, index.DefaultChat)
			assert.Equal(t, test.wantEmbedding, index.DefaultEmbedding)
		})
	}
}

func TestHash(t *testing.T) {
	base := indexOfEntries([]Entry{{ID: "a", Type: typeChat}}, DefaultSettings())
	hash := base.Hash(DefaultSettings())
	assert.Regexp(t, `^[0-9a-f]{16}$`, hash)
	assert.Equal(t, hash, indexOfEntries([]Entry{{ID: "a", Type: typeChat}}, DefaultSettings()).Hash(DefaultSettings()))
	different := map[string]string{hash: "base"}
	for name, settings := range map[string]func(*Settings){
		"context":   func(s *Settings) { s.OpenCodeContextTokens = 1 },
		"output":    func(s *Settings) { s.OpenCodeOutputTokens = 1 },
		"paperclip": func(s *Settings) { s.PaperclipMaxOutputTokens = 1 },
		"headroom":  func(s *Settings) { s.PaperclipHeadroomTokens = 1 },
		"address":   func(s *Settings) { s.LiteLLMAPIBase = "http://other/v1" },
	} {
		changed := DefaultSettings()
		settings(&changed)
		other := base.Hash(changed)
		assert.Empty(t, different[other], "%s is in the hash", name)
		different[other] = name
	}
	more := indexOfEntries([]Entry{{ID: "a", Type: typeChat, ContextWindow: 7}}, DefaultSettings())
	assert.NotEqual(t, hash, more.Hash(DefaultSettings()))
}

// What LiteLLM shows is foreign: names, numbers and types as it likes.
func TestEntry(t *testing.T) {
	read := func(info string) Entry {
		deployment := Deployment{Name: "m", Params: map[string]any{"model": "p/m", "api_base": "https://user:secret@h/v1?key=secret"}}
		require.NoError(t, decodeNumbers([]byte(info), &deployment.Info))
		return entryOf(deployment)
	}
	for name, test := range map[string]struct {
		info            string
		context, output int64
		kind            string
	}{
		"first_positive_counts":      {`{"max_input_tokens": 0, "contextWindow": -1, "context_window": null, "context_length": "700", "max_context_length": 5, "max_tokens": 6}`, 700, 0, typeChat},
		"max_tokens_comes_last":      {`{"max_tokens": 6, "max_completion_tokens": 4.0}`, 6, 4, typeChat},
		"not_numbers":                {`{"max_input_tokens": "many", "max_output_tokens": [1], "max_tokens": 1.5}`, 0, 0, typeChat},
		"mark_wins":                  {`{"ai_appliance_type": "embedding", "mode": "chat"}`, 0, 0, typeEmbedding},
		"mode":                       {`{"mode": "embedding"}`, 0, 0, typeEmbedding},
		"a_picture_model_is_no_chat": {`{"mode": "image_generation"}`, 0, 0, "image_generation"},
		"completion_is_chat":         {`{"mode": "completion"}`, 0, 0, typeChat},
		"features":                   {`{"features": ["TextEmbedding", 3]}`, 0, 0, typeEmbedding},
	} {
		t.Run(name, func(t *testing.T) {
			entry := read(test.info)
			assert.Equal(t, test.context, entry.ContextWindow)
			assert.Equal(t, test.output, entry.MaxOutputTokens)
			assert.Equal(t, test.kind, entry.Type)
			assert.Equal(t, "https://h/v1", entry.LiteLLM.APIBase, "no password in the index")
			assert.False(t, entry.Managed)
			assert.Equal(t, Source("litellm"), entry.Source)
		})
	}
}

func TestTypeOf(t *testing.T) {
	for name, test := range map[string]struct {
		features []string
		name     string
		want     string
	}{
		"embedding":              {[]string{"TextGeneration", "TextEmbedding"}, "m", typeEmbedding},
		"generation":             {[]string{"TextGeneration"}, "my-embedding", typeChat},
		"chat":                   {[]string{"chat"}, "my-embedding", typeChat},
		"name":                   {nil, "My-Embedding-2", typeEmbedding},
		"nothing":                {[]string{"SpeechToText"}, "whisper", typeChat},
		"feature_none_name_says": {[]string{"Reranking"}, "embedding-rank", typeEmbedding},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, typeOf(test.features, test.name)) })
	}
}

func TestMaxModelLen(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want int64
	}{
		"joined":        {[]string{"--max-model-len=4096"}, 4096},
		"apart":         {[]string{"--x", "--max-model-len", "4096", "--y"}, 4096},
		"underscores":   {[]string{"--max_model_len", "7"}, 7},
		"last_counts":   {[]string{"--max-model-len=1", "--max_model_len=2"}, 2},
		"not_a_number":  {[]string{"--max-model-len=auto"}, 0},
		"at_the_end":    {[]string{"--max-model-len"}, 0},
		"other_options": {[]string{"--max-model-length=5", "max-model-len=6"}, 0},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, maxModelLen(test.args)) })
	}
}

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"qwen3827b": "qwen3827b", "Open AI/GPT 4": "open-ai-gpt-4", "a_b.c-d": "a_b.c-d", "--x--": "x", "": "model", "ß": "model",
	} {
		assert.Equal(t, want, slug(name), name)
	}
}

func external(name, model string) *appliancev1alpha1.ModelActivation {
	return &appliancev1alpha1.ModelActivation{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appliancev1alpha1.ModelActivationSpec{
			Type: appliancev1alpha1.ModelActivationSpecTypeExternal, TargetNamespace: "ai",
			External: &appliancev1alpha1.ModelActivationSpecExternal{Model: model},
		},
	}
}

func desireOne(change func(*appliancev1alpha1.ModelActivationSpecExternal), keys map[KeyRef]Key) Desired {
	activation := external("m", "openai/m")
	if change != nil {
		change(activation.Spec.External)
	}
	return Desire(Facts{Activations: []*appliancev1alpha1.ModelActivation{activation}, Keys: keys}, DefaultSettings())
}

func TestSync(t *testing.T) {
	ref := KeyRef{"s", "k"}
	withKey := func(value string) Desired {
		return desireOne(func(e *appliancev1alpha1.ModelActivationSpecExternal) {
			e.APIKeySecretRef = &appliancev1alpha1.ModelActivationSpecExternalAPIKeySecretRef{Name: "s", Key: "k"}
			e.APIBase = "https://h"
		}, map[KeyRef]Key{ref: {Value: value}})
	}
	// shown is what LiteLLM shows of what it was sent.
	shown := func(desired Desired, edit func(*Deployment)) []Deployment {
		deployment := Wanted(desired.Records["m"], "ai-appliance-external-m", testKey)
		deployment.Params, deployment.Info = maps.Clone(deployment.Params), maps.Clone(deployment.Info)
		delete(deployment.Params, "api_key")
		deployment.Params["use_in_pass_through"] = false
		deployment.Info["db_model"], deployment.Info["input_cost_per_token"] = true, nil
		if edit != nil {
			edit(&deployment)
		}
		return []Deployment{deployment}
	}
	for name, test := range map[string]struct {
		have   []Deployment
		want   Desired
		key    string
		memory Memory
		verbs  []Verb
	}{
		"nothing_to_do_with_what_LiteLLM_adds_and_hides": {have: shown(withKey("a"), nil), want: withKey("a")},
		"renewed_key_is_an_update":                       {have: shown(withKey("a"), nil), want: withKey("b"), verbs: []Verb{Update}},
		"renewed_master_key_is_an_update":                {have: shown(withKey("a"), nil), want: withKey("a"), key: "sk-new", verbs: []Verb{Update}},
		"key_that_must_go_is_a_replacement":              {have: shown(withKey("a"), nil), want: desireOne(nil, nil), verbs: []Verb{Replace}},
		"changed_in_LiteLLM_is_taken_back": {have: shown(withKey("a"), func(d *Deployment) { d.Params["api_base"] = "https://evil" }),
			want: withKey("a"), verbs: []Verb{Update}},
		"update_that_did_not_show_is_made_anew": {have: shown(withKey("a"), nil), want: withKey("b"),
			memory: Memory{Updated: map[string]bool{"ai-appliance-external-m": true}}, verbs: []Verb{Replace}},
		"words_of_LiteLLM_s_own_are_accepted": {
			have: shown(withKey("a"), func(d *Deployment) { d.Params["api_base"] = "https://h/" }), want: withKey("a"),
			memory: Memory{Accepted: map[string]string{"ai-appliance-external-m": Shown(shown(withKey("a"), func(d *Deployment) { d.Params["api_base"] = "https://h/" })[0])}},
		},
		"not_wanted_any_more": {have: shown(withKey("a"), nil), want: Desire(Facts{}, DefaultSettings()), verbs: []Verb{Remove}},
		"held_when_the_secret_cannot_be_read": {have: shown(withKey("a"), nil), want: desireOne(func(e *appliancev1alpha1.ModelActivationSpecExternal) {
			e.APIKeySecretRef = &appliancev1alpha1.ModelActivationSpecExternalAPIKeySecretRef{Name: "s", Key: "k"}
		}, map[KeyRef]Key{ref: {Unknown: "API server away"}})},
		"taken_away_when_the_secret_is_gone": {have: shown(withKey("a"), nil), want: desireOne(func(e *appliancev1alpha1.ModelActivationSpecExternal) {
			e.APIKeySecretRef = &appliancev1alpha1.ModelActivationSpecExternalAPIKeySecretRef{Name: "s", Key: "k"}
		}, map[KeyRef]Key{ref: {Missing: "gone"}}), verbs: []Verb{Remove}},
	} {
		t.Run(name, func(t *testing.T) {
			key := test.key
			if key == "" {
				key = testKey
			}
			var verbs []Verb
			for _, change := range Sync(test.have, test.want, key, test.memory).Changes {
				verbs = append(verbs, change.Verb)
			}
			assert.Equal(t, test.verbs, verbs)
		})
	}
}

func TestSyncHoldsWholeSources(t *testing.T) {
	managed := func(name string, source Source, listed bool) Deployment {
		return Deployment{Name: name, Info: map[string]any{"id": name, infoManaged: true, infoSource: string(source), infoListed: listed}}
	}
	have := []Deployment{managed("local", SourceKubeAI, true), managed("listed", SourceExternal, true), managed("activated", SourceExternal, false)}
	ids := func(desired Desired) (gone []string) {
		for _, change := range Sync(have, desired, testKey, Memory{}).Changes {
			gone = append(gone, change.ID)
		}
		slices.Sort(gone)
		return gone
	}
	assert.Equal(t, []string{"activated", "listed", "local"}, ids(Desire(Facts{}, DefaultSettings())))
	assert.Equal(t, []string{"activated", "listed"}, ids(Desire(Facts{ModelsUnknown: "no permission"}, DefaultSettings())), "KubeAI's Models cannot be read")
	assert.Equal(t, []string{"activated", "local"}, ids(Desire(Facts{External: ParseExternalModels("{")}, DefaultSettings())), "the list cannot be read")
	assert.Equal(t, []string{"activated", "local"}, ids(Desire(Facts{External: ParseExternalModels(`[{"name": "listed"}]`)}, DefaultSettings())), "the entry is broken")
}

func TestNamesWithOneSlugStayApart(t *testing.T) {
	facts := Facts{External: ParseExternalModels(`[{"name": "a b", "model": "p/1"}, {"name": "a-b", "model": "p/2"}, {"name": "A-B", "model": "p/3"}]`)}
	ids := map[string]bool{}
	for _, change := range Sync(nil, Desire(facts, DefaultSettings()), testKey, Memory{}).Changes {
		ids[change.ID] = true
	}
	assert.Len(t, ids, 3)
}

// The revision is shown by LiteLLM to everybody who may list models.
func TestRevisionHidesKeys(t *testing.T) {
	record := &Record{Name: "m", Params: map[string]any{"api_key": "short"}, Info: map[string]any{}}
	assert.NotEqual(t, revision(record, "sk-1"), revision(record, "sk-2"), "it cannot be tried out without the master key")
}

func TestParseExternalModelsProblems(t *testing.T) {
	for name, test := range map[string]struct{ document, problem, broken string }{
		"empty":               {"", "", ""},
		"not_json":            {"sk-secret", "want an object with the list models", ""},
		"half":                {`{"models": [`, "want an object with the list models", ""},
		"a_text":              {`"sk-secret"`, "want an object", ""},
		"list_of_texts":       {`["sk-secret"]`, "want an object", ""},
		"two_values":          {`[] []`, "want an object", ""},
		"no_name":             {`[{"model": "openai/x", "apiKey": "sk-secret"}]`, "models[0] of models.json: name is missing", ""},
		"key_is_a_number":     {`[{"name": "x", "model": "openai/x", "apiKey": 12345}]`, "", "apiKey must be a text"},
		"secret_without_key":  {`[{"name": "x", "model": "m", "apiKeySecretRef": {"name": "s"}}]`, "", "apiKeySecretRef needs name and key"},
		"negative_tokens":     {`[{"name": "x", "model": "m", "maxOutputTokens": -1}]`, "", "maxOutputTokens must be a whole number"},
		"too_many":            {"[" + strings.Repeat(`{"name":"x","model":"m"},`, maxExternalModels) + `{"name":"x","model":"m"}]`, "at most 1024", ""},
		"switched_off_broken": {`[{"name": "x", "enabled": false, "tpm": "many"}]`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			list := ParseExternalModels(test.document)
			assert.Empty(t, list.Models)
			if test.problem == "" {
				assert.Empty(t, list.Problem)
			}
			assert.Contains(t, list.Problem, test.problem)
			if test.broken == "" {
				assert.Empty(t, list.Broken)
			} else {
				require.Len(t, list.Broken, 1)
				assert.Contains(t, list.Broken[0].Message, test.broken)
			}
			assert.NotContains(t, fmt.Sprint(list), "secret", "no value is repeated")
			assert.NotContains(t, fmt.Sprint(list), "12345")
		})
	}
}

func FuzzParseExternalModels(f *testing.F) {
	f.Add(`{"models": [{"name": "a", "model": "openai/a", "litellm": {"api_key": "k"}, "tpm": 1e3}]}`)
	f.Add(`[{"name": "b", "enabled": "no", "apiKeySecretRef": {"name": "s", "key": "k"}}]`)
	f.Fuzz(func(t *testing.T, document string) {
		list := ParseExternalModels(document)
		desired := Desire(Facts{External: list}, DefaultSettings())
		deployments := applied(nil, Sync(nil, desired, testKey, Memory{}).Changes)
		if left := Sync(deployments, desired, testKey, Memory{}).Changes; len(left) > 0 {
			t.Fatalf("a second pass would change %v", left)
		}
		for key, content := range Render(IndexOf(deployments, DefaultSettings()), DefaultSettings()).Data {
			if strings.HasSuffix(key, ".json") && !json.Valid([]byte(content)) {
				t.Fatalf("%s is no JSON", key)
			}
		}
	})
}

func FuzzIndexOf(f *testing.F) {
	f.Add(`[{"model_name": "a", "litellm_params": {"model": "p/a"}, "model_info": {"id": "1", "max_tokens": "7", "ai_appliance_managed": "true"}}]`)
	f.Add(`[{"model_name": null, "model_info": null}, {}]`)
	f.Fuzz(func(t *testing.T, answer string) {
		var deployments []Deployment
		if decodeNumbers([]byte(answer), &deployments) != nil {
			return
		}
		Sync(deployments, desireOne(nil, nil), testKey, Memory{})
		index := IndexOf(deployments, DefaultSettings())
		files := Render(index, DefaultSettings())
		again, err := ReadIndex(files.Data, DefaultSettings())
		if err != nil {
			t.Fatal(err)
		}
		if files.Omitted == 0 && again.Hash(DefaultSettings()) != files.Hash {
			t.Fatalf("read back, the index is another one: %s", files.Data[KeyCatalog])
		}
	})
}

func TestManyModelsFitOrAreCounted(t *testing.T) {
	index := func(n int) Index {
		var entries []Entry
		for i := range n {
			name := fmt.Sprintf("model-with-a-long-name-%06d", i)
			entries = append(entries, Entry{ID: name, Name: name, Type: typeChat, Provider: provider, ModelRef: provider + "/" + name, Managed: true,
				Source: SourceKubeAI, ContextWindow: 131072, MaxOutputTokens: 8192,
				LiteLLM: EntryRoute{Model: "openai/" + name, APIBase: DefaultSettings().KubeAIAPIBase}})
		}
		return indexOfEntries(entries, DefaultSettings())
	}
	few := Render(index(100), DefaultSettings())
	assert.Contains(t, few.Data[KeyCatalog], "\n  ")
	tight := Render(index(750), DefaultSettings())
	assert.NotContains(t, tight.Data[KeyCatalog], "\n  ")
	assert.Zero(t, tight.Omitted)
	cut := Render(index(3000), DefaultSettings())
	assert.Positive(t, cut.Omitted)
	assert.LessOrEqual(t, cut.size(), maxIndexBytes)
	read, err := ReadIndex(cut.Data, DefaultSettings())
	require.NoError(t, err)
	assert.Len(t, read.Models, 3000-cut.Omitted)
	assert.Greater(t, len(read.Models), 750)
}

func TestConsumers(t *testing.T) {
	changed := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	pod := func(name string, edit func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(changed.Add(-time.Hour))}}
		edit(&p)
		return p
	}
	labelled := func(pairs ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Labels = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				p.Labels[pairs[i]] = pairs[i+1]
			}
		}
	}
	const prefix = "app.kubernetes.io/"
	pods := []corev1.Pod{
		pod("yes-label", labelled(AnnotationConsumer, "true")),
		pod("yes-annotation", func(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationConsumer: "true"} }),
		pod("yes-anything-llm", labelled("app", "anything-llm")),
		pod("yes-hermes", labelled(prefix+"instance", "hermes", prefix+"name", "hermes-agent")),
		pod("yes-openclaw", labelled(prefix+"instance", "openclaw", prefix+"name", "openclaw")),
		pod("yes-paperclip", labelled(prefix+"instance", "paperclip", prefix+"component", "server")),
		pod("yes-same-second", func(p *corev1.Pod) {
			labelled(AnnotationConsumer, "true")(p)
			p.CreationTimestamp = metav1.NewTime(changed)
		}),
		pod("no-made-later", func(p *corev1.Pod) {
			labelled(AnnotationConsumer, "true")(p)
			p.CreationTimestamp = metav1.NewTime(changed.Add(time.Second))
		}),
		pod("no-going", func(p *corev1.Pod) {
			labelled(AnnotationConsumer, "true")(p)
			p.DeletionTimestamp = &metav1.Time{Time: changed}
		}),
		pod("no-false", labelled(AnnotationConsumer, "false")),
		pod("no-database-of-paperclip", labelled(prefix+"instance", "paperclip", prefix+"component", "postgresql")),
		pod("no-other-hermes", labelled(prefix+"instance", "hermes", prefix+"name", "hermes-database")),
		pod("no-litellm", labelled("app", "litellm")),
	}
	var found []string
	for _, consumer := range Consumers(pods, changed) {
		found = append(found, consumer.Name)
	}
	assert.Equal(t, []string{"yes-label", "yes-annotation", "yes-anything-llm", "yes-hermes", "yes-openclaw", "yes-paperclip", "yes-same-second"}, found)
}

func TestSettings(t *testing.T) {
	require.NoError(t, DefaultSettings().Validate())
	assert.Equal(t, "http://litellm.ai.svc.cluster.local:4000/v1", DefaultSettings().APIBase())
	for want, edit := range map[string]func(*Settings){
		`model index namespace "A": `:                               func(s *Settings) { s.Namespace = "A" },
		`model index ConfigMap "": `:                                func(s *Settings) { s.ConfigMap = "" },
		`external models ConfigMap "_": `:                           func(s *Settings) { s.ExternalConfigMap = "_" },
		`LiteLLM master key Secret "": `:                            func(s *Settings) { s.MasterKeySecret = "" },
		`key of the LiteLLM master key "/": `:                       func(s *Settings) { s.MasterKeyKey = "/" },
		`LiteLLM base URL: must not hold a user name or a password`: func(s *Settings) { s.LiteLLMBaseURL = "http://u:hidden@h" },
		`LiteLLM API base: must not have a query or a fragment`:     func(s *Settings) { s.LiteLLMAPIBase = "http://h/v1?key=hidden" },
		`KubeAI API base: must be an http or https address`:         func(s *Settings) { s.KubeAIAPIBase = "ftp://hidden" },
		`OpenCode context tokens 0: must be at least 1`:             func(s *Settings) { s.OpenCodeContextTokens = 0 },
		`OpenCode output tokens -1: must be at least 1`:             func(s *Settings) { s.OpenCodeOutputTokens = -1 },
		`Paperclip output tokens 0: must be at least 1`:             func(s *Settings) { s.PaperclipMaxOutputTokens = 0 },
		`Paperclip headroom tokens -1: must not be negative`:        func(s *Settings) { s.PaperclipHeadroomTokens = -1 },
		`model index retry 0s: must be positive`:                    func(s *Settings) { s.Retry = 0 },
		`model index recheck -1s: must be positive`:                 func(s *Settings) { s.Recheck = -time.Second },
		`LiteLLM timeout 0s: must be positive`:                      func(s *Settings) { s.CallTimeout = 0 },
		`model index debounce -1ns: must not be negative`:           func(s *Settings) { s.Debounce = -1 },
	} {
		settings := DefaultSettings()
		edit(&settings)
		err := settings.Validate()
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hidden")
	}
}
