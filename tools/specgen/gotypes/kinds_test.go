package gotypes_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/gotypes"
	"magicstick.dev/operator/tools/specgen/gotypes/gotypestest"
	"magicstick.dev/operator/tools/specgen/roundtrip"
)

// back fails the test unless the CRD comes back the same.
func back(t *testing.T, d *crd.Definition) {
	t.Helper()
	results, err := roundtrip.Compare(context.Background(), gotypestest.RepoDir(t), []*crd.Definition{d})
	require.NoError(t, err)
	require.Equal(t, roundtrip.Same, results[0].Verdict, results[0].Detail)
}

// TestKindMarkers: everything about a kind that is not its schema is in markers.
func TestKindMarkers(t *testing.T) {
	d := gotypestest.Definition("example.com", "Thing", gotypestest.Props{Type: "object", Properties: map[string]gotypestest.Props{
		"replicas": {Type: "integer", Format: "int32"}, "color": {Type: "string"},
	}})
	object := d.CRD
	object.Labels = map[string]string{"b": "2", "a": "with 'quotes'"}
	object.Spec.Scope = apiextensionsv1.ClusterScoped
	object.Spec.Names.ShortNames, object.Spec.Names.Categories = []string{"th", "thg"}, []string{"all", "odd-ones"}
	warning, selector := `use v2; "v1" isn't served for long`, ".status.selector"
	v := &object.Spec.Versions[0]
	v.Deprecated, v.DeprecationWarning = true, &warning
	v.Schema.OpenAPIV3Schema.Properties["status"] = gotypestest.Props{Type: "object", Properties: map[string]gotypestest.Props{"replicas": {Type: "integer", Format: "int32"}, "selector": {Type: "string"}}}
	v.Subresources = &apiextensionsv1.CustomResourceSubresources{
		Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
		Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas", LabelSelectorPath: &selector},
	}
	v.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}}
	v.AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Ready", Type: "string", JSONPath: `.status.conditions[?(@.type=="Ready")].status`, Description: `It's "ready", ''really''`},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp", Priority: 1},
		{Name: "Replicas", Type: "integer", Format: "int32", JSONPath: ".spec.replicas"},
	}
	second := *v.DeepCopy()
	second.Name, second.Storage, second.Served, second.Deprecated, second.DeprecationWarning = "v0", false, false, false, nil
	object.Spec.Versions = append(object.Spec.Versions, second)
	files, err := gotypes.Emit([]*crd.Definition{d}, gotypestest.ByGroup)
	require.NoError(t, err)
	for _, marker := range []string{"+genclient\n", "+genclient:nonNamespaced\n", "+kubebuilder:subresource:status\n", "+kubebuilder:storageversion\n"} {
		require.Contains(t, string(files["example.com/v1/types_thing.go"]), marker)
	}
	require.NotContains(t, string(files["example.com/v1/types_thing.go"]), "noStatus")
	require.Contains(t, string(files["example.com/v0/types_thing.go"]), "+kubebuilder:unservedversion\n")
	require.Contains(t, string(files["example.com/v1/doc.go"]), "+groupName=example.com\n")
	require.Contains(t, string(files["example.com/v1/doc.go"]), "+k8s:deepcopy-gen=package\n")
	back(t, d)

	object.Spec.Versions[0].Subresources = nil
	files, err = gotypes.Emit([]*crd.Definition{d}, gotypestest.ByGroup)
	require.NoError(t, err)
	require.Contains(t, string(files["example.com/v1/types_thing.go"]), "+genclient:noStatus\n", "a client must not offer UpdateStatus where the API has none")
}

