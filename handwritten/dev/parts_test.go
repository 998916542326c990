package dev

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/handwritten/catalogs"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o, err := decode([]byte(text))
	require.NoError(t, err)
	return o
}

func TestMakeRow(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want row
	}{
		"phase and condition of ours": {
			"kind: ModuleActivation\nmetadata: {name: m}\nstatus: {phase: Ready, message: old, conditions: [{type: Other}, {type: Ready, status: 'True', reason: R, message: new}]}",
			row{"ModuleActivation", "m", "Ready", "R", "new"},
		},
		"condition of Flux": {
			"kind: Kustomization\nmetadata: {name: k}\nstatus: {conditions: [{type: Ready, status: 'False', reason: R, message: M}]}",
			row{"Kustomization", "k", "Not ready", "R", "M"},
		},
		"suspended wins over an old condition": {
			"kind: Kustomization\nmetadata: {name: k}\nspec: {suspend: true}\nstatus: {conditions: [{type: Ready, status: 'True', reason: R}]}",
			row{"Kustomization", "k", "Suspended", "R", ""},
		},
		"nobody reconciles it": {
			"kind: HostOperation\nmetadata: {name: a}\nstatus: {observedGeneration: -1}",
			row{"HostOperation", "a", "", "", "accepted; its controller does not run here"},
		},
		"model on an engine": {
			"kind: ModelActivation\nmetadata: {name: m}\nspec: {local: {engine: VLLM}}\n" +
				"status: {phase: Starting, engine: OLlama, computeTarget: cpu, conditions: [{type: Ready, status: 'False', reason: R, message: M}]}",
			row{"ModelActivation", "m", "Starting", "R", "OLlama on cpu: M"},
		},
		"model that nobody has resolved yet": {
			"kind: ModelActivation\nmetadata: {name: m}\nspec: {local: {computeTarget: cpu}}", row{"ModelActivation", "m", "", "", "cpu"},
		},
		"model of a preset that says it all": {
			"kind: ModelActivation\nmetadata: {name: m}\nspec: {local: {preset: p}}\nstatus: {phase: Degraded, message: M}", row{"ModelActivation", "m", "Degraded", "", "M"},
		},
		"external model": {
			"kind: ModelActivation\nmetadata: {name: m}\nspec: {external: {model: openai/x}}\nstatus: {phase: Ready, message: M}", row{"ModelActivation", "m", "Ready", "", "openai/x: M"},
		},
		"route without a backend": {
			"kind: HTTPRoute\nmetadata: {name: r}\nspec: {hostnames: [a.example, b.example], rules: [{matches: []}]}\nstatus: {conditions: [{type: Ready}]}",
			row{"HTTPRoute", "r", "Closed", "", "a.example, b.example"},
		},
		"route with a backend": {
			"kind: HTTPRoute\nmetadata: {name: r}\nspec: {hostnames: [a.example], rules: [{}, {backendRefs: [{name: s}]}]}",
			row{"HTTPRoute", "r", "Open", "", "a.example"},
		},
		"policy that no gateway has seen": {
			"kind: SecurityPolicy\nmetadata: {name: p}", row{"SecurityPolicy", "p", "", "", "no gateway has looked at it yet"},
		},
		"policy that the gateway refuses": {
			"kind: SecurityPolicy\nmetadata: {name: p}\nstatus: {ancestors: [{conditions: [{type: Accepted, status: 'False', reason: Invalid, message: M}]}]}",
			row{"SecurityPolicy", "p", "Refused", "Invalid", "M"},
		},
		"policy in force": {
			"kind: SecurityPolicy\nmetadata: {name: p}\nstatus: {ancestors: [{conditions: [{type: Other}]}, {conditions: [{type: Accepted, status: 'True', reason: Accepted, message: ok}]}]}",
			row{"SecurityPolicy", "p", "Accepted", "Accepted", "ok"},
		},
		"not yet seen by the operator": {
			"kind: Appliance\nmetadata: {name: local}", row{"Appliance", "local", "", "", ""},
		},
		"conditions of a wrong shape": {
			"kind: Appliance\nmetadata: {name: local}\nstatus: {phase: 7, conditions: [text]}", row{"Appliance", "local", "", "", ""},
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, makeRow(object(t, test.text))) })
	}
}

