package operator_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/modelindex"
	"magicstick.dev/operator/handwritten/modelindex/standin"
)

// A model comes into the index with its ready replica and leaves with it, and its
// activation follows (U028, U029, S050); a wish that is refused changes nothing.
func TestModelIndexFollowsReadyReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	server := w.litellm()
	w.start()
	w.cpuModel("chat")
	w.readyModules("kubeai", "litellm", "model-catalog")
	model := w.kubeAIModel("chat", nil)
	w.model("chat", "WaitingForPod", "WaitingForPod")
	pod := w.pod(model, "chat-1")
	w.model("chat", "Starting", "WaitingForReadyReplica")
	w.lists([]string{}, indexReady)
	require.Empty(t, server.Models())

	w.reports(pod, isReady)
	w.counts("chat", 1, 1)
	ready := w.model("chat", "Ready", "CatalogReady")
	require.Equal(t, "chat", *ready.Status.CatalogID)
	index := w.lists([]string{"chat"})
	require.Equal(t, "litellm/chat", index.Data[modelindex.KeyDefaultOpenCode])
	made := w.gatewayHas(server, "chat")[0]
	require.Equal(t, "ai-appliance-kubeai-chat", made.ID())
	require.Equal(t, "openai/chat", made.LiteLLMParams["model"])

	w.counts("chat", 1, 0)
	w.lists([]string{})
	w.gatewayHas(server)
	w.model("chat", "Starting", "WaitingForReadyReplica")
	w.counts("chat", 1, 1)
	w.lists([]string{"chat"})

	// A wish that turns out impossible leaves the runtime of the former one in service.
	change(w, &appliancev1alpha1.ModelActivation{}, "chat", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Local.Artifact = "no-such-artifact" })
	w.model("chat", "Degraded", "InvalidModelSpec")
	w.rested()
	w.lists([]string{"chat"})
	w.gatewayHas(server, "chat")
}

// A runtime without KubeAI is reached through its own Service, and leaves with its
// Pod, with its activation, and when its activation fails (S060).
func TestModelIndexFollowsDirectRuntimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	server := w.litellm()
	var refusing atomic.Bool
	w.writes.refuse(func(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
		if refusing.Load() && strings.Contains(request.URL.Path, "/deployments/") {
			return answer(request, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "not today"), nil
		}
		return nil, nil
	})
	w.start()
	w.activate("omni", onCPU(""))
	w.readyModules("litellm", "model-catalog")
	deployment := w.deployment("omni-runtime")
	w.lists([]string{}, indexReady)
	w.reports(w.directPod(deployment, "omni-runtime-1"), isReady)
	w.rolledOut("omni-runtime", 1)
	w.model("omni", "Ready", "CatalogReady")
	w.lists([]string{"omni"})
	made := w.gatewayHas(server, "omni")[0]
	require.Equal(t, "ai-appliance-realtime-omni", made.ID())
	require.Equal(t, "http://omni-runtime."+w.options.ModelNamespace+".svc.cluster.local:8000/v1", made.LiteLLMParams["api_base"])

	w.rolledOut("omni-runtime", 0)
	w.lists([]string{})
	w.rolledOut("omni-runtime", 1)
	w.lists([]string{"omni"})

	// A ready replica does not keep what the API server refuses to go on with.
	refusing.Store(true)
	change(w, &appliancev1alpha1.ModelActivation{}, "omni", func(a *appliancev1alpha1.ModelActivation) {
		again := onCPU("again")
		a.Spec.Local = &again
	})
	w.model("omni", "Degraded", "RealtimeApiRejected")
	w.lists([]string{})
	refusing.Store(false)
	w.touch("omni")
	w.lists([]string{"omni"})

	change(w, &appliancev1alpha1.ModelActivation{}, "omni", func(a *appliancev1alpha1.ModelActivation) { a.Spec.Enabled = ptr.To(false) })
	w.lists([]string{})
	w.gatewayHas(server)
}

