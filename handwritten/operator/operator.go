package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	aiv1alpha1 "magicstick.dev/operator/generated/apis/ai/v1alpha1"
	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	kubeaiv1 "magicstick.dev/operator/generated/external/kubeai/v1"
	"magicstick.dev/operator/handwritten/activations"
	"magicstick.dev/operator/handwritten/appliance"
	"magicstick.dev/operator/handwritten/instances"
	"magicstick.dev/operator/handwritten/kube"
	"magicstick.dev/operator/handwritten/modelindex"
	"magicstick.dev/operator/handwritten/modules"
	"magicstick.dev/operator/handwritten/tenants"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=ai-system,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",namespace=ai-system,resources=events,verbs=create;patch

// LeaseName is the name of the Lease in the Appliance's namespace.
const LeaseName = "magicstick-operator"

// Scheme knows every kind that the operator reads or writes.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, appliancev1alpha1.Install, kustomizev1.AddToScheme,
		helmv2.AddToScheme, gatewayv1.Install, gatewayv1beta1.Install, envoyv1alpha1.AddToScheme,
		kubeaiv1.Install, aiv1alpha1.Install,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering API types: %w", err)
		}
	}
	return scheme, nil
}

// New builds a manager with all controllers; start it with its Start. The
// CRDs of the appliance group must be installed before that, everything else
// may come later or be missing.
func New(ctx context.Context, connection *rest.Config, options Options) (manager.Manager, error) {
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("checking the options of the operator: %w", err)
	}
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	connection = rest.CopyConfig(connection)
	if connection.QPS == 0 {
		// The API server's priority and fairness does this job better.
		connection.QPS = -1
	}
	connection.UserAgent = rest.DefaultKubernetesUserAgent() + " " + kube.FieldManager
	mgr, err := ctrl.NewManager(connection, manager.Options{
		Scheme:                        scheme,
		MapperProvider:                kube.OptionalMapper(scheme, slices.Concat(instances.OptionalKinds(), activations.OptionalKinds(), []kube.OptionalKind{modules.KustomizationKind(), modelindex.AgentTemplateKind()})...),
		Cache:                         cacheOptions(options),
		Client:                        client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Controller:                    config.Controller{SkipNameValidation: ptr.To(true)},
		LeaderElection:                options.LeaderElection,
		LeaderElectionID:              LeaseName,
		LeaderElectionNamespace:       options.Appliance.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &options.LeaseDuration,
		// The proportions of controller-runtime's defaults: 15 s, 10 s, 2 s.
		RenewDeadline:           ptr.To(options.LeaseDuration * 2 / 3),
		RetryPeriod:             ptr.To(options.LeaseDuration * 2 / 15),
		Metrics:                 metricsserver.Options{BindAddress: options.MetricsAddress},
		HealthProbeBindAddress:  options.ProbeAddress,
		GracefulShutdownTimeout: &options.ShutdownTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("building the operator: %w", err)
	}
	if err := controllers(ctx, mgr, connection, options); err != nil {
		return nil, err
	}
	return mgr, probes(mgr)
}

