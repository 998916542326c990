package crd

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
			faults = append(faults, d.Errorf(v1Path(fault.Field), "%s", short(fault.ErrorBody())))
		}
	}
	return errors.Join(faults...)
}

// v1Path turns a path of the API server's internal form, in which what all versions
// share stands above them, into the path in the file.
func v1Path(path string) string {
	// Columns have another spelling inside.
	if column, ok := strings.CutSuffix(path, ".JSONPath"); ok {
		path = column + ".jsonPath"
	}
	for internal, file := range map[string]string{
		"spec.validation.":              "spec.versions[0].schema.",
		"spec.subresources":             "spec.versions[0].subresources",
		"spec.additionalPrinterColumns": "spec.versions[0].additionalPrinterColumns",
		"spec.selectableFields":         "spec.versions[0].selectableFields",
	} {
		if rest, ok := strings.CutPrefix(path, internal); ok {
			return file + rest
		}
	}
	return path
}

// maxReason keeps a message readable: the API server prints the whole refused value,
// which for a schema is a page of Go syntax.
const maxReason = 600

func short(reason string) string {
	if len(reason) <= maxReason {
		return reason
	}
	head, tail := reason[:maxReason/3], reason[len(reason)-maxReason*2/3:]
	return strings.ToValidUTF8(head, "") + " ... " + strings.ToValidUTF8(tail, "")
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
