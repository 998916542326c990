package appliance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	shipped "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	validation "magicstick.dev/operator/generated/validation/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func facts(t testing.TB) Facts {
	t.Helper()
	modules, err := catalogs.ParseModules(shipped.ShippedModuleCatalogJSON())
	require.NoError(t, err)
	applications, err := catalogs.ParseApplications(shipped.ShippedApplicationCatalogJSON())
	require.NoError(t, err)
	appliance := &appliancev1alpha1.Appliance{ObjectMeta: metav1.ObjectMeta{Name: "local", Namespace: "ai-system", Generation: 3}}
	appliance.Spec.Source = appliancev1alpha1.ApplianceSpecSource{Kind: "GitRepository", Name: "flux-system", Namespace: "flux-system"}
	// The first pass is behind us.
	appliance.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "Unknown", Reason: "Reconciling", LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
	return Facts{Appliance: appliance, Modules: modules, Applications: applications, Now: now}
}

func module(name, phase string) appliancev1alpha1.ModuleActivation {
	return appliancev1alpha1.ModuleActivation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ai-system", Generation: 1, CreationTimestamp: metav1.NewTime(now)},
		Spec:       appliancev1alpha1.ModuleActivationSpec{Module: name},
		Status: appliancev1alpha1.ModuleActivationStatus{
			ObservedGeneration: ptr.To[int64](1), Phase: appliancev1alpha1.ModuleActivationStatusPhase(phase),
			Kustomization: ptr.To("app-" + name), Message: ptr.To("message of " + name),
		},
	}
}

// changed is an activation after its spec was changed, before the next pass.
func changed(activation appliancev1alpha1.ModuleActivation) appliancev1alpha1.ModuleActivation {
	activation.Generation++
	return activation
}

func instance(name, application, phase string) appliancev1alpha1.AppInstance {
	return appliancev1alpha1.AppInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ai-system", Generation: 1, CreationTimestamp: metav1.NewTime(now)},
		Spec:       appliancev1alpha1.AppInstanceSpec{Application: application, TargetNamespace: "ai"},
		Status: appliancev1alpha1.AppInstanceStatus{
			ObservedGeneration: ptr.To[int64](1), Phase: appliancev1alpha1.AppInstanceStatusPhase(phase),
			URL: ptr.To("https://" + name + "/"), Message: ptr.To("message of " + name),
		},
	}
}

func model(name, phase string) appliancev1alpha1.ModelActivation {
	return appliancev1alpha1.ModelActivation{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ai-system", Generation: 1, CreationTimestamp: metav1.NewTime(now)},
		Status: appliancev1alpha1.ModelActivationStatus{
			ObservedGeneration: ptr.To[int64](1), Phase: appliancev1alpha1.ModelActivationStatusPhase(phase),
			Message: ptr.To("message of " + name),
		},
	}
}

func ready(t testing.TB, status appliancev1alpha1.ApplianceStatus) metav1.Condition {
	t.Helper()
	condition := kube.FindCondition(status.Conditions, conditions.ApplianceConditionReady)
	require.NotNil(t, condition)
	for _, phase := range conditions.Appliance.Phases {
		if phase.Phase == string(status.Phase) {
			require.Contains(t, phase.Reasons, condition.Reason, "spec/conditions has no such pair")
		}
	}
	return *condition
}

