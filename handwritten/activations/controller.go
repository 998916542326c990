package activations

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	aiv1alpha1 "magicstick.dev/operator/generated/apis/ai/v1alpha1"
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=modelactivations,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=modelactivations/status;modelactivations/finalizers,verbs=update;patch
// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=moduleactivations,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",namespace=ai-system,resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=kubeai.org,namespace=ai,resources=models,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,namespace=ai,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",namespace=ai,resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",namespace=ai,resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",namespace=ai,resources=configmaps,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=ai.deckhouse.io,namespace=ai,resources=models,verbs=get;list;watch
// +kubebuilder:rbac:groups=ai.deckhouse.io,resources=clustermodels,verbs=get;list;watch

// The kinds of others that activations need; their CRDs may be absent.
var (
	kubeAIKind = kube.OptionalKind{
		CRD: "models." + kubeaiv1.GroupName, Version: kubeaiv1.GroupVersion.Version, Prototype: &kubeaiv1.Model{},
	}
	preparedKind = kube.OptionalKind{
		CRD: "models." + aiv1alpha1.GroupName, Version: aiv1alpha1.GroupVersion.Version, Prototype: &aiv1alpha1.Model{},
	}
	preparedClusterKind = kube.OptionalKind{
		CRD: "clustermodels." + aiv1alpha1.GroupName, Version: aiv1alpha1.GroupVersion.Version, Prototype: &aiv1alpha1.ClusterModel{},
		ClusterScoped: true,
	}
)

// OptionalKinds lists the kinds of others that activations need.
func OptionalKinds() []kube.OptionalKind {
	return []kube.OptionalKind{kubeAIKind, preparedKind, preparedClusterKind}
}

// Kinds tells whether a kind of others can be used; *kube.OptionalKinds does.
type Kinds interface {
	Presence(ctx context.Context, crd string) (kube.Presence, string)
}

// CatalogReader reads the catalogs, the last good ones where the present ones
// cannot be used.
type CatalogReader interface {
	ModelCatalogs(ctx context.Context) CatalogSet
}

// Memory asks the replicas of Ollama for their memory; *Sampler does.
type Memory interface {
	// Watch says which addresses to ask from now on; none means that there is nobody to ask.
	Watch(activation types.NamespacedName, addresses []string)
	// Latest is what they said last; false while nobody was asked.
	Latest(activation types.NamespacedName) (*appliancev1alpha1.ModelActivationStatusMemoryUsage, bool)
}

// Reconciler carries out plans for ModelActivations.
type Reconciler struct {
	// Client reads and writes our own kinds and never reads behind its own writes.
	Client client.Client
	// Foreign reads the objects of others from the cache.
	Foreign client.Client
	// Children writes the objects that are rendered.
	Children *kube.Children
	// Kinds knows which kinds of others are there.
	Kinds    Kinds
	Catalogs CatalogReader
	// Memory asks the replicas of Ollama; nil asks nobody.
	Memory Memory
	// Appliance is the object that modules are switched on for; activations live in
	// its namespace.
	Appliance types.NamespacedName
	// Namespaces in which models may run, the one of KubeAI and LiteLLM first.
	Namespaces []string
	// Index is the name of the ConfigMap with the generated catalog, in each of them.
	Index string
	// Registry has the images of prepared models, <host>[:<port>][/<prefix>]; empty
	// when there are none.
	Registry string
	// Settings are the choices of the installation that rendering needs.
	Settings Settings
	// Recorder records events.
	Recorder events.EventRecorder
	// Now is the clock.
	Now func() time.Time

	index indexReader
}

// Reconcile makes one pass over one activation.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	activation := &appliancev1alpha1.ModelActivation{}
	if err := r.Client.Get(ctx, request.NamespacedName, activation); err != nil {
		if client.IgnoreNotFound(err) == nil && r.Memory != nil {
			r.Memory.Watch(request.NamespacedName, nil)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	observed, err := r.Observe(ctx, activation)
	if err != nil {
		return reconcile.Result{}, err
	}
	if observed.KubeAI.Presence == kube.Starting {
		// The cache fills; its completion enqueues every activation.
		return reconcile.Result{}, nil
	}
	r.watchMemory(observed)
	plan, err := Compute(observed)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("planning model %s: %w", activation.Name, err)
	}
	result, err := kube.Outcome(ctx, r.carryOut(ctx, activation, plan, observed))
	if err == nil && result.RequeueAfter == 0 {
		result.RequeueAfter = plan.Next
	}
	return result, err
}

// Observe collects the facts about one activation from the caches. Controllers
// beside this one get the resolved request from it.
func (r *Reconciler) Observe(ctx context.Context, activation *appliancev1alpha1.ModelActivation) (Observed, error) {
	kubeAI := Kind{}
	kubeAI.Presence, kubeAI.Detail = r.Kinds.Presence(ctx, kubeAIKind.CRD)
	if kubeAI.present() {
		var err error
		if kubeAI.TakesOCI, err = r.takesOCI(ctx); err != nil {
			return Observed{}, err
		}
	}
	observed, err := Observe(ctx, activation, r.Catalogs.ModelCatalogs(ctx), r.Namespaces, kubeAI, r.world(), r.Now())
	observed.Settings = r.Settings
	return observed, err
}

// watchMemory tells whom to ask for memory: the ready replicas of Ollama.
func (r *Reconciler) watchMemory(observed Observed) {
	if r.Memory == nil {
		return
	}
	var addresses []string
	if model := observed.Model; ours(model, observed.Activation.Name) && model.Spec != nil && model.Spec.Engine == kubeaiv1.ModelSpecEngineOLlama {
		if state := runtimeState(observed); state.ready > 0 {
			for _, pod := range state.pods.ready() {
				if pod.Status.PodIP != "" {
					addresses = append(addresses, pod.Status.PodIP)
				}
			}
		}
	}
	r.Memory.Watch(keyOf(observed.Activation), addresses)
}

// runsModels tells whether models may run in a namespace.
func (r *Reconciler) runsModels(namespace string) bool {
	return slices.Contains(r.Namespaces, namespace)
}
