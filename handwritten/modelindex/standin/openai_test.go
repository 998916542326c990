package standin_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/modelindex/standin"
)

// openAIPackage is the official client that the list of models is tried with.
const openAIPackage = "openai@7.59.0"

// script lists the models, then tries a wrong key.
const script = `
import OpenAI from 'openai';
const client = (apiKey) => new OpenAI({ apiKey, baseURL: process.argv[2] + '/v1', maxRetries: 0 });
const names = [];
for await (const model of client(process.argv[3]).models.list()) names.push(model.id);
console.log(names.join(','));
try {
  await client('sk-wrong').models.list();
} catch (error) {
  console.log(error.constructor.name, error.status, error.type);
}
`

// Applications ask LiteLLM with clients of OpenAI's API: the official one
// understands the stand-in, its refusals included.
func TestOfficialClientUnderstandsTheStandIn(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	modules, err := filepath.Abs("../../../.bin/npm")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(modules, "node_modules", "openai")); err != nil {
		t.Skipf("OpenAI's client is not there; get it with: npm install --ignore-scripts --prefix .bin/npm %s", openAIPackage)
	}
	server := standin.New("sk-right")
	server.Put(standin.Model{ModelName: "b", LiteLLMParams: map[string]any{"model": "openai/b"}})
	server.Put(standin.Model{ModelName: "a", LiteLLMParams: map[string]any{"model": "openai/a"}, ModelInfo: map[string]any{"id": "1"}})
	server.Put(standin.Model{ModelName: "a", LiteLLMParams: map[string]any{"model": "openai/a"}, ModelInfo: map[string]any{"id": "2"}})
	endpoint := httptest.NewServer(server)
	t.Cleanup(endpoint.Close)

	// Modules are looked for beside the file that asks for them.
	file := filepath.Join(modules, "standin-"+filepath.Base(t.TempDir())+".mjs")
	require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
	t.Cleanup(func() { _ = os.Remove(file) })
	out, err := exec.CommandContext(t.Context(), node, file, endpoint.URL, "sk-right").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "a,b\nAuthenticationError 401 auth_error\n", string(out))
}
