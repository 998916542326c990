// Package standin answers like the admin API of LiteLLM, for tests and for
// `magicstick dev`, where no LiteLLM runs.
//
// It keeps models in memory and knows the documented calls: GET /model/info,
// POST /model/new, /model/update and /model/delete, and GET /v1/models
// (https://docs.litellm.ai/docs/proxy/model_management). It forwards no
// request to a model. Faults that a gateway can have are switched on by hand.
package standin
