package modelindex

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

var update = flag.Bool("update", false, "write testdata/*/out anew")

const testKey = "sk-master"

// situation is testdata/<case>/in.yaml.
type situation struct {
	// Rule is the sentence that the case stands for.
	Rule        string                               `json:"rule"`
	Models      []*kubeaiv1.Model                    `json:"models,omitempty"`
	Deployments []*appsv1.Deployment                 `json:"deployments,omitempty"`
	Activations []*appliancev1alpha1.ModelActivation `json:"activations,omitempty"`
	// External is models.json of ai-external-models.
	External string `json:"external,omitempty"`
	// Keys by <secret>/<key>.
	Keys map[string]Key `json:"keys,omitempty"`
	// LiteLLM has these.
	LiteLLM []Deployment `json:"litellm,omitempty"`
	// Templates of KubeOpenCode.
	Templates []map[string]any `json:"templates,omitempty"`
}

func (s situation) facts() Facts {
	f := Facts{Models: s.Models, Deployments: s.Deployments, Activations: s.Activations, External: ParseExternalModels(s.External), Keys: map[KeyRef]Key{}}
	for name, key := range s.Keys {
		secret, field, _ := strings.Cut(name, "/")
		f.Keys[KeyRef{secret, field}] = key
	}
	return f
}

// TestIndex compares what is made of a situation with testdata/<case>/out: the
// changes to LiteLLM, every key of the ConfigMap, and the AgentTemplates.
func TestIndex(t *testing.T) {
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
			compare(t, filepath.Join(dir, "out"), outcomeOf(t, in))
		})
	}
}

func outcomeOf(t *testing.T, in situation) map[string]string {
	t.Helper()
	settings := DefaultSettings()
	desired := Desire(in.facts(), settings)
	plan := Sync(in.LiteLLM, desired, testKey, Memory{})
	deployments := applied(in.LiteLLM, plan.Changes)
	again := Sync(deployments, desired, testKey, Memory{})
	assert.Empty(t, again.Changes, "a second pass has nothing to do")

	index, _ := IndexOf(deployments, settings).Without(desired, settings)
	out := Render(index, settings).Data
	out["litellm.yaml"] = describe(t, plan, desired)
	for _, object := range in.Templates {
		template := &unstructured.Unstructured{Object: object}
		wanted, err := Template(template, index, settings)
		switch {
		case err != nil:
			out["template-"+template.GetName()+".yaml"] = err.Error() + "\n"
		case wanted != nil:
			out["template-"+template.GetName()+".yaml"] = marshal(t, wanted.Object)
		}
	}
	return out
}

// applied is LiteLLM after the changes.
func applied(current []Deployment, changes []Change) []Deployment {
	deployments := slices.Clone(current)
	for _, change := range changes {
		deployments = slices.DeleteFunc(deployments, func(d Deployment) bool { return d.ID() == change.ID })
		if change.Record != nil {
			deployments = append(deployments, Wanted(change.Record, change.ID, testKey))
		}
	}
	return deployments
}

func describe(t *testing.T, plan Plan, desired Desired) string {
	t.Helper()
	verbs := map[Verb]string{Remove: "remove", Update: "update", Replace: "replace", Add: "add"}
	changes := []map[string]any{}
	for _, change := range plan.Changes {
		shown := map[string]any{"verb": verbs[change.Verb], "id": change.ID}
		if change.Record != nil {
			shown["sent"] = Wanted(change.Record, change.ID, testKey)
		}
		changes = append(changes, shown)
	}
	return marshal(t, map[string]any{
		"changes": changes, "problem": desired.Problem, "troubles": append(slices.Clone(desired.Troubles), plan.Troubles...),
	})
}

func marshal(t *testing.T, value any) string {
	t.Helper()
	out, err := yaml.Marshal(value)
	require.NoError(t, err)
	return string(out)
}

func compare(t *testing.T, dir string, got map[string]string) {
	t.Helper()
	if *update {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.MkdirAll(dir, 0o755))
		for name, content := range got {
			if name == strings.ToUpper(name) {
				continue // single values are in defaults.env
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	seen := 0
	for _, file := range files {
		want, err := os.ReadFile(filepath.Join(dir, file.Name()))
		require.NoError(t, err)
		assert.Equal(t, string(want), got[file.Name()], file.Name())
		seen++
	}
	values := 0
	for name, content := range got {
		if name == strings.ToUpper(name) {
			values++
			assert.Contains(t, got[KeyDefaults], name+"="+content+"\n", "single values stand in %s as well", KeyDefaults)
		}
	}
	assert.Equal(t, 5, values)
	assert.Len(t, got, seen+values, "files without a golden file")
}