// The phase and reason rules of contract/appliance.md C.12, H03 to H06.
func TestPhaseAndReason(t *testing.T) {
	for name, c := range map[string]struct {
		modules   []appliancev1alpha1.ModuleActivation
		instances []appliancev1alpha1.AppInstance
		models    []appliancev1alpha1.ModelActivation
		unknown   []string
		phase     string
		reason    string
		message   string
	}{
		"nothing is ready": {phase: "Ready", reason: "Ready", message: "Every module"},
		"settled phases are healthy": {
			modules:   []appliancev1alpha1.ModuleActivation{module("litellm", "Ready"), module("gpu", "Disabled"), module("kubeai", "Suspended")},
			instances: []appliancev1alpha1.AppInstance{instance("openclaw-default", "openclaw", "Ready"), instance("hermes-x", "hermes", "Suspended")},
			models:    []appliancev1alpha1.ModelActivation{model("a", "Ready"), model("b", "Disabled")},
			phase:     "Ready", reason: "Ready",
		},
		"the seed's example": {
			modules:   []appliancev1alpha1.ModuleActivation{module("litellm", "Ready")},
			instances: []appliancev1alpha1.AppInstance{instance("kubeopencode-default", "kubeopencode", "Reconciling")},
			phase:     "Reconciling", reason: "WaitingForInstances", message: "Waiting for kubeopencode/default to become ready",
		},
		"modules before instances before models": {
			modules:   []appliancev1alpha1.ModuleActivation{module("litellm", "WaitingForModules"), module("gpu", "Removing")},
			instances: []appliancev1alpha1.AppInstance{instance("openclaw-default", "openclaw", "WaitingForCRDs")},
			models:    []appliancev1alpha1.ModelActivation{model("a", "Starting")},
			phase:     "Reconciling", reason: "WaitingForModules", message: "Waiting for module gpu to become ready: message of gpu",
		},
		"instances before models": {
			instances: []appliancev1alpha1.AppInstance{instance("openclaw-default", "openclaw", "WaitingForModules")},
			models:    []appliancev1alpha1.ModelActivation{model("a", "WaitingForPod")},
			phase:     "Reconciling", reason: "WaitingForInstances", message: "Waiting for openclaw/default",
		},
		"models last": {
			models: []appliancev1alpha1.ModelActivation{model("b", "Ready"), model("a", "WaitingForGPU")},
			phase:  "Reconciling", reason: "WaitingForModels", message: "Waiting for model a",
		},
		"degraded module wins over waiting": {
			modules: []appliancev1alpha1.ModuleActivation{module("litellm", "WaitingForModules"), module("model-catalog", "Degraded")},
			phase:   "Degraded", reason: "Degraded", message: "module model-catalog is degraded: message of model-catalog",
		},
		"H05: a degraded instance degrades": {
			instances: []appliancev1alpha1.AppInstance{instance("openclaw-default", "openclaw", "Degraded")},
			phase:     "Degraded", reason: "Degraded", message: "openclaw/default is degraded",
		},
		"a degraded model degrades": {
			models: []appliancev1alpha1.ModelActivation{model("a", "Degraded")},
			phase:  "Degraded", reason: "Degraded", message: "model a is degraded",
		},
		"an object that nobody looked at yet is not ready": {
			instances: []appliancev1alpha1.AppInstance{{ObjectMeta: metav1.ObjectMeta{Name: "openclaw-a", Generation: 1}, Spec: appliancev1alpha1.AppInstanceSpec{Application: "openclaw"},
				Status: appliancev1alpha1.AppInstanceStatus{ObservedGeneration: ptr.To[int64](-1)}}},
			phase: "Reconciling", reason: "WaitingForInstances",
		},
		"what an object said of a former wish is not repeated": {
			modules: []appliancev1alpha1.ModuleActivation{changed(module("litellm", "Ready"))},
			phase:   "Reconciling", reason: "WaitingForModules", message: "Waiting for module litellm to become ready: The operator has not looked at its latest change yet.",
		},
		"what an object said of a failure stays until it was looked at again": {
			modules: []appliancev1alpha1.ModuleActivation{changed(module("litellm", "Degraded"))},
			phase:   "Degraded", reason: "Degraded", message: "module litellm is degraded: message of litellm",
		},
		"an unknown key in spec.modules": {
			unknown: []string{"nonsense"},
			phase:   "Degraded", reason: "Degraded", message: "module nonsense is degraded: spec.modules: the module catalog has no module nonsense",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(t)
			f.Activations, f.Instances, f.Models, f.UnknownModules = c.modules, c.instances, c.models, c.unknown
			status := Aggregate(f)
			condition := ready(t, status)
			require.Equal(t, c.phase, string(status.Phase))
			require.Equal(t, c.reason, condition.Reason)
			require.Contains(t, condition.Message, c.message)
			require.Equal(t, c.phase == "Ready", condition.Status == metav1.ConditionTrue)
			require.Equal(t, int64(3), *status.ObservedGeneration, "H46")
			require.Equal(t, int64(3), condition.ObservedGeneration, "H46")
			fits(t, f, status)
		})
	}
}