// While LiteLLM fails, in whatever way, the index keeps what it says, says why it
// may be old, and still takes out what answers no more. It heals by itself.
func TestModelIndexOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault standin.Fault
		says  string
	}{
		"500":       {standin.InternalError, "status 500"},
		"HTML":      {standin.HTML, "not the JSON that was expected"},
		"half_JSON": {standin.HalfJSON, "not the JSON that was expected"},
		"slow":      {standin.Silent, "no answer within"},
		"dropped":   {standin.Drop, "no connection, or it broke"},
		"redirect":  {standin.Redirect, "somewhere else"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Shared(t))
			server := w.litellm()
			sent := &bodies{}
			w.writes.refuse(sent.keep)
			w.create(defaultAppliance())
			w.served("healthy", 1)
			w.served("dying", 1)
			w.start()
			before := w.lists([]string{"dying", "healthy"}, annotated(kube.AnnotationIndexError, ""))

			server.Break(standin.Everywhere, test.fault)
			w.served("new", 1)
			kept := w.lists([]string{"dying", "healthy"}, annotated(kube.AnnotationIndexError, test.says))
			require.Equal(t, before.Data, kept.Data)
			w.eventAbout("Appliance", "local", "CatalogUnavailable", "keeps its last content", test.says)
			w.counts("dying", 1, 0)
			w.lists([]string{"healthy"}, annotated(kube.AnnotationIndexError, test.says))

			server.Break(standin.Everywhere, standin.Healthy)
			w.lists([]string{"healthy", "new"}, annotated(kube.AnnotationIndexError, ""))
			w.gatewayHas(server, "healthy", "new")
			require.NotContains(t, sent.text(), indexMasterKey)
		})
	}
	t.Run("wrong_key", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, controlplanetest.Shared(t))
		server := w.litellm()
		server.SetMasterKey("another")
		w.served("chat", 1)
		w.start()
		w.lists([]string{}, annotated(kube.AnnotationIndexError, "does not take the master key (status 401)"))
		w.secret(w.options.Index.MasterKeySecret, w.options.Index.MasterKeyKey, "another")
		w.lists([]string{"chat"}, annotated(kube.AnnotationIndexError, ""))
	})
	t.Run("key_missing_then_there", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, controlplanetest.Shared(t))
		server := w.litellm()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: w.options.Index.MasterKeySecret}}
		require.NoError(t, w.client.Delete(t.Context(), secret))
		w.create(defaultAppliance())
		w.served("chat", 1)
		w.start()
		w.eventAbout("Appliance", "local", "Secret litellm-masterkey-secret does not exist")
		index, _ := w.theIndex()
		require.Nil(t, index, "without a gateway there is no index")
		w.secret(w.options.Index.MasterKeySecret, w.options.Index.MasterKeyKey, indexMasterKey)
		w.lists([]string{"chat"})
		w.gatewayHas(server, "chat")
	})
}

// A provider's model without its key is left out, alone, and a person reads why;
// the key itself is nowhere but at the gateway (H31).
func TestModelIndexLeavesOutWhatHasNoKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	server := w.litellm()
	sent := &bodies{}
	w.writes.refuse(sent.keep)
	w.secret("good", "api-key", indexProviderKey)
	w.secret("empty", "api-key", "")
	w.secret("broken", "api-key", indexProviderKey+"\n")
	w.provider("good", "good")
	w.provider("absent", "absent")
	w.provider("empty", "empty")
	w.provider("broken", "broken")
	w.provider("thief", w.options.Index.MasterKeySecret)
	w.start()
	index := w.lists([]string{"good"}, annotated(kube.AnnotationIndexLeftOut, "absent"))
	for _, words := range []string{"Secret absent does not exist", "Secret empty in namespace", "not printable", "LiteLLM's own and goes to no provider"} {
		require.Contains(t, index.Annotations[kube.AnnotationIndexLeftOut], words)
	}
	w.eventAbout("ModelActivation", "absent", "WaitingForCatalog: Secret absent does not exist")
	w.eventAbout("ModelActivation", "thief", "LiteLLM's own")
	require.Equal(t, indexProviderKey, w.gatewayHas(server, "good")[0].LiteLLMParams["api_key"])

	// The next look, after a retry, finds the Secret.
	w.secret("absent", "api-key", "sk-second-not-to-be-told")
	w.lists([]string{"absent", "good"})
	// A key that is taken away takes its model out.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: "good"}}
	require.NoError(t, w.client.Delete(t.Context(), secret))
	w.lists([]string{"absent"})
	w.gatewayHas(server, "absent")
	require.NotContains(t, sent.text(), "not-to-be-told", "no key in any write")
}

