package modelindex

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// Source says where a model runs.
type Source string

// Sources of the index.
const (
	// SourceKubeAI are Models of KubeAI.
	SourceKubeAI Source = "kubeai"
	// SourceFreeToken and SourceRealtime are Deployments of the operator.
	SourceFreeToken Source = "freetoken"
	// SourceRealtime is vLLM-Omni.
	SourceRealtime Source = "realtime"
	// SourceExternal are providers.
	SourceExternal Source = "external"
)

// Types of models.
const (
	typeChat      = "chat"
	typeEmbedding = "embedding"
)

// Facts are all that Desire looks at.
type Facts struct {
	// Models of KubeAI in the index's namespace.
	Models []*kubeaiv1.Model
	// ModelsUnknown says why the Models cannot be read; empty when they can be, or
	// when KubeAI is not installed.
	ModelsUnknown string
	// Deployments that carry an activation's label, in the index's namespace.
	Deployments []*appsv1.Deployment
	// Activations of the appliance.
	Activations []*appliancev1alpha1.ModelActivation
	// External is what ai-external-models says.
	External ExternalList
	// Keys of providers, as far as they were looked up, see KeyRefs.
	Keys map[KeyRef]Key
}

// Key is what became of a KeyRef.
type Key struct {
	// Value is the key.
	Value string
	// Missing says why there is none.
	Missing string
	// Unknown says why nobody can tell at the moment.
	Unknown string
}

// Record is one deployment of LiteLLM as the appliance wants it.
type Record struct {
	// Name under which clients ask for the model.
	Name string
	// Source of the model.
	Source Source
	// Activation tells that a ModelActivation of that name asked for it.
	Activation bool
	// Params are litellm_params, with the provider's key.
	Params map[string]any
	// Info is model_info, without id and revision.
	Info map[string]any
}

// Trouble is a model that is not as it was asked for.
type Trouble struct {
	// Name of the model.
	Name string
	// Activation tells that a ModelActivation of that name asked for it.
	Activation bool
	// Message is a sentence for people, without keys.
	Message string
}

// Desired is what LiteLLM should have.
type Desired struct {
	// Records by name.
	Records map[string]*Record
	// Troubles, sorted by name.
	Troubles []Trouble
	// Problem says what is wrong with a whole source; may be empty.
	Problem string

	// heldNames stay as they are in LiteLLM and in the index, because nobody can tell
	// what is wanted; heldKubeAI and heldList do the same for whole sources.
	heldNames            map[string]bool
	heldKubeAI, heldList bool
}

// Wants tells whether a managed deployment may stay. listed tells that it came,
// or may have come, from ai-external-models.
func (d Desired) Wants(name string, source Source, listed bool) bool {
	_, wanted := d.Records[name]
	return wanted || d.Holds(name, source, listed)
}

// Holds tells whether a managed deployment must be left alone.
func (d Desired) Holds(name string, source Source, listed bool) bool {
	return d.heldNames[name] || d.heldKubeAI && source == SourceKubeAI || d.heldList && source == SourceExternal && listed
}

// Desire says which models can be used now. Of two sources that use one name the
// later wins: KubeAI, direct runtimes, ai-external-models, activations
// (contract/appliance.md C.11).
func Desire(facts Facts, settings Settings) Desired {
	d := Desired{
		Records: map[string]*Record{}, heldNames: map[string]bool{},
		heldKubeAI: facts.ModelsUnknown != "", heldList: facts.External.Problem != "",
		Problem: strings.TrimSpace(facts.ModelsUnknown + " " + facts.External.Problem),
	}
	local := map[string]*appliancev1alpha1.ModelActivation{}
	for _, activation := range facts.Activations {
		if activation.Spec.Type == appliancev1alpha1.ModelActivationSpecTypeLocal && activation.Spec.TargetNamespace == settings.Namespace {
			local[activation.Name] = activation
		}
	}
	for _, model := range facts.Models {
		if serves(model) && usable(local[model.Name]) {
			d.Records[model.Name] = kubeAIRecord(model, settings)
			d.Records[model.Name].Activation = local[model.Name] != nil
		}
	}
	for _, deployment := range facts.Deployments {
		name := deployment.Labels[labelActivation]
		activation := local[name]
		source, direct := directSource(activation)
		if direct && usable(activation) && deployment.DeletionTimestamp == nil && deployment.Status.ReadyReplicas > 0 {
			d.Records[name] = directRecord(deployment, activation, source, settings)
		}
	}
	for _, broken := range facts.External.Broken {
		delete(d.Records, broken.Name)
		d.heldNames[broken.Name] = true
		d.Troubles = append(d.Troubles, broken)
	}
	for _, model := range ExternalModels(facts, settings) {
		d.external(model, facts.Keys, settings)
	}
	slices.SortFunc(d.Troubles, func(a, b Trouble) int { return cmp.Compare(a.Name, b.Name) })
	return d
}

