package catalogs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"magicstick.dev/operator/generated/catalogs"
)

func shippedModules(t testing.TB) *Modules {
	t.Helper()
	modules, err := ParseModules(catalogs.ShippedModuleCatalogJSON())
	require.NoError(t, err)
	return modules
}

// The rows of contract/appliance.md D.1 as rulings 2 changes them.
func TestShippedModules(t *testing.T) {
	modules := shippedModules(t)
	rows := map[string]struct {
		static         bool
		kustomization  string
		requires       string
		crds           int
		isDefault      bool
		substitution   bool
		localModel     bool
		groupThenOrder string
	}{
		"basis":              {true, "infrastructure-basis", "", 0, true, false, false, "core 10"},
		"dashboard":          {true, "apps", "basis", 0, true, true, false, "core 20"},
		"nfd":                {true, "platform-nfd", "basis", 0, false, false, false, "runtime 25"},
		"gpu":                {false, "platform-gpu", "basis nfd", 1, false, false, true, "runtime 30"},
		"amd-gpu":            {false, "platform-amd-gpu", "basis nfd", 1, false, false, true, "runtime 32"},
		"intel-gpu":          {false, "platform-intel-gpu", "basis nfd", 1, false, false, true, "runtime 34"},
		"kubeai":             {false, "platform-kubeai", "basis", 1, false, false, true, "runtime 40"},
		"litellm":            {false, "app-litellm", "basis", 0, true, true, false, "runtime 50"},
		"model-catalog":      {false, "app-model-catalog", "litellm", 0, true, true, false, "runtime 60"},
		"anything-llm":       {false, "app-anything-llm", "litellm model-catalog", 0, false, true, false, "apps 70"},
		"openclaw-operator":  {false, "operator-openclaw", "basis", 1, false, false, false, "operators 80"},
		"hermes-operator":    {false, "operator-hermes", "basis", 1, false, false, false, "operators 90"},
		"paperclip-operator": {false, "operator-paperclip", "basis", 1, false, false, false, "operators 100"},
		"agent-sandbox":      {false, "platform-agent-sandbox", "basis", 1, false, false, false, "operators 105"},
		"kubeopencode":       {false, "app-kubeopencode", "litellm model-catalog", 6, false, true, false, "apps 110"},
		"odysseus":           {false, "app-odysseus", "basis litellm model-catalog", 0, false, false, false, "apps 115"},
	}
	require.Len(t, modules.All(), len(rows))
	for key, want := range rows {
		t.Run(key, func(t *testing.T) {
			module, found := modules.Resolve(key)
			require.True(t, found)
			assert.Equal(t, key, module.Key)
			assert.Equal(t, want.static, module.IsStatic())
			assert.Equal(t, want.kustomization, module.KustomizationName)
			assert.Equal(t, want.requires, strings.Join(module.Requires, " "))
			assert.Len(t, module.RequiredCRDs, want.crds)
			assert.Equal(t, want.isDefault, module.Default)
			assert.Equal(t, want.substitution, module.PostBuildSubstitution)
			assert.Equal(t, want.localModel, module.LocalModel)
			group, _, _ := strings.Cut(want.groupThenOrder, " ")
			assert.Equal(t, group, module.Group)
			assert.Equal(t, want.groupThenOrder, module.Group+" "+jsonText(t, module.Order))
			assert.NotEmpty(t, module.Description)
			assert.False(t, strings.HasPrefix(module.Path, "."), module.Path)
		})
	}
}

