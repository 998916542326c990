package appliance

import (
	"cmp"
	"encoding/json"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

// shortName is the name under which people know an instance: values.name, else
// the object's name, without a leading "<application>-", as a DNS label
// (contract/appliance.md C.3).
func shortName(instance *appliancev1alpha1.AppInstance) string {
	name := instance.Name
	if raw, err := json.Marshal(instance.Spec.Values); err == nil {
		var values struct {
			Name any `json:"name"`
		}
		if json.Unmarshal(raw, &values) == nil {
			if text, ok := values.Name.(string); ok {
				name = cmp.Or(strings.TrimSpace(text), name)
			}
		}
	}
	name = strings.TrimPrefix(name, instance.Spec.Application+"-")
	return cmp.Or(label(name), "default")
}

// label lower-cases and turns every run of other characters into one hyphen
// (contract/appliance.md C.1).
func label(text string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			out.WriteRune(r)
		case !strings.HasSuffix(out.String(), "-"):
			out.WriteByte('-')
		}
	}
	return strings.Trim(out.String(), "-")
}

// byAge orders by creation, then by name: two objects may share a second.
func byAge[T client.Object](a, b T) int {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
}

// targetNamespace is where the application runs; the schema fills it in.
func targetNamespace(instance *appliancev1alpha1.AppInstance) string {
	return cmp.Or(instance.Spec.TargetNamespace, "ai")
}
