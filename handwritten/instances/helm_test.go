package instances

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	fluxcrds "magicstick.dev/operator/generated/external/crds"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/kube"
)

// goldenReleases are the releases in testdata/*/out.yaml by case, the last one
// of each.
func goldenReleases(t *testing.T) map[string]*helmv2.HelmRelease {
	t.Helper()
	files, err := filepath.Glob("testdata/*/out.yaml")
	require.NoError(t, err)
	found := map[string]*helmv2.HelmRelease{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var passes []struct {
			Release *helmv2.HelmRelease `json:"release"`
		}
		require.NoError(t, yaml.Unmarshal(raw, &passes))
		for _, pass := range passes {
			if pass.Release != nil {
				found[filepath.Base(filepath.Dir(file))] = pass.Release
			}
		}
	}
	require.Greater(t, len(found), 20)
	return found
}

// Every release that a golden case renders passes Flux's own CRD on a real API
// server, with no field that it does not know.
func TestReleasesAreAcceptedByFlux(t *testing.T) {
	config := controlplanetest.Start(t, controlplanetest.WithCRDs(fluxcrds.FS))
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), namespace("ai-system")))
	apply := func(release *helmv2.HelmRelease, change func(map[string]any)) error {
		raw, err := json.Marshal(release)
		require.NoError(t, err)
		object := &unstructured.Unstructured{}
		require.NoError(t, json.Unmarshal(raw, &object.Object))
		delete(object.Object, "status")
		if change != nil {
			change(object.Object)
		}
		return c.Patch(t.Context(), object, client.Apply, client.DryRunAll, client.ForceOwnership, //nolint:staticcheck // The object is what the golden file says.
			client.FieldOwner(kube.FieldManager), client.FieldValidation(metav1.FieldValidationStrict))
	}
	releases := goldenReleases(t)
	for _, name := range slices.Sorted(maps.Keys(releases)) {
		require.NoError(t, apply(releases[name], nil), name)
	}

	// The check can fail, by value and by name.
	sample := releases["application-openclaw"]
	err = apply(sample, func(object map[string]any) {
		require.NoError(t, unstructured.SetNestedField(object, "soon", "spec", "interval"))
	})
	require.ErrorContains(t, err, "spec.interval")
	err = apply(sample, func(object map[string]any) {
		require.NoError(t, unstructured.SetNestedField(object, true, "spec", "chart", "spec", "unheard"))
	})
	require.ErrorContains(t, err, "unheard")
}

func namespace(name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	object.SetName(name)
	return object
}

// render does with a chart and a release what helm-controller does.
func render(t *testing.T, c *chart.Chart, release *helmv2.HelmRelease) (map[string]string, error) {
	t.Helper()
	values, err := chartutil.ToRenderValues(c, release.GetValues(), chartutil.ReleaseOptions{
		Name: release.Spec.ReleaseName, Namespace: release.Spec.TargetNamespace, Revision: 1, IsInstall: true,
	}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, values)
}

// objects are what a rendering holds, in the order of the templates' names.
func objects(t *testing.T, rendered map[string]string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		if strings.HasPrefix(filepath.Base(file), "_") {
			continue
		}
		for document := range strings.SplitSeq(rendered[file], "\n---\n") {
			var object map[string]any
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), &object), file)
			if object != nil {
				found = append(found, object)
			}
		}
	}
	return found
}

// userInstance is an instance with everything that its users can say
// (contract/appliance.md B.3), as the API server stores it.
func userInstance(t *testing.T, application string) *appliancev1alpha1.AppInstance {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata/values", application+".yaml"))
	require.NoError(t, err)
	values, err := yaml.YAMLToJSONStrict(raw)
	require.NoError(t, err)
	instance := &appliancev1alpha1.AppInstance{ObjectMeta: metav1.ObjectMeta{Name: application + "-team"}}
	instance.Spec.Application, instance.Spec.Values = application, &apiextensionsv1.JSON{Raw: values}
	return instance
}

func releaseOf(t *testing.T, instance *appliancev1alpha1.AppInstance) *helmv2.HelmRelease {
	t.Helper()
	for _, plan := range simulate(t, situation{Instance: instance}).settle() {
		if plan.Release == nil {
			continue
		}
		raw, err := json.Marshal(plan.Release)
		require.NoError(t, err)
		release := &helmv2.HelmRelease{}
		require.NoError(t, json.Unmarshal(raw, release))
		return release
	}
	t.Fatalf("no release for %s", instance.Name)
	return nil
}

