package modules

import (
	"strings"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizeac "magicstick.dev/operator/generated/external/flux/kustomize/applyconfiguration/api/v1"
	metaac "magicstick.dev/operator/generated/external/flux/kustomize/applyconfiguration/apis/meta"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// interval is how often Flux compares a module with its source
// (contract/appliance.md C.13).
const interval = 10 * time.Minute

// substitutionMarker tells manifests that variables are replaced in them.
const substitutionMarker = "var_substitution_enabled"

// render is the Kustomization of an enabled module (contract/appliance.md C.2).
// suspend keeps what is installed and stops Flux from changing it.
func render(f Facts, suspend bool) *kustomizeac.KustomizationApplyConfiguration {
	module := f.Module
	source := kustomizeac.CrossNamespaceSourceReference().
		WithKind(f.Source.Kind).
		WithName(f.Source.Name)
	if f.Source.Namespace != "" && f.Source.Namespace != f.Settings.FluxNamespace {
		source.WithNamespace(f.Source.Namespace)
	}
	spec := kustomizeac.KustomizationSpec().
		WithInterval(metav1.Duration{Duration: interval}).
		WithPath("./" + strings.TrimPrefix(module.Path, "./")).
		WithPrune(true).
		WithDeletionPolicy(kustomizev1.DeletionPolicyDelete).
		WithWait(false).
		WithSuspend(suspend).
		WithSourceRef(source)
	for _, requirement := range f.Requires {
		if requirement.Module != nil {
			spec.WithDependsOn(metaac.DependencyReference().WithName(kustomizationName(*requirement.Module)))
		}
	}
	if substitutions := substitutions(*module, f.Activation.Spec.Parameters); module.PostBuildSubstitution || len(substitutions) > 0 {
		postBuild := kustomizeac.PostBuild()
		if module.PostBuildSubstitution {
			postBuild.
				WithSubstitute(map[string]string{substitutionMarker: "true"}).
				WithSubstituteFrom(kustomizeac.SubstituteReference().
					WithKind("ConfigMap").
					WithName(f.Settings.SettingsConfigMap).
					WithOptional(true))
		}
		spec.WithPostBuild(postBuild.WithSubstitute(substitutions))
	}
	for _, crd := range module.RequiredCRDs {
		spec.WithHealthChecks(metaac.NamespacedObjectKindReference().
			WithAPIVersion("apiextensions.k8s.io/v1").
			WithKind("CustomResourceDefinition").
			WithName(crd))
	}
	return kustomizeac.Kustomization(kustomizationName(*module), f.Settings.FluxNamespace).
		WithLabels(map[string]string{
			kube.LabelManagedBy: kube.ManagedByOperator,
			kube.LabelModule:    module.Key,
		}).
		WithSpec(spec)
}

// substitutions maps the parameters that the catalog declares to variables.
// Undeclared ones stay in the activation and do nothing; an empty value means
// the default that the manifests have.
func substitutions(module catalogs.Module, parameters map[string]string) map[string]string {
	variables := map[string]string{}
	for _, parameter := range module.Parameters {
		if value := parameters[parameter.Name]; value != "" && parameter.Substitution != "" {
			variables[parameter.Substitution] = value
		}
	}
	return variables
}
