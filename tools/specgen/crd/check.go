package crd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Verify is Check and Lint of this project's own definitions, with one error for
// each fault: where the API server has a word to say about a node, the project's
// stricter rule does not repeat it, costs are held against the project's ceiling
// only where they pass the API server's limit, and while a value has no bound,
// what rules would cost on it is not told.
func Verify(ctx context.Context, definitions []*Definition) error {
	checked := check(ctx, definitions)
	linted, err := lint(definitions)
	if err != nil {
		return err
	}
	type place struct{ file, path string }
	refused := map[place]bool{}
	tooDear, unbounded := map[string]bool{}, map[string]bool{}
	for _, fault := range checked {
		refused[place{fault.File, fault.Path}] = true
		tooDear[fault.File] = tooDear[fault.File] || fault.subject == costs
	}
	for _, fault := range linted {
		unbounded[fault.File] = unbounded[fault.File] || fault.subject == bounds
	}
	var faults []*Error
	for _, fault := range checked {
		if fault.subject != costs || !unbounded[fault.File] {
			faults = append(faults, fault)
		}
	}
	for _, fault := range linted {
		follows := fault.subject == costs && (unbounded[fault.File] || tooDear[fault.File])
		if !follows && !refused[place{fault.File, fault.Path}] {
			faults = append(faults, fault)
		}
	}
	return join(faults)
}

// Check asks the API server's own validation about every definition: names,
// structural schema, defaults, CEL rules that compile and stay under the cost
// limits (1e7 a rule, 1e8 a CRD), message expressions. The errors are *Error
// values, joined; nil means that an API server accepts all of them.
func Check(ctx context.Context, definitions []*Definition) error {
	return join(check(ctx, definitions))
}

func check(ctx context.Context, definitions []*Definition) []*Error {
	var faults []*Error
	for _, d := range definitions {
		internal, err := d.internal()
		if err != nil {
			faults = append(faults, &Error{File: d.File, Reason: err.Error()})
			continue
		}
		for _, fault := range causes(validation.ValidateCustomResourceDefinition(ctx, internal)) {
			told := d.Errorf(v1Path(fault.Field), "%s", reason(fault))
			if strings.Contains(fault.Detail, overBudget) {
				told.subject = costs
			}
			faults = append(faults, told)
		}
	}
	return faults
}

func join(faults []*Error) error {
	list := make([]error, 0, len(faults))
	for _, fault := range faults {
		list = append(list, fault)
	}
	return errors.Join(list...)
}

// The API server's words about costs: of a rule that is too dear, of all rules
// together, and of each rule that has a share in that.
const (
	overBudget      = "exceeds budget by factor of"
	ofWholeSchema   = "cost total for entire OpenAPIv3 schema"
	contributedCost = "contributed to estimated rule"
)

// causes leaves out what only follows from another fault of the list. A rule that
// is too dear also brings the whole schema over its budget, and then every rule
// with a share in it is named as well.
func causes(list field.ErrorList) field.ErrorList {
	single := false
	for _, fault := range list {
		single = single || strings.Contains(fault.Detail, overBudget) && !strings.Contains(fault.Detail, ofWholeSchema)
	}
	kept := make(field.ErrorList, 0, len(list))
	for _, fault := range list {
		whole, share := strings.Contains(fault.Detail, ofWholeSchema), strings.Contains(fault.Detail, contributedCost)
		if share || whole && single {
			continue
		}
		kept = append(kept, fault)
	}
	return kept
}

// reason is what the API server says, with the refused value where that is one
// word. Its own words would hold a whole rule or schema in the syntax of Go.
func reason(fault *field.Error) string {
	parts := []string{fault.Type.String()}
	switch value := fault.BadValue.(type) {
	case string:
		if value != "" && fault.Type != field.ErrorTypeRequired && len(value) <= maxValue {
			parts = append(parts, strconv.Quote(value))
		}
	case bool, int, int32, int64, float64:
		if fault.Type != field.ErrorTypeRequired {
			parts = append(parts, fmt.Sprint(value))
		}
	}
	if detail := strings.Join(strings.Fields(fault.Detail), " "); detail != "" {
		parts = append(parts, short(detail))
	}
	return strings.Join(parts, ": ")
}

// maxValue is the longest value that a message repeats.
const maxValue = 128

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

// maxReason keeps a message readable: some details of the API server are a page.
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
