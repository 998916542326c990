package activations

import (
	"cmp"
)

// external is a provider's model behind LiteLLM: nothing runs on the appliance.
type external struct{}

var _ = register(external{})

func (external) Runtime() Runtime { return RuntimeExternal }

func (external) Reasons() APIReasons { return APIReasons{} }

func (external) RequiredModules(*Resolved) []string {
	return []string{moduleLiteLLM, moduleModelCatalog}
}

func (external) Render(*Resolved, Settings) Objects { return Objects{} }

func (external) resolve(r *resolution) error {
	settings := r.Activation.Spec.External
	switch {
	case settings == nil:
		return invalid("spec.external", "required for type external", nil)
	case settings.Model == "":
		return invalid("spec.external.model", "required: provider and model, such as openai/gpt-4o-mini", nil)
	case r.Activation.Spec.Local != nil:
		return invalid("spec.local", "not for type external", nil)
	case r.out.Namespace != r.home():
		return invalid("spec.targetNamespace", "external models have their API key in another namespace", r.out.Namespace, r.home())
	}
	r.out.External = settings
	r.out.ModelType = cmp.Or(string(settings.ModelType), typeChat)
	r.out.ContextWindow = int64(settings.ContextWindow)
	r.out.MaxOutputTokens = int64(settings.MaxOutputTokens)
	return nil
}
