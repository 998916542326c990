package standin

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// maxBody bounds a request in bytes.
const maxBody = 1 << 20

// Model is one deployment that LiteLLM knows.
type Model struct {
	// ModelName is what clients ask for. Several deployments may share it.
	ModelName string `json:"model_name"`
	// LiteLLMParams say how to reach the model; api_key is never given out.
	LiteLLMParams map[string]any `json:"litellm_params"`
	// ModelInfo is free, apart from id, which is unique, and db_model.
	ModelInfo map[string]any `json:"model_info"`
}

// ID is the unique identifier of the deployment.
func (m Model) ID() string {
	id, _ := m.ModelInfo["id"].(string)
	return id
}

// Behaviour are differences between releases of LiteLLM that a client meets.
type Behaviour struct {
	// UpdateLeavesInfo makes /model/update change litellm_params only.
	UpdateLeavesInfo bool
	// EmptyIsAnError makes /model/info answer 500 while there are no models
	// (https://github.com/BerriAI/litellm/issues/6233).
	EmptyIsAnError bool
}

// Server is the stand-in, an http.Handler.
type Server struct {
	// Behaviour is set before the first request.
	Behaviour Behaviour

	mutex     sync.Mutex
	masterKey string
	models    []Model
	faults    map[string]Fault
	calls     []string
	made      int
}

// New gives a LiteLLM without models that takes one key.
func New(masterKey string) *Server {
	return &Server{masterKey: masterKey, faults: map[string]Fault{}}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	s.calls = append(s.calls, r.Method+" "+r.URL.Path)
	fault, broken := s.faults[r.URL.Path]
	if !broken {
		fault = s.faults[Everywhere]
	}
	s.mutex.Unlock()
	if fault.strike(w, r) {
		return
	}
	if !s.authorized(r) {
		fail(w, http.StatusUnauthorized, "Authentication Error, invalid proxy key", "auth_error")
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch r.Method + " " + r.URL.Path {
	case "GET /model/info", "GET /v1/model/info":
		s.info(w)
	case "POST /model/new":
		s.create(w, r)
	case "POST /model/update":
		s.update(w, r)
	case "POST /model/delete":
		s.remove(w, r)
	case "GET /v1/models", "GET /models":
		s.list(w)
	case "GET /health/liveliness", "GET /health/readiness":
		answer(w, http.StatusOK, map[string]any{"status": "connected"})
	default:
		answer(w, http.StatusNotFound, map[string]any{"detail": "Not Found"})
	}
}

func (s *Server) authorized(r *http.Request) bool {
	given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return bearer && subtle.ConstantTimeCompare([]byte(given), []byte(s.masterKey)) == 1
}

func (s *Server) info(w http.ResponseWriter) {
	if len(s.models) == 0 && s.Behaviour.EmptyIsAnError {
		answer(w, http.StatusInternalServerError, map[string]any{"detail": map[string]any{
			"error": "LLM Model List not loaded in. Make sure you passed models in your config.yaml or on the LiteLLM Admin UI.",
		}})
		return
	}
	shown := make([]Model, 0, len(s.models))
	for _, model := range s.models {
		model = clone(model)
		delete(model.LiteLLMParams, "api_key")
		shown = append(shown, model)
	}
	answer(w, http.StatusOK, map[string]any{"data": shown})
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	model, ok := read(w, r)
	if !ok {
		return
	}
	if model.ModelName == "" || model.LiteLLMParams["model"] == nil {
		fail(w, http.StatusUnprocessableEntity, "Field required", "invalid_request_error")
		return
	}
	if model.ID() == "" {
		s.made++
		model.ModelInfo["id"] = fmt.Sprintf("standin-%06d", s.made)
	}
	if s.index(model.ID()) >= 0 {
		fail(w, http.StatusInternalServerError, "Unique constraint failed on the fields: (model_id)", "internal_server_error")
		return
	}
	model.ModelInfo["db_model"] = true
	s.models = append(s.models, model)
	answer(w, http.StatusOK, map[string]any{"model_id": model.ID(), "model_name": model.ModelName})
}

func (s *Server) update(w http.ResponseWriter, r *http.Request) {
	model, ok := read(w, r)
	if !ok {
		return
	}
	at := s.index(model.ID())
	if at < 0 {
		fail(w, http.StatusBadRequest, "model not found", "auth_error")
		return
	}
	known := clone(s.models[at])
	if stored, _ := known.ModelInfo["db_model"].(bool); !stored {
		answer(w, http.StatusBadRequest, map[string]any{"detail": map[string]any{"error": "Can't edit model. Model in config."}})
		return
	}
	// What is not sent stays: no parameter can be taken away by an update.
	for key, value := range model.LiteLLMParams {
		if value != nil {
			known.LiteLLMParams[key] = value
		}
	}
	if !s.Behaviour.UpdateLeavesInfo {
		for key, value := range model.ModelInfo {
			if value != nil {
				known.ModelInfo[key] = value
			}
		}
		if model.ModelName != "" {
			known.ModelName = model.ModelName
		}
	}
	s.models[at] = known
	answer(w, http.StatusOK, map[string]any{"model_id": known.ID(), "model_name": known.ModelName})
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		ID string `json:"id"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&asked); err != nil {
		fail(w, http.StatusUnprocessableEntity, "JSON decode error", "invalid_request_error")
		return
	}
	at := s.index(asked.ID)
	stored := false
	if at >= 0 {
		stored, _ = s.models[at].ModelInfo["db_model"].(bool)
	}
	if !stored {
		answer(w, http.StatusBadRequest, map[string]any{"detail": map[string]any{"error": "Model with id=" + asked.ID + " not found in db"}})
		return
	}
	s.models = slices.Delete(s.models, at, at+1)
	answer(w, http.StatusOK, map[string]any{"message": "Model: " + asked.ID + " deleted successfully"})
}

// list is the OpenAI form of what can be asked for.
func (s *Server) list(w http.ResponseWriter) {
	names := map[string]bool{}
	for _, model := range s.models {
		names[model.ModelName] = true
	}
	data := make([]map[string]any, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		data = append(data, map[string]any{"id": name, "object": "model", "created": 1677610602, "owned_by": "openai"})
	}
	answer(w, http.StatusOK, map[string]any{"data": data, "object": "list"})
}

func (s *Server) index(id string) int {
	return slices.IndexFunc(s.models, func(model Model) bool { return id != "" && model.ID() == id })
}

func read(w http.ResponseWriter, r *http.Request) (Model, bool) {
	model := Model{}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&model); err != nil {
		fail(w, http.StatusUnprocessableEntity, "JSON decode error", "invalid_request_error")
		return model, false
	}
	if model.LiteLLMParams == nil {
		model.LiteLLMParams = map[string]any{}
	}
	if model.ModelInfo == nil {
		model.ModelInfo = map[string]any{}
	}
	return model, true
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client is gone when this fails.
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, status int, message, kind string) {
	answer(w, status, map[string]any{"error": map[string]any{
		"message": message, "type": kind, "param": "None", "code": fmt.Sprint(status),
	}})
}

func clone(model Model) Model {
	model.LiteLLMParams, model.ModelInfo = maps.Clone(model.LiteLLMParams), maps.Clone(model.ModelInfo)
	return model
}
