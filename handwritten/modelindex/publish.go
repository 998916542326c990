package modelindex

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/kube"
)

const (
	// maxTold bounds the models that an annotation explains.
	maxTold = 50
	// maxSentence bounds one explanation in bytes.
	maxSentence = 512
)

// sheet is the ConfigMap while a pass works on it.
type sheet struct {
	// current is the ConfigMap as it is, nil while there is none.
	current *corev1.ConfigMap
	// index that it should show.
	index Index
	// ready tells that the index was made at least once.
	ready bool
}

// openSheet finds out what the index says now and takes away at once what does not
// answer any more: LiteLLM may be slow, or away.
func (r *Reconciler) openSheet(ctx context.Context, current *corev1.ConfigMap, desired Desired) (*sheet, error) {
	s := &sheet{current: current}
	switch {
	case r.state.published != nil:
		// Whatever somebody wrote into the ConfigMap meanwhile.
		s.index, s.ready = *r.state.published, true
	case current != nil && current.Data[KeyReady] == "true":
		index, err := ReadIndex(current.Data, r.Settings)
		if err != nil {
			log.FromContext(ctx).Info("the model index was changed by somebody and cannot be read, making it anew", "cause", err.Error())
			break
		}
		s.index, s.ready = index, true
	}
	kept, fewer := s.index.Without(desired, r.Settings)
	s.index = kept
	if current != nil && !fewer {
		return s, nil
	}
	return s, r.write(ctx, s, annotationsOf(current))
}

func annotationsOf(current *corev1.ConfigMap) map[string]string {
	if current == nil {
		return nil
	}
	return current.Annotations
}

// publish writes what changed and nothing otherwise.
func (r *Reconciler) publish(ctx context.Context, s *sheet, problem string, troubles []Trouble) error {
	annotations := maps.Clone(annotationsOf(s.current))
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[kube.AnnotationIndexError] = kube.Truncate(kube.Sanitize(problem), 2*maxSentence)
	annotations[kube.AnnotationIndexLeftOut] = explain(troubles)
	return r.write(ctx, s, annotations)
}

// explain is a JSON object from model to sentence.
func explain(troubles []Trouble) string {
	if len(troubles) == 0 {
		return ""
	}
	told := map[string]string{}
	for _, trouble := range troubles {
		if len(told) < maxTold {
			told[trouble.Name] = kube.Truncate(kube.Sanitize(trouble.Message), maxSentence)
		}
	}
	return strings.TrimSpace(encode(told, true))
}

// write makes the ConfigMap say what the sheet says. annotations are those that
// should stay; what they lack of ours is taken away.
func (r *Reconciler) write(ctx context.Context, s *sheet, annotations map[string]string) error {
	files := Bootstrap(r.Settings)
	if s.ready {
		files = Render(s.index, r.Settings)
	}
	wanted := map[string]string{AnnotationHash: files.Hash}
	for _, name := range []string{kube.AnnotationIndexError, kube.AnnotationIndexLeftOut, AnnotationConsumersRestarted} {
		if annotations[name] != "" {
			wanted[name] = annotations[name]
		}
	}
	if files.Omitted > 0 {
		wanted[kube.AnnotationIndexError] = fmt.Sprintf("The index has room for %d models; %d are left out.", len(s.index.Models)-files.Omitted, files.Omitted)
	}
	if s.current != nil && upToDate(s.current, files, wanted) {
		r.remember(s)
		return nil
	}
	wanted[AnnotationLastSync] = lastSync(s.current, files, r.moment())
	name := r.Settings.ConfigMapName()
	desired := corev1ac.ConfigMap(name.Name, name.Namespace).
		WithLabels(map[string]string{LabelApp: LabelAppValue, kube.LabelManagedBy: kube.ManagedByOperator}).
		WithAnnotations(wanted).
		WithData(files.Data)
	if _, err := r.Children.Apply(ctx, desired, name, &corev1.ConfigMap{}, nil); err != nil {
		return err
	}
	r.remember(s)
	written := &corev1.ConfigMap{Data: files.Data}
	written.Annotations, written.Labels = wanted, map[string]string{LabelApp: LabelAppValue}
	s.current = written
	return nil
}

func (r *Reconciler) remember(s *sheet) {
	if s.ready {
		r.state.published = &s.index
	}
}

// upToDate compares what is managed; other keys of the ConfigMap belong to others.
func upToDate(current *corev1.ConfigMap, files Files, annotations map[string]string) bool {
	for key, content := range files.Data {
		if have, found := current.Data[key]; !found || have != content {
			return false
		}
	}
	for _, name := range []string{AnnotationHash, kube.AnnotationIndexError, kube.AnnotationIndexLeftOut, AnnotationConsumersRestarted} {
		if current.Annotations[name] != annotations[name] {
			return false
		}
	}
	return current.Labels[LabelApp] == LabelAppValue
}

