package activations

import (
	"context"
	"errors"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// carryOut makes the calls of a plan.
func (r *Reconciler) carryOut(ctx context.Context, activation *appliancev1alpha1.ModelActivation, plan Plan, observed Observed) error {
	pass := kube.Pass[*appliancev1alpha1.ModelActivation]{
		Client: r.Client, Recorder: r.Recorder,
		Finalizer: kube.FinalizerModel, AddFinalizer: plan.AddFinalizer, DropFinalizer: plan.DropFinalizer,
		Effects: func(ctx context.Context, failure error) error {
			if failure != nil {
				return failure
			}
			return r.sideEffects(ctx, plan, observed)
		},
		Tell: func(failure error) bool {
			var direct *runtimeError
			return errors.As(failure, &direct) || kube.IsRefused(failure)
		},
		Status: func(activation *appliancev1alpha1.ModelActivation, failure error) {
			before := activation.DeepCopy()
			activation.Status = plan.Status
			if failure != nil {
				failed(activation, before, failure, observed)
			}
		},
		Conditions: func(activation *appliancev1alpha1.ModelActivation) []metav1.Condition {
			return activation.Status.Conditions
		},
		Summary: conditions.ModelActivationConditionReady,
		Failed: func(activation *appliancev1alpha1.ModelActivation) bool {
			return activation.Status.Phase == appliancev1alpha1.ModelActivationStatusPhaseDegraded
		},
	}
	return pass.CarryOut(ctx, activation)
}

// runtimeError is what the API server answered to an object of a direct runtime.
type runtimeError struct{ error }

func (e *runtimeError) Unwrap() error { return e.error }

func (r *Reconciler) sideEffects(ctx context.Context, plan Plan, observed Observed) error {
	for _, key := range plan.Enable {
		created, err := kube.EnableModule(ctx, r.Client, key, r.Appliance)
		if err != nil {
			return err
		}
		if created {
			log.FromContext(ctx).Info("switched on a required module", "module", key)
		}
	}
	for _, object := range plan.Remove {
		if err := r.Children.Delete(ctx, object); err != nil {
			return err
		}
		log.FromContext(ctx).Info("removed a part of a runtime", "object", title(object))
	}
	if plan.Model != nil {
		name := types.NamespacedName{Namespace: *plan.Model.GetNamespace(), Name: *plan.Model.GetName()}
		if _, err := r.Children.Claim(ctx, plan.Model, name, &kubeaiv1.Model{}, observed.Model); err != nil {
			return err
		}
	}
	if err := r.direct(ctx, plan, observed); err != nil {
		if kube.IsStale(err) {
			return err
		}
		return &runtimeError{err}
	}
	if plan.Replace != nil {
		if err := r.Children.DeleteUnchanged(ctx, plan.Replace); err != nil {
			return err
		}
		log.FromContext(ctx).Info("removed a Pod that had ended, for KubeAI to replace it", "pod", client.ObjectKeyFromObject(plan.Replace).String())
	}
	return nil
}

// direct writes Service and Deployment of a direct runtime.
func (r *Reconciler) direct(ctx context.Context, plan Plan, observed Observed) error {
	if plan.Service != nil {
		name := types.NamespacedName{Namespace: *plan.Service.GetNamespace(), Name: *plan.Service.GetName()}
		if _, err := r.Children.Claim(ctx, plan.Service, name, &corev1.Service{}, observed.Service); err != nil {
			return err
		}
	}
	if plan.Deployment != nil {
		name := types.NamespacedName{Namespace: *plan.Deployment.GetNamespace(), Name: *plan.Deployment.GetName()}
		if _, err := r.Children.Claim(ctx, plan.Deployment, name, &appsv1.Deployment{}, observed.Deployment); err != nil {
			return err
		}
	}
	return nil
}

// failed is the status after an answer of the API server that a person must
// read. The pass is made again with a growing pause, and a success clears it.
func failed(activation, before *appliancev1alpha1.ModelActivation, failure error, observed Observed) {
	phase, reason := appliancev1alpha1.ModelActivationStatusPhaseDegraded, conditions.ModelActivationReasonChangeRefused
	message := kube.RefusedMessage(failure)
	var direct *runtimeError
	if errors.As(failure, &direct) && observed.Resolved != nil {
		phase, reason, message = answered(EngineOf(observed.Resolved).Reasons(), direct)
	}
	activation.Status.Phase = phase
	activation.Status.Message = ptr.To(kube.Truncate(message, kube.MaxStatusMessage))
	setReady(&activation.Status, before, metav1.ConditionFalse, reason, message, observed.Now)
}

// answered maps an answer of the API server to phase and reason of a direct
// runtime (contract/appliance.md C.8).
func answered(reasons APIReasons, failure error) (appliancev1alpha1.ModelActivationStatusPhase, string, string) {
	code := int32(0)
	var status apierrors.APIStatus
	if errors.As(failure, &status) {
		code = status.Status().Code
	}
	switch {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return appliancev1alpha1.ModelActivationStatusPhaseDegraded, reasons.PermissionDenied,
			"The API server does not permit the operator to run the model: " + kube.Refusal(failure)
	case code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout:
		return appliancev1alpha1.ModelActivationStatusPhaseDegraded, reasons.Rejected,
			"The API server refused the runtime of the model: " + kube.Refusal(failure)
	}
	return appliancev1alpha1.ModelActivationStatusPhaseStarting, reasons.Unavailable,
		"The API server could not take the runtime of the model, which is tried again: " + kube.Refusal(failure)
}
