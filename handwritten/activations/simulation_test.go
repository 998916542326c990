package activations

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	shipped "magicstick.dev/operator/generated/catalogs"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/kube/kubetest"
)

// simulated is a cluster without an API server: the objects of one activation,
// and KubeAI, Kubernetes and people who change them.
type simulated struct {
	t      *testing.T
	random *rand.Rand
	set    CatalogSet
	now    time.Time
	serial int

	activation *appliancev1alpha1.ModelActivation
	model      *kubeaiv1.Model
	deployment *appsv1.Deployment
	service    *corev1.Service
	pods       []*corev1.Pod

	gpu, modules, kubeAI, catalog, listed bool
	// replaced counts the Pods that were deleted for a revision.
	replaced map[string]int
	history  []string
}

func (s *simulated) Activations(_ context.Context, names ...string) ([]*appliancev1alpha1.ModuleActivation, error) {
	module := &appliancev1alpha1.ModuleActivation{ObjectMeta: metav1.ObjectMeta{Name: names[0]}}
	module.Status.Phase = "Ready"
	if !s.modules {
		module.Status.Phase = "Degraded"
	}
	module.Status.ObservedGeneration = ptr.To[int64](0)
	return []*appliancev1alpha1.ModuleActivation{module}, nil
}

func (s *simulated) Activation(context.Context, string) (*appliancev1alpha1.ModuleActivation, error) {
	return nil, nil
}

func (s *simulated) Nodes(context.Context) ([]corev1.Node, error) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box"}}
	node.Status.Allocatable = corev1.ResourceList{"memory": resource.MustParse("512Gi")}
	if s.gpu {
		node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("1")
	}
	return []corev1.Node{node}, nil
}

func (s *simulated) Prepared(context.Context, *appliancev1alpha1.ModelActivation, string) (*PreparedModel, error) {
	return nil, nil
}

func (s *simulated) Model(context.Context, types.NamespacedName) (*kubeaiv1.Model, error) {
	return s.model.DeepCopy(), nil
}

func (s *simulated) Deployment(context.Context, types.NamespacedName) (*appsv1.Deployment, error) {
	return s.deployment.DeepCopy(), nil
}

func (s *simulated) Service(context.Context, types.NamespacedName) (*corev1.Service, error) {
	return s.service.DeepCopy(), nil
}

func (s *simulated) Pods(context.Context, types.NamespacedName, string) ([]*corev1.Pod, error) {
	return s.pods, nil
}

func (s *simulated) Listing(context.Context, string, string) (Listing, error) {
	return Listing{Listed: s.listed}, nil
}

func (s *simulated) Memory(types.NamespacedName) MemoryReport { return MemoryReport{} }

func (s *simulated) uid() types.UID {
	s.serial++
	return types.UID(fmt.Sprintf("uid-%d", s.serial))
}

// pass is one of the operator. It dies after some of its calls, and reports
// whether it made any.
func (s *simulated) pass(calls int) bool {
	set := s.set
	if !s.catalog {
		set.Problem = "gone"
	}
	kind := Kind{Presence: kube.Present}
	if !s.kubeAI {
		kind = Kind{Presence: kube.Absent, Detail: "KubeAI is not installed"}
	}
	observed, err := Observe(s.t.Context(), s.activation.DeepCopy(), set, nil, kind, s, s.now)
	require.NoError(s.t, err)
	plan, err := Compute(observed)
	require.NoError(s.t, err)
	inTable(s.t, plan)
	made := false
	step := func(name string, do func()) {
		if calls > 0 {
			calls--
			made = true
			s.history = append(s.history, "operator: "+name)
			do()
		}
	}
	for _, object := range plan.Remove {
		step("remove "+title(object), func() { s.take(object) })
	}
	if plan.Model != nil {
		step("apply Model", func() { s.applyModel(plan) })
	}
	if plan.Service != nil {
		step("apply Service", func() {
			s.service = &corev1.Service{}
			convert(s.t, plan.Service, s.service)
			s.service.UID = s.uid()
			kubetest.Own(s.t, s.service)
		})
	}
	if plan.Deployment != nil {
		step("apply Deployment", func() { s.applyDeployment(plan) })
	}
	if plan.Replace != nil {
		step("replace "+plan.Replace.Name, func() { s.replace(plan) })
	}
	if raw, _ := yaml.Marshal(plan.Status); !s.sameStatus(raw) {
		step("status "+string(plan.Status.Phase), func() { s.activation.Status = plan.Status })
	}
	s.oneRuntime()
	return made
}

func (s *simulated) sameStatus(raw []byte) bool {
	have, err := yaml.Marshal(s.activation.Status)
	require.NoError(s.t, err)
	return string(have) == string(raw)
}

