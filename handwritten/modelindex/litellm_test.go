package modelindex_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/modelindex"
	"magicstick.dev/operator/handwritten/modelindex/standin"
)

const masterKey = "sk-do-not-tell"

func gateway(t *testing.T) (*standin.Server, modelindex.LiteLLM) {
	t.Helper()
	server := standin.New(masterKey)
	endpoint := httptest.NewServer(server)
	t.Cleanup(endpoint.Close)
	return server, modelindex.LiteLLM{
		BaseURL: endpoint.URL, MasterKey: masterKey, Timeout: 10 * time.Second, HTTP: modelindex.NewHTTPClient(),
	}
}

func deployment(name string) modelindex.Deployment {
	return modelindex.Deployment{
		Name: name, Params: map[string]any{"model": "openai/" + name, "api_key": "k", "tpm": 5},
		Info: map[string]any{"id": "id-" + name, "ai_appliance_managed": true, "max_input_tokens": 7},
	}
}

func TestLiteLLM_makes_updates_and_deletes(t *testing.T) {
	t.Parallel()
	server, lite := gateway(t)
	ctx := t.Context()
	require.NoError(t, lite.Add(ctx, deployment("a")))
	found, err := lite.Deployments(ctx)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, "a", found[0].Name)
	assert.Equal(t, "id-a", found[0].ID())
	assert.True(t, found[0].Managed())
	assert.NotContains(t, found[0].Params, "api_key", "LiteLLM does not show keys")
	assert.Equal(t, "k", server.Models()[0].LiteLLMParams["api_key"])

	changed := deployment("a")
	changed.Params["api_key"] = "new"
	require.NoError(t, lite.Add(ctx, changed), "one whose ID is taken is updated")
	assert.Equal(t, "new", server.Models()[0].LiteLLMParams["api_key"])
	assert.Len(t, server.Models(), 1)

	require.Error(t, lite.Update(ctx, deployment("unknown")))
	require.NoError(t, lite.Delete(ctx, "id-a"))
	assert.Empty(t, server.Models())
	require.Error(t, lite.Delete(ctx, "id-a"))
}

func TestLiteLLM_without_models_is_no_error(t *testing.T) {
	t.Parallel()
	for name, behaviour := range map[string]standin.Behaviour{"empty_list": {}, "status_500": {EmptyIsAnError: true}} {
		t.Run(name, func(t *testing.T) {
			server, lite := gateway(t)
			server.Behaviour = behaviour
			found, err := lite.Deployments(t.Context())
			require.NoError(t, err)
			assert.Empty(t, found)
		})
	}
}

// Every way to fail gives a sentence that says what was asked and never repeats a
// key, not even one that the other side repeats.
func TestLiteLLM_failures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault standin.Fault
		want  string
	}{
		"500":       {standin.InternalError, "it answered with status 500"},
		"HTML":      {standin.HTML, "its answer is not the JSON that was expected"},
		"half JSON": {standin.HalfJSON, "its answer is not the JSON that was expected"},
		"slow":      {standin.Silent, "no answer within 150ms"},
		"dropped":   {standin.Drop, "no connection, or it broke"},
		"redirect":  {standin.Redirect, "it wants to send the caller somewhere else (status 307), which is not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, lite := gateway(t)
			lite.Timeout = 150 * time.Millisecond
			server.Break(standin.Everywhere, test.fault)
			_, err := lite.Deployments(t.Context())
			require.EqualError(t, err, "asking LiteLLM (GET /model/info): "+test.want)
			if test.fault == standin.HTML || test.fault == standin.HalfJSON {
				return // what a change answers is not read
			}
			for _, err := range []error{lite.Add(t.Context(), deployment("a")), lite.Update(t.Context(), deployment("a")), lite.Delete(t.Context(), "x")} {
				require.ErrorContains(t, err, test.want)
				assert.NotContains(t, err.Error(), masterKey)
			}
		})
	}
	t.Run("wrong key", func(t *testing.T) {
		t.Parallel()
		server, lite := gateway(t)
		server.SetMasterKey("sk-other")
		_, err := lite.Deployments(t.Context())
		require.EqualError(t, err, "asking LiteLLM (GET /model/info): it does not take the master key (status 401)")
	})
	t.Run("not there", func(t *testing.T) {
		t.Parallel()
		_, lite := gateway(t)
		lite.BaseURL = "http://127.0.0.1:1"
		_, err := lite.Deployments(t.Context())
		require.EqualError(t, err, "asking LiteLLM (GET /model/info): no connection, or it broke")
		lite.BaseURL = "http://no-such-host.invalid"
		_, err = lite.Deployments(t.Context())
		require.Error(t, err)
		assert.NotContains(t, err.Error(), masterKey)
	})
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		_, lite := gateway(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := lite.Deployments(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestLiteLLM_reads_no_endless_answer(t *testing.T) {
	t.Parallel()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chunk := []byte(strings.Repeat("a", 1<<20))
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	t.Cleanup(endpoint.Close)
	lite := modelindex.LiteLLM{BaseURL: endpoint.URL, MasterKey: masterKey, Timeout: time.Minute, HTTP: modelindex.NewHTTPClient()}
	require.EqualError(t, lite.Delete(t.Context(), "x"), "asking LiteLLM (POST /model/delete): its answer is longer than 1048576 bytes")
}
