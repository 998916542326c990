package activations

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	shipped "magicstick.dev/operator/generated/catalogs"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/kube"
)

// +kubebuilder:rbac:groups="",namespace=flux-system,resources=configmaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",namespace=ai,resources=configmaps,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Pauses around writes of the profiles: KubeAI starts again after each of them
// (contract/appliance.md H17).
const (
	// DefaultProfilesQuiet is how long nothing must have changed before a write.
	DefaultProfilesQuiet = 2 * time.Second
	// DefaultProfilesInterval lies between two writes; changes that never end are
	// written as often.
	DefaultProfilesInterval = 10 * time.Second
)

// labelFluxOwner is on objects that Flux applies: those are not ours to write.
const labelFluxOwner = "kustomize.toolkit.fluxcd.io/name"

// Profiles keeps the two ConfigMaps that KubeAI is set up with: the resource
// profiles, and the programs around model servers. It begins when KubeAI is asked
// for, and takes back what is changed by hand.
//
// A profile that a KubeAI Model names stays, also when no activation asks for it
// any more: without it KubeAI makes no Pod.
type Profiles struct {
	// Activations knows what activations ask for.
	Activations *Reconciler
	// Children writes the ConfigMaps.
	Children *kube.Children
	// Namespace of the profiles: Flux's.
	Namespace string
	// Quiet and Interval are the pauses; the defaults when 0.
	Quiet, Interval time.Duration

	pace pace

	mutex sync.Mutex
	// last are the profiles as this process wrote or found them last.
	last map[string]*Profile
}

func (r *Profiles) profilesName() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: ProfilesConfigMap}
}

func (r *Profiles) wrapperName() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Activations.Namespaces[0], Name: WrapperConfigMap}
}

// Reconcile makes one pass over one of the two ConfigMaps.
func (r *Profiles) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.NamespacedName == r.wrapperName() {
		return kube.Outcome(ctx, r.keepWrapper(ctx))
	}
	// What comes in from here on is news for the next look.
	if wait := r.pace.wait(r.Activations.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r.pace.looked()
	return kube.Outcome(ctx, r.keepProfiles(ctx))
}

func (r *Profiles) keepWrapper(ctx context.Context) error {
	wanted, err := r.wanted(ctx)
	if err != nil {
		return err
	}
	_, err = r.keep(ctx, r.wrapperName(), WrapperDocument(r.wrapperName().Namespace), wanted)
	return err
}

func (r *Profiles) keepProfiles(ctx context.Context) error {
	set := r.Activations.Catalogs.ModelCatalogs(ctx)
	if !set.usable() {
		return nil // what is there stays; the catalogs are watched
	}
	inUse, err := r.inUse(ctx, set)
	if err != nil {
		return err
	}
	wanted, err := r.wanted(ctx)
	if err != nil {
		return err
	}
	current := &corev1.ConfigMap{}
	if _, err := r.Children.Get(ctx, r.profilesName(), current); err != nil {
		return err
	}
	kept, err := r.kept(ctx, set, inUse, current.Data[ProfilesKey])
	if err != nil {
		return err
	}
	all := slices.Concat(kept, inUse)
	document, err := ProfilesDocument(r.Namespace, set.Engines, all)
	if err != nil {
		return err
	}
	wrote, err := r.keep(ctx, r.profilesName(), document, wanted || len(inUse) > 0)
	if wrote {
		r.pace.written(r.Activations.Now())
		log.FromContext(ctx).Info("wrote KubeAI's resource profiles, KubeAI starts again", "inUse", len(inUse), "kept", len(kept))
	}
	if err == nil {
		r.remember(all)
	}
	return err
}

// wanted tells whether somebody asked for KubeAI, or for something that needs it.
func (r *Profiles) wanted(ctx context.Context) (bool, error) {
	names := []string{moduleKubeAI}
	if modules := r.Activations.Catalogs.ModelCatalogs(ctx).Modules; modules != nil {
		if module, known := modules.Resolve(moduleKubeAI); known {
			names = append([]string{module.Key}, module.Aliases...)
		}
	}
	activations, err := kube.ModuleActivations(ctx, r.Activations.Client, r.Activations.Appliance.Namespace, names...)
	return len(activations) > 0, err
}