func (s *simulated) take(object client.Object) {
	switch object.(type) {
	case *kubeaiv1.Model:
		s.model = nil
	case *appsv1.Deployment:
		s.deployment = nil
	case *corev1.Service:
		s.service = nil
	}
}

func (s *simulated) applyModel(plan Plan) {
	raw, err := plan.Model.MarshalJSON()
	require.NoError(s.t, err)
	next := &kubeaiv1.Model{}
	require.NoError(s.t, yaml.Unmarshal(raw, next))
	if s.model == nil {
		require.Empty(s.t, s.podsOf(false), "a Model is made while a Pod of a direct runtime is there: %v", s.history)
		next.UID, next.Generation = s.uid(), 1
	} else {
		next.UID, next.Generation, next.Status = s.model.UID, s.model.Generation+1, s.model.Status
	}
	kubetest.Own(s.t, next)
	s.model = next
}

func (s *simulated) applyDeployment(plan Plan) {
	next := &appsv1.Deployment{}
	convert(s.t, plan.Deployment, next)
	if s.deployment == nil {
		require.Empty(s.t, s.podsOf(true), "a Deployment is made while a Pod of KubeAI is there: %v", s.history)
		next.UID, next.Generation = s.uid(), 1
	} else {
		next.UID, next.Generation, next.Status = s.deployment.UID, s.deployment.Generation+1, s.deployment.Status
	}
	kubetest.Own(s.t, next)
	s.deployment = next
}

func (s *simulated) replace(plan Plan) {
	pod := plan.Replace
	require.Contains(s.t, []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded}, pod.Status.Phase)
	require.Equal(s.t, s.model.UID, kubeAIOwner(pod).UID)
	require.Equal(s.t, string(pod.UID), *s.activation.Status.PodRecovery.PodUID, "an attempt is written down before it is made")
	revision := s.activation.Status.PodRecovery.Revision
	s.replaced[revision]++
	require.LessOrEqual(s.t, s.replaced[revision], maxRecoveries, s.history)
	s.drop(pod)
}

func (s *simulated) drop(pod *corev1.Pod) {
	s.pods = slices.DeleteFunc(s.pods, func(other *corev1.Pod) bool { return other.UID == pod.UID })
}

func (s *simulated) podsOf(kubeAI bool) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(s.pods), func(pod *corev1.Pod) bool { return (kubeAIOwner(pod) != nil) != kubeAI })
}

// oneRuntime holds after every call (D6).
func (s *simulated) oneRuntime() {
	require.False(s.t, s.model != nil && (s.deployment != nil || s.service != nil), "two runtimes: %v", s.history)
}

// others is one step of KubeAI, of Kubernetes and of its garbage collector.
func (s *simulated) others() {
	for _, pod := range slices.Clone(s.pods) {
		owner := kubeAIOwner(pod)
		orphan := owner != nil && (s.model == nil || s.model.UID != owner.UID) || owner == nil && s.deployment == nil
		switch {
		case pod.DeletionTimestamp != nil, owner == nil && pod.Status.Phase == corev1.PodFailed:
			s.drop(pod) // a ReplicaSet does not count the Failed ones
		case orphan:
			pod.DeletionTimestamp = ptr.To(metav1.NewTime(s.now))
		}
	}
	if s.model != nil {
		own := s.podsOf(true)
		if len(own) == 0 {
			pod := s.newPod()
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubeai.org/v1", Kind: "Model", Name: s.model.Name, UID: s.model.UID, Controller: ptr.To(true)}}
		}
		s.model.Status.Replicas = &kubeaiv1.ModelStatusReplicas{All: int32(len(own)), Ready: int32(len(podGroup{live: own}.ready()))}
	}
	if s.deployment != nil {
		own := s.podsOf(false)
		if len(own) == 0 {
			s.newPod().Labels = map[string]string{labelComponent: componentRuntime, LabelActivation: s.activation.Name}
		}
		ready := int32(len(podGroup{live: own}.ready()))
		s.deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: s.deployment.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: ready}
	}
}

func (s *simulated) newPod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ai", UID: s.uid()}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	pod.Name = string(pod.UID)
	s.pods = append(s.pods, pod)
	return pod
}

