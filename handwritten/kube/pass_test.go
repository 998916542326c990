package kube

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

var models = schema.GroupResource{Group: "appliance.magicstick.dev", Resource: "modelactivations"}

// recording writes down the calls of a pass and answers them from a list; it is
// no API server, and nothing here depends on what one would make of the calls.
type recording struct {
	client.Client
	calls   []string
	answers map[string]error
}

func (r *recording) call(name string) error {
	r.calls = append(r.calls, name)
	return r.answers[name]
}

func (r *recording) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return r.call(map[bool]string{true: "finalizer", false: "unfinalizer"}[len(object.GetFinalizers()) > 0])
}

func (r *recording) Status() client.SubResourceWriter { return statusRecording{r} }

type statusRecording struct{ r *recording }

func (s statusRecording) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return s.r.call("status")
}
func (s statusRecording) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return errors.New("not used")
}
func (s statusRecording) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return errors.New("not used")
}

func (s statusRecording) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return errors.New("not used")
}

// Every way through a pass: which calls are made, what the status is told, what comes back.
func TestPass(t *testing.T) {
	conflict := apierrors.NewConflict(models, "m", errors.New("changed"))
	forbidden := apierrors.NewForbidden(models, "m", errors.New("no"))
	gone := apierrors.NewNotFound(models, "m")
	down := errors.New("connection refused")
	type pass = Pass[*appliancev1alpha1.ModelActivation]
	for name, c := range map[string]struct {
		edit    func(*pass)
		answers map[string]error
		effects error
		calls   []string
		told    error
		want    error
	}{
		"all is well":                                {calls: []string{"finalizer", "effects", "status"}},
		"finalizer of an object that is gone":        {answers: map[string]error{"finalizer": gone}, calls: []string{"finalizer"}},
		"refused finalizer: effects hear of it":      {answers: map[string]error{"finalizer": forbidden}, calls: []string{"finalizer", "effects", "status"}, told: forbidden, want: forbidden},
		"conflict on the finalizer":                  {answers: map[string]error{"finalizer": conflict}, calls: []string{"finalizer", "effects"}, want: conflict},
		"refused effect is told and comes back":      {effects: forbidden, calls: []string{"finalizer", "effects", "status"}, told: forbidden, want: forbidden},
		"outage is not told":                         {effects: down, calls: []string{"finalizer", "effects"}, want: down},
		"outage that the controller tells":           {edit: func(p *pass) { p.Tell = func(error) bool { return true } }, effects: down, calls: []string{"finalizer", "effects", "status"}, told: down, want: down},
		"a conflict is never told":                   {edit: func(p *pass) { p.Tell = func(error) bool { return true } }, effects: conflict, calls: []string{"finalizer", "effects"}, want: conflict},
		"conflict on the status hides no failure":    {effects: forbidden, answers: map[string]error{"status": conflict}, calls: []string{"finalizer", "effects", "status"}, told: forbidden, want: conflict},
		"object gone when its status is written":     {answers: map[string]error{"status": gone}, calls: []string{"finalizer", "effects", "status"}},
		"status refused, effects too: both are said": {effects: forbidden, answers: map[string]error{"status": down}, calls: []string{"finalizer", "effects", "status"}, told: forbidden, want: down},
		"the finalizer goes, no status":              {edit: func(p *pass) { p.AddFinalizer, p.DropFinalizer = false, true }, calls: []string{"effects", "unfinalizer"}},
		"the finalizer stays after a failure":        {edit: func(p *pass) { p.AddFinalizer, p.DropFinalizer = false, true }, effects: forbidden, calls: []string{"effects", "status"}, told: forbidden, want: forbidden},
		"nothing changed: no call":                   {edit: func(p *pass) { p.AddFinalizer, p.Status = false, func(*appliancev1alpha1.ModelActivation, error) {} }, calls: []string{"effects"}},
	} {
		t.Run(name, func(t *testing.T) {
			answers := &recording{answers: c.answers}
			object := &appliancev1alpha1.ModelActivation{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n"}}
			var told error
			p := pass{
				Client: answers, Finalizer: FinalizerModel, AddFinalizer: true,
				Effects: func(_ context.Context, failure error) error {
					answers.calls = append(answers.calls, "effects")
					if failure != nil {
						return failure
					}
					return c.effects
				},
				Status: func(object *appliancev1alpha1.ModelActivation, failure error) {
					told = failure
					object.Status.Message = ptr.To("said")
				},
				Conditions: func(object *appliancev1alpha1.ModelActivation) []metav1.Condition { return object.Status.Conditions },
				Failed:     func(*appliancev1alpha1.ModelActivation) bool { return false },
			}
			if c.edit != nil {
				c.edit(&p)
			}
			if p.DropFinalizer {
				object.Finalizers = []string{FinalizerModel}
			}
			err := p.CarryOut(t.Context(), object)
			require.Equal(t, c.calls, answers.calls)
			require.ErrorIs(t, told, c.told)
			if c.want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.want)
			}
			result, err := Outcome(t.Context(), err)
			if IsStale(c.want) {
				require.NoError(t, err)
				require.Positive(t, result.RequeueAfter)
			} else {
				require.Zero(t, result)
				require.Equal(t, c.want != nil, err != nil)
			}
		})
	}
}

// What goes over the wire is the object, without a status and with the version
// that was judged; the object itself is not touched by the answer.
func TestRendered(t *testing.T) {
	model := &kubeaiv1.Model{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubeai.org/v1", Kind: "Model"}, ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "n"},
		Spec:   &kubeaiv1.ModelSpec{URL: "hf://a/b"},
		Status: kubeaiv1.ModelStatus{Replicas: &kubeaiv1.ModelStatusReplicas{All: 1}},
	}
	before := model.DeepCopy()
	rendered := Render(model).WithResourceVersion("7")
	raw, err := rendered.MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, `{"apiVersion":"kubeai.org/v1","kind":"Model","metadata":{"name":"m","namespace":"n","resourceVersion":"7"},"spec":{"engine":"","url":"hf://a/b","features":null}}`, string(raw))
	require.NoError(t, rendered.UnmarshalJSON([]byte(`{"metadata":{"resourceVersion":"9"},"spec":{"url":"hf://other/x"}}`)))
	version, known := appliedVersion(rendered)
	require.True(t, known)
	require.EqualValues(t, 9, version)
	require.Equal(t, before, model)
	require.Equal(t, []string{"m", "n", "Model", "kubeai.org/v1"}, []string{*rendered.GetName(), *rendered.GetNamespace(), *rendered.GetKind(), *rendered.GetAPIVersion()})
	_, known = appliedVersion(Render(model))
	require.False(t, known, "nothing was answered yet")
}
