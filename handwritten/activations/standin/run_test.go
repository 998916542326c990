package standin_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shipped "magicstick.dev/operator/generated/catalogs"
	kubeaicrds "magicstick.dev/operator/generated/external/kubeai/crds"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/activations"
	"magicstick.dev/operator/handwritten/activations/standin"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	os.Exit(controlplanetest.Main(m, controlplanetest.WithCRDs(kubeaicrds.FS)))
}

// patience bounds every wait; a healthy one ends within a second.
const patience = 60 * time.Second

// world is one KubeAI with a namespace of its own.
type world struct {
	t         *testing.T
	config    *rest.Config
	client    client.Client
	namespace string
	options   standin.Options
}

func newWorld(t *testing.T, config *rest.Config) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, kubeaiv1.Install(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := controlplanetest.Namespace(t, config)
	return &world{t: t, config: config, client: c, namespace: namespace, options: standin.Options{
		Namespace:   namespace,
		Profiles:    types.NamespacedName{Namespace: namespace, Name: activations.ProfilesConfigMap},
		ProfilesKey: activations.ProfilesKey,
	}}
}

// run plays KubeAI until the end of the test.
func (w *world) run() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- standin.Run(ctx, w.config, w.options) }()
	w.t.Cleanup(func() {
		cancel()
		assert.NoError(w.t, <-ended)
	})
}

// profiles are those that the operator always writes.
func (w *world) profiles() {
	w.t.Helper()
	engines, err := catalogs.ParseEngines(shipped.ShippedEngineCatalogJSON())
	require.NoError(w.t, err)
	text, err := activations.KubeAIValues(activations.DefaultProfiles(engines))
	require.NoError(w.t, err)
	w.values(string(text))
}

func (w *world) values(text string) {
	w.t.Helper()
	require.NoError(w.t, w.client.Create(w.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: activations.ProfilesConfigMap},
		Data:       map[string]string{activations.ProfilesKey: text},
	}))
}

func (w *world) model(name string, edit func(*kubeaiv1.Model)) *kubeaiv1.Model {
	w.t.Helper()
	model := &kubeaiv1.Model{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: &kubeaiv1.ModelSpec{
			Engine: kubeaiv1.ModelSpecEngineVLLM, URL: "hf://Qwen/Qwen2.5-0.5B-Instruct", ResourceProfile: "magicstick-cpu:1",
			Features:    []kubeaiv1.ModelSpecFeaturesItem{kubeaiv1.ModelSpecFeaturesItemTextGeneration},
			MinReplicas: ptr.To[int32](1), MaxReplicas: 1,
		},
	}
	if edit != nil {
		edit(model)
	}
	require.NoError(w.t, w.client.Create(w.t.Context(), model))
	return model
}

func (w *world) pods(name string) []corev1.Pod {
	w.t.Helper()
	list := &corev1.PodList{}
	require.NoError(w.t, w.client.List(w.t.Context(), list, client.InNamespace(w.namespace), client.MatchingLabels{standin.LabelModel: name}))
	return list.Items
}

// shows reads replicas and Pods of a Model in one line.
func (w *world) shows(name string) string {
	w.t.Helper()
	model := &kubeaiv1.Model{}
	err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, model)
	if !apierrors.IsNotFound(err) {
		require.NoError(w.t, err)
	}
	text := "no status"
	if model.Status.Replicas != nil {
		text = fmt.Sprintf("%d of %d ready", model.Status.Replicas.Ready, model.Status.Replicas.All)
	}
	var phases []string
	for _, pod := range w.pods(name) {
		phases = append(phases, string(pod.Status.Phase))
	}
	slices.Sort(phases)
	return fmt.Sprintf("%s %v", text, phases)
}

func (w *world) eventually(name, want string) {
	w.t.Helper()
	w.until(func() bool { return w.shows(name) == want }, func() string { return fmt.Sprintf("%s: want %s, have %s", name, want, w.shows(name)) })
}

func (w *world) until(done func() bool, problem func() string) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal(problem())
		}
	}
}

func (w *world) patch(object client.Object, text string) {
	w.t.Helper()
	require.NoError(w.t, w.client.Patch(w.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))))
}

// definitions are KubeAI's CRD, as far as the product knows it, and the whole
// of it where the corpus is at hand.
func definitions(t *testing.T) map[string]fs.FS {
	t.Helper()
	found := map[string]fs.FS{"our part of it": kubeaicrds.FS}
	text, err := os.ReadFile("../../../../shared/corpus/crds/kubeai-project__models.kubeai.org.yaml")
	if os.IsNotExist(err) {
		t.Log("KubeAI's whole definition is not here")
		return found
	}
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "models.yaml"), text, 0o600))
	found["the whole"] = os.DirFS(folder)
	return found
}

