package activations

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	shipped "magicstick.dev/operator/generated/catalogs"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// Modules answers what is asked of the module catalog; *catalogs.Modules does.
type Modules interface {
	// Resolve finds a module by canonical key or alias.
	Resolve(name string) (catalogs.Module, bool)
}

// World is what can be looked up: the caches of the controller, or a file of a
// test. What does not exist is nil.
type World interface {
	// The activations of modules.
	kube.ModuleLookup
	// Nodes are all nodes. Nobody asks on behalf of an external model.
	Nodes(ctx context.Context) ([]corev1.Node, error)
	// Prepared is the model of spec.local.modelRef. pinned is the artifact that is
	// in service, empty when none is.
	Prepared(ctx context.Context, activation *appliancev1alpha1.ModelActivation, pinned string) (*PreparedModel, error)
	// Model of KubeAI. Nobody asks while the kind is not present.
	Model(ctx context.Context, name types.NamespacedName) (*kubeaiv1.Model, error)
	// Deployment of a direct runtime.
	Deployment(ctx context.Context, name types.NamespacedName) (*appsv1.Deployment, error)
	// Service of a direct runtime.
	Service(ctx context.Context, name types.NamespacedName) (*corev1.Service, error)
	// Pods that were made for the activation, by KubeAI or by a Deployment.
	Pods(ctx context.Context, activation types.NamespacedName, namespace string) ([]*corev1.Pod, error)
	// Listing is what the generated catalog says of the model.
	Listing(ctx context.Context, namespace, model string) (Listing, error)
	// Memory is the last report of the replicas on their memory.
	Memory(activation types.NamespacedName) MemoryReport
}

// Kind says whether objects of a kind that others define can be used.
type Kind struct {
	// Presence of the kind.
	Presence kube.Presence
	// Detail names the missing CRD.
	Detail string
	// TakesOCI tells of KubeAI's Model that it accepts oci:// addresses.
	TakesOCI bool
}

func (k Kind) present() bool { return k.Presence == kube.Present }

// Listing is what the generated catalog says of a model.
type Listing struct {
	// Listed tells that there is an entry.
	Listed bool
	// Why says why there is none, if the catalog knows; may be empty.
	Why string
	// Problem says why the catalog cannot be read; empty when it can.
	Problem string
}

// MemoryReport is what the replicas last said of their memory.
type MemoryReport struct {
	// Usage is nil when none reports any.
	Usage *appliancev1alpha1.ModelActivationStatusMemoryUsage
	// Known is false while nobody was asked yet, as after a restart.
	Known bool
}

// CatalogSet are the catalogs as they are used now.
type CatalogSet struct {
	Catalogs
	// Modules is the module catalog.
	Modules Modules
	// Problem says which catalog cannot be read; the last good ones are used
	// then, where there are any.
	Problem string
}

// usable tells that there is a catalog of every kind.
func (c CatalogSet) usable() bool {
	return c.Presets != nil && c.Engines != nil && c.Realtime != nil && c.Modules != nil
}

// Observed is everything that a plan is computed from.
type Observed struct {
	// Activation as it was read.
	Activation *appliancev1alpha1.ModelActivation
	// CatalogProblem says which catalog cannot be read; empty when all can.
	CatalogProblem string
	// Resolved is the request, nil when it cannot be told; see Resolve.
	Resolved *Resolved
	// Refusal says why it cannot be carried out; nil when it can. Without
	// Resolved and Refusal there was no catalog to look it up in.
	Refusal error
	// Requires has one entry for each module that the request needs, in order.
	Requires []kube.RequiredModule
	// KubeAI tells whether its Models can be used.
	KubeAI Kind
	// Nodes of the cluster; none for external models.
	Nodes []corev1.Node
	// Published is the number of whole devices by extended resource.
	Published map[string]int64

	// Model, Deployment and Service have the names that the runtime of this
	// activation would get; nil when they do not exist. They may be somebody else's.
	Model      *kubeaiv1.Model
	Deployment *appsv1.Deployment
	Service    *corev1.Service
	// Pods of Model and Deployment, also of former ones.
	Pods []*corev1.Pod
	// Listing is what the generated catalog says; empty while no replica is ready.
	Listing Listing
	// Memory is the last report of the replicas.
	Memory MemoryReport

	// Settings that rendering needs.
	Settings Settings
	// Now is the time of the pass.
	Now time.Time
}

