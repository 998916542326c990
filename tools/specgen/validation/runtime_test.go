package validation

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	aiv1alpha1 "magicstick.dev/operator/generated/apis/ai/v1alpha1"
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/clientset/scheme"
	"magicstick.dev/operator/generated/crds"
	"magicstick.dev/operator/generated/validation"
	aivalidation "magicstick.dev/operator/generated/validation/ai/v1alpha1"
	appliancevalidation "magicstick.dev/operator/generated/validation/appliance/v1alpha1"
)

// functions are the emitted functions of one kind, without their types.
type functions struct {
	create         func(obj runtime.Object) field.ErrorList
	update, status func(newObj, oldObj runtime.Object) field.ErrorList
	fill           func(obj runtime.Object) error
}

func functionsOf[T any, P interface {
	*T
	runtime.Object
}](create func(P) field.ErrorList, update, status func(P, P) field.ErrorList, fill func(P) error) functions {
	return functions{
		create: func(obj runtime.Object) field.ErrorList { return create(obj.(P)) },
		update: func(newObj, oldObj runtime.Object) field.ErrorList { return update(newObj.(P), oldObj.(P)) },
		status: func(newObj, oldObj runtime.Object) field.ErrorList { return status(newObj.(P), oldObj.(P)) },
		fill:   func(obj runtime.Object) error { return fill(obj.(P)) },
	}
}

var typed = map[string]functions{
	"Appliance": functionsOf(appliancevalidation.ValidateAppliance, appliancevalidation.ValidateApplianceUpdate,
		appliancevalidation.ValidateApplianceStatusUpdate, appliancevalidation.DefaultAppliance),
	"ApplianceSetup": functionsOf(appliancevalidation.ValidateApplianceSetup, appliancevalidation.ValidateApplianceSetupUpdate,
		appliancevalidation.ValidateApplianceSetupStatusUpdate, appliancevalidation.DefaultApplianceSetup),
	"AppInstance": functionsOf(appliancevalidation.ValidateAppInstance, appliancevalidation.ValidateAppInstanceUpdate,
		appliancevalidation.ValidateAppInstanceStatusUpdate, appliancevalidation.DefaultAppInstance),
	"HostOperation": functionsOf(appliancevalidation.ValidateHostOperation, appliancevalidation.ValidateHostOperationUpdate,
		appliancevalidation.ValidateHostOperationStatusUpdate, appliancevalidation.DefaultHostOperation),
	"ModelActivation": functionsOf(appliancevalidation.ValidateModelActivation, appliancevalidation.ValidateModelActivationUpdate,
		appliancevalidation.ValidateModelActivationStatusUpdate, appliancevalidation.DefaultModelActivation),
	"ModuleActivation": functionsOf(appliancevalidation.ValidateModuleActivation, appliancevalidation.ValidateModuleActivationUpdate,
		appliancevalidation.ValidateModuleActivationStatusUpdate, appliancevalidation.DefaultModuleActivation),
	"Model": functionsOf(aivalidation.ValidateModel, aivalidation.ValidateModelUpdate,
		aivalidation.ValidateModelStatusUpdate, aivalidation.DefaultModel),
	"ClusterModel": functionsOf(aivalidation.ValidateClusterModel, aivalidation.ValidateClusterModelUpdate,
		aivalidation.ValidateClusterModelStatusUpdate, aivalidation.DefaultClusterModel),
	"ModelCatalogSource": functionsOf(aivalidation.ValidateModelCatalogSource, aivalidation.ValidateModelCatalogSourceUpdate,
		aivalidation.ValidateModelCatalogSourceStatusUpdate, aivalidation.DefaultModelCatalogSource),
}

// TestTypedFunctionsAgree puts every example through the functions for Go types
// and expects the answer that the unstructured object gets. A valid example must
// survive the Go type whole. An invalid one may hold what the type cannot say (a
// string in an integer field, an empty string where only absence is legal); then
// there is nothing to ask.
func TestTypedFunctionsAgree(t *testing.T) {
	asked := map[string]int{}
	for _, example := range readExamples(t) {
		t.Run(example.name, func(t *testing.T) {
			kind := example.objects[0].GroupVersionKind()
			validator, err := validation.ForGVK(kind)
			require.NoError(t, err)
			call, found := typed[kind.Kind]
			require.True(t, found, "no functions for %s", kind.Kind)
			objects := make([]runtime.Object, 0, len(example.objects))
			for _, object := range example.objects {
				typedObject, ok := decode(t, kind, object)
				if !ok {
					require.False(t, example.accepted, "a valid example must survive its Go type")
					return
				}
				objects = append(objects, typedObject)
			}
			asked[kind.Kind]++
			last := len(objects) - 1
			switch {
			case example.status:
				require.Equal(t, words(validator.ValidateStatusUpdate(example.objects[last], example.objects[0])),
					words(call.status(objects[last], objects[0])))
			case last == 0:
				require.Equal(t, words(validator.Validate(example.objects[0])), words(call.create(objects[0])))
			default:
				require.Equal(t, words(validator.ValidateUpdate(example.objects[last], example.objects[0])),
					words(call.update(objects[last], objects[0])))
			}
		})
	}
	for kind := range typed {
		require.NotZero(t, asked[kind], "no example of %s reached its functions", kind)
	}
	require.Len(t, typed, len(validation.Kinds()))
}