// cacheOptions keep in memory only what is read: the namespaces that the
// operator works in, and of CRDs no schema.
func cacheOptions(options Options) cache.Options {
	in := func(namespaces ...string) map[string]cache.Config {
		found := map[string]cache.Config{}
		for _, namespace := range namespaces {
			found[namespace] = cache.Config{}
		}
		return found
	}
	own, models := in(options.Appliance.Namespace), in(options.ModelNamespace)
	made := labels.SelectorFromSet(labels.Set{kube.LabelManagedBy: kube.ManagedByOperator})
	drop := cache.TransformStripManagedFields()
	return cache.Options{
		// A read of a kind that nobody watches is a mistake: it would start a
		// watch behind our back, and wait for ever when the CRD is absent.
		ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{
			&appliancev1alpha1.Appliance{}:              {Namespaces: own, Transform: drop},
			&appliancev1alpha1.ModuleActivation{}:       {Namespaces: own, Transform: drop},
			&appliancev1alpha1.AppInstance{}:            {Namespaces: own, Transform: drop},
			&appliancev1alpha1.ModelActivation{}:        {Namespaces: own, Transform: drop},
			&corev1.ConfigMap{}:                         {Namespaces: in(catalogNamespaces(options)...), Transform: drop},
			&corev1.Node{}:                              {Transform: activations.StripNode},
			&corev1.Pod{}:                               {Namespaces: models, Transform: activations.StripPod},
			&corev1.Service{}:                           {Namespaces: models, Transform: kube.KeepOwnManagedFields},
			&appsv1.Deployment{}:                        {Namespaces: models, Transform: kube.KeepOwnManagedFields},
			&kubeaiv1.Model{}:                           {Namespaces: models, Transform: kube.KeepOwnManagedFields},
			&aiv1alpha1.Model{}:                         {Namespaces: models, Transform: drop},
			modelindex.AgentTemplateKind().Prototype:    {Namespaces: models, Transform: drop},
			&aiv1alpha1.ClusterModel{}:                  {Transform: drop},
			&corev1.Namespace{}:                         {Transform: drop},
			&helmv2.HelmRelease{}:                       {Namespaces: own, Transform: kube.KeepOwnManagedFields},
			&gatewayv1.HTTPRoute{}:                      {Namespaces: in(options.IdentityNamespace), Transform: kube.KeepOwnManagedFields},
			&envoyv1alpha1.SecurityPolicy{}:             {Namespaces: in(options.IdentityNamespace), Transform: kube.KeepOwnManagedFields},
			&gatewayv1beta1.ReferenceGrant{}:            {Label: made, Transform: kube.KeepOwnManagedFields},
			&networkingv1.NetworkPolicy{}:               {Label: made, Transform: kube.KeepOwnManagedFields},
			&corev1.ResourceQuota{}:                     {Label: made, Transform: kube.KeepOwnManagedFields},
			&corev1.LimitRange{}:                        {Label: made, Transform: kube.KeepOwnManagedFields},
			&kustomizev1.Kustomization{}:                {Namespaces: in(options.FluxNamespace), Transform: kube.KeepOwnManagedFields},
			&apiextensionsv1.CustomResourceDefinition{}: {Transform: activations.StripCRD},
		},
	}
}

// catalogNamespaces hold the ConfigMaps that are read.
func catalogNamespaces(options Options) []string {
	return []string{
		options.ModuleCatalog.Namespace, options.ApplicationCatalog.Namespace, options.FluxNamespace,
		options.ModelPresets.Namespace, options.EngineCatalog.Namespace, options.RealtimeProfiles.Namespace, options.ModelNamespace,
	}
}