// TestRoots: what the root of a schema may be beside spec and status.
func TestRoots(t *testing.T) {
	yes := true
	length := int64(63)
	for name, edit := range map[string]func(*gotypestest.Props){
		"without type and object metadata": func(root *gotypestest.Props) {
			for _, name := range []string{"apiVersion", "kind", "metadata"} {
				delete(root.Properties, name)
			}
		},
		"without any schema":       func(root *gotypestest.Props) { *root = gotypestest.Props{Type: "object", XPreserveUnknownFields: &yes} },
		"preserving beside fields": func(root *gotypestest.Props) { root.XPreserveUnknownFields = &yes },
		"metadata is required":     func(root *gotypestest.Props) { root.Required = []string{"metadata", "spec"} },
		"all are required":         func(root *gotypestest.Props) { root.Required = []string{"apiVersion", "kind", "metadata", "spec"} },
		"the name is limited": func(root *gotypestest.Props) {
			root.Properties["metadata"] = gotypestest.Props{Type: "object", Properties: map[string]gotypestest.Props{"name": {Type: "string", MaxLength: &length}}}
		},
		"fields at the root": func(root *gotypestest.Props) {
			root.Properties["data"] = gotypestest.Props{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &gotypestest.Props{Type: "string"}}}
		},
		"names of ObjectMeta": func(root *gotypestest.Props) {
			root.Properties["name"], root.Properties["getName"], root.Properties["objectMeta"] = gotypestest.Props{Type: "string"}, gotypestest.Props{Type: "string"}, gotypestest.Props{Type: "string"}
		},
		"a status that is no struct": func(root *gotypestest.Props) {
			root.Properties["status"] = gotypestest.Props{Type: "object", XPreserveUnknownFields: &yes}
		},
		"a nullable status": func(root *gotypestest.Props) {
			root.Properties["status"] = gotypestest.Props{Type: "object", Nullable: true, Properties: map[string]gotypestest.Props{"a": {Type: "string"}}}
		},
		"no description": func(root *gotypestest.Props) { root.Description = "" },
		"rules and bounds": func(root *gotypestest.Props) {
			root.XValidations = apiextensionsv1.ValidationRules{{Rule: "self.metadata.name.size() < 9", Message: "short"}}
			root.MaxProperties = &length
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := gotypestest.Definition("example.com", "Thing", gotypestest.Props{Type: "object", Properties: map[string]gotypestest.Props{"a": {Type: "string"}}})
			edit(d.CRD.Spec.Versions[0].Schema.OpenAPIV3Schema)
			back(t, d)
		})
	}
	d := gotypestest.Definition("example.com", "Thing", gotypestest.Props{Type: "object"})
	d.CRD.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["kind"] = gotypestest.Props{Type: "string", MaxLength: &length}
	_, err := gotypes.Emit([]*crd.Definition{d}, gotypestest.ByGroup)
	require.ErrorContains(t, err, "openAPIV3Schema.properties[kind]: has more than type and description")
}

// TestNamesThatLeaveGo: names end in paths, package clauses and markers, so hostile ones
// are refused before anything is made of them.
func TestNamesThatLeaveGo(t *testing.T) {
	for path, edit := range map[string]func(*apiextensionsv1.CustomResourceDefinitionSpec){
		"spec.group":            func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Group = "../../etc" },
		"spec.versions[0].name": func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Versions[0].Name = "../v1" },
		"spec.names.kind":       func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Names.Kind = "a/../b" },
		"spec.scope":            func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Scope = "Cluster\n// +injected" },
	} {
		t.Run(path, func(t *testing.T) {
			d := gotypestest.Definition("example.com", "Thing", gotypestest.Props{Type: "object"})
			edit(&d.CRD.Spec)
			files, err := gotypes.Emit([]*crd.Definition{d}, gotypes.ByShortGroup)
			require.Empty(t, files)
			var found *crd.Error
			require.ErrorAs(t, err, &found)
			require.Equal(t, path, found.Path)
		})
	}
}

// TestExamplesPass: the accepted examples of the spec decode and encode unchanged.
func TestExamplesPass(t *testing.T) {
	definitions := spec(t)
	byKind := map[string]*crd.Definition{}
	for _, d := range definitions {
		byKind[d.CRD.Spec.Names.Kind] = d
	}
	files, err := filepath.Glob(filepath.Join(gotypestest.RepoDir(t), "spec", "examples", "*", "valid", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	codec := gotypestest.Build(t, definitions)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, document := range documents(data) {
			object, err := yaml.YAMLToJSON(document)
			require.NoError(t, err, file)
			var head struct{ Kind string }
			require.NoError(t, yaml.Unmarshal(object, &head), file)
			d := byKind[head.Kind]
			require.NotNil(t, d, "%s: kind %q", file, head.Kind)
			got, err := codec.Through(d, "v1alpha1", object)
			require.NoError(t, err, file)
			require.Empty(t, gotypestest.Difference(object, got), file)
		}
	}
}
