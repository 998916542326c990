package gotypes

import (
	"errors"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"magicstick.dev/operator/tools/specgen/crd"
)

// Ambiguities finds properties of one object that a Go program could confuse: two
// that need one Go name, or that differ by case alone. Published CRDs of others
// have such properties, and Emit numbers their fields; a project that still
// chooses its names chooses others. The errors are *crd.Error values, joined.
func Ambiguities(definitions []*crd.Definition) error {
	var faults []error
	for _, d := range definitions {
		for i := range d.CRD.Spec.Versions {
			at := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
			faults = append(faults, ambiguities(d, d.CRD.Spec.Versions[i].Schema.OpenAPIV3Schema, at)...)
		}
	}
	return errors.Join(faults...)
}

func ambiguities(d *crd.Definition, s *apiextensionsv1.JSONSchemaProps, at *field.Path) []error {
	var faults []error
	byKey, byName := map[string]string{}, map[string]string{}
	for _, name := range sortedKeys(s.Properties) {
		here := at.Child("properties").Key(name)
		if other, ok := byKey[strings.ToLower(name)]; ok {
			faults = append(faults, d.Errorf(here.String(),
				"%q and %q differ by case alone; encoding/json of Go matches keys without regard to case, so a value of one can be read into the field of the other", name, other))
		} else if other, ok := byName[goName(name)]; ok {
			faults = append(faults, d.Errorf(here.String(), "%q and %q both need the Go field name %s in one struct; rename one", name, other, goName(name)))
		} else {
			byKey[strings.ToLower(name)], byName[goName(name)] = name, name
		}
		sub := s.Properties[name]
		faults = append(faults, ambiguities(d, &sub, here)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		faults = append(faults, ambiguities(d, s.Items.Schema, at.Child("items"))...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		faults = append(faults, ambiguities(d, s.AdditionalProperties.Schema, at.Child("additionalProperties"))...)
	}
	return faults
}