func jsonText(t testing.TB, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

func TestShippedModuleParameters(t *testing.T) {
	modules := shippedModules(t)
	for module, want := range map[string]map[string]string{
		"litellm":      {"postgresStorage": "AI_APPLIANCE_LITELLM_POSTGRES_STORAGE"},
		"anything-llm": {"storage": "AI_APPLIANCE_ANYTHING_LLM_STORAGE", "qdrantStorage": "AI_APPLIANCE_QDRANT_STORAGE"},
	} {
		found, _ := modules.Resolve(module)
		assert.Len(t, found.Parameters, len(want))
		for name, variable := range want {
			parameter, declared := found.Parameter(name)
			require.True(t, declared, name)
			assert.Equal(t, variable, parameter.Substitution)
			assert.Equal(t, "1Gi", parameter.Placeholder)
			assert.Equal(t, "text", parameter.Type)
		}
	}
	litellm, _ := modules.Resolve("litellm")
	assert.Equal(t, catalogs.ModuleCredentialsProviderLitellm, litellm.CredentialsProvider)
	_, declared := litellm.Parameter("storage")
	assert.False(t, declared)
}

func TestResolve(t *testing.T) {
	modules := shippedModules(t)
	for _, test := range []struct {
		name, exact, folded string
	}{
		{"model-catalog", "model-catalog", "model-catalog"},
		{"modelCatalog", "model-catalog", "model-catalog"},
		{"modelcatalog", "", "model-catalog"},
		{"anythingLlm", "anything-llm", "anything-llm"},
		{"anythingllm", "anything-llm", "anything-llm"},
		{"AnythingLLM", "", "anything-llm"},
		{"GPU", "", "gpu"},
		{"hermesOperator", "hermes-operator", "hermes-operator"},
		{"", "", ""},
		{"gpus", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			exact, found := modules.Resolve(test.name)
			assert.Equal(t, test.exact != "", found)
			assert.Equal(t, test.exact, exact.Key)
			folded, found := modules.ResolveFold(test.name)
			assert.Equal(t, test.folded != "", found)
			assert.Equal(t, test.folded, folded.Key)
		})
	}
}

func keysOf(modules []Module) []string {
	var keys []string
	for _, module := range modules {
		keys = append(keys, module.Key)
	}
	return keys
}

func TestOrders(t *testing.T) {
	modules := shippedModules(t)
	assert.Equal(t, []string{
		"basis", "dashboard",
		"nfd", "gpu", "amd-gpu", "intel-gpu", "kubeai", "litellm", "model-catalog",
		"anything-llm", "kubeopencode", "odysseus",
		"openclaw-operator", "hermes-operator", "paperclip-operator", "agent-sandbox",
	}, keysOf(modules.All()))

	seen := map[string]bool{}
	for _, module := range modules.DependencyOrder() {
		for _, required := range module.Requires {
			assert.True(t, seen[required], "%s comes before %s", module.Key, required)
		}
		seen[module.Key] = true
	}
	assert.Len(t, seen, len(modules.All()))

	assert.Equal(t, []string{"basis", "litellm", "model-catalog", "anything-llm"}, keysOf(modules.Closure("anythingLlm")))
	assert.Equal(t, []string{"basis", "kubeai"}, keysOf(modules.Closure("kubeai", "no-such-module")))
	assert.Empty(t, modules.Closure("no-such-module"))
	assert.Equal(t, []string{"gpu", "amd-gpu", "intel-gpu"}, modules.Dependants("nfd"))
	assert.Empty(t, modules.Dependants("odysseus"))
	assert.Empty(t, modules.Dependants("no-such-module"))
	groups := modules.Groups()
	assert.Equal(t, Group{"core", "Core", 10}, groups[0])
	assert.Equal(t, Group{"other", "Other", 1000}, groups[len(groups)-1])
}

func TestModuleDefaults(t *testing.T) {
	modules, err := ParseModules([]byte(`{"modules":{
		"plain-thing":{"path":"a/b","kustomizationName":"plain"},
		"first":{"path":"a/c","kustomizationName":"first","order":0}}}`))
	require.NoError(t, err)
	module, found := modules.Resolve("plain-thing")
	require.True(t, found)
	assert.Equal(t, "Plain Thing", module.DisplayName)
	assert.Equal(t, OtherGroup, module.Group)
	assert.EqualValues(t, 10000, module.Order)
	assert.False(t, module.IsStatic())
	assert.Equal(t, []string{"first", "plain-thing"}, keysOf(modules.All()))
	assert.Equal(t, []Group{{"other", "Other", 1000}}, modules.Groups())
}

func TestRequiredAliasBecomesKey(t *testing.T) {
	modules, err := ParseModules([]byte(`{"modules":{
		"base-thing":{"path":"a","kustomizationName":"a","aliases":["baseThing"]},
		"top":{"path":"b","kustomizationName":"b","requires":["baseThing"]}}}`))
	require.NoError(t, err)
	top, _ := modules.Resolve("top")
	assert.Equal(t, []string{"base-thing"}, top.Requires)
}