// fits checks the status as the API server does.
func fits(t *testing.T, f Facts, status appliancev1alpha1.ApplianceStatus) {
	t.Helper()
	before, after := f.Appliance.DeepCopy(), f.Appliance.DeepCopy()
	before.UID, after.UID = "u", "u"
	before.ResourceVersion, after.ResourceVersion = "1", "1"
	after.Status = status
	problems := validation.ValidateApplianceStatusUpdate(after, before)
	require.Empty(t, problems)
}

func TestAnOldAnswerDoesNotCount(t *testing.T) {
	f := facts(t)
	changed := module("litellm", "Ready")
	changed.Generation = 2
	f.Activations = []appliancev1alpha1.ModuleActivation{changed}
	status := Aggregate(f)
	require.Equal(t, "Reconciling", string(status.Modules["litellm"].Phase))
	require.Equal(t, conditions.ApplianceReasonWaitingForModules, ready(t, status).Reason)
}

func TestFirstPassIsPending(t *testing.T) {
	f := facts(t)
	f.Appliance.Status = appliancev1alpha1.ApplianceStatus{ObservedGeneration: ptr.To[int64](-1)}
	f.Activations = []appliancev1alpha1.ModuleActivation{module("litellm", "Ready")}
	status := Aggregate(f)
	require.Equal(t, "Pending", string(status.Phase), "H06")
	require.Equal(t, metav1.ConditionUnknown, ready(t, status).Status)
	require.Equal(t, conditions.ApplianceReasonReconciling, ready(t, status).Reason)
}

// H38.
func TestCatalogOutageKeepsTheRest(t *testing.T) {
	f := facts(t)
	f.Activations = []appliancev1alpha1.ModuleActivation{module("litellm", "Ready")}
	f.Appliance.Status = Aggregate(f)
	before := f.Appliance.Status.DeepCopy()
	f.Modules, f.Applications, f.Activations = nil, nil, nil
	f.CatalogError = "ConfigMap ai-system/magicstick-module-catalog does not exist"
	status := Aggregate(f)
	require.Equal(t, conditions.ApplianceReasonCatalogUnavailable, ready(t, status).Reason)
	require.Contains(t, ready(t, status).Message, "magicstick-module-catalog does not exist")
	require.Equal(t, before.Modules, status.Modules)
	require.Equal(t, before.Phase, status.Phase)

	f.Appliance.Status = appliancev1alpha1.ApplianceStatus{}
	require.Equal(t, "Pending", string(Aggregate(f).Phase), "also when nothing was ever computed")
}