func TestIndexRows(t *testing.T) {
	index := func(text string) *unstructured.Unstructured {
		o := object(t, "kind: ConfigMap\nmetadata: {name: ai-model-catalog}")
		require.NoError(t, unstructured.SetNestedField(o.Object, text, "data", "catalog.json"))
		return o
	}
	assert.Equal(t, []row{
		{indexRow, "a", "Listed", "", "chat model litellm/a, 4096 tokens of context; the default for chat"},
		{indexRow, "b", "Listed", "", "chat model litellm/b"},
		{indexRow, "c", "Listed", "", "embedding model litellm/c; the default for embedding"},
	}, indexRows(index(`{"models":[{"id":"a","type":"chat","modelRef":"litellm/a","contextWindow":4096},{"id":"b","type":"chat","modelRef":"litellm/b"},
		{"id":"c","type":"embedding","modelRef":"litellm/c"}],"defaultChatModel":"a","defaultEmbeddingModel":"c"}`)))
	assert.Empty(t, indexRows(index(`{"models":[],"defaultChatModel":""}`)))
	broken := indexRows(index(`{`))
	require.Len(t, broken, 1)
	assert.Equal(t, "Unreadable", broken[0].phase)
	assert.Equal(t, "Unreadable", indexRows(object(t, "kind: ConfigMap\nmetadata: {name: x}"))[0].phase)
}

func TestListed_leaves_out_what_is_not_of_an_instance(t *testing.T) {
	assert.True(t, listed(object(t, "kind: Kustomization\nmetadata: {name: k}")))
	for _, kind := range []string{"HelmRelease", "HTTPRoute", "SecurityPolicy"} {
		assert.False(t, listed(object(t, "kind: "+kind+"\nmetadata: {name: x}")))
		assert.True(t, listed(object(t, "kind: "+kind+"\nmetadata: {name: x, labels: {appliance.magicstick.dev/appinstance: i}}")))
	}
}

func TestMakeRows_are_sorted_by_kind_and_name(t *testing.T) {
	var names []string
	for _, r := range makeRows([]*unstructured.Unstructured{
		object(t, "{kind: Model, metadata: {name: a}}"), object(t, "{kind: ModuleActivation, metadata: {name: b}}"),
		object(t, "{kind: ModuleActivation, metadata: {name: a}}"), object(t, "{kind: Appliance, metadata: {name: z}}"),
	}) {
		names = append(names, r.kind+"/"+r.name)
	}
	assert.Equal(t, []string{"Appliance/z", "ModuleActivation/a", "ModuleActivation/b", "Model/a"}, names)
}

func TestPending(t *testing.T) {
	module := func(phase string, observed int) *unstructured.Unstructured {
		return object(t, fmt.Sprintf("kind: ModuleActivation\nmetadata: {name: m, generation: 2}\n"+
			"status: {phase: %s, observedGeneration: %d, conditions: [{type: Ready, status: 'False', reason: R}]}", phase, observed))
	}
	model := func(phase string) *unstructured.Unstructured {
		return object(t, "kind: ModelActivation\nmetadata: {name: m, generation: 1}\n"+
			"status: {phase: "+phase+", observedGeneration: 1, conditions: [{type: Ready, status: 'False', reason: R}]}")
	}
	for name, test := range map[string]struct {
		object            *unstructured.Unstructured
		without, withFlux bool
	}{
		"seen and ready":      {module("Ready", 2), false, false},
		"seen and waiting":    {module("WaitingForModules", 2), false, true},
		"seen and degraded":   {module("Degraded", 2), false, false},
		"an older generation": {module("Ready", 1), true, true},
		"a model that starts": {model("Starting"), false, true},
		"a model without GPU": {model("WaitingForGPU"), false, false},
		"a model in service":  {model("Ready"), false, false},
		"untouched":           {object(t, "kind: Appliance\nmetadata: {name: m, generation: 1}\nstatus: {observedGeneration: -1}"), true, true},
		"of another operator": {object(t, "kind: Model\nmetadata: {name: m, generation: 1}"), false, false},
		"on its way to be gone": {object(t, "kind: Appliance\nmetadata: {name: m, generation: 1, deletionTimestamp: '2026-01-01T00:00:00Z'}\n"+
			"status: {observedGeneration: 1, conditions: [{type: Ready, reason: R}]}"), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.without, len(pending([]*unstructured.Unstructured{test.object}, false)) > 0, "without Flux")
			assert.Equal(t, test.withFlux, len(pending([]*unstructured.Unstructured{test.object}, true)) > 0, "with Flux")
		})
	}
}

func TestLayOut(t *testing.T) {
	lines := layOut([][]string{{"KIND", "NAME", "MESSAGE"}, {"Modul", "ä", "what" + strings.Repeat("x", 50) + "the reason why"}, {"M", "longer", "a\nb\x1b[2Jc"}}, 40)
	assert.Equal(t, []string{
		"KIND   NAME    MESSAGE",
		"Modul  ä       what" + "xxx" + "..." + "x" + "the reason why",
		"M      longer  a b [2Jc",
	}, lines)
	// A terminal that is too narrow still shows both ends of the message.
	assert.Equal(t, "a  "+strings.Repeat("y", 5)+"..."+strings.Repeat("y", 12), layOut([][]string{{"a", strings.Repeat("y", 99)}}, 5)[0])
}

