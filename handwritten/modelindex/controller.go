package modelindex

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"magicstick.dev/operator/handwritten/kube"
)

// +kubebuilder:rbac:groups=appliance.magicstick.dev,namespace=ai-system,resources=modelactivations;moduleactivations;appliances,verbs=get;list;watch
// +kubebuilder:rbac:groups="",namespace=ai,resources=configmaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",namespace=ai,resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",namespace=ai,resources=pods,verbs=list;delete
// +kubebuilder:rbac:groups=apps,namespace=ai,resources=deployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=kubeai.org,namespace=ai,resources=models,verbs=get;list;watch
// +kubebuilder:rbac:groups=kubeopencode.io,namespace=ai,resources=agenttemplates,verbs=get;list;watch;patch

// Kinds tells which optional kinds can be read; *kube.OptionalKinds does.
type Kinds interface {
	Presence(ctx context.Context, crd string) (kube.Presence, string)
}

// Reconciler keeps the index. It works on one request at a time.
type Reconciler struct {
	// Client reads our own kinds from the cache.
	Client client.Reader
	// Foreign reads objects of others from the cache and deletes Pods.
	Foreign client.Client
	// Live reads past the cache: Secrets, and Pods when they must be restarted.
	Live client.Reader
	// Children writes the ConfigMap and AgentTemplates.
	Children *kube.Children
	// Kinds knows whether KubeAI and KubeOpenCode are there.
	Kinds Kinds
	// Appliance lives in the namespace of the activations; events about LiteLLM are
	// recorded on it.
	Appliance types.NamespacedName
	// Settings of the installation.
	Settings Settings
	// HTTP calls LiteLLM, see NewHTTPClient.
	HTTP *http.Client
	// Recorder records events.
	Recorder events.EventRecorder
	// Now is the clock.
	Now func() time.Time

	state state
}

// state is what a pass remembers for the next one. An operator that starts anew
// has none and finds out again.
type state struct {
	inputs    string    // digest of what the last pass worked on
	nextLook  time.Time // until then equal inputs need no work
	published *Index    // what the ConfigMap says, unless somebody edits it
	restarted string    // hash for which consumers were restarted
	memory    Memory
	effort    *effort
	told      map[string]string // messages by model, for events
}

const (
	// staleRetry is the pause after an answer that says that the cache was behind.
	staleRetry = 100 * time.Millisecond
	// moreToDo is the pause before the next part of a long list of changes.
	moreToDo = time.Millisecond
)

// Reconcile makes one pass.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	result, err := r.pass(ctx)
	switch {
	case kube.IsStale(err):
		log.FromContext(ctx).V(1).Info("cache was behind, looking again", "cause", err.Error())
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	case err != nil && kube.IsRefused(err):
		// The namespace is missing, or a permission: asking faster does not help.
		r.tell(ctx, Facts{}, "The API server refused a change: "+kube.Refusal(err), nil)
		return reconcile.Result{RequeueAfter: r.Settings.Retry}, nil
	}
	return result, err
}