// S097, S098, D15, D24, H03.
func TestRows(t *testing.T) {
	f := facts(t)
	auto := module("litellm", "Ready")
	auto.Annotations = map[string]string{kube.AnnotationAutoEnabled: "true"}
	alias := module("my-catalog", "Ready")
	alias.Spec.Module = "modelCatalog"
	younger := module("second", "Degraded")
	younger.Spec.Module, younger.CreationTimestamp = "litellm", metav1.NewTime(now.Add(time.Second))
	f.Activations = []appliancev1alpha1.ModuleActivation{younger, auto, alias}

	native := instance("openclaw-default", "openclaw", "Ready")
	other := instance("other", "openclaw", "Ready")
	other.CreationTimestamp = metav1.NewTime(now.Add(time.Second))
	setName(t, &other, "openclaw-default")
	long := instance("long", "hermes", "Ready")
	setName(t, &long, strings.Repeat("x", 300))
	plain := instance("odysseus-Main", "odysseus", "Ready")
	f.Instances = []appliancev1alpha1.AppInstance{other, native, plain, long}

	local := model("qwen352bvlembedding", "Ready")
	local.Status.ModelRef = ptr.To("kubeai/qwen352bvlembedding")
	local.Status.CatalogID = ptr.To("qwen352bvlembedding")
	local.Status.ComputeTarget, local.Status.Engine = "nvidia-gpu", "VLLM"
	local.Status.ResolvedResourceProfile = ptr.To("magicstick-nvidia-gpu:1")
	f.Models = []appliancev1alpha1.ModelActivation{local}

	status := Aggregate(f)
	fits(t, f, status)
	require.Len(t, status.Modules, 3)
	require.Equal(t, ptr.To(true), status.Modules["litellm"].AutoEnabled, "S098")
	require.Equal(t, "Ready", string(status.Modules["litellm"].Phase), "the oldest decides")
	require.Nil(t, status.Modules["model-catalog"].AutoEnabled)
	require.Equal(t, "Degraded", string(status.Modules["second"].Phase), "a duplicate shows under its own name")

	require.Equal(t, appliancev1alpha1.ApplianceStatusInstancesValueValue{
		Phase: "Ready", Kind: ptr.To("OpenClawInstance"), Namespace: ptr.To("ai"), Name: ptr.To("default"),
		URL: ptr.To("https://openclaw-default/"), Message: ptr.To("message of openclaw-default"),
	}, status.Instances["openclaw"]["default"])
	require.Equal(t, ptr.To("https://other/"), status.Instances["openclaw"]["other"].URL, "full name on a collision")
	if _, found := f.Applications.Get("odysseus"); found {
		row := status.Instances["odysseus"]["main"]
		require.Equal(t, ptr.To("HelmRelease"), row.Kind)
		require.Equal(t, ptr.To("odysseus-Main"), row.Name)
		require.Equal(t, ptr.To("ai-system"), row.Namespace)
	}

	row := status.Models["qwen352bvlembedding"] // S097
	require.Equal(t, "nvidia-gpu", string(row.ComputeTarget))
	require.Equal(t, "VLLM", string(row.Engine))
	require.Equal(t, ptr.To("magicstick-nvidia-gpu:1"), row.ResolvedResourceProfile)
	require.Equal(t, ptr.To("kubeai/qwen352bvlembedding"), row.ModelRef)
}

// S098, H15: whatever the names, no trouble is lost, and no row speaks for a
// module that it is not about.
func TestDuplicatesNeverHide(t *testing.T) {
	younger := func(name, asked, phase string) appliancev1alpha1.ModuleActivation {
		one := module(name, phase)
		one.Spec.Module, one.CreationTimestamp = asked, metav1.NewTime(now.Add(time.Second))
		return one
	}
	named := func(name, asked, phase string) appliancev1alpha1.ModuleActivation {
		one := module(name, phase)
		one.Spec.Module = asked
		return one
	}
	for name, c := range map[string]struct {
		activations []appliancev1alpha1.ModuleActivation
		unknown     []string
		unseeded    map[string]string
		rows        map[string]string
		phase       string
		message     string
	}{
		"a name of its own": {
			activations: []appliancev1alpha1.ModuleActivation{module("litellm", "Ready"), younger("second", "litellm", "Degraded")},
			rows:        map[string]string{"litellm": "Ready", "second": "Degraded"},
			phase:       "Degraded", message: "module second is degraded: message of second",
		},
		"the name of a module that has a row": {
			activations: []appliancev1alpha1.ModuleActivation{module("litellm", "Ready"), named("my-gpu", "gpu", "Ready"), younger("gpu", "litellm", "Degraded")},
			rows:        map[string]string{"litellm": "Ready", "gpu": "Ready", "litellm/gpu": "Degraded"},
			phase:       "Degraded", message: "module litellm/gpu is degraded: message of gpu",
		},
		"the name of a module that nobody asked for": {
			activations: []appliancev1alpha1.ModuleActivation{module("litellm", "Ready"), younger("gpu", "litellm", "Degraded")},
			rows:        map[string]string{"litellm": "Ready", "litellm/gpu": "Degraded"},
			phase:       "Degraded", message: "module litellm/gpu is degraded",
		},
		"the name of its own module": {
			activations: []appliancev1alpha1.ModuleActivation{named("first", "litellm", "Ready"), younger("litellm", "litellm", "Degraded")},
			rows:        map[string]string{"litellm": "Ready", "litellm/litellm": "Degraded"},
			phase:       "Degraded", message: "module litellm/litellm is degraded",
		},
		"the name of a module that is listed later": {
			activations: []appliancev1alpha1.ModuleActivation{named("a", "x-two", "Degraded"), younger("x-one", "x-two", "Degraded"), younger("z", "x-one", "Degraded")},
			rows:        map[string]string{"x-two": "Degraded", "x-one": "Degraded", "x-two/x-one": "Degraded"},
			phase:       "Degraded", message: "module x-one is degraded: message of z",
		},
		"even the longer key is taken": {
			activations: []appliancev1alpha1.ModuleActivation{module("litellm", "Ready"), named("odd", "litellm/gpu", "Degraded"), younger("gpu", "litellm", "Degraded")},
			rows:        map[string]string{"litellm": "Ready", "litellm/gpu": "Degraded", "litellm/gpu+": "Degraded"},
			phase:       "Degraded", message: "module litellm/gpu is degraded: message of odd",
		},
		"an unknown default that an activation asks for, too": {
			activations: []appliancev1alpha1.ModuleActivation{named("a", "nonsense", "Reconciling")},
			unknown:     []string{"nonsense"},
			rows:        map[string]string{"nonsense": "Reconciling"},
			phase:       "Degraded", message: "module nonsense is degraded: spec.modules: the module catalog has no module nonsense",
		},
		"a default that cannot be switched on": {
			activations: []appliancev1alpha1.ModuleActivation{named("litellm", "gpu", "Ready")},
			unseeded:    map[string]string{"litellm": "spec.modules: ModuleActivation litellm exists but is for module gpu"},
			rows:        map[string]string{"gpu": "Ready", "litellm": "Degraded"},
			phase:       "Degraded", message: "module litellm is degraded: spec.modules: ModuleActivation litellm exists but is for module gpu",
		},
		"a default that was switched on since": {
			activations: []appliancev1alpha1.ModuleActivation{module("litellm", "Ready")},
			unseeded:    map[string]string{"litellm": "old news"},
			rows:        map[string]string{"litellm": "Ready"},
			phase:       "Ready", message: "Every module",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(t)
			f.Activations, f.UnknownModules, f.Unseeded = c.activations, c.unknown, c.unseeded
			status := Aggregate(f)
			rows := map[string]string{}
			for key, value := range status.Modules {
				rows[key] = string(value.Phase)
			}
			require.Equal(t, c.rows, rows)
			require.Equal(t, c.phase, string(status.Phase))
			require.Contains(t, ready(t, status).Message, c.message)
			fits(t, f, status)
			slices.Reverse(f.Activations)
			require.Equal(t, status, Aggregate(f), "in any order")
		})
	}
}

