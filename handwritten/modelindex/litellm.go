package modelindex

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// maxListBytes bounds the answer of /model/info: 1000 models are about 3 MiB.
	maxListBytes = 64 << 20
	// maxAnswerBytes bounds every other answer.
	maxAnswerBytes = 1 << 20
	// noModels begins what LiteLLM answers, with status 500, while it has no model at
	// all (https://github.com/BerriAI/litellm/issues/6233).
	noModels = "LLM Model List not loaded"
)

// LiteLLM speaks to the admin API of LiteLLM
// (https://docs.litellm.ai/docs/proxy/model_management). Its errors say what was
// being done and what came back in their own words: a body of the other side may
// repeat what it was sent.
type LiteLLM struct {
	// BaseURL without a path.
	BaseURL string
	// MasterKey of LiteLLM.
	MasterKey string
	// Timeout bounds one call.
	Timeout time.Duration
	// HTTP makes the calls, see NewHTTPClient.
	HTTP *http.Client
}

// NewHTTPClient follows no redirects and uses no proxy: the master key goes to
// LiteLLM and to nobody else.
func NewHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: 5 * time.Second,
			MaxIdleConnsPerHost: callers,
			IdleConnTimeout:     90 * time.Second,
			ForceAttemptHTTP2:   true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Deployments are all models that LiteLLM knows.
func (l LiteLLM) Deployments(ctx context.Context) ([]Deployment, error) {
	var answer struct {
		Data *[]Deployment `json:"data"`
	}
	err := l.call(ctx, http.MethodGet, "/model/info", nil, maxListBytes, &answer)
	switch {
	case errors.Is(err, errNoModels):
		return nil, nil
	case err != nil:
		return nil, err
	case answer.Data == nil:
		return nil, errors.New("asking LiteLLM for its models (GET /model/info): the answer has no list data")
	}
	return *answer.Data, nil
}

// Add makes a deployment. One whose ID is taken is updated instead.
func (l LiteLLM) Add(ctx context.Context, deployment Deployment) error {
	err := l.call(ctx, http.MethodPost, "/model/new", deployment, maxAnswerBytes, nil)
	if err == nil || !isRefusal(err) {
		return err
	}
	if updateErr := l.Update(ctx, deployment); updateErr != nil {
		return err
	}
	return nil
}

// Update changes the deployment with the same ID. What is not sent stays.
func (l LiteLLM) Update(ctx context.Context, deployment Deployment) error {
	return l.call(ctx, http.MethodPost, "/model/update", deployment, maxAnswerBytes, nil)
}

// Delete takes a deployment away. One that is gone already answers with an error;
// the next list tells.
func (l LiteLLM) Delete(ctx context.Context, id string) error {
	return l.call(ctx, http.MethodPost, "/model/delete", map[string]string{"id": id}, maxAnswerBytes, nil)
}

// statusError is an answer that is not 200.
type statusError struct{ status int }

func (e statusError) Error() string {
	switch {
	case e.status == http.StatusUnauthorized || e.status == http.StatusForbidden:
		return fmt.Sprintf("it does not take the master key (status %d)", e.status)
	case e.status >= 300 && e.status < 400:
		return fmt.Sprintf("it wants to send the caller somewhere else (status %d), which is not followed", e.status)
	}
	return fmt.Sprintf("it answered with status %d", e.status)
}

var errNoModels = errors.New("it has no models")

// isRefusal tells an answer about one deployment from a LiteLLM that does not work.
func isRefusal(err error) bool {
	var answered statusError
	return errors.As(err, &answered) && (answered.status >= 400 && answered.status != http.StatusUnauthorized && answered.status != http.StatusForbidden)
}

func (l LiteLLM) call(ctx context.Context, method, path string, body any, limit int64, into any) error {
	if err := l.exchange(ctx, method, path, body, limit, into); err != nil {
		return fmt.Errorf("asking LiteLLM (%s %s): %w", method, path, err)
	}
	return nil
}

func (l LiteLLM) exchange(ctx context.Context, method, path string, body any, limit int64, into any) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	var sent io.Reader
	if body != nil {
		sent = bytes.NewReader(canonical(body))
	}
	request, err := http.NewRequestWithContext(ctx, method, l.BaseURL+path, sent)
	if err != nil {
		return errors.New("its address cannot be used")
	}
	request.Header.Set("Authorization", "Bearer "+l.MasterKey)
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := l.HTTP.Do(request)
	if err != nil {
		return connectionError(ctx, err, l.Timeout)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	switch {
	case err != nil:
		return connectionError(ctx, err, l.Timeout)
	case response.StatusCode == http.StatusInternalServerError && strings.Contains(string(content), noModels):
		return errNoModels
	case response.StatusCode != http.StatusOK:
		return statusError{response.StatusCode}
	case int64(len(content)) > limit:
		return fmt.Errorf("its answer is longer than %d bytes", limit)
	case into == nil:
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return errors.New("its answer is not the JSON that was expected")
	}
	return nil
}

// connectionError says why no answer came, without the address: it is in the
// configuration, and an error of the client may hold more than that. It says the
// same each time, so that a report of it does not change.
func connectionError(ctx context.Context, err error, timeout time.Duration) error {
	var dns *net.DNSError
	var wrapped *url.Error
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.As(err, &wrapped) && wrapped.Timeout():
		return fmt.Errorf("no answer within %s", timeout)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &dns):
		return errors.New("its name is not known to DNS")
	}
	return errors.New("no connection, or it broke")
}