// Whatever somebody does to the ConfigMap, managed keys come back and others stay.
func TestModelIndexChangedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	w.litellm()
	w.served("chat", 1)
	w.start()
	before := w.lists([]string{"chat"}, consumersTold).Data
	w.rested()
	consumer := w.consumer("reads")
	same := func(index *corev1.ConfigMap) string {
		for key, content := range before {
			if index.Data[key] != content {
				return key + " is not as it was"
			}
		}
		if index.Data["of-a-person"] != "stays" {
			return "the key of a person is gone"
		}
		if index.Labels[modelindex.LabelApp] != modelindex.LabelAppValue {
			return "the label is gone"
		}
		return ""
	}
	for name, edit := range map[string]func(*corev1.ConfigMap){
		"changed": func(c *corev1.ConfigMap) { c.Data[modelindex.KeyOpenClaw] = "{}" },
		"removed": func(c *corev1.ConfigMap) { delete(c.Data, modelindex.KeyHermes) },
		"catalog": func(c *corev1.ConfigMap) {
			c.Data[modelindex.KeyCatalog] = `{"models": [{"id": "bait", "managed": true}]}`
		},
		"garbage": func(c *corev1.ConfigMap) { c.Data[modelindex.KeyCatalog] = "{" },
		"unready": func(c *corev1.ConfigMap) { c.Data[modelindex.KeyReady] = "false" },
		"hash":    func(c *corev1.ConfigMap) { c.Annotations[modelindex.AnnotationHash] = "0" },
		"label":   func(c *corev1.ConfigMap) { delete(c.Labels, modelindex.LabelApp) },
		"all":     func(c *corev1.ConfigMap) { c.Data, c.Annotations = map[string]string{}, nil },
	} {
		w.changeIndex(func(c *corev1.ConfigMap) {
			edit(c)
			c.Data["of-a-person"] = "stays"
		})
		t.Log(name)
		w.lists([]string{"chat"}, same, indexReady)
		w.rested()
	}
	index, _ := w.theIndex()
	require.NoError(t, w.client.Delete(t.Context(), index))
	w.lists([]string{"chat"}, indexReady)
	w.rested()
	require.True(t, w.in(&corev1.Pod{}, consumer.Name), "what was repaired is no change for those who read it")
}

// Nothing happens, nothing is done: no write, no question to LiteLLM. A new
// operator asks once and writes nothing.
func TestModelIndexIsQuiet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	server := w.litellm()
	w.secret("good", "api-key", indexProviderKey)
	w.provider("good", "good")
	w.served("chat", 1)
	w.served("starts", 0)
	w.start()
	index := w.lists([]string{"chat", "good"})
	w.rested()
	_, calls := server.Calls(0)
	_, mark := w.writes.since(0)
	time.Sleep(5 * time.Second)
	writes, _ := w.writes.since(mark)
	require.Empty(t, writes)
	asked, calls := server.Calls(calls)
	require.Empty(t, asked)

	w.stop()
	w.start()
	w.eventually(func() string {
		if asked, _ := server.Calls(calls); len(asked) == 0 {
			return "the new operator has not looked yet"
		}
		return ""
	})
	w.rested()
	writes, _ = w.writes.since(mark)
	require.Empty(t, writes)
	asked, _ = server.Calls(calls)
	require.Equal(t, []string{"GET /model/info"}, asked)
	after, _ := w.theIndex()
	require.Equal(t, index.Data, after.Data)
}