// ExternalModels of both sources, each name once, sorted.
func ExternalModels(facts Facts, settings Settings) []ExternalModel {
	byName := map[string]ExternalModel{}
	for _, model := range facts.External.Models {
		byName[model.Name] = model
	}
	for _, activation := range facts.Activations {
		if model, wanted := externalActivation(activation, settings); wanted {
			byName[model.Name] = model
		}
	}
	models := make([]ExternalModel, 0, len(byName))
	for _, model := range byName {
		models = append(models, model)
	}
	slices.SortFunc(models, func(a, b ExternalModel) int { return cmp.Compare(a.Name, b.Name) })
	return models
}

// KeyRefs are the keys that Desire needs to know.
func KeyRefs(facts Facts, settings Settings) []KeyRef {
	var refs []KeyRef
	for _, model := range ExternalModels(facts, settings) {
		if model.Key != nil && model.Key.Secret != settings.MasterKeySecret && !slices.Contains(refs, *model.Key) {
			refs = append(refs, *model.Key)
		}
	}
	return refs
}

func externalActivation(activation *appliancev1alpha1.ModelActivation, settings Settings) (ExternalModel, bool) {
	spec := activation.Spec.External
	if activation.Spec.Type != appliancev1alpha1.ModelActivationSpecTypeExternal || spec == nil || spec.Model == "" ||
		!enabled(activation) || activation.Spec.TargetNamespace != settings.Namespace && activation.Spec.TargetNamespace != externalNamespace {
		return ExternalModel{}, false
	}
	model := ExternalModel{
		Name: activation.Name, Activation: true, Type: externalType(string(spec.ModelType), activation.Name),
		Model: spec.Model, APIBase: spec.APIBase, APIVersion: spec.APIVersion, CustomLLMProvider: spec.CustomLLMProvider,
		TPM: int64(spec.Tpm), RPM: int64(spec.Rpm),
		ContextWindow: int64(spec.ContextWindow), MaxOutputTokens: int64(spec.MaxOutputTokens),
	}
	if ref := spec.APIKeySecretRef; ref != nil {
		model.Key = &KeyRef{Secret: ref.Name, Key: ref.Key}
	}
	return model, true
}

// external adds a provider's model, or says why it is left out. Its name stays
// taken: an earlier source must not answer in its place.
func (d *Desired) external(model ExternalModel, keys map[KeyRef]Key, settings Settings) {
	delete(d.Records, model.Name)
	leaveOut := func(message string) {
		d.Troubles = append(d.Troubles, Trouble{Name: model.Name, Activation: model.Activation, Message: message})
	}
	apiKey := model.InlineKey
	if model.Key != nil {
		if model.Key.Secret == settings.MasterKeySecret {
			leaveOut(fmt.Sprintf("Secret %s is LiteLLM's own and goes to no provider", model.Key.Secret))
			return
		}
		key := keys[*model.Key]
		switch {
		case key.Unknown != "":
			d.heldNames[model.Name] = true
			leaveOut(key.Unknown)
			return
		case key.Value == "":
			leaveOut(cmp.Or(key.Missing, model.Key.String()+" was not looked up"))
			return
		}
		apiKey = key.Value
	}
	record := &Record{
		Name: model.Name, Source: SourceExternal, Activation: model.Activation,
		Params: map[string]any{"model": model.Model},
		Info:   managedInfo(SourceExternal, model.Type),
	}
	record.Info[infoListed] = !model.Activation
	for name, text := range map[string]string{
		"api_base": model.APIBase, "api_key": apiKey, "api_version": model.APIVersion, "custom_llm_provider": model.CustomLLMProvider,
	} {
		if text != "" {
			record.Params[name] = text
		}
	}
	for name, number := range map[string]int64{"tpm": model.TPM, "rpm": model.RPM} {
		if number > 0 {
			record.Params[name] = number
		}
	}
	record.limits(model.ContextWindow, model.MaxOutputTokens)
	d.Records[model.Name] = record
}

func kubeAIRecord(model *kubeaiv1.Model, settings Settings) *Record {
	features := make([]string, 0, len(model.Spec.Features))
	for _, feature := range model.Spec.Features {
		features = append(features, string(feature))
	}
	record := &Record{
		Name: model.Name, Source: SourceKubeAI,
		Params: map[string]any{"model": "openai/" + model.Name, "api_base": settings.KubeAIAPIBase, "api_key": "none"},
		Info:   managedInfo(SourceKubeAI, typeOf(features, model.Name)),
	}
	record.Info["features"] = features
	context := annotatedNumber(model.Annotations, AnnotationContextWindow)
	if context == 0 {
		context = maxModelLen(model.Spec.Args)
	}
	record.limits(context, annotatedNumber(model.Annotations, AnnotationMaxOutputTokens))
	return record
}