// Observe collects what there is to know about one activation, except Settings.
func Observe(ctx context.Context, activation *appliancev1alpha1.ModelActivation, set CatalogSet, namespaces []string, kubeAI Kind, world World, now time.Time) (Observed, error) {
	o := Observed{Activation: activation, CatalogProblem: set.Problem, KubeAI: kubeAI, Now: now}
	if err := o.runtime(ctx, world); err != nil {
		return o, err
	}
	if activation.DeletionTimestamp != nil {
		return o, nil
	}
	if set.usable() {
		if err := o.resolve(ctx, set, namespaces, world); err != nil {
			return o, err
		}
	}
	state := runtimeState(o)
	if state.ready > 0 {
		o.Memory = world.Memory(keyOf(activation))
	}
	if state.ready > 0 || activation.Spec.Type == appliancev1alpha1.ModelActivationSpecTypeExternal {
		var err error
		if o.Listing, err = world.Listing(ctx, targetNamespace(activation), activation.Name); err != nil {
			return o, err
		}
	}
	return o, nil
}

// runtime reads what exists under the names of this activation.
func (o *Observed) runtime(ctx context.Context, world World) (err error) {
	if o.Activation.Spec.Type == appliancev1alpha1.ModelActivationSpecTypeExternal {
		return nil
	}
	name := types.NamespacedName{Namespace: targetNamespace(o.Activation), Name: o.Activation.Name}
	if o.KubeAI.present() {
		if o.Model, err = world.Model(ctx, name); err != nil {
			return err
		}
	}
	direct := types.NamespacedName{Namespace: name.Namespace, Name: RuntimeName(name.Name)}
	if o.Deployment, err = world.Deployment(ctx, direct); err != nil {
		return err
	}
	if o.Service, err = world.Service(ctx, direct); err != nil {
		return err
	}
	o.Pods, err = world.Pods(ctx, keyOf(o.Activation), name.Namespace)
	return err
}

// resolve finds out what is asked for and whether the modules for it are there.
func (o *Observed) resolve(ctx context.Context, set CatalogSet, namespaces []string, world World) (err error) {
	local := o.Activation.Spec.Local
	facts := Facts{Activation: o.Activation, Catalogs: set.Catalogs, Namespaces: namespaces, KubeAITakesOCI: o.KubeAI.TakesOCI}
	if o.Activation.Spec.Type == appliancev1alpha1.ModelActivationSpecTypeLocal {
		if o.Nodes, err = world.Nodes(ctx); err != nil {
			return err
		}
		facts.Published = PublishedResources(o.Nodes, resourcesOf(set.Engines))
	}
	if local != nil && local.ModelRef != nil {
		if facts.Prepared, err = world.Prepared(ctx, o.Activation, o.pinned()); err != nil {
			return err
		}
	}
	o.Published = facts.Published
	o.Resolved, o.Refusal = Resolve(facts)
	if o.Resolved == nil {
		return nil
	}
	return o.requirements(ctx, set.Modules, world)
}

func (o *Observed) requirements(ctx context.Context, modules Modules, world World) (err error) {
	for _, name := range o.Resolved.Modules {
		required := kube.RequiredModule{Key: name}
		if module, found := modules.Resolve(name); found {
			required = kube.RequiredModule{Key: module.Key, Known: true, Static: module.Static}
			if !module.Static {
				askedAs := append([]string{module.Key}, module.Aliases...)
				if required.Activation, required.NameTaken, err = kube.FindActivation(ctx, module.Key, askedAs, world); err != nil {
					return err
				}
			}
		}
		o.Requires = append(o.Requires, required)
	}
	return nil
}

// pinned is the digest of the prepared model that is in service. It holds as
// long as the runtime serves the same model: an activation that names another
// one takes what that has now.
func (o *Observed) pinned() string {
	want := preparedName(o.Activation.Spec.Local.ModelRef)
	for _, annotations := range []map[string]string{annotationsOf(o.Model), annotationsOf(o.Deployment)} {
		if annotations[AnnotationModelRef] == want {
			return o.Activation.Status.ArtifactDigest
		}
	}
	return ""
}

// resourcesOf are the extended resources of all targets.
func resourcesOf(engines *catalogs.Engines) []string {
	var names []string
	for _, target := range []shipped.ComputeTarget{
		shipped.ComputeTargetNvidiaGPU, shipped.ComputeTargetAmdGPU, shipped.ComputeTargetIntelGPU,
	} {
		found, _ := engines.Target(target)
		names = append(names, found.Resources...)
	}
	return names
}

func keyOf(activation *appliancev1alpha1.ModelActivation) types.NamespacedName {
	return types.NamespacedName{Namespace: activation.Namespace, Name: activation.Name}
}