// LiteLLM comes back without its models, takes no update of what it shows, has
// models of others: all ends well within the recheck.
func TestModelIndexAndGatewaysOfItsOwnMind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	server := w.litellm()
	server.Behaviour = standin.Behaviour{UpdateLeavesInfo: true, EmptyIsAnError: true}
	w.options.Index.Recheck = 300 * time.Millisecond
	w.served("chat", 1)
	w.start()
	w.lists([]string{"chat"})

	server.Forget()
	w.gatewayHas(server, "chat")
	server.Put(standin.Model{ModelName: "of-a-person", LiteLLMParams: map[string]any{"model": "x/y"}, ModelInfo: map[string]any{"id": "p", "db_model": true}})
	w.lists([]string{"chat", "of-a-person"})

	// The context changes, and the update does not show: it is made anew.
	model := w.kubeAIModel("chat", nil)
	model.Annotations[modelindex.AnnotationContextWindow] = "4096"
	require.NoError(t, w.client.Update(t.Context(), model))
	w.eventually(func() string {
		index, _ := w.theIndex()
		if !strings.Contains(index.Data[modelindex.KeyCatalog], `"contextWindow": 4096`) {
			return "the context is not there: " + index.Data[modelindex.KeyCatalog]
		}
		return ""
	})
	w.gatewayHas(server, "chat", "of-a-person")

	// Somebody sends the model elsewhere in LiteLLM's own pages.
	for _, made := range server.Models() {
		if made.ModelName == "chat" {
			made.LiteLLMParams["api_base"] = "https://elsewhere.example"
			server.Put(made)
		}
	}
	w.eventually(func() string {
		for _, made := range server.Models() {
			if made.LiteLLMParams["api_base"] == "https://elsewhere.example" {
				return "requests still go elsewhere"
			}
		}
		return ""
	})
	// A model that LiteLLM refuses stands alone.
	server.Break("/model/new", standin.InternalError)
	w.served("refused", 1)
	w.lists([]string{"chat", "of-a-person"}, annotated(kube.AnnotationIndexLeftOut, "refused"))
	server.Break("/model/new", standin.Healthy)
	w.lists([]string{"chat", "of-a-person", "refused"}, annotated(kube.AnnotationIndexLeftOut, ""))
}

// The list of external models: read when it changes, and while it cannot be read
// nothing that came from it is taken away.
func TestModelIndexReadsTheListOfExternalModels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	server := w.litellm()
	list := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: w.options.Index.ExternalConfigMap},
		Data:       map[string]string{"models.json": `{"models": [{"name": "one", "model": "openai/one"}, {"name": "two", "model": "openai/two"}]}`},
	}
	require.NoError(t, w.client.Create(t.Context(), list))
	w.served("chat", 1)
	w.start()
	w.lists([]string{"chat", "one", "two"})
	list.Data["models.json"] = `{"models": [{"name": "one", "model": `
	require.NoError(t, w.client.Update(t.Context(), list))
	w.lists([]string{"chat", "one", "two"}, annotated(kube.AnnotationIndexError, "models.json"))
	w.counts("chat", 1, 0)
	w.lists([]string{"one", "two"})
	list.Data["models.json"] = `[{"name": "two", "model": "openai/two"}]`
	require.NoError(t, w.client.Update(t.Context(), list))
	w.lists([]string{"two"}, annotated(kube.AnnotationIndexError, ""))
	w.gatewayHas(server, "two")
	require.NoError(t, w.client.Delete(t.Context(), list))
	w.lists([]string{})
}

// A thousand models at once: all are listed, in few writes, and then it is quiet.
func TestModelIndexOfAThousandModels(t *testing.T) {
	t.Parallel()
	const models = 1000
	w := newWorld(t, controlplanetest.Shared(t))
	server := w.litellm()
	w.options.Index.CallTimeout = 20 * time.Second
	want := []string{}
	for i := range models {
		name := fmt.Sprintf("m%04d", i)
		want = append(want, name)
		w.served(name, 1)
	}
	began := time.Now()
	w.start()
	w.lists(want)
	t.Logf("%d models listed after %s", models, time.Since(began))
	w.rested()
	writes, mark := w.writes.since(0)
	index := 0
	for _, write := range writes {
		if strings.HasSuffix(strings.Split(write, "?")[0], "/configmaps/"+w.options.ModelIndex) {
			index++
		}
	}
	require.LessOrEqual(t, index, 3, "bootstrap, content, note: %v", writes)

	_, calls := server.Calls(0)
	began = time.Now()
	w.counts("m0500", 1, 0)
	w.lists(append(append([]string{}, want[:500]...), want[501:]...))
	t.Logf("one of %d withdrawn after %s", models, time.Since(began))
	w.rested()
	asked, _ := server.Calls(calls)
	require.LessOrEqual(t, len(asked), 4, "%v", asked)
	writes, _ = w.writes.since(mark)
	require.LessOrEqual(t, len(writes), 4, "%v", writes)
	require.Len(t, server.Models(), models-1)
	require.NoError(t, w.client.DeleteAllOf(t.Context(), &kubeaiv1.Model{}, inModels(w)))
	w.lists([]string{})
}