func TestNameTaken(t *testing.T) {
	f := facts(t)
	namesake := module("model-catalog", "Ready")
	for asked, want := range map[string]string{
		"model-catalog": "", "modelCatalog": "",
		"gpu":      "spec.modules: ModuleActivation model-catalog exists but is for module gpu; delete it, or switch model-catalog on under another name",
		"nonsense": "spec.modules: ModuleActivation model-catalog exists but is for module nonsense; delete it, or switch model-catalog on under another name",
	} {
		namesake.Spec.Module = asked
		require.Equal(t, want, nameTaken("model-catalog", &namesake, f.Modules), asked)
	}
}

// The full name of one instance is the short name of an older one.
func TestInstancesNeverHide(t *testing.T) {
	f := facts(t)
	add := func(name, short string, age int, phase string) {
		one := instance(name, "openclaw", phase)
		one.CreationTimestamp = metav1.NewTime(now.Add(time.Duration(age) * time.Second))
		setName(t, &one, short)
		f.Instances = append(f.Instances, one)
	}
	add("first", "demo", 0, "Ready")
	add("other", "second", 1, "Ready")
	add("second", "demo", 2, "Degraded")
	status := Aggregate(f)
	require.Len(t, status.Instances["openclaw"], 3)
	require.Equal(t, "Ready", string(status.Instances["openclaw"]["second"].Phase), "the older one's short name")
	require.Equal(t, "Degraded", string(status.Instances["openclaw"]["second-2"].Phase))
	require.Contains(t, ready(t, status).Message, "openclaw/second-2 is degraded")
}

func setName(t *testing.T, instance *appliancev1alpha1.AppInstance, name string) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"application": instance.Spec.Application, "targetNamespace": "ai", "values": map[string]any{"name": name}}})
	require.NoError(t, err)
	var parsed appliancev1alpha1.AppInstance
	require.NoError(t, json.Unmarshal(raw, &parsed))
	instance.Spec = parsed.Spec
}

