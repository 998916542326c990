package gotypes_test

import (
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"magicstick.dev/operator/tools/specgen/crd"
	"magicstick.dev/operator/tools/specgen/gotypes"
	"magicstick.dev/operator/tools/specgen/gotypes/gotypestest"
	"magicstick.dev/operator/tools/specgen/roundtrip"
)

// sources are the inputs over which the five properties must hold.
var sources = []struct {
	name string
	load func(t *testing.T) []*crd.Definition
	// objects is how many valid objects per version are tried.
	objects int
}{
	{"corpus", corpus, 12},
	{"spec", spec, 60},
	{"random", random, 25},
}

func corpus(t *testing.T) []*crd.Definition { return loadAll(t, gotypestest.CorpusDir(t)) }

func spec(t *testing.T) []*crd.Definition {
	return loadAll(t, filepath.Join(gotypestest.RepoDir(t), "spec", "crds"))
}

func random(*testing.T) []*crd.Definition {
	var definitions []*crd.Definition
	for seed := range 80 {
		definitions = append(definitions, gotypestest.RandomDefinition(seed))
	}
	return definitions
}

func loadAll(t *testing.T, dir string) []*crd.Definition {
	t.Helper()
	definitions, err := crd.LoadDir(dir)
	require.NoError(t, err)
	require.NotEmpty(t, definitions)
	return definitions
}

// TestSchemaComesBack is property 1: CRD, Go types, controller-tools, the same CRD.
func TestSchemaComesBack(t *testing.T) {
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			results, err := roundtrip.Compare(context.Background(), gotypestest.RepoDir(t), s.load(t))
			require.NoError(t, err)
			for _, r := range results {
				if r.Verdict != roundtrip.Same {
					t.Errorf("%s %s %s", r.Name, r.Verdict, r.Detail)
				}
			}
		})
	}
}

// TestObjectsPass is property 2: every valid object decodes into the types and
// encodes to an equal object. Objects are random; quantities, durations and times are
// drawn in the form that their Go types write.
func TestObjectsPass(t *testing.T) {
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			definitions := s.load(t)
			codec := gotypestest.Build(t, definitions)
			tried, empty := 0, 0
			for i, d := range definitions {
				for _, version := range d.CRD.Spec.Versions {
					sampler, err := gotypestest.NewSampler(version.Schema.OpenAPIV3Schema, uint64(i))
					require.NoError(t, err)
					found := 0
					for range s.objects {
						object, ok := sampler.Object(d.CRD.Spec.Group+"/"+version.Name, d.CRD.Spec.Names.Kind)
						if !ok {
							break
						}
						found++
						got, err := codec.Through(d, version.Name, object)
						require.NoError(t, err, "%s %s: %s", d.Name(), version.Name, object)
						require.Empty(t, gotypestest.Difference(object, got), "%s %s", d.Name(), version.Name)
					}
					tried += found
					if found == 0 {
						empty++
					}
				}
			}
			require.Zero(t, empty, "versions for which no valid object was found")
			t.Logf("%d objects of %d definitions", tried, len(definitions))
			require.Greater(t, tried, len(definitions)*s.objects/2, "too few valid objects were found to say anything")
		})
	}
}

// TestSameBytes is property 3: the same input gives the same bytes in any order.
func TestSameBytes(t *testing.T) {
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			definitions := s.load(t)
			want, err := gotypes.Emit(definitions, gotypestest.ByGroup)
			require.NoError(t, err)
			shuffle := rand.New(rand.NewPCG(7, 7))
			shuffle.Shuffle(len(definitions), func(i, j int) { definitions[i], definitions[j] = definitions[j], definitions[i] })
			got, err := gotypes.Emit(definitions, gotypestest.ByGroup)
			require.NoError(t, err)
			require.Equal(t, len(want), len(got))
			for name := range want {
				require.Equal(t, string(want[name]), string(got[name]), name)
			}
		})
	}
}

// TestNothingRenamed is property 4: without any one CRD, the files of all others are
// the same bytes.
func TestNothingRenamed(t *testing.T) {
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			definitions := s.load(t)
			all, err := gotypes.Emit(definitions, gotypestest.ByGroup)
			require.NoError(t, err)
			for i := 0; i < len(definitions); i += 1 + len(definitions)/4 {
				rest := append(append([]*crd.Definition{}, definitions[:i]...), definitions[i+1:]...)
				fewer, err := gotypes.Emit(rest, gotypestest.ByGroup)
				require.NoError(t, err)
				for name, data := range fewer {
					if strings.HasSuffix(name, "kept.go") {
						continue // written once for whoever needs it
					}
					require.Equal(t, string(all[name]), string(data), "without %s", definitions[i].Name())
				}
			}
		})
	}
}

