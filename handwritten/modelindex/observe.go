package modelindex

import (
	"context"
	"fmt"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// observe collects the facts that caches know. It is not ready while the cache of
// KubeAI's Models fills: its completion starts another pass, and until then no
// model may be taken for gone.
func (r *Reconciler) observe(ctx context.Context) (facts Facts, ready bool, err error) {
	switch presence, detail := r.Kinds.Presence(ctx, KubeAIKind().CRD); presence {
	case kube.Starting:
		return facts, false, nil
	case kube.Unreadable:
		facts.ModelsUnknown = detail
	case kube.Present:
		list := &kubeaiv1.ModelList{}
		if err := r.list(ctx, r.Foreign, list, r.Settings.Namespace); err != nil {
			return facts, false, err
		}
		for i := range list.Items {
			facts.Models = append(facts.Models, &list.Items[i])
		}
	}
	deployments := &appsv1.DeploymentList{}
	if err := r.list(ctx, r.Foreign, deployments, r.Settings.Namespace, client.HasLabels{labelActivation}); err != nil {
		return facts, false, err
	}
	for i := range deployments.Items {
		facts.Deployments = append(facts.Deployments, &deployments.Items[i])
	}
	activations := &appliancev1alpha1.ModelActivationList{}
	if err := r.list(ctx, r.Client, activations, r.Appliance.Namespace); err != nil {
		return facts, false, err
	}
	for i := range activations.Items {
		facts.Activations = append(facts.Activations, &activations.Items[i])
	}
	configMap := &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: r.Settings.Namespace, Name: r.Settings.ExternalConfigMap}
	if err := r.Foreign.Get(ctx, name, configMap, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
		return facts, false, fmt.Errorf("reading ConfigMap %s: %w", name, err)
	}
	facts.External = ParseExternalModels(configMap.Data[externalKey])
	return facts, true, nil
}

func (r *Reconciler) list(ctx context.Context, reader client.Reader, list client.ObjectList, namespace string, options ...client.ListOption) error {
	options = append(options, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
	if err := reader.List(ctx, list, options...); err != nil {
		return fmt.Errorf("listing what the model index is made of: %w", err)
	}
	return nil
}

// current is the ConfigMap of the index, nil when there is none.
func (r *Reconciler) current(ctx context.Context) (*corev1.ConfigMap, error) {
	configMap := &corev1.ConfigMap{}
	found, err := r.Children.Get(ctx, r.Settings.ConfigMapName(), configMap)
	if err != nil || !found {
		return nil, err
	}
	return configMap, nil
}

// masterKey of LiteLLM, or why there is none.
func (r *Reconciler) masterKey(ctx context.Context) (key, missing string, err error) {
	found, err := r.key(ctx, KeyRef{Secret: r.Settings.MasterKeySecret, Key: r.Settings.MasterKeyKey})
	if err != nil {
		return "", "", err
	}
	if found.Value == "" {
		return "", "LiteLLM cannot be asked: " + found.Missing + found.Unknown, nil
	}
	return found.Value, "", nil
}

func (r *Reconciler) keys(ctx context.Context, facts Facts) (map[KeyRef]Key, error) {
	keys := map[KeyRef]Key{}
	for _, ref := range KeyRefs(facts, r.Settings) {
		key, err := r.key(ctx, ref)
		if err != nil {
			return nil, err
		}
		keys[ref] = key
	}
	return keys, nil
}

// key reads one value. Only the end of the process is an error; everything else
// is about this one key.
func (r *Reconciler) key(ctx context.Context, ref KeyRef) (Key, error) {
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Settings.Namespace, Name: ref.Secret}, secret)
	switch {
	case ctx.Err() != nil:
		return Key{}, fmt.Errorf("reading %s: %w", ref, ctx.Err())
	case apierrors.IsNotFound(err):
		return Key{Missing: fmt.Sprintf("Secret %s does not exist in namespace %s", ref.Secret, r.Settings.Namespace)}, nil
	case apierrors.IsForbidden(err):
		return Key{Unknown: fmt.Sprintf("the operator may not read Secret %s in namespace %s", ref.Secret, r.Settings.Namespace)}, nil
	case err != nil:
		return Key{Unknown: fmt.Sprintf("Secret %s in namespace %s cannot be read at the moment", ref.Secret, r.Settings.Namespace)}, nil
	}
	value, found := secret.Data[ref.Key]
	switch {
	case !found || len(value) == 0:
		return Key{Missing: fmt.Sprintf("Secret %s in namespace %s has no key %s", ref.Secret, r.Settings.Namespace, ref.Key)}, nil
	case !printable(value):
		return Key{Missing: fmt.Sprintf("%s in namespace %s is not a key that can be sent: it holds characters that are not printable", ref, r.Settings.Namespace)}, nil
	}
	return Key{Value: string(value)}, nil
}

// printable tells whether a key can stand in the header of a request. A newline
// at the end is the usual accident.
func printable(value []byte) bool {
	for _, char := range string(value) {
		if char < ' ' || char == 0x7f || char == utf8.RuneError {
			return false
		}
	}
	return true
}
