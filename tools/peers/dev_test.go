//go:build peers

package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/dev"
)

// What a newcomer sees with `make run FLUX=1 ONCE=1`.
func TestDev_with_flux_brings_modules_and_models_to_ready(t *testing.T) {
	var out bytes.Buffer
	began := time.Now()
	err := dev.Run(t.Context(), dev.Options{Once: true, Flux: true, StandIns: true, Out: &out})
	t.Logf("%s in all\n%s", time.Since(began).Round(time.Millisecond), &out)
	require.NoError(t, err)
	for _, module := range []string{"litellm", "model-catalog"} {
		assert.Regexp(t, `(?m)^ModuleActivation +`+module+` +Ready `, out.String())
	}
	assert.Contains(t, out.String(), "NO MODEL RUNS HERE: small programs play KubeAI and LiteLLM (")
	assert.Regexp(t, `(?m)^ModelActivation +qwen2505bcpu +Ready `, out.String())
	assert.Regexp(t, `(?m)^GitRepository +flux-system +Ready `, out.String())
}