func TestRun_serves_a_model_on_every_definition_of_KubeAI(t *testing.T) {
	for name, definition := range definitions(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Start(t, controlplanetest.WithCRDs(definition)))
			w.profiles()
			w.run()
			model := w.model("qwen", func(m *kubeaiv1.Model) { m.Spec.MinReplicas, m.Spec.MaxReplicas = ptr.To[int32](2), 3 })
			w.eventually("qwen", "2 of 2 ready [Running Running]")
			for _, pod := range w.pods("qwen") {
				assert.True(t, metav1.IsControlledBy(&pod, model))
				assert.Equal(t, "4Gi", pod.Spec.Containers[0].Resources.Requests.Memory().String())
				assert.Contains(t, pod.Spec.Containers[0].Args, "--model=Qwen/Qwen2.5-0.5B-Instruct")
			}
			require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(model), model))
			assert.Equal(t, int32(2), *model.Spec.Replicas, "the number of Pods is KubeAI's")

			w.patch(model, `{"spec":{"maxReplicas":1,"minReplicas":1}}`)
			w.eventually("qwen", "1 of 1 ready [Running]")
			require.NoError(t, w.client.Delete(t.Context(), model))
			w.eventually("qwen", "no status []")
		})
	}
}

// D6: the operator's own values keep a machine with one GPU from a Pod that
// would wait for it for ever.
func TestRun_removes_the_Pods_of_a_changed_model_first_as_the_operators_values_say(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.profiles()
	w.run()
	model := w.model("qwen", nil)
	w.eventually("qwen", "1 of 1 ready [Running]")
	watch, err := client.NewWithWatch(w.config, client.Options{Scheme: w.client.Scheme()})
	require.NoError(t, err)
	events, err := watch.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(w.namespace))
	require.NoError(t, err)
	defer events.Stop()
	first := w.pods("qwen")[0].Name
	w.patch(model, `{"spec":{"args":["--max-model-len=4096"]}}`)
	seen := map[string]bool{}
	for event := range events.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		require.True(t, ok)
		seen[pod.Name] = event.Type != apiwatch.Deleted
		if pod.Name != first && pod.Status.Phase == corev1.PodRunning {
			break
		}
		present := 0
		for _, here := range seen {
			if here {
				present++
			}
		}
		require.LessOrEqual(t, present, 1, "%v", seen)
	}
	w.eventually("qwen", "1 of 1 ready [Running]")
}

func TestRun_gives_a_changed_model_new_Pods_and_keeps_the_old_ones_until_then(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.options.StartUp = 2 * time.Second
	w.values("resourceProfiles: {magicstick-cpu: {imageName: cpu, requests: {cpu: 1}}}")
	w.run()
	model := w.model("qwen", nil)
	w.eventually("qwen", "0 of 1 ready [Pending]")
	w.eventually("qwen", "1 of 1 ready [Running]")
	old := w.pods("qwen")[0].Name
	w.patch(model, `{"spec":{"args":["--max-model-len=4096"]}}`)
	w.eventually("qwen", "1 of 2 ready [Pending Running]")
	w.eventually("qwen", "1 of 1 ready [Running]")
	pod := w.pods("qwen")[0]
	assert.NotEqual(t, old, pod.Name)
	assert.Contains(t, pod.Spec.Containers[0].Args, "--max-model-len=4096")
}

func TestRun_makes_no_Pod_for_a_profile_that_it_does_not_know(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.options.Restart = time.Second
	log := &lines{}
	w.options.Log = log.logger()
	w.run()
	w.model("early", nil)
	w.model("wrong", func(m *kubeaiv1.Model) { m.Spec.ResourceProfile = "magicstick-cpu" })
	w.until(func() bool {
		return log.has(`there is none of that name`) && log.has(`want <name>:<count>`)
	}, log.String)
	assert.Equal(t, "no status []", w.shows("early"))

	written := time.Now()
	w.profiles()
	w.eventually("early", "1 of 1 ready [Running]")
	assert.GreaterOrEqual(t, time.Since(written), time.Second, "KubeAI knows new profiles after a restart only")
	assert.Equal(t, "no status []", w.shows("wrong"))

	// Values that cannot be read leave KubeAI as it is.
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: activations.ProfilesConfigMap}}
	w.patch(configMap, `{"data":{"`+activations.ProfilesKey+`":"resourceProfiles: ["}}`)
	w.until(func() bool { return log.has("keeping the profiles of before") }, log.String)
	w.model("late", nil)
	w.eventually("late", "1 of 1 ready [Running]")
}

