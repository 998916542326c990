package kube_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

func TestInstanceShortName(t *testing.T) {
	for name, test := range map[string]struct{ object, values, want, problem string }{
		"object's name":                {"openclaw-demo", "", "demo", ""},
		"without the prefix":           {"demo", "", "demo", ""},
		"values.name":                  {"openclaw-demo", `{"name":"team"}`, "team", ""},
		"values.name with the prefix":  {"openclaw-demo", `{"name":"openclaw-team"}`, "team", ""},
		"values.name is normalised":    {"openclaw-demo", `{"name":"  My Team! "}`, "my-team", ""},
		"empty values.name":            {"openclaw-demo", `{"name":""}`, "demo", ""},
		"null":                         {"openclaw-demo", `{"name":null}`, "demo", ""},
		"nothing left":                 {"openclaw-demo", `{"name":"***"}`, "default", ""},
		"no string":                    {"openclaw-demo", `{"name":7}`, "demo", "values.name: must be a string"},
		"no object":                    {"openclaw-demo", `[]`, "demo", "values: must be an object"},
		"too long":                     {"openclaw-demo", `{"name":"` + strings.Repeat("a", 300) + `"}`, strings.Repeat("a", 300), "values.name: the short name"},
		"prefix alone is not stripped": {"openclaw", "", "openclaw", ""},
	} {
		t.Run(name, func(t *testing.T) {
			instance := &appliancev1alpha1.AppInstance{ObjectMeta: metav1.ObjectMeta{Name: test.object}}
			instance.Spec.Application = "openclaw"
			if test.values != "" {
				instance.Spec.Values = &apiextensionsv1.JSON{Raw: []byte(test.values)}
			}
			short, err := kube.InstanceShortName(instance)
			require.Equal(t, test.want, short)
			if test.problem == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.problem)
			}
		})
	}
}
