package operator_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// lateWrite lets the first write of a backend wait. held is closed when it
// waits, closing release lets it go, and its answer comes through late.
func (w *world) lateWrite() (held, release chan struct{}, late chan int) {
	held, release, late = make(chan struct{}), make(chan struct{}), make(chan int, 1)
	var once sync.Once
	w.writes.refuse(func(request *http.Request, next http.RoundTripper) (*http.Response, error) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		if !strings.Contains(request.URL.Path, "/httproutes/") || !bytes.Contains(body, []byte("backendRefs")) {
			return nil, nil
		}
		first := false
		once.Do(func() { first = true })
		if !first {
			return nil, nil
		}
		close(held)
		<-release
		response, err := next.RoundTrip(request)
		if err == nil {
			late <- response.StatusCode
		}
		return response, err
	})
	return held, release, late
}

// A process that was stopped between its question and its write, and goes on
// when something has happened to the policy in the meantime, opens nothing. A
// policy that was made anew or repaired says the same as before, and the former
// one was accepted in the same generation.
func TestLateWriteOfAFormerLeader(t *testing.T) {
	t.Parallel()
	for name, happen := range map[string]func(w *world, policy *envoyv1alpha1.SecurityPolicy) (done func(now *envoyv1alpha1.SecurityPolicy) bool){
		"another role is wanted": func(w *world, policy *envoyv1alpha1.SecurityPolicy) func(*envoyv1alpha1.SecurityPolicy) bool {
			w.edit("odysseus-demo", func(instance *appliancev1alpha1.AppInstance) {
				instance.Spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{Role: "admin"}
			})
			return func(now *envoyv1alpha1.SecurityPolicy) bool { return now.Generation > policy.Generation }
		},
		"the policy is deleted": func(w *world, policy *envoyv1alpha1.SecurityPolicy) func(*envoyv1alpha1.SecurityPolicy) bool {
			require.NoError(w.t, w.client.Delete(w.t.Context(), policy))
			return func(now *envoyv1alpha1.SecurityPolicy) bool { return now.UID != policy.UID }
		},
		"the policy is torn out and made anew by hand": func(w *world, policy *envoyv1alpha1.SecurityPolicy) func(*envoyv1alpha1.SecurityPolicy) bool {
			anew := policy.DeepCopy()
			anew.ResourceVersion, anew.UID, anew.ManagedFields = "", "", nil
			w.eventually(func() string {
				policy = w.policy(policy.Name)
				policy.Finalizers = nil
				if err := w.client.Update(w.t.Context(), policy); err != nil {
					return err.Error()
				}
				return ""
			})
			require.NoError(w.t, w.client.Delete(w.t.Context(), policy))
			require.NoError(w.t, w.client.Create(w.t.Context(), anew))
			require.EqualValues(w.t, 1, anew.Generation)
			return func(now *envoyv1alpha1.SecurityPolicy) bool { return now.UID == anew.UID }
		},
		"the policy is edited and repaired": func(w *world, policy *envoyv1alpha1.SecurityPolicy) func(*envoyv1alpha1.SecurityPolicy) bool {
			w.eventually(func() string {
				edited := w.policy(policy.Name)
				policyEdits["guard fails open"](edited)
				if err := w.client.Update(w.t.Context(), edited); err != nil {
					return err.Error()
				}
				return ""
			})
			return func(now *envoyv1alpha1.SecurityPolicy) bool {
				return now.Generation > policy.Generation+1 && !*now.Spec.ExtAuth.FailOpen
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, controlplanetest.Shared(t))
			witness := w.witness()
			gateway := w.gateway()
			gateway.wrote = witness.mine
			gateway.say(nil)
			w.start()
			w.odysseus()
			w.instance("odysseus-demo", func(instance *appliancev1alpha1.AppInstance) {
				instance.Spec.Access = &appliancev1alpha1.AppInstanceSpecAccess{Exposure: "local"}
			})
			w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
			w.shown("odysseus-demo", "Reconciling", "WaitingForAccessGuard")

			held, release, late := w.lateWrite()
			gateway.accept()
			select {
			case <-held:
			case <-time.After(patience):
				t.Fatal("the first process never wrote a backend")
			}
			gateway.say(nil)
			before := w.route("odysseus-demo-local").ResourceVersion
			done := happen(w, w.policy("odysseus-demo-local-sso"))
			successor := *w
			successor.writes = &writeCounter{}
			successor.start()
			w.eventually(func() string {
				now := w.policy("odysseus-demo-local-sso")
				if now == nil || !done(now) || now.DeletionTimestamp != nil {
					return "the second process has not seen to the policy: " + show(now)
				}
				if w.route("odysseus-demo-local").ResourceVersion == before {
					return "the second process has not written the route"
				}
				return ""
			})
			close(release)
			require.Equal(t, http.StatusConflict, <-late)
			require.False(t, leads(w.route("odysseus-demo-local")))
			w.stop() // the former leader
			gateway.accept()
			w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
			w.shown("odysseus-demo", "Ready", "InstallSucceeded")
			_, _, exposures := witness.judge(time.Minute)
			require.Zero(t, exposures)
		})
	}
}

