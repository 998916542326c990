package standin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

const (
	// definition is the CRD without which KubeAI does not run.
	definition = "models.kubeai.org"
	// lookout is how often the CRD is looked for.
	lookout = 200 * time.Millisecond
	// fieldOwner is the manager of the fields that KubeAI writes.
	fieldOwner = client.FieldOwner("kubeai")
)

// Options are the circumstances that KubeAI works in.
type Options struct {
	// Namespace of KubeAI and of its Models.
	Namespace string
	// Profiles is the ConfigMap with the values, and ProfilesKey its key.
	Profiles    types.NamespacedName
	ProfilesKey string
	// Restart is the time from a change of the profiles until KubeAI knows it.
	Restart time.Duration
	// StartUp is the time that a Pod takes to become Ready.
	StartUp time.Duration
	// Fate of the Pods of Models without AnnotationFate; empty means Ready.
	Fate Fate
	// OllamaAnswers makes Ready Pods of Ollama answer GET /api/ps, each at an address
	// of its own on the loopback device; Linux has enough of them.
	OllamaAnswers bool
	// Log gets what KubeAI would log. The zero value logs nothing.
	Log logr.Logger
}

// Run plays KubeAI until ctx ends, whenever its CRD is there. It returns nil
// when ctx ended.
func Run(ctx context.Context, connection *rest.Config, options Options) error {
	connection = rest.CopyConfig(connection)
	connection.QPS = -1
	connection.UserAgent = "kubeai-stand-in"
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, kubeaiv1.Install, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("playing KubeAI: registering API types: %w", err)
		}
	}
	direct, err := client.New(connection, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("playing KubeAI: %w", err)
	}
	for ctx.Err() == nil {
		if err := waitForDefinition(ctx, direct, true); err != nil {
			break
		}
		if err := play(ctx, connection, scheme, direct, options); err != nil && ctx.Err() == nil {
			return fmt.Errorf("playing KubeAI: %w", err)
		}
	}
	return nil
}

// play works until the CRD goes, as KubeAI does when its module is taken away.
func play(ctx context.Context, connection *rest.Config, scheme *runtime.Scheme, direct client.Client, options Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer cancel()
		_ = waitForDefinition(ctx, direct, false)
	}()
	answers := &ollamas{log: options.Log, servers: map[string]*http.Server{}}
	defer answers.stopAll()
	mgr, err := newManager(connection, scheme, options, answers)
	if err == nil {
		err = mgr.Start(ctx)
	}
	cancel()
	<-gone
	return err
}

// waitForDefinition returns when the CRD is served, or is not any more. Errors
// of the API server mean nothing: it is asked again until ctx ends.
func waitForDefinition(ctx context.Context, reader client.Reader, present bool) error {
	return wait.PollUntilContextCancel(ctx, lookout, true, func(ctx context.Context) (bool, error) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		err := reader.Get(ctx, types.NamespacedName{Name: definition}, crd)
		if client.IgnoreNotFound(err) != nil {
			return false, nil //nolint:nilerr // an API server that is away says nothing about the CRD
		}
		served := false
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established {
				served = condition.Status == apiextensionsv1.ConditionTrue
			}
		}
		return (served && crd.DeletionTimestamp == nil) == present, nil
	})
}

// kubeAI is one life of KubeAI.
type kubeAI struct {
	Options
	client client.Client
	// known is the configuration of the last start.
	known atomic.Pointer[configuration]
	// text is what known was read from, changed when text differs from the
	// ConfigMap since that time. Only the controller of profiles uses them.
	text, next string
	changed    time.Time
	// answers of Pods of Ollama.
	answers *ollamas
	// restarts tells the controller of Models that known has changed.
	restarts chan event.GenericEvent
}

func newManager(connection *rest.Config, scheme *runtime.Scheme, options Options, answers *ollamas) (manager.Manager, error) {
	in := map[string]cache.Config{options.Namespace: {}}
	mgr, err := ctrl.NewManager(connection, manager.Options{
		Scheme: scheme, Logger: options.Log, Metrics: metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true), Logger: options.Log},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&kubeaiv1.Model{}: {Namespaces: in},
			&corev1.Pod{}:     {Namespaces: in},
			&corev1.ConfigMap{}: {
				Namespaces: map[string]cache.Config{options.Profiles.Namespace: {}},
				Field:      fields.OneTermEqualSelector("metadata.name", options.Profiles.Name),
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	k := &kubeAI{Options: options, client: mgr.GetClient(), answers: answers, restarts: make(chan event.GenericEvent)}
	k.known.Store(&configuration{})
	everyModel := handler.EnqueueRequestsFromMapFunc(k.everyModel)
	ours := builder.WithPredicates(predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetLabels()[labelManagedBy] == managedByKubeAI
	}))
	return mgr, errors.Join(
		ctrl.NewControllerManagedBy(mgr).Named("stand-in-kubeai-models").
			For(&kubeaiv1.Model{}).Owns(&corev1.Pod{}, ours).
			WatchesRawSource(source.Channel(k.restarts, everyModel)).
			Complete(reconcile.Func(k.reconcileModel)),
		ctrl.NewControllerManagedBy(mgr).Named("stand-in-kubeai-profiles").
			For(&corev1.ConfigMap{}).
			Complete(reconcile.Func(k.reconcileProfiles)),
		ctrl.NewControllerManagedBy(mgr).Named("stand-in-kubelet").
			For(&corev1.Pod{}, ours).
			Watches(&kubeaiv1.Model{}, handler.EnqueueRequestsFromMapFunc(k.podsOfModel)).
			Complete(reconcile.Func(k.reconcilePod)),
	)
}

func (k *kubeAI) everyModel(ctx context.Context, _ client.Object) []reconcile.Request {
	models := &kubeaiv1.ModelList{}
	if err := k.client.List(ctx, models, client.InNamespace(k.Namespace)); err != nil {
		k.Log.Error(err, "listing the Models")
	}
	var all []reconcile.Request
	for i := range models.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&models.Items[i])})
	}
	return all
}

func (k *kubeAI) podsOfModel(ctx context.Context, model client.Object) []reconcile.Request {
	pods, err := k.pods(ctx, model.GetName())
	if err != nil {
		k.Log.Error(err, "listing the Pods of a Model", "model", model.GetName())
	}
	var all []reconcile.Request
	for _, pod := range pods {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
	}
	return all
}

// pods are those that carry the labels of a Model, whoever owns them.
func (k *kubeAI) pods(ctx context.Context, model string) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	err := k.client.List(ctx, list, client.InNamespace(k.Namespace),
		client.MatchingLabels{LabelModel: model, labelManagedBy: managedByKubeAI})
	if err != nil {
		return nil, fmt.Errorf("listing the Pods of Model %s: %w", model, err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}
