package crd

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

// Check asks the API server's own validation about every definition: names,
// structural schema, defaults, CEL rules that compile and stay under the cost
// limits (1e7 a rule, 1e8 a CRD), message expressions. The errors are *Error
// values, joined; nil means that an API server accepts all of them.
func Check(ctx context.Context, definitions []*Definition) error {
	var faults []error
	for _, d := range definitions {
		internal, err := d.internal()
		if err != nil {
			faults = append(faults, err)
			continue
		}
		for _, fault := range validation.ValidateCustomResourceDefinition(ctx, internal) {
			faults = append(faults, d.Errorf(fault.Field, "%s", fault.ErrorBody()))
		}
	}
	return errors.Join(faults...)
}

// internal converts the definition to the form that the API server validates:
// defaulted, and with the storage version recorded as it would be on create.
func (d *Definition) internal() (*apiextensions.CustomResourceDefinition, error) {
	defaulted := d.CRD.DeepCopy()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(defaulted)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&defaulted.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(defaulted, internal, nil); err != nil {
		return nil, fmt.Errorf("converting the CRD %q: %w", d.File, err)
	}
	internal.Status.StoredVersions = nil
	for _, version := range defaulted.Spec.Versions {
		if version.Storage {
			internal.Status.StoredVersions = append(internal.Status.StoredVersions, version.Name)
		}
	}
	return internal, nil
}
