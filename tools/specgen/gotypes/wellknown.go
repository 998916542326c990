package gotypes

import (
	"encoding/json"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// conditionSchema is the schema that controller-tools makes of metav1.Condition,
// without descriptions: the one all API conventions point to
// (https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md).
const conditionSchema = `{"type":"object","required":["lastTransitionTime","message","reason","status","type"],"properties":{
"lastTransitionTime":{"type":"string","format":"date-time"},
"message":{"type":"string","maxLength":32768},
"observedGeneration":{"type":"integer","format":"int64","minimum":0},
"reason":{"type":"string","maxLength":1024,"minLength":1,"pattern":"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
"status":{"type":"string","enum":["True","False","Unknown"]},
"type":{"type":"string","maxLength":316,"pattern":"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"}}}`

var conditionShape = canonical([]byte(conditionSchema))

// IsCondition tells whether a schema is the standard condition, descriptions aside.
func IsCondition(schema *apiextensionsv1.JSONSchemaProps) bool {
	if schema == nil || schema.Type != "object" || len(schema.Properties) != 6 {
		return false
	}
	bare := schema.DeepCopy()
	bare.Description = ""
	for name, sub := range bare.Properties {
		sub.Description = ""
		bare.Properties[name] = sub
	}
	data, err := json.Marshal(bare)
	return err == nil && canonical(data) == conditionShape
}

func isCondition(n *node) bool { return IsCondition(n.schema) }

// canonical re-encodes JSON so that equal values are equal texts; the order of
// required names does not matter.
func canonical(data []byte) string {
	var value map[string]any
	if json.Unmarshal(data, &value) != nil {
		return ""
	}
	if list, ok := value["required"].([]any); ok {
		set := map[string]any{}
		for _, name := range list {
			if text, ok := name.(string); ok {
				set[text] = true
			}
		}
		value["required"] = set
	}
	out, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(out)
}
