package modelindex

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
)

func TestUsable(t *testing.T) {
	const degraded = appliancev1alpha1.ModelActivationStatusPhaseDegraded
	for name, test := range map[string]struct {
		phase  appliancev1alpha1.ModelActivationStatusPhase
		reason string
		want   bool
	}{
		"ready":                                  {appliancev1alpha1.ModelActivationStatusPhaseReady, conditions.ModelActivationReasonCatalogReady, true},
		"starting":                               {appliancev1alpha1.ModelActivationStatusPhaseStarting, conditions.ModelActivationReasonWaitingForReadyReplica, true},
		"not_looked_at_yet":                      {"", "", true},
		"S050_without_a_Pod":                     {appliancev1alpha1.ModelActivationStatusPhaseWaitingForPod, conditions.ModelActivationReasonWaitingForPod, false},
		"being_removed":                          {appliancev1alpha1.ModelActivationStatusPhaseRemoving, conditions.ModelActivationReasonRemoving, false},
		"switched_off":                           {appliancev1alpha1.ModelActivationStatusPhaseDisabled, conditions.ModelActivationReasonDisabled, false},
		"refused_wish_keeps_the_former_runtime":  {degraded, conditions.ModelActivationReasonInvalidModelSpec, true},
		"refused_change_keeps_the_former_object": {degraded, conditions.ModelActivationReasonChangeRefused, true},
		"kubeai_went_back_to_an_older_version":   {degraded, conditions.ModelActivationReasonKubeAIVersionTooOld, true},
		"S060_rejected":                          {degraded, conditions.ModelActivationReasonRealtimeApiRejected, false},
		"S060_permission_denied":                 {degraded, conditions.ModelActivationReasonFreeTokenPermissionDenied, false},
		"Pods_fail_again_and_again":              {degraded, conditions.ModelActivationReasonModelPodRecoveryExhausted, false},
		"runtime_of_somebody_else":               {degraded, conditions.ModelActivationReasonRuntimeConflict, false},
		"failed_for_an_unknown_reason":           {degraded, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			activation := &appliancev1alpha1.ModelActivation{}
			activation.Status.Phase = test.phase
			if test.reason != "" {
				activation.Status.Conditions = []metav1.Condition{{Type: conditions.ModelActivationConditionReady, Reason: test.reason}}
			}
			assert.Equal(t, test.want, usable(activation))
			off := false
			activation.Spec.Enabled = &off
			assert.False(t, usable(activation), "switched off since")
		})
	}
	assert.True(t, usable(nil), "made by hand")
}
