package roundtrip

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"magicstick.dev/operator/tools/specgen/gotypes"
)

// compare returns the first difference, or "".
func compare(want, got *apiextensionsv1.CustomResourceDefinition) string {
	if got == nil {
		return "controller-tools made no CRD"
	}
	for _, part := range []struct {
		path      string
		want, got any
	}{
		{"spec.group", want.Spec.Group, got.Spec.Group},
		{"spec.scope", want.Spec.Scope, got.Spec.Scope},
		{"spec.names.plural", want.Spec.Names.Plural, got.Spec.Names.Plural},
		{"spec.names.kind", gotypes.KindName(want.Spec.Names.Kind), got.Spec.Names.Kind},
		{"spec.names.singular", orDefault(want.Spec.Names.Singular, strings.ToLower(want.Spec.Names.Kind)), got.Spec.Names.Singular},
		{"spec.names.shortNames", strings.Join(want.Spec.Names.ShortNames, ","), strings.Join(got.Spec.Names.ShortNames, ",")},
		{"spec.names.categories", strings.Join(want.Spec.Names.Categories, ","), strings.Join(got.Spec.Names.Categories, ",")},
		{"metadata.labels", fmt.Sprint(want.Labels), fmt.Sprint(got.Labels)},
		{"spec.versions", len(want.Spec.Versions), len(got.Spec.Versions)},
	} {
		if part.want != part.got {
			return fmt.Sprintf("%s: %v became %v", part.path, part.want, part.got)
		}
	}
	for i := range want.Spec.Versions {
		version := &want.Spec.Versions[i]
		at := field.NewPath("spec", "versions").Index(i)
		var made *apiextensionsv1.CustomResourceDefinitionVersion
		for k := range got.Spec.Versions {
			if got.Spec.Versions[k].Name == version.Name {
				made = &got.Spec.Versions[k]
			}
		}
		if made == nil {
			return fmt.Sprintf("%s: version %s was lost", at, version.Name)
		}
		if difference := diff(versionTree(version), versionTree(made), at.String()); difference != "" {
			return difference
		}
		wantSchema, gotSchema := schemaTree(version.Schema.OpenAPIV3Schema), schemaTree(made.Schema.OpenAPIV3Schema)
		if difference := diff(wantSchema, gotSchema, at.Child("schema", "openAPIV3Schema").String()); difference != "" {
			return difference
		}
	}
	return ""
}

func orDefault(value, standard string) string {
	if value == "" {
		return standard
	}
	return value
}

// versionTree is everything about a version but its schema.
func versionTree(version *apiextensionsv1.CustomResourceDefinitionVersion) any {
	copied := version.DeepCopy()
	copied.Schema = nil
	if s := copied.Subresources; s != nil && s.Status == nil && s.Scale == nil {
		copied.Subresources = nil // controller-tools adds an empty one for columns
	}
	return tree(copied)
}

// tree is the generic JSON form of a value.
func tree(value any) any {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	var out any
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if err := decoder.Decode(&out); err != nil {
		return err.Error()
	}
	return out
}

// schemaTree is the generic form of a root schema in a shape where equal meaning is
// equal text.
func schemaTree(root *apiextensionsv1.JSONSchemaProps) any {
	root = root.DeepCopy()
	if root.Properties == nil {
		root.Properties = map[string]apiextensionsv1.JSONSchemaProps{}
	}
	// Every object has these; some CRDs do not say so, and their texts are the
	// machinery's, not the kind's.
	root.Properties["apiVersion"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	root.Properties["kind"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	metadata := root.Properties["metadata"]
	metadata.Type = "object"
	root.Properties["metadata"] = metadata
	normalize(root)
	return tree(root)
}

// normalize sorts what has no order and drops what has no meaning.
func normalize(s *apiextensionsv1.JSONSchemaProps) {
	sort.Strings(s.Required)
	s.Description = plain(s.Description)
	if len(s.Properties) == 0 {
		s.Properties = nil
	}
	if s.Items != nil && gotypes.IsCondition(s.Items.Schema) {
		// The words of metav1.Condition are its own.
		s.Items.Schema.Description = ""
		for name, sub := range s.Items.Schema.Properties {
			sub.Description = ""
			s.Items.Schema.Properties[name] = sub
		}
	}
	for name, sub := range s.Properties {
		normalize(&sub)
		s.Properties[name] = sub
	}
	if s.Items != nil && s.Items.Schema != nil {
		normalize(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		s.AdditionalProperties.Allows = true
		normalize(s.AdditionalProperties.Schema)
	}
}

// plain reduces a description to its words, without what reflowing and escaping add.
func plain(text string) string {
	return strings.Join(strings.Fields(gotypes.PlainDescription(text)), " ")
}

// diff finds the first difference of two generic JSON trees, in path order.
func diff(want, got any, at string) string {
	wantMap, ok := want.(map[string]any)
	gotMap, ok2 := got.(map[string]any)
	if ok && ok2 {
		keys := map[string]bool{}
		for key := range wantMap {
			keys[key] = true
		}
		for key := range gotMap {
			keys[key] = true
		}
		sorted := make([]string, 0, len(keys))
		for key := range keys {
			sorted = append(sorted, key)
		}
		sort.Strings(sorted)
		for _, key := range sorted {
			w, hasWant := wantMap[key]
			g, hasGot := gotMap[key]
			here := at + "." + key
			if strings.HasSuffix(at, ".properties") {
				here = at + "[" + key + "]"
			}
			switch {
			case !hasGot:
				return fmt.Sprintf("%s: %s was lost", here, short(w))
			case !hasWant:
				return fmt.Sprintf("%s: %s was added", here, short(g))
			}
			if difference := diff(w, g, here); difference != "" {
				return difference
			}
		}
		return ""
	}
	wantList, ok := want.([]any)
	gotList, ok2 := got.([]any)
	if ok && ok2 && len(wantList) == len(gotList) {
		for i := range wantList {
			if difference := diff(wantList[i], gotList[i], fmt.Sprintf("%s[%d]", at, i)); difference != "" {
				return difference
			}
		}
		return ""
	}
	if sameScalar(want, got) {
		return ""
	}
	return fmt.Sprintf("%s: %s became %s", at, short(want), short(got))
}

// sameScalar compares numbers by value: 1 and 1.0 are one bound.
func sameScalar(want, got any) bool {
	if reflect.DeepEqual(want, got) {
		return true
	}
	w, ok := want.(json.Number)
	g, ok2 := got.(json.Number)
	if !ok || !ok2 {
		return false
	}
	if _, err := w.Int64(); err == nil {
		if _, err := g.Int64(); err == nil {
			return w == g
		}
	}
	wf, err := w.Float64()
	gf, err2 := g.Float64()
	return err == nil && err2 == nil && wf == gf
}

// short prints a value for a message.
func short(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	if len(data) > 160 {
		return string(data[:157]) + "..."
	}
	return string(data)
}

// countNodes counts the schema nodes of all versions.
func countNodes(object *apiextensionsv1.CustomResourceDefinition) int {
	count := 0
	for i := range object.Spec.Versions {
		count += nodesBelow(object.Spec.Versions[i].Schema.OpenAPIV3Schema)
	}
	return count
}

func nodesBelow(s *apiextensionsv1.JSONSchemaProps) int {
	count := 1
	for _, sub := range s.Properties {
		count += nodesBelow(&sub)
	}
	if s.Items != nil && s.Items.Schema != nil {
		count += nodesBelow(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		count += nodesBelow(s.AdditionalProperties.Schema)
	}
	return count
}
