package activations

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/catalogs"
)

var update = flag.Bool("update", false, "write testdata/*/out.yaml anew")

// situation is testdata/<case>/in.yaml.
type situation struct {
	// Rule is the sentence that the case stands for.
	Rule           string                            `json:"rule"`
	Activation     appliancev1alpha1.ModelActivation `json:"activation"`
	Prepared       *PreparedModel                    `json:"prepared,omitempty"`
	Published      map[string]int64                  `json:"published,omitempty"`
	SharedDevice   bool                              `json:"sharedDevice,omitempty"`
	KubeAITakesOCI bool                              `json:"kubeAITakesOCI,omitempty"`
	Settings       Settings                          `json:"settings,omitzero"`
	// Presets and Realtime replace the shipped catalogs.
	Presets  json.RawMessage `json:"presets,omitempty"`
	Realtime json.RawMessage `json:"realtime,omitempty"`
}

// outcome is testdata/<case>/out.yaml.
type outcome struct {
	// Refusal when the activation cannot be carried out.
	Refusal *Refusal `json:"refusal,omitempty"`
	Message string   `json:"message,omitempty"`

	ModelRef        string   `json:"modelRef,omitempty"`
	Modules         []string `json:"modules,omitempty"`
	ResourceProfile string   `json:"resourceProfile,omitempty"`
	VRAMRequiredMi  int64    `json:"vramRequiredMi,omitempty"`
	Profile         any      `json:"profile,omitempty"`
	Model           any      `json:"model,omitempty"`
	Deployment      any      `json:"deployment,omitempty"`
	Service         any      `json:"service,omitempty"`
}

func loadSituation(t testing.TB, file string) (situation, Facts) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var in situation
	require.NoError(t, yaml.UnmarshalStrict(raw, &in))
	require.NotEmpty(t, in.Rule)
	f := Facts{
		Activation: &in.Activation, Catalogs: shippedCatalogs(t), Prepared: in.Prepared, Published: in.Published,
		SharedDevice: in.SharedDevice, KubeAITakesOCI: in.KubeAITakesOCI,
	}
	if in.Presets != nil {
		f.Presets, err = catalogs.ParsePresets(in.Presets)
		require.NoError(t, err)
	}
	if in.Realtime != nil {
		f.Realtime, err = catalogs.ParseRealtime(in.Realtime)
		require.NoError(t, err)
	}
	return in, f
}

// TestRender compares what an activation becomes with testdata/<case>/out.yaml.
func TestRender(t *testing.T) {
	cases, err := filepath.Glob("testdata/*/in.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, file := range cases {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			in, f := loadSituation(t, file)
			before := in.Activation.DeepCopy()
			var result outcome
			resolved, err := Resolve(f)
			if err != nil {
				require.ErrorAs(t, err, &result.Refusal)
				result.Message = err.Error()
			} else {
				result = outcome{
					ModelRef: resolved.ModelRef(), Modules: resolved.Modules,
					ResourceProfile: resolved.ResourceProfile(), VRAMRequiredMi: resolved.VRAMRequiredMi(),
				}
				objects := EngineOf(resolved).Render(resolved, in.Settings)
				if objects.Model != nil {
					result.Model, result.Profile = objects.Model, objects.Profile
				}
				if objects.Deployment != nil {
					result.Deployment, result.Service = objects.Deployment, objects.Service
				}
				again, err := Resolve(f)
				require.NoError(t, err)
				require.Equal(t, resolved, again, "the same facts give the same request")
				require.Equal(t, objects, EngineOf(again).Render(again, in.Settings), "and the same objects")
			}
			require.Equal(t, before, &in.Activation, "the activation is not touched")

			have, err := yaml.Marshal(result)
			require.NoError(t, err)
			golden := filepath.Join(dir, "out.yaml")
			if *update {
				require.NoError(t, os.WriteFile(golden, have, 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), string(have))
		})
	}
}