// keep writes a ConfigMap that is there, or wanted, and says something else. What
// Flux applies is left alone, and a namespace that is not there is waited for.
func (r *Profiles) keep(ctx context.Context, name types.NamespacedName, desired *corev1ac.ConfigMapApplyConfiguration, wanted bool) (wrote bool, err error) {
	current := &corev1.ConfigMap{}
	found, err := r.Children.Get(ctx, name, current)
	switch {
	case err != nil:
		return false, err
	case !found && !wanted:
		return false, nil
	case found && current.Labels[labelFluxOwner] != "":
		log.FromContext(ctx).V(1).Info("a ConfigMap is applied by Flux and left alone", "configMap", name)
		return false, nil
	case found && says(current, desired):
		return false, nil
	}
	if !found {
		err := r.Activations.Foreign.Get(ctx, types.NamespacedName{Name: name.Namespace}, &corev1.Namespace{}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
	}
	// The cache keeps no managed fields of ConfigMaps; the comparison is made above.
	return r.Children.Apply(ctx, desired, name, current, nil)
}

// says compares what is rendered with what is there. Further labels and keys do
// no harm.
func says(current *corev1.ConfigMap, desired *corev1ac.ConfigMapApplyConfiguration) bool {
	for key, value := range desired.Data {
		if got, found := current.Data[key]; !found || got != value {
			return false
		}
	}
	for key, value := range desired.Labels {
		if got, found := current.Labels[key]; !found || got != value {
			return false
		}
	}
	return true
}

// inUse are the profiles of the activations that are switched on and can be
// carried out, in the order of their names.
func (r *Profiles) inUse(ctx context.Context, set CatalogSet) ([]*Profile, error) {
	list := &appliancev1alpha1.ModelActivationList{}
	err := r.Activations.Client.List(ctx, list, client.InNamespace(r.Activations.Appliance.Namespace), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil, fmt.Errorf("listing the activations whose resource profiles KubeAI needs: %w", err)
	}
	world := r.Activations.world()
	nodes, err := world.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	facts := Facts{Catalogs: set.Catalogs, Namespaces: r.Activations.Namespaces, Published: PublishedResources(nodes, resourcesOf(set.Engines))}
	if presence, _ := r.Activations.Kinds.Presence(ctx, kubeAIKind.CRD); presence == kube.Present {
		if facts.KubeAITakesOCI, err = r.Activations.takesOCI(ctx); err != nil {
			return nil, err
		}
	}
	profiles := map[string]*Profile{}
	for i := range list.Items {
		facts.Activation, facts.Prepared = &list.Items[i], nil
		if !asks(facts.Activation) {
			continue
		}
		if facts.Activation.Spec.Local != nil && facts.Activation.Spec.Local.ModelRef != nil {
			if facts.Prepared, err = world.Prepared(ctx, facts.Activation, facts.Activation.Status.ArtifactDigest); err != nil {
				return nil, err
			}
		}
		if resolved, refusal := Resolve(facts); refusal == nil && resolved.Profile != nil {
			profiles[resolved.Profile.Name] = resolved.Profile
		}
	}
	return inOrder(profiles), nil
}

// asks tells whether an activation may ask for a profile.
func asks(activation *appliancev1alpha1.ModelActivation) bool {
	return activation.DeletionTimestamp == nil && ptr.Deref(activation.Spec.Enabled, true) &&
		activation.Spec.Type == appliancev1alpha1.ModelActivationSpecTypeLocal
}

// kept are the profiles that no activation asks for and that KubeAI's Models still
// name. While nobody knows the Models, all that are there stay.
func (r *Profiles) kept(ctx context.Context, set CatalogSet, inUse []*Profile, text string) ([]*Profile, error) {
	known := r.known(text)
	presence, _ := r.Activations.Kinds.Presence(ctx, kubeAIKind.CRD)
	switch presence {
	case kube.Absent:
		return nil, nil
	case kube.Present:
	default:
		return left(known, set, inUse, func(string) bool { return true }), nil
	}
	named := map[string]bool{}
	for _, namespace := range r.Activations.Namespaces {
		list := &kubeaiv1.ModelList{}
		if err := r.Activations.Foreign.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing KubeAI's Models for the resource profiles that they name: %w", err)
		}
		for i := range list.Items {
			if spec := list.Items[i].Spec; spec != nil {
				name, _, _ := strings.Cut(spec.ResourceProfile, ":")
				named[name] = true
			}
		}
	}
	return left(known, set, inUse, func(name string) bool { return named[name] }), nil
}

// left are the known profiles that pass and that are neither default nor in use.
func left(known map[string]*Profile, set CatalogSet, inUse []*Profile, pass func(string) bool) []*Profile {
	given, images := map[string]bool{}, map[string]bool{}
	for _, profile := range slices.Concat(DefaultProfiles(set.Engines), inUse) {
		given[profile.Name] = true
		if profile.Image != "" {
			images[string(profile.Engine)+" "+profile.Spec.ImageName] = true
		}
	}
	found := map[string]*Profile{}
	for name, profile := range known {
		if given[name] || !pass(name) {
			continue
		}
		if images[string(profile.Engine)+" "+profile.Spec.ImageName] {
			profile.Image = "" // the catalog knows better by now
		}
		found[name] = profile
	}
	return inOrder(found)
}

// known are the profiles of the present document whose name fits what they say,
// which a hand may have changed, and those that this process knows of.
func (r *Profiles) known(text string) map[string]*Profile {
	known := map[string]*Profile{}
	r.mutex.Lock()
	for name, profile := range r.last {
		known[name] = ptr.To(*profile)
	}
	r.mutex.Unlock()
	for name, profile := range parseProfiles(text) {
		if known[name] == nil {
			known[name] = profile
		}
	}
	return known
}

func (r *Profiles) remember(profiles []*Profile) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.last = map[string]*Profile{}
	for _, profile := range profiles {
		r.last[profile.Name] = profile
	}
}

// parseProfiles reads what KubeAIValues wrote. A text that is none has no
// profiles, and one whose name does not tell its content is left out.
func parseProfiles(text string) map[string]*Profile {
	var values kubeAIValues
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		return nil
	}
	profiles := map[string]*Profile{}
	for name, spec := range values.ResourceProfiles {
		if !strings.HasSuffix(name, "-"+spec.hash()) {
			continue
		}
		profile := &Profile{Name: name, Count: 1, Spec: spec}
		for _, engine := range []shipped.Engine{shipped.EngineVLLM, shipped.EngineOLlama} {
			if image := values.ModelServers[string(engine)]["images"][spec.ImageName]; image != "" {
				profile.Engine, profile.Image = engine, image
			}
		}
		profiles[name] = profile
	}
	return profiles
}

// inOrder lists profiles by name.
func inOrder(profiles map[string]*Profile) []*Profile {
	list := make([]*Profile, 0, len(profiles))
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		list = append(list, profiles[name])
	}
	return list
}
