package ollama

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/artifacts/source"
	"magicstick.dev/operator/handwritten/artifacts/source/fetch"
)

// maxToken bounds the answer of a token service in bytes.
const maxToken = 64 << 10

// access is the token for one model.
type access struct {
	mutex sync.Mutex
	token string
}

func (a *access) current() string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.token
}

// renew fetches a token from where a refusal says, without credentials
// (https://distribution.github.io/distribution/spec/auth/token/). It is sent to the
// registry only. A token that another request has fetched meanwhile serves, too.
func (m *model) renew(ctx context.Context, refused *http.Response) error {
	m.access.mutex.Lock()
	defer m.access.mutex.Unlock()
	used, _ := strings.CutPrefix(refused.Request.Header.Get("Authorization"), "Bearer ")
	if m.access.token != used {
		return nil
	}
	at, err := tokenService(refused.Header.Get("WWW-Authenticate"))
	if err != nil {
		return m.explain(refused, "")
	}
	data, _, err := m.client.ReadAll(ctx, fetch.Request{URL: at, Header: http.Header{"Accept": {"application/json"}}}, maxToken, func(answer *fetch.Response) error {
		if answer.StatusCode == http.StatusOK {
			return nil
		}
		return source.Fail(conditions.ModelReasonAuthenticationFailed, source.ErrDenied, "asking %s for a token: it answers %d %s",
			fetch.Name(at), answer.StatusCode, http.StatusText(answer.StatusCode))
	})
	if err != nil {
		return err
	}
	var given struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(data, &given); err != nil {
		given.Token = ""
	}
	if given.Token == "" {
		given.Token = given.AccessToken
	}
	if given.Token == "" || strings.ContainsFunc(given.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return source.Fail(conditions.ModelReasonAuthenticationFailed, source.ErrDenied, "asking %s for a token: it gives none", fetch.Name(at))
	}
	m.access.token = given.Token
	return nil
}

// tokenService is the URL that a bearer challenge names. Whether it may be asked is
// the client's business.
func tokenService(challenge string) (*url.URL, error) {
	refuse := source.Fail(conditions.ModelReasonAuthenticationFailed, source.ErrDenied, "reading the challenge of the registry")
	scheme, rest, _ := strings.Cut(strings.TrimSpace(challenge), " ")
	if !strings.EqualFold(scheme, "Bearer") || len(challenge) > 4096 {
		return nil, refuse
	}
	values := map[string]string{}
	for rest = strings.TrimSpace(rest); rest != ""; {
		key, after, found := strings.Cut(rest, "=")
		if !found {
			return nil, refuse
		}
		var value string
		if quoted, isQuoted := strings.CutPrefix(after, `"`); isQuoted {
			if value, after, found = strings.Cut(quoted, `"`); !found {
				return nil, refuse
			}
			_, after, _ = strings.Cut(after, ",")
		} else {
			value, after, _ = strings.Cut(after, ",")
		}
		values[strings.ToLower(strings.TrimSpace(key))] = value
		rest = strings.TrimSpace(after)
	}
	at, err := url.Parse(values["realm"])
	if err != nil || at.Host == "" {
		return nil, refuse
	}
	query := at.Query()
	for _, key := range []string{"service", "scope"} {
		if values[key] != "" {
			query.Set(key, values[key])
		}
	}
	at.RawQuery = query.Encode()
	return at, nil
}