// Every write of the operator conflicts once, through the whole life of an
// instance: nothing is lost, and no route is open a moment too long.
func TestConflictOnEveryWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplanetest.Shared(t))
	witness := w.witness()
	gateway := w.gateway()
	gateway.wrote = witness.mine
	w.conflicts()
	w.start()
	w.odysseus()
	w.instance("odysseus-demo", nil)
	w.helm("odysseus-demo", metav1.ConditionTrue, "InstallSucceeded", "ok")
	w.shown("odysseus-demo", "Ready", "InstallSucceeded")
	ready := func(spec func(*appliancev1alpha1.AppInstanceSpec)) {
		w.edit("odysseus-demo", func(instance *appliancev1alpha1.AppInstance) { spec(&instance.Spec) })
		w.eventually(func() string {
			w.helm("odysseus-demo", metav1.ConditionTrue, "UpgradeSucceeded", "ok")
			instance := &appliancev1alpha1.AppInstance{}
			if w.get(instance, "odysseus-demo"); instance.Status.Phase != "Ready" || *instance.Status.ObservedGeneration != instance.Generation {
				return show(instance.Status)
			}
			return ""
		})
	}
	access := func(access appliancev1alpha1.AppInstanceSpecAccess) func(*appliancev1alpha1.AppInstanceSpec) {
		return func(spec *appliancev1alpha1.AppInstanceSpec) { spec.Access = &access }
	}
	ready(access(appliancev1alpha1.AppInstanceSpecAccess{Role: "operator"}))
	ready(access(appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none", Exposure: "local"}))
	ready(access(appliancev1alpha1.AppInstanceSpecAccess{}))
	w.count(4, 2, 1)

	policy := w.policy("odysseus-demo-local-sso")
	require.NoError(t, w.client.Delete(t.Context(), policy))
	w.eventually(func() string {
		if now := w.policy("odysseus-demo-local-sso"); now == nil || now.UID == policy.UID {
			return "the policy was not written anew"
		}
		return ""
	})
	w.leadsTo("odysseus-demo-local", true)

	off := false
	w.edit("odysseus-demo", func(instance *appliancev1alpha1.AppInstance) { instance.Spec.Enabled = &off })
	w.shown("odysseus-demo", "Suspended", "Suspended")
	w.eventually(func() string { return w.counted(0, 0, 0) })
	ready(func(spec *appliancev1alpha1.AppInstanceSpec) { spec.Enabled = nil })
	instance := &appliancev1alpha1.AppInstance{}
	require.True(t, w.get(instance, "odysseus-demo"))
	require.NoError(t, client.IgnoreNotFound(w.client.Delete(t.Context(), instance)))
	w.gone(&appliancev1alpha1.AppInstance{}, "odysseus-demo")
	w.count(0, 0, 0)
	_, openings, exposures := witness.judge(time.Minute)
	require.Zero(t, exposures)
	require.GreaterOrEqual(t, openings, 4+4+1+4+2+4)
}