// lastSync moves with the content only.
func lastSync(current *corev1.ConfigMap, files Files, now time.Time) string {
	if current != nil && current.Annotations[AnnotationHash] == files.Hash {
		if _, err := time.Parse(time.RFC3339, current.Annotations[AnnotationLastSync]); err == nil {
			return current.Annotations[AnnotationLastSync]
		}
	}
	return now.UTC().Format(time.RFC3339)
}

// restart deletes the Pods that read the index, once for each content: which one
// was last is noted in the ConfigMap, and Pods that were made after the change
// have read it already, should the note get lost.
func (r *Reconciler) restart(ctx context.Context, s *sheet) error {
	hash := s.current.Annotations[AnnotationHash]
	if !r.Settings.RestartConsumers || !s.ready || s.current.Annotations[AnnotationConsumersRestarted] == hash {
		return nil
	}
	if hash == r.state.restarted {
		// Somebody took the note away.
		return r.noteRestart(ctx, s, hash)
	}
	changed, err := time.Parse(time.RFC3339, s.current.Annotations[AnnotationLastSync])
	if err != nil {
		changed = r.moment()
	}
	pods := &corev1.PodList{}
	if err := r.Live.List(ctx, pods, client.InNamespace(r.Settings.Namespace)); err != nil {
		return fmt.Errorf("looking for the Pods that read the model index: %w", err)
	}
	var problems []error
	for _, pod := range Consumers(pods.Items, changed) {
		err := r.Foreign.Delete(ctx, pod, client.Preconditions{UID: ptr.To(pod.UID)})
		switch {
		case err == nil:
			log.FromContext(ctx).Info("restarted a Pod that reads the model index", "pod", pod.Name)
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			problems = append(problems, fmt.Errorf("restarting Pod %s, which reads the model index: %w", pod.Name, err))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	r.state.restarted = hash
	return r.noteRestart(ctx, s, hash)
}

func (r *Reconciler) noteRestart(ctx context.Context, s *sheet, hash string) error {
	annotations := maps.Clone(s.current.Annotations)
	annotations[AnnotationConsumersRestarted] = hash
	return r.write(ctx, s, annotations)
}

// templates keeps the models of AgentTemplates.
func (r *Reconciler) templates(ctx context.Context) error {
	if !r.Settings.SyncAgentTemplates || r.state.published == nil {
		return nil
	}
	if presence, _ := r.Kinds.Presence(ctx, AgentTemplateKind().CRD); presence != kube.Present {
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(AgentTemplateKind().Prototype.GetObjectKind().GroupVersionKind())
	if err := r.list(ctx, r.Foreign, list, r.Settings.Namespace); err != nil {
		return err
	}
	var problems []error
	for i := range list.Items {
		template := &list.Items[i]
		wanted, err := Template(template, *r.state.published, r.Settings)
		if err != nil {
			// The template's owner must change it; trying again does not help.
			log.FromContext(ctx).Info("an AgentTemplate is left as it is", "cause", err.Error())
			continue
		}
		if wanted == nil || slices.Equal(canonical(wanted.Object), canonical(template.Object)) {
			continue
		}
		problems = append(problems, client.IgnoreNotFound(r.Children.Patch(ctx, template, wanted)))
	}
	return errors.Join(problems...)
}

// tell records an event when there is something new to say: about a model on its
// activation, about LiteLLM on the Appliance.
func (r *Reconciler) tell(ctx context.Context, facts Facts, problem string, troubles []Trouble) {
	told := map[string]string{}
	for _, trouble := range troubles {
		told[trouble.Name] = trouble.Message
		log.FromContext(ctx).V(1).Info("a model is not as it was asked for", "model", trouble.Name, "cause", trouble.Message)
		if !trouble.Activation || r.state.told[trouble.Name] == trouble.Message {
			continue
		}
		for _, activation := range facts.Activations {
			if activation.Name == trouble.Name {
				r.record(activation, conditions.ModelActivationReasonWaitingForCatalog, trouble.Message)
			}
		}
	}
	if problem != "" && r.state.told[""] != problem {
		log.FromContext(ctx).Info("the model index may be out of date", "cause", problem)
		appliance := &appliancev1alpha1.Appliance{}
		if err := r.Client.Get(ctx, r.Appliance, appliance); err == nil {
			r.record(appliance, conditions.ApplianceReasonCatalogUnavailable, "The model index keeps its last content: "+problem)
		}
	}
	if problem != "" {
		told[""] = problem
	}
	r.state.told = told
}

func (r *Reconciler) record(object client.Object, reason, message string) {
	if r.Recorder != nil {
		// 1024 bytes is the bound of a note (k8s.io/api/events/v1).
		r.Recorder.Eventf(object, nil, corev1.EventTypeWarning, reason, "Publish", "%s", kube.Truncate(kube.Sanitize(message), 1024))
	}
}

// sentence begins with a capital and ends with a full stop.
func sentence(err error) string {
	message := kube.Sanitize(err.Error())
	first, size := utf8.DecodeRuneInString(message)
	return string(unicode.ToUpper(first)) + message[size:] + "."
}