// contract/rulings.md 1: bounded maps, not-Ready first, the rest is counted.
func TestTooManyRows(t *testing.T) {
	f := facts(t)
	for i := range 300 {
		f.Activations = append(f.Activations, module(fmt.Sprintf("m%03d", i), "Ready"))
	}
	f.Activations = append(f.Activations, module("z-waits", "Reconciling"), module("z-broken", "Degraded"))
	for i := range 1100 {
		f.Models = append(f.Models, model(fmt.Sprintf("model%04d", i), "Ready"))
	}
	status := Aggregate(f)
	fits(t, f, status)
	require.Len(t, status.Modules, maxModules)
	require.Contains(t, status.Modules, "z-waits")
	require.Contains(t, status.Modules, "z-broken")
	require.Len(t, status.Models, maxModels)
	require.Contains(t, ready(t, status).Message, "module z-broken is degraded")
	require.Contains(t, ready(t, status).Message, "; not listed: 46 more modules, 76 more models")
}

// Bounds on every map do not bound their product: 16,384 instances of long
// messages would be 20 MB, and etcd takes 1.5.
func TestAggregateFitsIntoEtcd(t *testing.T) {
	f := facts(t)
	for app := range 70 {
		for i := range 260 {
			one := instance(fmt.Sprintf("a%d-i%d", app, i), fmt.Sprintf("a%d", app), "Ready")
			one.Status.Message = ptr.To(strings.Repeat("x", 1024))
			f.Instances = append(f.Instances, one)
		}
	}
	f.Instances[len(f.Instances)-1].Status.Phase = "Degraded"
	status := Aggregate(f)
	raw, err := json.Marshal(status)
	require.NoError(t, err)
	require.Less(t, len(raw), 1<<20)
	require.Contains(t, status.Instances["a69"], "i259", "what is broken is always shown")
	require.Contains(t, ready(t, status).Message, "more instances")
}

func TestAggregateIsStable(t *testing.T) {
	f := facts(t)
	f.Activations = []appliancev1alpha1.ModuleActivation{module("litellm", "Ready"), module("gpu", "WaitingForModules")}
	f.Models = []appliancev1alpha1.ModelActivation{model("b", "Ready"), model("a", "Starting")}
	f.Appliance.Status = Aggregate(f)
	f.Now = now.Add(time.Hour)
	slices.Reverse(f.Activations)
	slices.Reverse(f.Models)
	require.Equal(t, f.Appliance.Status, Aggregate(f), "neither time nor order of the lists changes a byte")
}

// S099, H45: what was asked for, on or off, is not seeded; U016 is about the
// seed's default Appliance and stands in handwritten/operator.
func TestSeeds(t *testing.T) {
	f := facts(t)
	on, off := ptr.To(true), ptr.To(false)
	spec := map[string]appliancev1alpha1.ApplianceSpecModulesValue{
		"basis": {Enabled: on}, "dashboard": {Enabled: on}, "nfd": {Enabled: on}, // part of the installation
		"litellm": {Enabled: on}, "gpu": {Enabled: off}, "kubeai": {},
		"modelCatalog": {Enabled: on}, "model-catalog": {Enabled: on}, // H45: one module
		"hermesOperator": {Enabled: on}, "Nonsense_Key": {Enabled: on},
	}
	seeds, unknown := Seeds(spec, f.Modules, func(module catalogs.Module) bool { return module.Key == "hermes-operator" })
	require.Equal(t, []string{"litellm", "model-catalog"}, seeds)
	require.Equal(t, []string{"Nonsense_Key"}, unknown)
}

func BenchmarkAggregate(b *testing.B) {
	f := facts(b)
	for i := range 200 {
		f.Activations = append(f.Activations, module(fmt.Sprintf("m%03d", i), "Ready"))
	}
	for i := range 1000 {
		f.Models = append(f.Models, model(fmt.Sprintf("model%04d", i), "Ready"))
	}
	b.ReportAllocs()
	for b.Loop() {
		Aggregate(f)
	}
}
