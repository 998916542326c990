package kube

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

// InstanceShortName is the name under which people know an instance:
// values.name, else the object's name, without a leading "<application>-", as
// a DNS label (contract/appliance.md C.3). The error names the field and the
// rule; the name is usable all the same, for a list that shows everything.
func InstanceShortName(instance *appliancev1alpha1.AppInstance) (string, error) {
	given, problem := nameValue(instance)
	name := cmp.Or(given, instance.Name)
	short := cmp.Or(Label(strings.TrimPrefix(name, instance.Spec.Application+"-")), "default")
	if problem == nil && len(short) > maxLabel {
		problem = fmt.Errorf("values.name: the short name %s has %d characters, a host name's label may have %d",
			Truncate(short, 80), len(short), maxLabel)
	}
	return short, problem
}

const maxLabel = 63

func nameValue(instance *appliancev1alpha1.AppInstance) (string, error) {
	if instance.Spec.Values == nil || len(instance.Spec.Values.Raw) == 0 {
		return "", nil
	}
	var values struct {
		Name any `json:"name"`
	}
	if err := json.Unmarshal(instance.Spec.Values.Raw, &values); err != nil {
		return "", errors.New("values: must be an object")
	}
	switch name := values.Name.(type) {
	case nil:
		return "", nil
	case string:
		return strings.TrimSpace(name), nil
	}
	return "", errors.New("values.name: must be a string")
}