func TestPrinter_replaces_the_table_on_a_terminal(t *testing.T) {
	var out bytes.Buffer
	p := &printer{out: &out, size: func() (int, int) { return 80, 24 }}
	p.table([][]string{{"A"}, {"b"}})
	assert.Equal(t, "A\nb\n", out.String())
	out.Reset()
	p.table([][]string{{"A"}, {"c"}})
	assert.Equal(t, "\x1b[2A\x1b[JA\nc\n", out.String())
	out.Reset()
	p.line("stays")
	p.table([][]string{{"A"}})
	assert.Equal(t, "stays\nA\n", out.String(), "a line that stays is not overwritten")

	t.Run("cut to the height", func(t *testing.T) {
		out.Reset()
		p := &printer{out: &out, size: func() (int, int) { return 80, 6 }}
		p.table([][]string{{"1"}, {"2"}, {"3"}, {"4"}, {"5"}, {"6"}})
		assert.Equal(t, "1\n2\n3\n... and 3 more; enlarge the window or use kubectl\n", out.String())
	})
	t.Run("printed again elsewhere, and whole", func(t *testing.T) {
		out.Reset()
		p := newPrinter(&out)
		long := strings.Repeat("message ", 100) + "end"
		p.table([][]string{{"A"}})
		p.table([][]string{{"B", long}})
		assert.Equal(t, "\nA\n\nB  "+long+"\n", out.String())
	})
}

func TestReadExamples_shows_each_object_once(t *testing.T) {
	list, err := readExamples()
	require.NoError(t, err)
	statuses := map[string]bool{}
	for _, e := range list {
		key := e.object.GetKind() + "/" + e.object.GetName()
		assert.NotContains(t, statuses, key)
		statuses[key] = e.status
	}
	assert.Contains(t, statuses, "Appliance/local")
	assert.False(t, statuses["Appliance/local"], "the operator writes that status")
	assert.True(t, statuses["ApplianceSetup/local"], "only host automation writes that one")
}

func TestIncludes(t *testing.T) {
	for name, test := range map[string]struct {
		have, want string
		same       bool
	}{
		"the API server's defaults": {"{a: 1, b: {c: x, d: default}}", "{a: 1, b: {c: x}}", true},
		"another value":             {"{a: 1, b: {c: x}}", "{a: 1, b: {c: y}}", false},
		"a field taken off":         {"{b: {}}", "{b: {c: x}}", false},
		"a longer list":             {"{a: [x, y]}", "{a: [x]}", false},
		"a list in another order":   {"{a: [x, y]}", "{a: [y, x]}", false},
		"objects in a list":         {"{a: [{k: 1, d: 2}]}", "{a: [{k: 1}]}", true},
		"another type":              {"{a: text}", "{a: {b: c}}", false},
		"a null":                    {"{a: 1}", "{a: null}", true},
	} {
		t.Run(name, func(t *testing.T) {
			have, want := object(t, "kind: X\nspec: "+test.have), object(t, "kind: X\nspec: "+test.want)
			assert.Equal(t, test.same, includes(have.Object["spec"], want.Object["spec"]))
		})
	}
}

func TestStandInSource_has_every_module_of_the_catalog(t *testing.T) {
	files, err := standInSource()
	require.NoError(t, err)
	modules, err := catalogs.ParseModules(shipped.ShippedModuleCatalogJSON())
	require.NoError(t, err)
	for _, module := range modules.All() {
		assert.Contains(t, files, path.Join(module.Path, "kustomization.yaml"), module.Key)
		text := string(files[path.Join(module.Path, "module.yaml")])
		for _, crd := range module.RequiredCRDs {
			assert.Contains(t, text, "name: "+crd+"\n")
		}
		if module.Key == "kubeai" {
			assert.Contains(t, text, "resourceProfile:", "the operator writes objects of it")
		}
		for _, parameter := range module.Parameters {
			assert.Contains(t, text, "${"+parameter.Substitution+":="+parameter.Placeholder+"}")
		}
	}
}

func TestRegistry_keeps_blobs_over_a_restart(t *testing.T) {
	dir := t.TempDir()
	blob := []byte("a layer")
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(blob))

	first, err := startRegistry(t.Context(), dir)
	require.NoError(t, err)
	response, err := http.Post("http://"+first.address+"/v2/models/demo/blobs/uploads/", "", nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusAccepted, response.StatusCode)
	upload, err := response.Location()
	require.NoError(t, err)
	// The upload goes on against another instance, as it does after a restart in the middle.
	require.NoError(t, first.stop())
	second, err := startRegistry(t.Context(), dir)
	require.NoError(t, err)
	defer func() { assert.NoError(t, second.stop()) }()
	upload.Host = second.address
	query := upload.Query()
	query.Set("digest", digest)
	upload.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, upload.String(), bytes.NewReader(blob))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/octet-stream")
	response, err = http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusCreated, response.StatusCode)

	response, err = http.Get("http://" + second.address + "/v2/models/demo/blobs/" + digest)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, blob, data)
}
