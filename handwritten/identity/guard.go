package identity

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Directory knows the AppInstances.
type Directory interface {
	// Lookup answers at once, from memory.
	Lookup(namespace, name string) Instance
}

// TokenChecker verifies access tokens.
type TokenChecker interface {
	// Verify returns a Person only with TokenValid.
	Verify(ctx context.Context, token string) (Person, TokenState)
}

// Guard answers the gateway: 200 when a request may pass, 403 when not. Both
// answers are empty and the same whatever the reason is.
//
// It must not stand behind a ServeMux: that cleans paths and answers with
// redirects.
type Guard struct {
	// Instances and Tokens are asked for every check.
	Instances Directory
	Tokens    TokenChecker
	// Metrics counts decisions.
	Metrics *Metrics
	// Logger gets denials at level debug: instance and reason, nothing of the caller.
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler. The method is the caller's own and means
// nothing; a body is not read.
func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	question, understood := ParseTarget(r.RequestURI)
	decision := deny(ReasonPathNotUnderstood)
	if understood {
		decision = g.decide(r, question)
	}
	g.Metrics.decided(decision, time.Since(start))
	header := w.Header()
	header.Set("Content-Length", "0")
	// The gateway passes a denial on to the browser, headers included.
	header.Set("Cache-Control", "no-store")
	if decision.Allow {
		w.WriteHeader(http.StatusOK)
		return
	}
	if g.Logger.Enabled(r.Context(), slog.LevelDebug) {
		g.Logger.DebugContext(r.Context(), "denied", "namespace", question.Namespace, "instance", question.Name, "reason", decision.Reason)
	}
	w.WriteHeader(http.StatusForbidden)
}

func (g *Guard) decide(r *http.Request, question Question) Decision {
	caller := Caller{Authentication: question.Authentication}
	if question.Authentication == authenticationSSO {
		var token string
		if token, caller.Token = BearerToken(r.Header); caller.Token == TokenValid {
			var person Person
			person, caller.Token = g.Tokens.Verify(r.Context(), token)
			caller.UserID, caller.Groups, caller.Role = person.ID, person.Groups, person.Role
		}
	}
	// The instance is looked up last: a token may have waited for its key, and
	// what counts is how the instance is shared when the answer is given.
	return Decide(g.Instances.Lookup(question.Namespace, question.Name), caller)
}
