package codegen

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/tools/specgen/workspace"
)

// plurals of case 30: each breaks a generator that guesses.
var irregular = []struct{ kind, plural, goPlural, scope string }{
	{"DNS", "dnses", "DNSes", "Cluster"},
	{"Features", "features", "Features", "Namespaced"},
	{"Kinesis", "kinesis", "Kinesis", "Namespaced"},
	{"Policy", "policies", "Policies", "Namespaced"},
	{"Person", "people", "People", "Namespaced"},
}

const crdTemplate = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.things.example.dev}
spec:
  group: things.example.dev
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s, singular: %[3]s}
  scope: %[4]s
  versions:
    - name: v1alpha1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            metadata: {type: object}
            spec:
              type: object
              properties:
                entries:
                  type: array
                  x-kubernetes-list-type: map
                  x-kubernetes-list-map-keys: [name]
                  items:
                    type: object
                    required: [name]
                    properties:
                      name: {type: string}
                      size: {type: integer, format: int64}
            status:
              type: object
              properties:
                note: {type: string}
`

const typeTemplate = `
// %[1]s is a thing.
//
// +genclient%[2]s
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type %[1]s struct {
	metav1.TypeMeta   ` + "`json:\",inline\"`" + `
	metav1.ObjectMeta ` + "`json:\"metadata,omitempty\"`" + `
	Spec   *%[1]sSpec   ` + "`json:\"spec,omitempty\"`" + `
	Status %[1]sStatus ` + "`json:\"status,omitzero\"`" + `
}

// %[1]sSpec is what a person wants.
type %[1]sSpec struct {
	// +listType=map
	// +listMapKey=name
	Entries []%[1]sSpecEntriesItem ` + "`json:\"entries,omitzero\"`" + `
}

// %[1]sSpecEntriesItem is one entry.
type %[1]sSpecEntriesItem struct {
	Name string ` + "`json:\"name\"`" + `
	Size *int64 ` + "`json:\"size,omitempty\"`" + `
}

// %[1]sStatus is what is.
type %[1]sStatus struct {
	Note *string ` + "`json:\"note,omitempty\"`" + `
}

// %[1]sList is a list.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type %[1]sList struct {
	metav1.TypeMeta ` + "`json:\",inline\"`" + `
	metav1.ListMeta ` + "`json:\"metadata,omitempty\"`" + `
	Items []%[1]s ` + "`json:\"items\"`" + `
}
`

// stage makes a workspace with the CRDs and the types of irregular.
func stage(t *testing.T) *workspace.Workspace {
	t.Helper()
	repository, err := filepath.Abs("../../..")
	require.NoError(t, err)
	root := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(repository, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, name), data, 0o600))
	}
	types := workspace.Header + "package v1alpha1\n\nimport metav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n"
	folder := filepath.Join(root, "spec/crds/things.example.dev")
	require.NoError(t, os.MkdirAll(folder, 0o750))
	for _, thing := range irregular {
		lower := strings.ToLower(thing.kind)
		crd := fmt.Sprintf(crdTemplate, thing.kind, thing.plural, lower, thing.scope)
		require.NoError(t, os.WriteFile(filepath.Join(folder, lower+".yaml"), []byte(crd), 0o600))
		tag := ""
		if thing.scope == "Cluster" {
			tag = "\n// +genclient:nonNamespaced"
		}
		types += fmt.Sprintf(typeTemplate, thing.kind, tag)
	}
	ws, err := workspace.New(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ws.Close()) })
	require.NoError(t, ws.Write("apis/things/v1alpha1/types.go", []byte(types)))
	require.NoError(t, ws.Write("apis/things/v1alpha1/doc.go", []byte(workspace.Header+`// Package v1alpha1 is a fixture.
//
// +k8s:deepcopy-gen=package
// +groupName=things.example.dev
package v1alpha1
`)))
	return ws
}