func TestParseModulesRefuses(t *testing.T) {
	const a = `"a":{"path":"p/a","kustomizationName":"a"`
	for name, test := range map[string]struct{ text, want string }{
		"broken JSON":                {"{\n\"modules\":{,}}", "reading the module catalog: line 2: invalid character ','"},
		"nothing":                    {``, "reading the module catalog: line 1: unexpected end of JSON input"},
		"two documents":              {`{"modules":{}}{}`, "reading the module catalog: line 1: invalid character '{' after top-level value"},
		"not UTF-8":                  {"{\"modules\":{\"\xff\":1}}", "not valid UTF-8"},
		"a list":                     {`[]`, "(document): must be of type object, got []"},
		"no modules":                 {`{}`, "modules: required"},
		"unknown top key":            {`{"modules":{},"module":{}}`, "module: unknown field, got {}"},
		"repeated module":            {`{"modules":{` + a + `},` + a + `}}}`, `duplicate field "modules.a"`},
		"unknown field":              {`{"modules":{` + a + `,"require":["b"]}}}`, `modules.a.require: unknown field, got ["b"]`},
		"no path":                    {`{"modules":{"a":{"kustomizationName":"a"}}}`, "modules.a.path: required"},
		"path climbs out":            {`{"modules":{"a":{"path":"../a","kustomizationName":"a"}}}`, `modules.a.path: must match the pattern`},
		"key with capitals":          {`{"modules":{"A":{"path":"a","kustomizationName":"a"}}}`, `modules: key must match the pattern`},
		"key with a dot":             {`{"modules":{"a.b":{"path":"a","kustomizationName":"a"}}}`, `got "a.b"`},
		"unknown activation mode":    {`{"modules":{` + a + `,"activationMode":"dynamic"}}}`, `modules.a.activationMode: must be one of static, moduleactivation, got "dynamic"`},
		"order as text":              {`{"modules":{` + a + `,"order":"10"}}}`, `modules.a.order: must be of type integer, got "10"`},
		"order below zero":           {`{"modules":{` + a + `,"order":-1}}}`, `modules.a.order: must be at least 0, got -1`},
		"credentials name a Secret":  {`{"modules":{` + a + `,"credentials":{"provider":"litellm","secretName":"x"}}}}`, `modules.a.credentials.secretName: unknown field`},
		"unknown provider":           {`{"modules":{` + a + `,"credentials":{"provider":"vault"}}}}`, `modules.a.credentials.provider: must be one of litellm, got "vault"`},
		"requires nothing known":     {`{"modules":{` + a + `,"requires":["b"]}}}`, `checking the module catalog: modules.a.requires[0]: no such module, got "b"`},
		"requires twice by alias":    {`{"modules":{` + a + `,"aliases":["x"]},"b":{"path":"b","kustomizationName":"b","requires":["a","x"]}}}`, `modules.b.requires[1]: requires module a twice, got "x"`},
		"requires itself":            {`{"modules":{` + a + `,"requires":["a"]}}}`, `modules.a.requires: requires itself in a circle, got a -> a`},
		"circle":                     {`{"modules":{` + a + `,"requires":["b"]},"b":{"path":"b","kustomizationName":"b","requires":["c"]},"c":{"path":"c","kustomizationName":"c","requires":["b"]}}}`, `modules.b.requires: requires itself in a circle, got b -> c -> b`},
		"alias is another key":       {`{"modules":{` + a + `,"aliases":["b"]},"b":{"path":"b","kustomizationName":"b"}}}`, `modules.a.aliases[0]: already a name of module b, got "b"`},
		"alias differs only in case": {`{"modules":{` + a + `,"aliases":["xY"]},"b":{"path":"b","kustomizationName":"b","aliases":["Xy"]}}}`, `modules.b.aliases[0]: already a name of module a, got "Xy"`},
		"kustomization twice":        {`{"modules":{` + a + `},"b":{"path":"b","kustomizationName":"a"}}}`, `modules.b.kustomizationName: already taken by module a, got "a"`},
		"unknown group":              {`{"modules":{` + a + `,"group":"games"}}}`, `modules.a.group: no such group, got "games"`},
		"parameter twice":            {`{"modules":{` + a + `,"parameters":[{"name":"x"},{"name":"x"}]}}}`, `modules.a.parameters[1].name: declared twice, got "x"`},
		"variable twice":             {`{"modules":{` + a + `,"parameters":[{"name":"x","substitution":"V"},{"name":"y","substitution":"V"}]}}}`, `modules.a.parameters[1].substitution: already set by another parameter, got "V"`},
	} {
		t.Run(name, func(t *testing.T) {
			modules, err := ParseModules([]byte(test.text))
			require.ErrorContains(t, err, test.want)
			assert.Nil(t, modules)
		})
	}
}