// pass: look, and if anything is new, take away what does not answer, tell
// LiteLLM, publish, let consumers know.
func (r *Reconciler) pass(ctx context.Context) (reconcile.Result, error) {
	now := r.moment()
	facts, ready, err := r.observe(ctx)
	if err != nil || !ready {
		return reconcile.Result{}, err
	}
	current, err := r.current(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	inputs := r.inputs(facts, current)
	if inputs == r.state.inputs && now.Before(r.state.nextLook) {
		return reconcile.Result{RequeueAfter: r.state.nextLook.Sub(now)}, r.templates(ctx)
	}
	masterKey, missing, err := r.masterKey(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if masterKey == "" && !ours(current) {
		return r.withoutLiteLLM(ctx, facts, inputs, missing), nil
	}
	if facts.Keys, err = r.keys(ctx, facts); err != nil {
		return reconcile.Result{}, err
	}
	return r.work(ctx, facts, current, masterKey, missing)
}

// withoutLiteLLM makes nothing: there is no index yet, or it is somebody else's.
func (r *Reconciler) withoutLiteLLM(ctx context.Context, facts Facts, inputs, missing string) reconcile.Result {
	if len(Desire(facts, r.Settings).Records) == 0 && len(ExternalModels(facts, r.Settings)) == 0 {
		return r.rest(r.moment(), inputs, r.Settings.Recheck)
	}
	r.tell(ctx, facts, missing, nil)
	return r.rest(r.moment(), inputs, r.Settings.Retry)
}

// ours is an index that the operator has written.
func ours(index *corev1.ConfigMap) bool {
	return index != nil && index.Annotations[AnnotationHash] != ""
}

func (r *Reconciler) work(ctx context.Context, facts Facts, current *corev1.ConfigMap, masterKey, missing string) (reconcile.Result, error) {
	desired := Desire(facts, r.Settings)
	sheet, err := r.openSheet(ctx, current, desired)
	if err != nil {
		return reconcile.Result{}, err
	}
	var outcome outcome
	if masterKey == "" {
		outcome.problem = missing
	} else {
		outcome = r.sync(ctx, desired, masterKey)
	}
	if ctx.Err() != nil {
		return reconcile.Result{}, fmt.Errorf("keeping the model index: %w", ctx.Err())
	}
	if outcome.complete() {
		// What LiteLLM would not delete is not offered.
		sheet.index, _ = IndexOf(outcome.deployments, r.Settings).Without(desired, r.Settings)
		sheet.ready = true
	}
	troubles := append(append([]Trouble(nil), desired.Troubles...), outcome.troubles...)
	problem := strings.TrimSpace(desired.Problem + " " + outcome.problem)
	if outcome.more {
		return r.rest(r.moment(), "", moreToDo), nil
	}
	if err := r.publish(ctx, sheet, problem, troubles); err != nil {
		return reconcile.Result{}, err
	}
	if err := errors.Join(r.restart(ctx, sheet), r.templates(ctx)); err != nil {
		return reconcile.Result{}, err
	}
	r.tell(ctx, facts, problem, troubles)
	pause := r.Settings.Recheck
	if problem != "" || len(troubles) > 0 {
		pause = r.Settings.Retry
	}
	return r.rest(r.moment(), r.inputs(facts, sheet.current), pause), nil
}

// rest remembers what was worked on and when to look again without an event.
func (r *Reconciler) rest(now time.Time, inputs string, pause time.Duration) reconcile.Result {
	r.state.inputs, r.state.nextLook = inputs, now.Add(pause)
	return reconcile.Result{RequeueAfter: pause}
}

// inputs is a digest of everything that a pass looks at, apart from LiteLLM and
// the keys of providers.
func (r *Reconciler) inputs(facts Facts, current *corev1.ConfigMap) string {
	facts.Keys = nil
	desired := Desire(facts, r.Settings)
	records := map[string]any{}
	for name, record := range desired.Records {
		records[name] = []any{record.Params, record.Info}
	}
	for _, model := range ExternalModels(facts, r.Settings) {
		ref := ""
		if model.Key != nil {
			ref = model.Key.String()
		}
		model.Key, model.InlineKey = nil, digest(model.InlineKey)
		records["external "+model.Name] = fmt.Sprintf("%+v %s", model, ref)
	}
	content := map[string]string{}
	if current != nil {
		for key := range Bootstrap(r.Settings).Data {
			content[key] = current.Data[key]
		}
		for _, annotation := range []string{AnnotationHash, kube.AnnotationIndexError, kube.AnnotationIndexLeftOut, AnnotationConsumersRestarted} {
			content[annotation] = current.Annotations[annotation]
		}
		content[LabelApp] = current.Labels[LabelApp]
	}
	return digest([]any{records, desired.Problem, fmt.Sprint(desired.Troubles), content, current == nil})
}
