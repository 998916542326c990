// Package activations puts models into service: it turns a ModelActivation into
// the runtime that serves the model.
//
// In: ModelActivation (what an operator of the appliance wants), the shipped
// catalogs (presets, engines and targets, realtime profiles), the prepared model
// that modelRef names, and what the cluster publishes.
// Out: a Resolved request or a Refusal that names field, value and what is
// allowed; from a Resolved request the objects of the runtime: a KubeAI Model
// with its resource profile, or a Deployment with its Service.
//
// For: the person who picks a model, a target and a budget, and must learn
// before anything is downloaded that it cannot work (contract/appliance.md A1).
//
// resolve.go is the pipeline: source, engine and target, merge of what the
// catalogs and the activation say, rules. Each engine has one file, which holds
// its rules and its objects; kubeai.go and direct.go hold what engines with the
// same kind of runtime share. All of it is pure: no client, no clock.
//
// observe.go collects the facts about one activation, plan.go and plan_local.go
// decide what follows from them (pure), pods.go decides over the Pods of KubeAI,
// runtime.go counts replicas and tells our objects from others', remember.go
// writes into the status what was resolved, controller.go and carryout.go make
// the calls. There is one runtime at a time: what an activation had before is
// gone, Pods included, before anything else is made. What somebody else made is
// never changed or deleted, whatever its name.
//
// preflight.go judges a request against the nodes (nodes.go), prepared_source.go
// reads prepared models, memory.go asks Ollama for its memory. Two small
// controllers work beside the large one: inuse.go keeps prepared models that are
// used, profiles.go keeps what KubeAI is set up with, at the pace of pace.go. The
// programs around model servers are in wrapper/.
package activations
