package instances

import (
	"context"
	"fmt"
	"slices"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// Applications answers what is asked of the application catalog;
// *catalogs.Applications does.
type Applications interface {
	// Get finds an application by key.
	Get(key string) (catalogs.Application, bool)
}

// Modules answers what is asked of the module catalog; *catalogs.Modules does.
type Modules interface {
	// Resolve finds a module by canonical key or alias.
	Resolve(name string) (catalogs.Module, bool)
}

// Settings are the names that an installation may choose.
type Settings struct {
	// IdentityNamespace holds the gateway, its routes and policies, Keycloak and the guard.
	IdentityNamespace string
	// Gateway is the name of the Gateway.
	Gateway string
	// OIDCClientID and OIDCClientSecret, a Secret's name, are the client of people's sign-in.
	OIDCClientID, OIDCClientSecret string
	// Domains apply where the appliance's settings say nothing.
	Domains kube.Domains
	// Reserved are the namespaces of the platform under the names of this
	// installation. No instance may run in one: its Service would stand beside
	// Keycloak, the gateway or Flux, and its routes could lead to theirs.
	Reserved []string
}

// reserved says why no instance may run in a namespace, empty when it may. The
// names of a standard installation are refused by the schema already.
func (s Settings) reserved(namespace string) string {
	if !slices.Contains(s.Reserved, namespace) {
		return ""
	}
	return fmt.Sprintf("targetNamespace: %s is a namespace of the platform, in which no instance may run; create another AppInstance in a namespace of its own, for example ai.", namespace)
}

// World is what can be looked up, the caches of the controller or a file of a
// test. What does not exist is nil.
type World interface {
	// Missing says why objects of a CRD cannot exist yet, empty when they can.
	Missing(ctx context.Context, crd string) (string, error)
	kube.ModuleLookup
	// Namesakes are the instances of the application with that short name.
	Namesakes(ctx context.Context, application, short string) ([]*appliancev1alpha1.AppInstance, error)
	// Namespace of that name.
	Namespace(ctx context.Context, name string) (*corev1.Namespace, error)
	// Release of that name, in the Appliance's namespace.
	Release(ctx context.Context, name string) (*helmv2.HelmRelease, error)
	// Route of that name, in the gateway's namespace.
	Route(ctx context.Context, name string) (*gatewayv1.HTTPRoute, error)
	// Policy of that name, in the gateway's namespace.
	Policy(ctx context.Context, name string) (*envoyv1alpha1.SecurityPolicy, error)
	// Grant of that name in a namespace.
	Grant(ctx context.Context, namespace, name string) (*gatewayv1beta1.ReferenceGrant, error)
}

// Kind says whether objects of a kind that others define can be used.
type Kind struct {
	Presence kube.Presence
	// Detail names the missing CRD.
	Detail string
}

func (k Kind) present() bool { return k.Presence == kube.Present }

// KindFacts are the kinds that every instance needs.
type KindFacts struct{ Release, Route, Policy, Grant Kind }

func (k KindFacts) all() []Kind { return []Kind{k.Release, k.Route, k.Policy, k.Grant} }

// Facts is everything that a plan is computed from.
type Facts struct {
	Instance *appliancev1alpha1.AppInstance
	// CatalogError says why a catalog cannot be read; Application is nil then.
	CatalogError string
	// Application is nil when the catalog does not have it.
	Application *catalogs.Application
	// Short is the instance's short name, NameProblem what is wrong with it.
	Short       string
	NameProblem string
	// Rival is the older instance with the same host names, nil when there is none.
	Rival *appliancev1alpha1.AppInstance
	// Requires has one entry per required module, in the order of the catalog.
	Requires []kube.RequiredModule
	// MissingCRDs are sentences, one per CRD that the application needs and that is not there.
	MissingCRDs []string
	// Namespace is the target, nil when it does not exist.
	Namespace *corev1.Namespace
	Kinds     KindFacts

	Release *helmv2.HelmRelease
	// Routes and Policies that exist, by name.
	Routes   map[string]*gatewayv1.HTTPRoute
	Policies map[string]*envoyv1alpha1.SecurityPolicy
	Grant    *gatewayv1beta1.ReferenceGrant

	Source   kube.Source
	Domains  kube.Domains
	Settings Settings
	Now      time.Time
}

// Catalogs are the two catalogs as they are read now, or why they cannot be.
type Catalogs struct {
	Applications Applications
	Modules      Modules
	Problem      error
}

// Observe collects the facts of one instance, except Source, Domains, Settings and Now.
func Observe(ctx context.Context, instance *appliancev1alpha1.AppInstance, catalogs Catalogs, kinds KindFacts, world World) (Facts, error) {
	facts := Facts{
		Instance: instance, Kinds: kinds, Source: kube.DefaultSource, Domains: kube.DefaultDomains,
		Routes: map[string]*gatewayv1.HTTPRoute{}, Policies: map[string]*envoyv1alpha1.SecurityPolicy{},
	}
	short, problem := kube.InstanceShortName(instance)
	facts.Short = short
	if problem != nil {
		facts.NameProblem = problem.Error()
	}
	if catalogs.Problem != nil {
		facts.CatalogError = catalogs.Problem.Error()
	} else if application, found := catalogs.Applications.Get(instance.Spec.Application); found {
		facts.Application = &application
		if err := facts.requirements(ctx, catalogs.Modules, world); err != nil {
			return facts, err
		}
	}
	namesakes, err := world.Namesakes(ctx, instance.Spec.Application, short)
	if err != nil {
		return facts, err
	}
	facts.Rival = rival(instance, namesakes)
	if facts.Namespace, err = world.Namespace(ctx, targetNamespace(instance)); err != nil {
		return facts, err
	}
	return facts, facts.children(ctx, world)
}

func (f *Facts) requirements(ctx context.Context, modules Modules, world World) error {
	for _, crd := range f.Application.RequiredCRDs {
		missing, err := world.Missing(ctx, crd)
		if err != nil {
			return err
		}
		if missing != "" {
			f.MissingCRDs = append(f.MissingCRDs, missing)
		}
	}
	for _, name := range f.Application.RequiredModules {
		requirement := kube.RequiredModule{Key: name}
		if module, found := modules.Resolve(name); found {
			requirement = kube.RequiredModule{Key: module.Key, Known: true, Static: module.Static}
			askedAs := append([]string{module.Key}, module.Aliases...)
			var err error
			if requirement.Activation, requirement.NameTaken, err = kube.FindActivation(ctx, module.Key, askedAs, world); err != nil {
				return err
			}
		}
		f.Requires = append(f.Requires, requirement)
	}
	return nil
}

// children reads what exists on behalf of the instance. All names follow from
// the instance's own, which cannot change.
func (f *Facts) children(ctx context.Context, world World) error {
	name := f.Instance.Name
	var err error
	if f.Kinds.Release.present() {
		if f.Release, err = world.Release(ctx, name); err != nil {
			return err
		}
	}
	for _, suffix := range []string{suffixLocal, suffixPublic} {
		if f.Kinds.Route.present() {
			for _, route := range []string{objectName(name, suffix), objectName(name, suffix+suffixCallback)} {
				found, err := world.Route(ctx, route)
				if err != nil {
					return err
				}
				if found != nil {
					f.Routes[route] = found
				}
			}
		}
		if f.Kinds.Policy.present() {
			policy := objectName(name, suffix+suffixPolicy)
			found, err := world.Policy(ctx, policy)
			if err != nil {
				return err
			}
			if found != nil {
				f.Policies[policy] = found
			}
		}
	}
	if f.Kinds.Grant.present() {
		if f.Grant, err = world.Grant(ctx, targetNamespace(f.Instance), objectName(name, suffixGrant)); err != nil {
			return fmt.Errorf("reading the grant of %s: %w", name, err)
		}
	}
	return nil
}

// rival is the oldest other instance with the same host names, when it is older.
func rival(instance *appliancev1alpha1.AppInstance, namesakes []*appliancev1alpha1.AppInstance) *appliancev1alpha1.AppInstance {
	oldest := instance
	for _, candidate := range namesakes {
		if candidate.Name != instance.Name && kube.Older(candidate, oldest) {
			oldest = candidate
		}
	}
	if oldest == instance {
		return nil
	}
	return oldest
}

// targetNamespace is where the application runs; the schema fills it in.
func targetNamespace(instance *appliancev1alpha1.AppInstance) string {
	if instance.Spec.TargetNamespace == "" {
		return "ai"
	}
	return instance.Spec.TargetNamespace
}
