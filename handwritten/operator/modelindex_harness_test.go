package operator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/modelindex"
	"magicstick.dev/operator/handwritten/modelindex/standin"
)

// Keys that may appear nowhere but in Secrets and at the gateway.
const (
	indexMasterKey   = "sk-master-not-to-be-told"
	indexProviderKey = "sk-provider-not-to-be-told"
)

// litellm gives the world a stand-in for LiteLLM and its key, before the operator
// starts. Pauses are short, the recheck is out of the way.
func (w *world) litellm() *standin.Server {
	w.t.Helper()
	server := w.litellmWithoutKey()
	w.secret(w.options.Index.MasterKeySecret, w.options.Index.MasterKeyKey, indexMasterKey)
	return server
}

// litellmWithoutKey is litellm whose key nobody knows yet.
func (w *world) litellmWithoutKey() *standin.Server {
	w.t.Helper()
	server := standin.New(indexMasterKey)
	endpoint := httptest.NewServer(server)
	w.t.Cleanup(endpoint.Close)
	w.options.Index.LiteLLMBaseURL = endpoint.URL
	w.options.Index.Retry, w.options.Index.Recheck = 300*time.Millisecond, time.Hour
	w.options.Index.CallTimeout = time.Second
	return server
}

func (w *world) secret(name, key, value string) {
	w.t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: name}, Data: map[string][]byte{key: []byte(value)},
	}
	err := w.client.Create(w.t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = w.client.Update(w.t.Context(), secret)
	}
	require.NoError(w.t, err)
}

// served makes a KubeAI Model by hand and says how many replicas are ready.
func (w *world) served(name string, ready int32) {
	w.t.Helper()
	model := &kubeaiv1.Model{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: name, Annotations: map[string]string{
			modelindex.AnnotationContextWindow: "20000", modelindex.AnnotationMaxOutputTokens: "8192",
		}},
		Spec: &kubeaiv1.ModelSpec{Engine: "VLLM", Features: []kubeaiv1.ModelSpecFeaturesItem{"TextGeneration"}, URL: "hf://a/" + name, MaxReplicas: 1},
	}
	if err := w.client.Create(w.t.Context(), model); !apierrors.IsAlreadyExists(err) {
		require.NoError(w.t, err)
	}
	w.counts(name, 1, ready)
}

// provider makes an activation of a provider's model with a key.
func (w *world) provider(name, secret string) {
	w.t.Helper()
	w.create(&appliancev1alpha1.ModelActivation{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appliancev1alpha1.ModelActivationSpec{
			Type: "external", TargetNamespace: "ai",
			External: &appliancev1alpha1.ModelActivationSpecExternal{
				Model:           "openai/" + name,
				APIKeySecretRef: &appliancev1alpha1.ModelActivationSpecExternalAPIKeySecretRef{Name: secret, Key: "api-key"},
			},
		},
	})
}

// theIndex is the ConfigMap of the index.
func (w *world) theIndex() (*corev1.ConfigMap, []string) {
	w.t.Helper()
	index := &corev1.ConfigMap{}
	if !w.in(index, w.options.ModelIndex) {
		return nil, nil
	}
	var content struct {
		Models []struct{ ID string }
	}
	if json.Unmarshal([]byte(index.Data[modelindex.KeyCatalog]), &content) != nil {
		return index, []string{"unreadable"}
	}
	ids := []string{}
	for _, model := range content.Models {
		ids = append(ids, model.ID)
	}
	return index, ids
}

// lists waits until the index lists exactly these models and passes the checks.
func (w *world) lists(models []string, checks ...func(*corev1.ConfigMap) string) *corev1.ConfigMap {
	w.t.Helper()
	var index *corev1.ConfigMap
	w.eventually(func() string {
		var ids []string
		index, ids = w.theIndex()
		if index == nil {
			return "there is no index"
		}
		if !slices.Equal(ids, models) {
			return fmt.Sprintf("the index lists %v, want %v; annotations %v", ids, models, index.Annotations)
		}
		for _, check := range checks {
			if problem := check(index); problem != "" {
				return problem
			}
		}
		return ""
	})
	return index
}

// annotated is a check that an annotation of the index has, or lacks (""), a text.
func annotated(name, want string) func(*corev1.ConfigMap) string {
	return func(index *corev1.ConfigMap) string {
		have := index.Annotations[name]
		if want == "" && have != "" || !strings.Contains(have, want) {
			return fmt.Sprintf("%s is %q, want %q", name, have, want)
		}
		return ""
	}
}

func indexReady(index *corev1.ConfigMap) string {
	if index.Data[modelindex.KeyReady] != "true" {
		return "the index was not made yet"
	}
	return ""
}