// decode tells whether the Go type holds everything that the object says.
func decode(t *testing.T, kind schema.GroupVersionKind, object *unstructured.Unstructured) (runtime.Object, bool) {
	t.Helper()
	typedObject, err := scheme.Scheme.New(kind)
	require.NoError(t, err)
	data, err := object.MarshalJSON()
	require.NoError(t, err)
	strictErrs, err := kjson.UnmarshalStrict(data, typedObject)
	if err != nil || len(strictErrs) > 0 {
		return nil, false
	}
	back, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typedObject)
	require.NoError(t, err)
	return typedObject, equality.Semantic.DeepEqual(canonical(object.Object), canonical(back))
}

// canonical levels what JSON and the standard types do not keep apart: 1 and 1.0,
// and in a metav1.Condition an observedGeneration of zero and none.
func canonical(value any) any {
	switch value := value.(type) {
	case map[string]any:
		level := make(map[string]any, len(value))
		for key, inner := range value {
			level[key] = canonical(inner)
		}
		if _, isCondition := value["lastTransitionTime"]; isCondition && level["observedGeneration"] == 0.0 {
			delete(level, "observedGeneration")
		}
		return level
	case []any:
		level := make([]any, len(value))
		for i, inner := range value {
			level[i] = canonical(inner)
		}
		return level
	case int64:
		return float64(value)
	}
	return value
}

func words(errs field.ErrorList) []string {
	list := make([]string, 0, len(errs))
	for _, err := range errs {
		list = append(list, err.Error())
	}
	slices.Sort(list)
	return list
}

var modelKind = schema.GroupVersionKind{Group: aiv1alpha1.GroupName, Version: "v1alpha1", Kind: "Model"}

func TestForGVK(t *testing.T) {
	_, err := validation.ForGVK(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	require.ErrorIs(t, err, validation.ErrUnknownKind)
	require.ErrorContains(t, err, "apps/v1 Deployment")
	require.Len(t, validation.Kinds(), len(crds.Files()))
	for _, kind := range validation.Kinds() {
		validator, err := validation.ForGVK(kind)
		require.NoError(t, err)
		require.Equal(t, kind, validator.GroupVersionKind())
	}
}

func TestFirstUseIsSafeForManyAtOnce(t *testing.T) {
	definition, err := crds.Get(schema.GroupKind{Group: modelKind.Group, Kind: modelKind.Kind})
	require.NoError(t, err)
	validator, err := validation.New(definition, "v1alpha1")
	require.NoError(t, err)
	model := parse(t, `{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Model","metadata":{"name":"m","namespace":"n"},"spec":{"source":{"url":"https://huggingface.co/a/b"}}}`)
	before := model.DeepCopy()
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			require.Empty(t, validator.Validate(model))
			require.Empty(t, validator.ValidateUpdate(model, model))
			require.Empty(t, validator.ValidateStatusUpdate(model, model))
		})
	}
	group.Wait()
	require.Equal(t, before, model, "an argument was changed")
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct{ object, field, words string }{
		"an unknown field is refused":          {`{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Model","metadata":{"name":"m"},"spec":{"source":{"url":"https://huggingface.co/a/b","tag":"x"}}}`, "spec.source.tag", `unknown field "spec.source.tag"`},
		"an unknown field of metadata as well": {`{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Model","metadata":{"name":"m","label":"x"},"spec":{"source":{"url":"https://huggingface.co/a/b"}}}`, "metadata.label", "unknown field"},
		"metadata of another type":             {`{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Model","metadata":"m","spec":{"source":{"url":"https://huggingface.co/a/b"}}}`, "metadata", "cannot unmarshal"},
		"no name":                              {`{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Model","spec":{"source":{"url":"https://huggingface.co/a/b"}}}`, "metadata.name", "required"},
		"an illegal name":                      {`{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Model","metadata":{"name":"M_1"},"spec":{"source":{"url":"https://huggingface.co/a/b"}}}`, "metadata.name", "RFC 1123"},
		"no spec":                              {`{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Model","metadata":{"name":"m"}}`, "spec", "Required value"},
		"a list for an object":                 {`{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Model","metadata":{"name":"m"},"spec":[]}`, "spec", "must be of type object"},
		"null for a required object":           {`{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Model","metadata":{"name":"m"},"spec":null}`, "spec", "Required value"},
		"another kind":                         {`{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Other","metadata":{"name":"m"},"spec":{"source":{"url":"https://huggingface.co/a/b"}}}`, "kind", "must be Model"},
		"the empty object":                     {`{}`, "kind", "must be Model"},
		"a namespaced name in a cluster kind":  {`{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"ClusterModel","metadata":{"name":"m","namespace":"n"},"spec":{"source":{"url":"https://huggingface.co/a/b"}}}`, "metadata.namespace", "not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			object := parse(t, c.object)
			kind := modelKind
			if object.GetKind() == "ClusterModel" {
				kind.Kind = "ClusterModel"
			}
			validator, err := validation.ForGVK(kind)
			require.NoError(t, err)
			errs := validator.Validate(object)
			require.True(t, slices.ContainsFunc(errs, func(err *field.Error) bool {
				return err.Field == c.field && strings.Contains(err.Error(), c.words)
			}), "%v", errs)
		})
	}
	t.Run("a generated name is enough", func(t *testing.T) {
		model := &aiv1alpha1.Model{ObjectMeta: metav1.ObjectMeta{GenerateName: "m-"}}
		model.Spec.Source.URL = "https://huggingface.co/a/b"
		require.Empty(t, aivalidation.ValidateModel(model))
		require.Empty(t, model.Name, "the argument was changed")
	})
}

