package tenants

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

var update = flag.Bool("update", false, "write testdata/*/out.yaml anew")

// situation is testdata/<case>/in.yaml.
type situation struct {
	// Rule is the sentence that the case stands for.
	Rule      string                           `json:"rule"`
	Namespace *corev1.Namespace                `json:"namespace"`
	Instances []*appliancev1alpha1.AppInstance `json:"instances"`
}

func TestPlan(t *testing.T) {
	cases, err := filepath.Glob("testdata/*/in.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, file := range cases {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			var in situation
			require.NoError(t, yaml.UnmarshalStrict(raw, &in))
			require.NotEmpty(t, in.Rule)
			have, err := yaml.Marshal(Compute(in.Namespace, in.Instances))
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

func TestAgents(t *testing.T) {
	for values, want := range map[string]int64{
		``: 2, `{}`: 2, `{"agentExecution":{}}`: 2, `{"agentExecution":"x"}`: 2, `{"agentExecution":{"maxConcurrentAgents":null}}`: 2,
		`{"agentExecution":{"maxConcurrentAgents":1}}`: 1, `{"agentExecution":{"maxConcurrentAgents":10}}`: 10,
		`{"agentExecution":{"maxConcurrentAgents":0}}`: 1, `{"agentExecution":{"maxConcurrentAgents":-5}}`: 1,
		`{"agentExecution":{"maxConcurrentAgents":11}}`: 10, `{"agentExecution":{"maxConcurrentAgents":1e300}}`: 10,
		`{"agentExecution":{"maxConcurrentAgents":3.9}}`: 3, `{"agentExecution":{"maxConcurrentAgents":" 4 "}}`: 4,
		`{"agentExecution":{"maxConcurrentAgents":"many"}}`: 2, `{"agentExecution":{"maxConcurrentAgents":"NaN"}}`: 2,
		`{"agentExecution":{"maxConcurrentAgents":true}}`: 2,
	} {
		instance := &appliancev1alpha1.AppInstance{}
		if values != "" {
			instance.Spec.Values = &apiextensionsv1.JSON{Raw: []byte(values)}
		}
		require.Equal(t, want, agents(instance), values)
	}
}