// directRecord reaches the Service that has the Deployment's name.
func directRecord(deployment *appsv1.Deployment, activation *appliancev1alpha1.ModelActivation, source Source, settings Settings) *Record {
	base := fmt.Sprintf("http://%s.%s.svc.cluster.local:%d/v1", deployment.Name, settings.Namespace, runtimePort)
	record := &Record{
		Name: activation.Name, Source: source, Activation: true,
		Params: map[string]any{"model": "openai/" + activation.Name, "api_base": base, "api_key": "none"},
		Info:   managedInfo(source, externalType(string(activation.Spec.Local.ModelType), activation.Name)),
	}
	record.limits(
		cmp.Or(annotatedNumber(deployment.Annotations, AnnotationContextWindow), int64(activation.Spec.Local.ContextWindow)),
		cmp.Or(annotatedNumber(deployment.Annotations, AnnotationMaxOutputTokens), int64(activation.Spec.Local.MaxOutputTokens)))
	return record
}

func managedInfo(source Source, kind string) map[string]any {
	return map[string]any{
		infoManaged: true, infoSource: string(source), infoType: kind, "source": string(source),
	}
}

func (r *Record) limits(contextWindow, maxOutput int64) {
	if contextWindow > 0 {
		r.Info["max_input_tokens"] = contextWindow
	}
	if maxOutput > 0 {
		r.Info["max_output_tokens"] = maxOutput
	}
}

func serves(model *kubeaiv1.Model) bool {
	replicas := model.Status.Replicas
	return model.DeletionTimestamp == nil && model.Spec != nil && replicas != nil && replicas.Ready > 0
}

func enabled(activation *appliancev1alpha1.ModelActivation) bool {
	return activation.DeletionTimestamp == nil && (activation.Spec.Enabled == nil || *activation.Spec.Enabled)
}

// usable tells whether the activation of a local model lets it be listed: not
// when it is off, going, failed, or without a Pod (S050, S060). A KubeAI Model
// that nobody activated was made by hand and is listed.
func usable(activation *appliancev1alpha1.ModelActivation) bool {
	if activation == nil {
		return true
	}
	switch activation.Status.Phase {
	case appliancev1alpha1.ModelActivationStatusPhaseDegraded:
		return enabled(activation) && keepsServing(activation)
	case appliancev1alpha1.ModelActivationStatusPhaseWaitingForPod,
		appliancev1alpha1.ModelActivationStatusPhaseRemoving, appliancev1alpha1.ModelActivationStatusPhaseDisabled:
		return false
	}
	return enabled(activation)
}

// keepsServing tells a wish that was refused, under which the runtime of the
// former wish stays in service, from a runtime that fails. A preset that leaves
// the catalog, or a slip of the pen, takes no healthy model from its users.
func keepsServing(activation *appliancev1alpha1.ModelActivation) bool {
	ready := kube.FindCondition(activation.Status.Conditions, conditions.ModelActivationConditionReady)
	if ready == nil {
		return false
	}
	switch ready.Reason {
	case conditions.ModelActivationReasonInvalidModelSpec, conditions.ModelActivationReasonKubeAIVersionTooOld,
		conditions.ModelActivationReasonChangeRefused:
		return true
	}
	return false
}

// directSource is the runtime of an activation that KubeAI has nothing to do with.
func directSource(activation *appliancev1alpha1.ModelActivation) (Source, bool) {
	switch {
	case activation == nil || activation.Spec.Local == nil:
		return "", false
	case activation.Spec.Local.Realtime != nil:
		return SourceRealtime, true
	case activation.Spec.Local.Engine == appliancev1alpha1.ModelActivationSpecLocalEngineFreeToken:
		return SourceFreeToken, true
	}
	return "", false
}

// typeOf tells chat from embedding by what a model can do, else by its name.
func typeOf(features []string, name string) string {
	all := strings.ToLower(strings.Join(features, " "))
	switch {
	case strings.Contains(all, "embedding"):
		return typeEmbedding
	case strings.Contains(all, "generation"), strings.Contains(all, "chat"):
		return typeChat
	case strings.Contains(strings.ToLower(name), "embedding"):
		return typeEmbedding
	}
	return typeChat
}

func annotatedNumber(annotations map[string]string, name string) int64 {
	number, err := strconv.ParseInt(strings.TrimSpace(annotations[name]), 10, 64)
	if err != nil || number < 1 {
		return 0
	}
	return number
}

// maxModelLen reads the context length from a server's arguments, in both forms
// and both spellings; the last one counts, as it does for the server.
func maxModelLen(args []string) int64 {
	found := int64(0)
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		if name != "--max-model-len" && name != "--max_model_len" {
			continue
		}
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		if number, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil && number > 0 {
			found = number
		}
	}
	return found
}