// What the operator gives to the charts of the five applications meets the
// contract of the charts and renders: testdata/rendered/<application>.yaml.
func TestReleasesRenderCharts(t *testing.T) {
	c, err := loader.Load("testdata/chart")
	require.NoError(t, err)
	applications, _ := shippedCatalogs(t)
	for _, application := range []string{"hermes", "kubeopencode", "odysseus", "openclaw", "paperclip"} {
		t.Run(application, func(t *testing.T) {
			instance := userInstance(t, application)
			rendered, err := render(t, c, releaseOf(t, instance))
			require.NoError(t, err)
			list := objects(t, rendered)
			have, err := yaml.Marshal(list)
			require.NoError(t, err)
			golden := filepath.Join("testdata/rendered", application+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(golden, have, 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), string(have))

			// The route leads to the Service that the chart makes.
			known, found := applications.Get(application)
			require.True(t, found)
			service := slices.IndexFunc(list, func(object map[string]any) bool { return object["kind"] == "Service" })
			require.GreaterOrEqual(t, service, 0)
			backend := openBackend(t, userInstance(t, application))
			require.Equal(t, backend.service, list[service]["metadata"].(map[string]any)["name"])
			require.Equal(t, backend.namespace, list[service]["metadata"].(map[string]any)["namespace"])
			ports := list[service]["spec"].(map[string]any)["ports"].([]any)
			require.EqualValues(t, known.Route.Port, ports[0].(map[string]any)["port"])
			require.EqualValues(t, backend.port, ports[0].(map[string]any)["port"])
			require.False(t, slices.ContainsFunc(list, func(object map[string]any) bool { return object["kind"] == "Ingress" }),
				"nothing leads past the guard")
		})
	}
}

// openBackend is where the routes of an instance lead when it has come to rest.
func openBackend(t *testing.T, instance *appliancev1alpha1.AppInstance) backend {
	t.Helper()
	s := simulate(t, situation{Instance: instance})
	s.settle()
	for _, route := range s.routes {
		if hasBackend(route) {
			ref := route.Spec.Rules[0].BackendRefs[0]
			return backend{service: string(ref.Name), namespace: string(*ref.Namespace), port: *ref.Port}
		}
	}
	t.Fatalf("%s did not open", instance.Name)
	return backend{}
}

// The releases of the golden cases render too: every exposure, role and source.
func TestGoldenReleasesRenderCharts(t *testing.T) {
	c, err := loader.Load("testdata/chart")
	require.NoError(t, err)
	for name, release := range goldenReleases(t) {
		rendered, err := render(t, c, release)
		require.NoError(t, err, name)
		require.GreaterOrEqual(t, len(objects(t, rendered)), 2, name)
	}
}

// The contract of the charts refuses what it should, so that passing it says something.
func TestChartContractRefuses(t *testing.T) {
	c, err := loader.Load("testdata/chart")
	require.NoError(t, err)
	for _, key := range []string{"name", "namespace", "application", "localHost", "localName", "values"} {
		release := releaseOf(t, userInstance(t, "openclaw"))
		values := release.GetValues()
		delete(values["instance"].(map[string]any), key)
		setValues(t, release, values)
		_, err := render(t, c, release)
		require.ErrorContains(t, err, key)
	}
	for application, change := range map[string]struct{ text, words string }{
		"paperclip":    {`{"agentExecution":{"maxConcurrentAgents":"3"}}`, "maxConcurrentAgents"},
		"hermes":       {`{"storage":{"size":10}}`, "size"},
		"kubeopencode": {`{"agentTemplates":[{"description":"no name"}]}`, "name"},
		"openclaw":     {`{"paperclipAgentSecretRef":{"name":"n"}}`, "key"},
		"odysseus":     {`{"chroma":{"storage":{"size":"much"}}}`, "size"},
	} {
		instance := userInstance(t, application)
		instance.Spec.Values.Raw = []byte(change.text)
		_, err := render(t, c, releaseOf(t, instance))
		require.ErrorContains(t, err, change.words, application)
	}
}

func setValues(t *testing.T, release *helmv2.HelmRelease, values map[string]any) {
	t.Helper()
	raw, err := json.Marshal(values)
	require.NoError(t, err)
	release.Spec.Values = &apiextensionsv1.JSON{Raw: raw}
}