func makeReady(pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodPending {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
}

// wishes are the settings that people choose between.
var wishes = []string{
	"{url: 'hf://a/b', computeTarget: cpu}",
	"{url: 'hf://a/b', computeTarget: nvidia-gpu, vram: 4Gi}",
	"{url: 'ollama://a', engine: OLlama, computeTarget: cpu}",
	"{url: 'hf://a/b', engine: FreeToken, freetoken: {gpuDevice: 'box/0000:01:00.0', gpuMemoryMi: 1024, systemMemoryMi: 1024}}",
	"{url: 'hf://a/b', realtime: {profile: omni-cpu, gpuNode: box}}",
	"{preset: no-such-preset}",
}

func (s *simulated) wish(local string) {
	s.activation.Spec.Local = &appliancev1alpha1.ModelActivationSpecLocal{}
	require.NoError(s.t, yaml.UnmarshalStrict([]byte(local), s.activation.Spec.Local))
	s.activation.Generation++
}

// event is something that nobody in the operator controls.
func (s *simulated) event() {
	s.now = s.now.Add(time.Duration(s.random.IntN(40)) * time.Second)
	pick := func(name string, do func()) { s.history = append(s.history, name); do() }
	switch s.random.IntN(16) {
	case 0:
		pick("wish", func() { s.wish(wishes[s.random.IntN(len(wishes))]) })
	case 1:
		pick("switch", func() {
			s.activation.Spec.Enabled = ptr.To(!ptr.Deref(s.activation.Spec.Enabled, true))
			s.activation.Generation++
		})
	case 2:
		pick("Model deleted by hand", func() { s.model = nil })
	case 3:
		pick("Deployment deleted by hand", func() { s.deployment = nil })
	case 4:
		pick("Service deleted by hand", func() { s.service = nil })
	case 5:
		if s.model != nil {
			pick("Model edited by hand", func() { s.model.Spec.URL = "hf://by/hand"; s.model.Generation++ })
		}
	case 6:
		s.gpu = !s.gpu
	case 7:
		s.modules = !s.modules
	case 8:
		s.catalog = !s.catalog
	case 9:
		s.listed = !s.listed
	case 10:
		s.kubeAI = s.kubeAI && s.model != nil || !s.kubeAI // with its CRD the Models would go
	default:
		if len(s.pods) > 0 {
			pod := s.pods[s.random.IntN(len(s.pods))]
			switch s.random.IntN(3) {
			case 0:
				makeReady(pod)
			case 1:
				pick("Pod fails", func() { pod.Status.Phase = corev1.PodFailed; pod.Status.Conditions = nil })
			case 2:
				pick("Pod deleted by hand", func() { pod.DeletionTimestamp = ptr.To(metav1.NewTime(s.now)) })
			}
		}
	}
}

// Whatever happens in whatever order, and wherever the operator dies: one runtime
// at most, no Pod is deleted that should not be, and when the world comes to rest
// the model serves, or nothing of it is left.
func TestAnyOrderOfEvents(t *testing.T) {
	modules, err := catalogs.ParseModules(shipped.ShippedModuleCatalogJSON())
	require.NoError(t, err)
	set := CatalogSet{Catalogs: shippedCatalogs(t), Modules: modules}
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 4)) // #nosec G404 -- the same events for the same seed
		s := &simulated{
			t: t, random: random, set: set, now: planTime, gpu: true, modules: true, kubeAI: true, catalog: true, listed: true,
			replaced: map[string]int{}, activation: &appliancev1alpha1.ModelActivation{ObjectMeta: metav1.ObjectMeta{Name: "chat", Namespace: "ai-system", Generation: 1}},
		}
		s.activation.Spec.Type = "local"
		s.wish(wishes[random.IntN(len(wishes))])
		for range 120 {
			s.event()
			if random.IntN(3) > 0 {
				s.others()
			}
			s.pass(random.IntN(4))
		}
		s.gpu, s.modules, s.kubeAI, s.catalog, s.listed = true, true, true, true, true
		s.wish(wishes[random.IntN(len(wishes)-1)])
		rested := false
		for range 60 {
			s.now = s.now.Add(time.Minute)
			s.others()
			for _, pod := range s.pods {
				makeReady(pod)
			}
			if rested = !s.pass(100); rested && len(s.pods) < 2 && slices.Contains([]appliancev1alpha1.ModelActivationStatusPhase{"Ready", "Disabled"}, s.activation.Status.Phase) {
				break
			}
		}
		require.True(t, rested, "seed %d never rests: %v", seed, s.history)
		if !ptr.Deref(s.activation.Spec.Enabled, true) {
			require.EqualValues(t, "Disabled", s.activation.Status.Phase, "seed %d: %v", seed, s.history)
			require.True(t, s.model == nil && s.deployment == nil && s.service == nil && len(s.pods) == 0)
			continue
		}
		require.EqualValues(t, "Ready", s.activation.Status.Phase, "seed %d: %s: %v", seed, *s.activation.Status.Message, s.history)
		require.Len(t, s.pods, 1)
		require.Nil(t, s.activation.Status.PodCreation)
	}
}