// consumersTold is a check that the last change was told to those who read the index.
func consumersTold(index *corev1.ConfigMap) string {
	return annotated(modelindex.AnnotationConsumersRestarted, index.Annotations[modelindex.AnnotationHash])(index)
}

// gatewayHas waits until LiteLLM has exactly these models.
func (w *world) gatewayHas(server *standin.Server, models ...string) []standin.Model {
	w.t.Helper()
	var found []standin.Model
	w.eventually(func() string {
		found = server.Models()
		names := []string{}
		for _, model := range found {
			names = append(names, model.ModelName)
		}
		slices.Sort(names)
		if !slices.Equal(names, models) {
			return fmt.Sprintf("LiteLLM has %v, want %v", names, models)
		}
		return ""
	})
	return found
}

// consumer makes a Pod that reads the index.
func (w *world) consumer(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.options.ModelNamespace, Name: name, Labels: map[string]string{modelindex.AnnotationConsumer: "true"}},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](0), Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	require.NoError(w.t, w.client.Create(w.t.Context(), pod))
	return pod
}

// rested waits until the operator makes no write for a moment.
func (w *world) rested() {
	w.t.Helper()
	_, mark := w.writes.since(0)
	w.eventually(func() string {
		time.Sleep(time.Second)
		writes, now := w.writes.since(mark)
		mark = now
		if len(writes) > 0 {
			return fmt.Sprintf("still writing: %v", writes)
		}
		return ""
	})
}

// changeIndex changes the index as a person would.
func (w *world) changeIndex(edit func(*corev1.ConfigMap)) {
	w.t.Helper()
	for {
		index := &corev1.ConfigMap{}
		require.NoError(w.t, w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.options.ModelNamespace, Name: w.options.ModelIndex}, index))
		edit(index)
		err := w.client.Update(w.t.Context(), index)
		if apierrors.IsConflict(err) {
			continue
		}
		require.NoError(w.t, err)
		return
	}
}

// bodies collects everything that the operator sends to the API server.
type bodies struct {
	mutex sync.Mutex
	sent  bytes.Buffer
}

func (b *bodies) keep(request *http.Request, _ http.RoundTripper) (*http.Response, error) {
	if request.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.sent.Write(body)
	return nil, nil
}

func (b *bodies) text() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.sent.String()
}

// eventAbout waits for a warning about an object with these words.
func (w *world) eventAbout(kind, name string, words ...string) {
	w.t.Helper()
	w.eventually(func() string {
		list := &corev1.EventList{}
		require.NoError(w.t, w.client.List(context.Background(), list, client.InNamespace(w.options.Appliance.Namespace)))
		seen := []string{}
		for i := range list.Items {
			event := &list.Items[i]
			if event.InvolvedObject.Kind == kind && event.InvolvedObject.Name == name {
				seen = append(seen, event.Reason+": "+event.Message)
				if event.Type == corev1.EventTypeWarning && has(words...)(event.Reason+": "+event.Message) {
					return ""
				}
			}
		}
		return fmt.Sprintf("no event about %s %s with %v, only %v", kind, name, words, seen)
	})
}

func inModels(w *world) client.InNamespace { return client.InNamespace(w.options.ModelNamespace) }

// indexWithThesePermissions takes the index through everything that it reads and writes.
func (w *world) indexWithThesePermissions(server *standin.Server) {
	w.t.Helper()
	require.NoError(w.t, w.client.Create(w.t.Context(), agentTemplateCRD()))
	w.secret("provider", "api-key", indexProviderKey)
	w.secret(w.options.Index.MasterKeySecret, w.options.Index.MasterKeyKey, indexMasterKey)
	reads := w.consumer("reads")
	w.provider("with-a-key", "provider")
	w.provider("without-a-key", "nowhere")
	w.gatewayHas(server, "with-a-key")
	w.lists([]string{"with-a-key"}, consumersTold)
	w.vanished(&corev1.Pod{}, reads.Name)
	w.eventAbout("ModelActivation", "without-a-key", "WaitingForCatalog")
	w.readyModules("litellm", "model-catalog")
	w.model("with-a-key", "Ready", "CatalogReady")
	w.templated("litellm-default")
}

// templated makes an AgentTemplate and waits until it has a model.
func (w *world) templated(name string) {
	w.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name, "namespace": w.options.ModelNamespace},
		"spec":     map[string]any{"config": map[string]any{}},
	}}
	object.SetGroupVersionKind(templateKind)
	w.eventually(func() string {
		if err := w.client.Create(w.t.Context(), object.DeepCopy()); err != nil {
			return err.Error()
		}
		return ""
	})
	w.eventually(func() string {
		require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object))
		if model, _, _ := unstructured.NestedString(object.Object, "spec", "config", "model"); model == "" {
			return "the AgentTemplate has no model"
		}
		return ""
	})
}