// TestAnySchema is property 5 and the cheap half of the others, with shrinking: a
// random schema gives formatted Go or an error with a path, never a panic, and the
// same bytes twice.
func TestAnySchema(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		schema := gotypestest.Schema().Draw(t, "schema")
		if rapid.Bool().Draw(t, "break") {
			damage(t, &schema)
		}
		d := gotypestest.Definition("any.example.com", "Any", schema)
		first, err := gotypes.Emit([]*crd.Definition{d}, gotypestest.ByGroup)
		if err != nil {
			if !strings.Contains(err.Error(), "spec.versions[0].schema.openAPIV3Schema.properties[spec]") {
				t.Fatalf("an error without JSON path: %v", err)
			}
			return
		}
		second, err := gotypes.Emit([]*crd.Definition{d}, gotypestest.ByGroup)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range first {
			if string(data) != string(second[name]) {
				t.Fatalf("%s differs between two runs", name)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), name, data, parser.AllErrors); err != nil {
				t.Fatalf("%s is not Go: %v", name, err)
			}
			if filepath.IsAbs(name) || strings.Contains(name, "..") {
				t.Fatalf("the file name %s leaves the output folder", name)
			}
		}
	})
}

// damage makes a schema that no API server takes.
func damage(t *rapid.T, s *gotypestest.Props) {
	for name, sub := range s.Properties {
		if len(sub.Properties) > 0 && rapid.Bool().Draw(t, "deeper") {
			damage(t, &sub)
		} else {
			switch rapid.IntRange(0, 4).Draw(t, "damage") {
			case 0:
				sub.Type = "text"
			case 1:
				sub = gotypestest.Props{}
			case 2:
				ref := "#/definitions/self"
				sub.Ref = &ref
			case 3:
				sub = gotypestest.Props{Type: "array"}
			case 4:
				sub.Type, sub.XIntOrString = "string", true
			}
		}
		s.Properties[name] = sub
		return
	}
}

// TestErrorWritesNothing: a spec with one CRD that Go cannot say leaves the output
// folder empty.
func TestErrorWritesNothing(t *testing.T) {
	root := gotypestest.RepoDir(t)
	good, err := os.ReadFile(filepath.Join(root, "spec", "crds", "ai.deckhouse.io", "model.yaml"))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		text string
		want string // empty for none
	}{
		"sound":           {string(good), ""},
		"unknown keyword": {strings.Replace(string(good), "      schema:\n", "      schema:\n        openApi: {}\n", 1), "openApi"},
		"no Go name":      {strings.Replace(string(good), "kind: Model\n", "kind: Mo-del\n", 1), "Mo-del"},
	} {
		t.Run(name, func(t *testing.T) {
			ws := stagedSpec(t, root)
			folder := filepath.Join(ws.SpecDir, "crds", "ai.deckhouse.io")
			require.NoError(t, os.MkdirAll(folder, 0o750))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "model.yaml"), []byte(c.text), 0o600))
			err := gotypes.Generate(context.Background(), ws)
			files, listErr := ws.Files()
			require.NoError(t, listErr)
			if c.want == "" {
				require.NoError(t, err)
				require.NotEmpty(t, files)
				return
			}
			require.ErrorContains(t, err, "spec/crds/ai.deckhouse.io/model.yaml")
			require.ErrorContains(t, err, c.want)
			require.Empty(t, files)
		})
	}
}

// TestGroupsWithOneLabel: two groups that would share a folder are an error.
func TestGroupsWithOneLabel(t *testing.T) {
	schema := gotypestest.Props{Type: "object", Properties: map[string]gotypestest.Props{"a": {Type: "string"}}}
	_, err := gotypes.Emit([]*crd.Definition{
		gotypestest.Definition("apps.one.example", "First", schema), gotypestest.Definition("apps.two.example", "Second", schema),
	}, gotypes.ByShortGroup)
	require.ErrorContains(t, err, `"apps.one.example" and "apps.two.example" would both be written to apps/v1`)
}

// TestKindsThatNeedOneName: Cluster with a property imageCatalog beside the kind
// ClusterImageCatalog is an error that names both, because renaming either would
// depend on the other.
func TestKindsThatNeedOneName(t *testing.T) {
	cluster := gotypestest.Definition("g.example", "Cluster", gotypestest.Props{Type: "object"})
	root := cluster.CRD.Spec.Versions[0].Schema.OpenAPIV3Schema
	root.Properties["imageCatalog"] = gotypestest.Props{Type: "object", Properties: map[string]gotypestest.Props{"a": {Type: "string"}}}
	catalog := gotypestest.Definition("g.example", "ClusterImageCatalog", gotypestest.Props{Type: "object"})
	_, err := gotypes.Emit([]*crd.Definition{cluster, catalog}, gotypes.ByShortGroup)
	require.ErrorContains(t, err, "needs the Go name ClusterImageCatalog, which kind")
	require.ErrorContains(t, err, fmt.Sprintf("of %s/v1 has too", "g.example"))
}