func controllers(ctx context.Context, mgr manager.Manager, connection *rest.Config, options Options) error {
	if err := kube.IndexModuleActivations(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := instances.IndexInstances(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	// Objects of others are read without waiting for our writes: their CRD, and
	// with it the watch that would end the wait, may go away at any time.
	foreign, err := client.New(connection, client.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return fmt.Errorf("building the client for the objects of others: %w", err)
	}
	kinds, err := kube.NewOptionalKinds(mgr, foreign)
	if err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder(kube.FieldManager)
	catalogs := newShipped(foreign, options)
	moduleReconciler := &modules.Reconciler{
		Client: mgr.GetClient(), Foreign: foreign, Live: mgr.GetAPIReader(),
		Children: kube.NewChildren(foreign), Kinds: kinds, Catalogs: moduleCatalogs{catalogs},
		Appliance: options.Appliance,
		Settings:  modules.Settings{FluxNamespace: options.FluxNamespace, SettingsConfigMap: options.SettingsConfigMap},
		Recorder:  recorder, Now: options.Now,
	}
	if err := moduleReconciler.Setup(mgr, kinds, options.ModuleCatalog); err != nil {
		return err
	}
	settings := types.NamespacedName{Namespace: options.FluxNamespace, Name: options.SettingsConfigMap}
	instanceReconciler := &instances.Reconciler{
		Client: mgr.GetClient(), Foreign: foreign, Live: mgr.GetAPIReader(),
		Children: kube.NewChildren(foreign), Kinds: kinds, Catalogs: instanceCatalogs{catalogs},
		Domains: domains{reader: foreign, name: settings, defaults: options.Domains}, Appliance: options.Appliance,
		Settings: instances.Settings{
			IdentityNamespace: options.IdentityNamespace, Gateway: options.Gateway,
			OIDCClientID: options.OIDCClientID, OIDCClientSecret: options.OIDCClientSecret,
			Reserved: []string{options.Appliance.Namespace, options.FluxNamespace, options.IdentityNamespace},
		},
		Recorder: recorder, Now: options.Now,
	}
	if err := instanceReconciler.Setup(mgr, kinds, options.ModuleCatalog, options.ApplicationCatalog, settings); err != nil {
		return err
	}
	if err := models(ctx, mgr, foreign, kinds, catalogs, options); err != nil {
		return err
	}
	indexReconciler := &modelindex.Reconciler{
		Client: mgr.GetClient(), Foreign: foreign, Live: mgr.GetAPIReader(), Children: kube.NewChildren(foreign), Kinds: kinds,
		Appliance: options.Appliance, Settings: options.indexSettings(), Recorder: recorder, Now: options.Now,
	}
	if err := indexReconciler.Setup(mgr, kinds); err != nil {
		return err
	}
	tenantReconciler := &tenants.Reconciler{Client: foreign, Children: kube.NewChildren(foreign), Namespace: options.Appliance.Namespace}
	if err := tenantReconciler.Setup(mgr); err != nil {
		return err
	}
	applianceReconciler := &appliance.Reconciler{
		Client: mgr.GetClient(), Catalogs: applianceCatalogs{catalogs}, Name: options.Appliance,
		Recorder: recorder, Now: options.Now,
	}
	return applianceReconciler.Setup(mgr, options.ModuleCatalog, options.ApplicationCatalog)
}

// models adds the controller of model activations and what it listens to.
func models(ctx context.Context, mgr manager.Manager, foreign client.Client, kinds *kube.OptionalKinds, catalogs *shipped, options Options) error {
	if err := activations.IndexPods(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	reconciler := &activations.Reconciler{
		Client: mgr.GetClient(), Foreign: foreign, Children: kube.NewChildren(foreign), Kinds: kinds,
		Catalogs: modelCatalogs{catalogs}, Appliance: options.Appliance,
		Namespaces: []string{options.ModelNamespace}, Index: options.ModelIndex, Registry: options.ModelRegistry,
		Settings: activations.Settings{ModelCache: options.ModelCache, HuggingFaceSecret: options.HuggingFaceSecret},
		Recorder: mgr.GetEventRecorder(kube.FieldManager), Now: options.Now,
	}
	var trigger *kube.Trigger
	sampler := activations.NewSampler(func(activation types.NamespacedName) {
		trigger.Enqueue(reconcile.Request{NamespacedName: activation})
	}, activations.SamplerOptions{})
	reconciler.Memory = sampler
	trigger, err := reconciler.Setup(mgr, kinds, options.ModuleCatalog, options.ModelPresets, options.EngineCatalog, options.RealtimeProfiles)
	if err != nil {
		return err
	}
	if err := mgr.Add(sampler); err != nil {
		return fmt.Errorf("adding the sampler of memory: %w", err)
	}
	inUse := &activations.InUse{
		Client: mgr.GetClient(), Foreign: foreign, Children: kube.NewChildren(foreign), Kinds: kinds,
		Namespace: options.Appliance.Namespace, Namespaces: reconciler.Namespaces, Recorder: reconciler.Recorder,
	}
	if err := inUse.Setup(mgr, kinds); err != nil {
		return err
	}
	profiles := &activations.Profiles{
		Activations: reconciler, Children: kube.NewChildren(foreign), Namespace: options.FluxNamespace,
		Quiet: options.ProfilesQuiet, Interval: options.ProfilesInterval,
	}
	return profiles.Setup(mgr, kinds, options.ModuleCatalog, options.ModelPresets, options.EngineCatalog, options.RealtimeProfiles)
}

// probes: alive when the process answers, ready when the caches are filled. A
// process that waits for the lease is ready: it could take over.
func probes(mgr manager.Manager) error {
	if err := mgr.AddHealthzCheck("alive", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health probe: %w", err)
	}
	filled := func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not filled yet")
		}
		return nil
	}
	if err := mgr.AddReadyzCheck("caches", filled); err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	return nil
}