func TestDefaults(t *testing.T) {
	appliance := &appliancev1alpha1.Appliance{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	require.NoError(t, appliancevalidation.DefaultAppliance(appliance))
	require.Equal(t, appliancev1alpha1.ApplianceSpecProfileMinimal, appliance.Spec.Profile)
	require.Equal(t, int64(-1), *appliance.Status.ObservedGeneration)
}

func TestPrune(t *testing.T) {
	validator, err := validation.ForGVK(modelKind)
	require.NoError(t, err)
	object := parse(t, `{"apiVersion":"ai.deckhouse.io/v1alpha1","kind":"Model","metadata":{"name":"m"},"extra":1,"spec":{"source":{"url":"https://huggingface.co/a/b","tag":"x"}}}`)
	unknown, errs := validator.Prune(object)
	require.Empty(t, errs)
	require.ElementsMatch(t, []string{"extra", "spec.source.tag"}, unknown)
	require.NotContains(t, object.Object, "extra")
}

// FuzzValidate feeds foreign bytes to every kind: an answer, never a panic.
func FuzzValidate(f *testing.F) {
	seeds := map[string]int{}
	for _, example := range readExamples(f) {
		if kind := example.objects[0].GetKind(); example.accepted && seeds[kind] < 5 {
			seeds[kind]++
			data, err := example.objects[0].MarshalJSON()
			require.NoError(f, err)
			f.Add(data)
		}
	}
	f.Add([]byte(`{"metadata":{"name":1,"labels":[],"managedFields":{}},"spec":{"":[[]]},"status":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var content map[string]any
		if utiljson.Unmarshal(data, &content) != nil {
			return
		}
		for _, kind := range validation.Kinds() {
			validator, err := validation.ForGVK(kind)
			require.NoError(t, err)
			object := &unstructured.Unstructured{Object: content}
			validator.Validate(object)
			validator.ValidateUpdate(object, object)
			validator.ValidateStatusUpdate(object, object)
		}
	})
}

// BenchmarkValidate measures one creation check per kind: on the median of the
// kind's valid examples, which is what people write, and on the largest, which
// sits on every bound at once.
func BenchmarkValidate(b *testing.B) {
	sizes := map[string][]sized{}
	for _, example := range readExamples(b) {
		if example.accepted && !example.status {
			data, err := example.objects[0].MarshalJSON()
			require.NoError(b, err)
			kind := example.objects[0].GetKind()
			sizes[kind] = append(sizes[kind], sized{len(data), example.objects[0]})
		}
	}
	for _, kind := range validation.Kinds() {
		ordered := sizes[kind.Kind]
		slices.SortFunc(ordered, func(a, b sized) int { return a.bytes - b.bytes })
		validator, err := validation.ForGVK(kind)
		require.NoError(b, err)
		for _, pick := range []struct {
			name string
			sized
		}{{"median", ordered[len(ordered)/2]}, {"largest", ordered[len(ordered)-1]}} {
			typedObject, err := scheme.Scheme.New(kind)
			require.NoError(b, err)
			require.NoError(b, runtime.DefaultUnstructuredConverter.FromUnstructured(pick.object.Object, typedObject))
			measure(b, kind.Kind+"/"+pick.name+"/unstructured", pick.bytes, func() field.ErrorList { return validator.Validate(pick.object) })
			measure(b, kind.Kind+"/"+pick.name+"/typed", pick.bytes, func() field.ErrorList { return typed[kind.Kind].create(typedObject) })
		}
	}
}

type sized struct {
	bytes  int
	object *unstructured.Unstructured
}

func measure(b *testing.B, name string, bytes int, validate func() field.ErrorList) {
	require.Empty(b, validate(), "the rules are compiled before the clock starts")
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(bytes))
		for b.Loop() {
			if errs := validate(); len(errs) > 0 {
				b.Fatal(errs)
			}
		}
	})
}

func parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	var content map[string]any
	require.NoError(t, utiljson.Unmarshal([]byte(text), &content))
	return &unstructured.Unstructured{Object: content}
}