func TestParseModulesNamesEveryBreach(t *testing.T) {
	_, err := ParseModules([]byte(`{"modules":{"a":{"path":"/x","kustomizationName":"A","order":-1}}}`))
	var invalid *catalogs.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Violations, 3)
	assert.Equal(t, "modules.a.kustomizationName", invalid.Violations[0].Path)
	assert.Equal(t, "modules.a.order", invalid.Violations[1].Path)
	assert.Equal(t, "modules.a.path", invalid.Violations[2].Path)
	assert.Equal(t, `"/x"`, invalid.Violations[2].Value)
}

func TestParseModulesRefusesTooMuch(t *testing.T) {
	_, err := ParseModules([]byte(strings.Repeat(" ", catalogs.MaxBytes) + `{"modules":{}}`))
	require.ErrorContains(t, err, "more than the limit of 1048576")
}

func TestConfigMaps(t *testing.T) {
	shipped := ShippedConfigMaps()
	require.Len(t, shipped, 5)
	modules, err := ModulesFromConfigMap(shipped[0])
	require.NoError(t, err)
	applications, err := ApplicationsFromConfigMap(shipped[1])
	require.NoError(t, err)
	require.NoError(t, applications.CheckModules(modules))
	_, err = PresetsFromConfigMap(shipped[2])
	require.NoError(t, err)
	_, err = EnginesFromConfigMap(shipped[3])
	require.NoError(t, err)
	_, err = RealtimeFromConfigMap(shipped[4])
	require.NoError(t, err)
	for i, want := range []string{"ai-system/magicstick-module-catalog", "ai-system/magicstick-app-catalog", "ai-system/magicstick-model-presets",
		"ai-system/magicstick-engine-catalog", "ai-system/magicstick-realtime-profiles"} {
		assert.Equal(t, want, shipped[i].Namespace+"/"+shipped[i].Name)
	}

	other := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ai-system", Name: "magicstick-module-catalog"},
		Data:       map[string]string{"modules.yaml": "", "a": ""},
	}
	_, err = ModulesFromConfigMap(other)
	require.EqualError(t, err, "reading the module catalog from ConfigMap ai-system/magicstick-module-catalog: "+
		"key modules.json: missing, the ConfigMap has a, modules.yaml")
	other.Data = nil
	_, err = ModulesFromConfigMap(other)
	require.ErrorContains(t, err, "key modules.json: missing, the ConfigMap is empty")
	other.Data = map[string]string{"modules.json": `{"modules":[]}`}
	_, err = ModulesFromConfigMap(other)
	require.EqualError(t, err, "reading the module catalog from ConfigMap ai-system/magicstick-module-catalog: "+
		"checking the module catalog: modules: must be of type object, got []")
}

func FuzzParseModules(f *testing.F) {
	f.Add(string(catalogs.ShippedModuleCatalogJSON()))
	f.Add(`{"modules":{"a":{"path":"p","kustomizationName":"a","requires":["a"]}}}`)
	f.Add(`{"groups":{"x":{"displayName":"X","order":1}},"modules":{"a":{"path":"p","kustomizationName":"a","group":"x","aliases":["B"]}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		modules, err := ParseModules([]byte(text))
		if err != nil {
			return
		}
		if len(modules.DependencyOrder()) != len(modules.All()) {
			t.Fatalf("%d modules sorted, %d listed", len(modules.DependencyOrder()), len(modules.All()))
		}
		for _, module := range modules.All() {
			for _, name := range append([]string{module.Key}, module.Aliases...) {
				for _, resolve := range []func(string) (Module, bool){modules.Resolve, modules.ResolveFold} {
					if found, known := resolve(name); !known || found.Key != module.Key {
						t.Fatalf("%q of module %q resolves to %q, %v", name, module.Key, found.Key, known)
					}
				}
			}
		}
	})
}
