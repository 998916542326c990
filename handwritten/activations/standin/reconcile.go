package standin

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
)

// reconcileModel makes and removes Pods, and reports them.
func (k *kubeAI) reconcileModel(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	model := &kubeaiv1.Model{}
	if err := k.client.Get(ctx, request.NamespacedName, model); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading Model %s: %w", request.Name, err)
	}
	pods, err := k.pods(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	// A control plane of tests has no garbage collector.
	own, orphans := split(pods, model.UID)
	if err := k.remove(ctx, orphans); err != nil {
		return reconcile.Result{}, err
	}
	if model.UID == "" || model.DeletionTimestamp != nil || model.Spec == nil {
		return reconcile.Result{}, nil
	}
	if err := k.scale(ctx, model); err != nil {
		return reconcile.Result{}, err
	}
	if fate, message := fateOf(model.Annotations, k.Fate); fate == NoPod {
		k.Log.Info("no Pod", "model", model.Name, "reason", message)
		return reconcile.Result{}, nil
	}
	known := *k.known.Load()
	pod, err := podFor(model, known)
	if err != nil {
		// KubeAI does not try again either (contract/appliance.md C.7).
		k.Log.Info("no Pod", "model", model.Name, "reason", err.Error())
		return reconcile.Result{}, nil
	}
	step := planRollout(own, pod.Labels[labelHash], int(*model.Spec.Replicas), known.surge())
	if err := k.remove(ctx, step.remove); err != nil {
		return reconcile.Result{}, err
	}
	for range step.create {
		if err := k.client.Create(ctx, pod.DeepCopy(), fieldOwner); err != nil {
			return reconcile.Result{}, fmt.Errorf("creating a Pod of Model %s: %w", model.Name, err)
		}
	}
	return reconcile.Result{}, k.report(ctx, model, own)
}

// split tells the Pods of a Model from those of an earlier one of that name.
func split(pods []*corev1.Pod, model types.UID) (own, orphans []*corev1.Pod) {
	for _, pod := range pods {
		if owner := metav1.GetControllerOf(pod); model != "" && owner != nil && owner.UID == model {
			own = append(own, pod)
		} else if owner != nil && owner.Kind == "Model" {
			orphans = append(orphans, pod)
		}
	}
	return own, orphans
}

func (k *kubeAI) remove(ctx context.Context, pods []*corev1.Pod) error {
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := k.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// scale keeps spec.replicas between the bounds. The number of Pods is KubeAI's,
// so that it changes the generation of a Model that somebody else wrote.
func (k *kubeAI) scale(ctx context.Context, model *kubeaiv1.Model) error {
	wanted := replicas(model.Spec)
	if model.Spec.Replicas != nil && *model.Spec.Replicas == wanted {
		return nil
	}
	before := model.DeepCopy()
	model.Spec.Replicas = &wanted
	if err := k.client.Patch(ctx, model, client.MergeFrom(before), fieldOwner); err != nil {
		return fmt.Errorf("scaling Model %s: %w", model.Name, err)
	}
	return nil
}

func (k *kubeAI) report(ctx context.Context, model *kubeaiv1.Model, pods []*corev1.Pod) error {
	seen := kubeaiv1.ModelStatusReplicas{}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		seen.All++
		if isReady(pod) {
			seen.Ready++
		}
	}
	if model.Status.Replicas != nil && *model.Status.Replicas == seen {
		return nil
	}
	before := model.DeepCopy()
	model.Status.Replicas = &seen
	if err := k.client.Status().Patch(ctx, model, client.MergeFrom(before), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reporting the Pods of Model %s: %w", model.Name, err)
	}
	return nil
}

// reconcileProfiles starts KubeAI anew with the present profiles.
func (k *kubeAI) reconcileProfiles(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	configMap := &corev1.ConfigMap{}
	if err := k.client.Get(ctx, request.NamespacedName, configMap); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("reading the profiles: %w", err)
	}
	text := configMap.Data[k.ProfilesKey]
	if text == k.text {
		k.next = text
		return reconcile.Result{}, nil
	}
	if text != k.next {
		k.next, k.changed = text, time.Now()
	}
	if rest := time.Until(k.changed.Add(k.Restart)); rest > 0 {
		return reconcile.Result{RequeueAfter: rest}, nil
	}
	config, err := parseConfiguration(text)
	if err != nil {
		k.Log.Error(err, "keeping the profiles of before")
		return reconcile.Result{}, nil
	}
	k.text = text
	k.known.Store(&config)
	k.Log.Info("started with new profiles", "number", len(config.ResourceProfiles))
	select {
	case k.restarts <- event.GenericEvent{Object: configMap}:
	case <-ctx.Done():
	}
	return reconcile.Result{}, nil
}

// answer lets a Pod of Ollama speak while it is Ready.
func (k *kubeAI) answer(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) {
	if !k.OllamaAnswers || pod.Labels[labelEngine] != engineOllama {
		return
	}
	if !isReady(&corev1.Pod{Status: *status}) {
		k.answers.stop(pod.Name)
		return
	}
	if address := k.answers.serve(ctx, pod); address != "" {
		status.PodIP, status.PodIPs = address, []corev1.PodIP{{IP: address}}
	}
}

// reconcilePod reports of a Pod what a kubelet would.
func (k *kubeAI) reconcilePod(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := k.client.Get(ctx, request.NamespacedName, pod); err != nil {
		k.answers.stop(request.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return reconcile.Result{}, nil
	}
	model := &kubeaiv1.Model{}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[LabelModel]}
	if err := k.client.Get(ctx, key, model); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	fate, message := fateOf(model.Annotations, k.Fate)
	now := metav1.Now()
	status, after := podStatus(pod, fate, message, now.Sub(pod.CreationTimestamp.Time), k.StartUp)
	keepTimes(&status, &pod.Status, now)
	k.answer(ctx, pod, &status)
	wanted := pod.DeepCopy()
	wanted.Status = status
	wanted.Status.QOSClass = pod.Status.QOSClass
	if !equality.Semantic.DeepEqual(wanted.Status, pod.Status) {
		if err := k.client.Status().Patch(ctx, wanted, client.MergeFrom(pod), fieldOwner); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("reporting Pod %s: %w", pod.Name, err)
		}
	}
	return reconcile.Result{RequeueAfter: after}, nil
}
