package dev

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"magicstick.dev/operator/handwritten/controlplane"
	"magicstick.dev/operator/handwritten/modelindex"
)

const (
	// redraw bounds how often the table changes on a terminal, reprint elsewhere.
	redraw  = 300 * time.Millisecond
	reprint = 3 * time.Second
	// settle is how long nothing may have changed for Once to be satisfied.
	settle = 2 * time.Second
)

// tableKind is a kind that the table lists.
type tableKind struct {
	schema.GroupVersionKind

	resource string
}

func ours(group, kind, resource string) tableKind {
	return tableKind{schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: kind}, resource}
}

// tableKinds are in the order of the table.
var tableKinds = []tableKind{
	ours("appliance.magicstick.dev", "Appliance", "appliances"),
	ours("appliance.magicstick.dev", "ModuleActivation", "moduleactivations"),
	{schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}, "kustomizations"},
	{schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}, "gitrepositories"},
	ours("appliance.magicstick.dev", "AppInstance", "appinstances"),
	{schema.GroupVersionKind{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"}, "helmreleases"},
	{schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}, "httproutes"},
	{schema.GroupVersionKind{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "SecurityPolicy"}, "securitypolicies"},
	ours("appliance.magicstick.dev", "ModelActivation", "modelactivations"),
	{schema.GroupVersionKind{Version: "v1", Kind: indexKind}, "configmaps"},
	ours("appliance.magicstick.dev", "HostOperation", "hostoperations"),
	ours("appliance.magicstick.dev", "ApplianceSetup", "appliancesetups"),
	ours("ai.deckhouse.io", "Model", "models"),
	ours("ai.deckhouse.io", "ClusterModel", "clustermodels"),
	ours("ai.deckhouse.io", "ModelCatalogSource", "modelcatalogsources"),
}

// show keeps the table up to date until ctx ends, Once is satisfied, or a part
// fails.
func (s *session) show(ctx context.Context) error {
	objects, err := s.watch(ctx)
	if err != nil {
		return err
	}
	if !s.Once {
		s.nextSteps()
	}
	failed := s.watchFailures(ctx)
	interval := reprint
	if s.out.size != nil {
		interval = redraw
	}
	if s.Once {
		interval = redraw
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	deadline := time.NewTimer(s.Timeout)
	defer deadline.Stop()
	var shown []row
	lastChange := time.Now()
	for first := true; ; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-deadline.C:
			if s.Once {
				return s.timedOut(objects())
			}
			continue
		case <-ticker.C:
		}
		current := objects()
		rows := makeRows(current)
		if first || !slices.Equal(rows, shown) {
			lastChange, shown, first = time.Now(), rows, false
			if !s.Once {
				s.out.table(cells(rows))
			}
		}
		if s.Once && time.Since(lastChange) >= settle && len(pending(current, s.settles())) == 0 {
			s.out.table(cells(rows))
			return nil
		}
	}
}

func (s *session) timedOut(objects []*unstructured.Unstructured) error {
	s.out.table(cells(makeRows(objects)))
	waiting := pending(objects, s.settles())
	if len(waiting) == 0 {
		return fmt.Errorf("waiting for convergence: objects still changed after %s", s.Timeout)
	}
	return fmt.Errorf("waiting for convergence: not at rest after %s: %s", s.Timeout, strings.Join(waiting, ", "))
}

// settles tells whether somebody makes Kustomizations ready.
func (s *session) settles() bool { return s.Flux || s.StandIns }

// watchFailures gives the first failure of a part that should go on running.
func (s *session) watchFailures(ctx context.Context) <-chan error {
	failed := make(chan error, len(s.failures))
	for _, part := range s.failures {
		go func() {
			select {
			case <-part.ended:
				if err := part.reason(); err != nil {
					failed <- err
				}
			case <-ctx.Done():
			}
		}()
	}
	return failed
}

// watch follows every kind of the table; the function that it returns reads the
// present state from memory.
func (s *session) watch(ctx context.Context) (func() []*unstructured.Unstructured, error) {
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		return nil, fmt.Errorf("watching the objects: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	// Of all ConfigMaps, the one with the model index.
	name := modelindex.DefaultSettings().ConfigMapName()
	indexOnly := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, name.Namespace, func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", name.Name).String()
	})
	factories := []dynamicinformer.DynamicSharedInformerFactory{factory, indexOnly}
	s.onStop(func() error {
		cancel()
		for _, started := range factories {
			started.Shutdown()
		}
		return nil
	})
	var informers []cache.SharedIndexInformer
	for _, kind := range tableKinds {
		from := factory
		if kind.Kind == indexKind {
			from = indexOnly
		}
		informers = append(informers, from.ForResource(kind.GroupVersion().WithResource(kind.resource)).Informer())
	}
	for _, started := range factories {
		started.Start(ctx.Done())
	}
	for _, started := range factories {
		for resource, synced := range started.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return nil, fmt.Errorf("watching %s: %w", resource.Resource, context.Cause(ctx))
			}
		}
	}
	return func() []*unstructured.Unstructured {
		var all []*unstructured.Unstructured
		for _, informer := range informers {
			for _, entry := range informer.GetStore().List() {
				if object, ok := entry.(*unstructured.Unstructured); ok && listed(object) {
					all = append(all, object)
				}
			}
		}
		return all
	}, nil
}

// nextSteps tells the person what to try.
func (s *session) nextSteps() {
	kubectl := "kubectl"
	if path, err := controlplane.FindBinary("kubectl"); err == nil {
		kubectl = path
	}
	s.out.line("")
	s.out.line("In another terminal:")
	s.out.line("  export KUBECONFIG=%s", s.kubeconfig)
	s.out.line("  alias k=%s", kubectl)
	s.out.line("  k get magicstick -A                                       # everything of the appliance")
	s.out.line("  k explain modelactivation.spec.local                      # what the fields mean")
	s.out.line("  k -n ai-system patch msmod litellm --type merge -p '{\"spec\":{\"enabled\":false}}'")
	s.out.line("  k -n flux-system get kustomizations                       # what the operator made of it")
	s.out.line("  k -n identity-system get httproutes,securitypolicies      # the way to the applications, and what guards it")
	switch {
	case s.StandIns:
		s.out.line("  k -n ai get models.kubeai.org,pods                        # what KubeAI would run; no model really runs")
		s.out.line("  k -n ai annotate models.kubeai.org qwen2505bcpu 'standin.magicstick.dev/fate=Crash=out of memory'   # let it fail")
		s.out.line("  k -n ai annotate models.kubeai.org qwen2505bcpu standin.magicstick.dev/fate-                        # and recover")
		s.out.line("  k -n ai get configmap ai-model-catalog -o yaml            # the index that applications read")
		s.out.line("NO MODEL RUNS HERE: parts of the appliance are played. `make run STANDINS=0` leaves the stand-ins out.")
	case s.Flux:
		s.out.line("  k -n ai get configmaps                                    # what Flux made of that")
	default:
		s.out.line("Modules wait: Flux does not run. `make run FLUX=1` runs it too, `make run` plays it.")
	}
	s.out.line("Logs: %s. Ctrl-C stops everything.", filepath.Join(s.dir, "logs"))
	s.out.line("")
}