// TestPluralsComeFromTheCRD is case 30 of the generator cases: the resource name
// is names.plural in client, fake, lister and informer.
func TestPluralsComeFromTheCRD(t *testing.T) {
	ws := stage(t)
	require.NoError(t, CRDs(t.Context(), ws))
	require.NoError(t, Generate(t.Context(), ws))

	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(ws.GeneratedDir(), name))
		require.NoError(t, err)
		return string(data)
	}
	generic := read("informers/generic.go")
	for _, thing := range irregular {
		t.Run(thing.kind, func(t *testing.T) {
			file := strings.ToLower(thing.kind) + ".go"
			client := read("clientset/typed/things/v1alpha1/" + file)
			require.Contains(t, client, fmt.Sprintf("%q,\n", thing.plural))
			require.Contains(t, client, thing.goPlural+"Getter interface")
			require.Contains(t, read("clientset/typed/things/v1alpha1/fake/fake_"+file),
				fmt.Sprintf("v1alpha1.SchemeGroupVersion.WithResource(%q)", thing.plural))
			require.Contains(t, read("listers/things/v1alpha1/"+file), fmt.Sprintf("v1alpha1.Resource(%q)", strings.ToLower(thing.kind)))
			require.Contains(t, read("informers/things/v1alpha1/"+file), fmt.Sprintf("Resource: %q}", thing.plural))
			require.Contains(t, generic, fmt.Sprintf("WithResource(%q)", thing.plural))
		})
	}

	t.Run("list_map_keys_reach_the_apply_configurations", func(t *testing.T) {
		internal := read("applyconfiguration/internal/internal.go")
		keys := "elementRelationship: associative\n                keys:\n                - name\n"
		require.Equal(t, len(irregular), strings.Count(internal, keys))
	})
	t.Run("the_program_name_does_not_leak", func(t *testing.T) {
		require.NotContains(t, read("clientset/clientset.go"), ".test")
		require.Contains(t, read("apis/things/v1alpha1/zz_generated.deepcopy.go"), "// Code generated by specgen from spec/. DO NOT EDIT.\n")
	})
	t.Run("everything_compiles", func(t *testing.T) {
		// The example of the real product names real kinds.
		require.NoError(t, os.Remove(filepath.Join(ws.GeneratedDir(), "clientset/example_test.go")))
		build := exec.CommandContext(t.Context(), "go", "build", "./generated/...")
		build.Dir = ws.ModuleDir
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
	})
}

func TestGroupsOf(t *testing.T) {
	crd := func(group, kind, plural string) workspace.CRD {
		c := workspace.CRD{File: "crds/" + plural + ".yaml"}
		definition := mustDecode(t, fmt.Sprintf(crdTemplate, kind, plural, strings.ToLower(kind), "Namespaced"))
		definition.Spec.Group = group
		c.Definition = definition
		return c
	}
	t.Run("two_groups_with_one_first_label_are_refused", func(t *testing.T) {
		_, _, err := groupsOf([]workspace.CRD{crd("ai.one.dev", "A", "as"), crd("ai.two.dev", "B", "bs")})
		require.ErrorContains(t, err, `spec.group "ai.two.dev"`)
	})
	t.Run("one_kind_with_two_plurals_is_refused", func(t *testing.T) {
		_, _, err := groupsOf([]workspace.CRD{crd("one.dev", "A", "as"), crd("two.dev", "A", "aes")})
		require.ErrorContains(t, err, "spec.names.plural")
	})
	t.Run("the_order_of_files_does_not_matter", func(t *testing.T) {
		one, _, err := groupsOf([]workspace.CRD{crd("one.dev", "A", "as"), crd("two.dev", "B", "bs")})
		require.NoError(t, err)
		other, _, err := groupsOf([]workspace.CRD{crd("two.dev", "B", "bs"), crd("one.dev", "A", "as")})
		require.NoError(t, err)
		require.Equal(t, one, other)
	})
}

func TestPluralGoNames(t *testing.T) {
	for _, thing := range irregular {
		require.Equal(t, thing.goPlural, Plurals{thing.kind: thing.plural}.goName(thing.kind))
	}
	require.Equal(t, "Mythings", Plurals{"Other": "my-things"}.goName("Other"))
}