func TestRun_lets_Pods_fail_as_the_annotation_says(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.profiles()
	w.run()
	fates := map[standin.Fate]string{
		standin.Loading: "0 of 1 ready [Running]", standin.Crash: "0 of 1 ready [Running]", standin.PullFailure: "0 of 1 ready [Pending]",
		standin.Unschedulable: "0 of 1 ready [Pending]", standin.NoPod: "no status []",
		standin.Failed: "0 of 1 ready [Failed]", standin.Succeeded: "0 of 1 ready [Succeeded]",
	}
	models := map[standin.Fate]*kubeaiv1.Model{}
	name := func(fate standin.Fate) string { return "m" + fmt.Sprintf("%x", string(fate)) }
	for fate := range fates {
		models[fate] = w.model(name(fate), func(m *kubeaiv1.Model) {
			m.Annotations = map[string]string{standin.AnnotationFate: string(fate) + "=words of the failure"}
		})
	}
	for fate, want := range fates {
		w.eventually(name(fate), want)
	}
	assert.Equal(t, "words of the failure", w.pods(name(standin.Crash))[0].Status.ContainerStatuses[0].LastTerminationState.Terminated.Message)
	for fate := range fates {
		w.patch(models[fate], `{"metadata":{"annotations":{"`+standin.AnnotationFate+`":null}}}`)
		if fate == standin.Failed || fate == standin.Succeeded {
			// What has ended stays until somebody deletes it.
			pod := w.pods(name(fate))[0]
			require.NoError(t, w.client.Delete(t.Context(), &pod))
		}
	}
	for fate := range fates {
		w.eventually(name(fate), "1 of 1 ready [Running]")
	}
}

func TestRun_replaces_Pods_that_somebody_deletes_and_those_of_an_earlier_model(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.profiles()
	w.run()
	model := w.model("qwen", nil)
	w.eventually("qwen", "1 of 1 ready [Running]")
	first := w.pods("qwen")[0]
	require.NoError(t, w.client.Delete(t.Context(), &first))
	w.until(func() bool { pods := w.pods("qwen"); return len(pods) == 1 && pods[0].UID != first.UID }, func() string { return w.shows("qwen") })

	require.NoError(t, w.client.Delete(t.Context(), model))
	again := w.model("qwen", nil)
	w.until(func() bool {
		pods := w.pods("qwen")
		return len(pods) == 1 && metav1.IsControlledBy(&pods[0], again)
	}, func() string { return w.shows("qwen") })
	w.eventually("qwen", "1 of 1 ready [Running]")
}

func TestRun_works_whenever_the_definition_is_there(t *testing.T) {
	t.Parallel()
	config := controlplanetest.Start(t)
	w := newWorld(t, config)
	w.profiles()
	w.run()
	for range 2 {
		controlplanetest.InstallCRDs(t, config, kubeaicrds.FS)
		w.model("qwen", nil)
		w.eventually("qwen", "1 of 1 ready [Running]")
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "models.kubeai.org"}}
		require.NoError(t, w.client.Delete(t.Context(), crd))
		w.until(func() bool {
			return apierrors.IsNotFound(w.client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
		}, func() string { return "the definition is still there" })
		for _, pod := range w.pods("qwen") {
			require.NoError(t, w.client.Delete(t.Context(), &pod))
		}
	}
}

func TestRun_writes_nothing_when_nothing_changes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.profiles()
	w.run()
	model := w.model("qwen", nil)
	w.eventually("qwen", "1 of 1 ready [Running]")
	pod := w.pods("qwen")[0]
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(model), model))
	// An annotation makes both controllers look again.
	w.patch(model, `{"metadata":{"annotations":{"look":"again"}}}`)
	other := w.model("other", nil)
	w.eventually(other.Name, "1 of 1 ready [Running]")
	seen := &kubeaiv1.Model{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(model), seen))
	assert.Equal(t, model.ResourceVersion, seen.ResourceVersion)
	assert.Equal(t, pod.ResourceVersion, w.pods("qwen")[0].ResourceVersion)
}

func TestRun_answers_for_Ollama_while_a_Pod_is_ready(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.options.OllamaAnswers = true
	w.profiles()
	w.run()
	model := w.model("qwen", func(m *kubeaiv1.Model) {
		engines, err := catalogs.ParseEngines(shipped.ShippedEngineCatalogJSON())
		require.NoError(t, err)
		for _, profile := range activations.DefaultProfiles(engines) {
			if profile.Engine == shipped.EngineOLlama && len(profile.Spec.Limits) == 0 {
				m.Spec.ResourceProfile = profile.String()
			}
		}
		m.Spec.Engine, m.Spec.URL = kubeaiv1.ModelSpecEngineOLlama, "ollama://qwen2.5:0.5b"
	})
	w.eventually("qwen", "1 of 1 ready [Running]")
	address := w.pods("qwen")[0].Status.PodIP
	require.NotEmpty(t, address)
	response, err := http.Get("http://" + address + ":8000/api/ps")
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, response.Body.Close())
	require.NoError(t, err)
	assert.JSONEq(t, `{"models":[{"name":"qwen","model":"qwen","size":2147483648,"size_vram":0}]}`, string(text))

	silent := func() bool {
		connection, err := net.Dial("tcp", address+":8000")
		if err == nil {
			_ = connection.Close()
		}
		return err != nil
	}
	w.patch(model, `{"metadata":{"annotations":{"`+standin.AnnotationFate+`":"Loading"}}}`)
	w.until(silent, func() string { return "it still answers" })
	w.patch(model, `{"metadata":{"annotations":{"`+standin.AnnotationFate+`":null}}}`)
	w.until(func() bool { return !silent() }, func() string { return "it does not answer again" })
	require.NoError(t, w.client.Delete(t.Context(), model))
	w.until(silent, func() string { return "it still answers" })
}
