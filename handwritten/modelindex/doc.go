// Package modelindex keeps the index of models that can be used right now: the
// ConfigMap ai-model-catalog, and the deployments of LiteLLM that it is made of.
//
// In: KubeAI Models and the Deployments of direct runtimes with ready replicas,
// external ModelActivations, the ConfigMap ai-external-models, the Secrets with
// the keys of providers, and what LiteLLM says it has.
// Out: LiteLLM's deployments that the appliance manages, the ConfigMap with one
// file for each kind of consumer, a restart of the Pods that read it, and the
// models of KubeOpenCode's AgentTemplates.
//
// For: the person who put a model into service and expects every application to
// offer it, and no application to offer one that does not answer
// (contract/appliance.md A1, C.11). Three things are called catalog: this one
// is the model index, and never the shipped catalogs or a ModelCatalogSource.
//
// desired.go and external.go say what should be there, sync.go what LiteLLM must
// be told, index.go, limits.go and files.go what the ConfigMap says, consumers.go
// and templates.go who must hear of it; all of that is pure. litellm.go speaks
// to LiteLLM, controller.go carries out.
package modelindex
