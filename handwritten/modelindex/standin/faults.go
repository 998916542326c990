package standin

import (
	"io"
	"net/http"
)

// Fault is a way in which a gateway fails to answer.
type Fault int

// Faults that can be switched on.
const (
	// Healthy answers.
	Healthy Fault = iota
	// InternalError answers 500.
	InternalError
	// HTML answers 200 with a page, as a proxy in front of a sick server does.
	HTML
	// HalfJSON ends in the middle of an answer.
	HalfJSON
	// Silent accepts the request and says nothing until the client gives up.
	Silent
	// Drop closes the connection.
	Drop
	// Redirect sends the client somewhere else.
	Redirect
)

// Everywhere is the path of a fault that strikes every path.
const Everywhere = ""

// strike reports whether the fault answered in the place of the server.
func (f Fault) strike(w http.ResponseWriter, r *http.Request) bool {
	switch f {
	case Healthy:
		return false
	case InternalError:
		// A careless server shows what it was sent.
		http.Error(w, "internal error while handling "+r.Header.Get("Authorization"), http.StatusInternalServerError)
	case HTML:
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>Bad gateway</title>"))
	case HalfJSON:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"data":[{"model_name":"cut`))
	case Silent:
		// Only with the body read the server notices that the client is gone.
		_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody))
		<-r.Context().Done()
	case Drop:
		panic(http.ErrAbortHandler)
	case Redirect:
		http.Redirect(w, r, "http://192.0.2.1/elsewhere", http.StatusTemporaryRedirect)
	}
	return true
}

// Break switches a fault on for one path, or Everywhere; Healthy switches it off.
func (s *Server) Break(path string, fault Fault) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if fault == Healthy {
		delete(s.faults, path)
		return
	}
	s.faults[path] = fault
}

// SetMasterKey changes the key that is taken from now on.
func (s *Server) SetMasterKey(key string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.masterKey = key
}

// Models are the deployments as they are stored, keys included.
func (s *Server) Models() []Model {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := make([]Model, 0, len(s.models))
	for _, model := range s.models {
		found = append(found, clone(model))
	}
	return found
}

// Put adds a deployment, or replaces that of the same ID, as a person does in
// LiteLLM's own pages.
func (s *Server) Put(model Model) {
	model = clone(model)
	if model.ModelInfo == nil {
		model.ModelInfo = map[string]any{}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if at := s.index(model.ID()); at >= 0 {
		s.models[at] = model
		return
	}
	s.models = append(s.models, model)
}

// Forget loses every model, as a restart without a database does.
func (s *Server) Forget() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.models = nil
}

// Calls returns the requests after a mark that an earlier call returned.
func (s *Server) Calls(since int) ([]string, int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]string(nil), s.calls[since:]...), len(s.calls)
}
