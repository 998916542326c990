package modules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	generated "magicstick.dev/operator/generated/catalogs"
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

// unknownParameters are the names of parameters, in order, that neither the
// catalog nor the operator knows. They stay in the activation and do nothing.
func unknownParameters(module catalogs.Module, parameters map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(parameters)), func(name string) bool {
		return slices.Contains(ownParameters[module.Key], name) ||
			slices.ContainsFunc(module.Parameters, func(known generated.ModuleParameter) bool { return known.Name == name })
	})
}

// ownParameters are no substitutions; the hardware controllers read them
// (contract/appliance.md B.2).
var ownParameters = map[string][]string{
	"gpu":     {"gpuSharing"},
	"amd-gpu": {"gpuSharing", "compatibilityProfile", "allowExperimental", "validationRequest"},
}

// parameterNote tells a person of parameters that do nothing, most likely
// because their names are misspelt. The module works all the same.
func parameterNote(module catalogs.Module, parameters map[string]string) string {
	unknown := unknownParameters(module, parameters)
	if len(unknown) == 0 {
		return ""
	}
	return fmt.Sprintf(" (spec.parameters: module %s has no parameter %s; it has no effect)", module.Key, kube.Truncate(strings.Join(unknown, ", "), maxNote))
}

// maxNote bounds the names in a note in bytes.
const maxNote = 200
