package tenants

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube/kubetest"
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
	kubetest.Cases(t, func(t *testing.T, dir string) {
		var in situation
		kubetest.Read(t, dir, &in)
		require.NotEmpty(t, in.Rule)
		kubetest.Golden(t, filepath.Join(dir, "out.yaml"), Compute(in.Namespace, in.Instances), *update)
	})
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
