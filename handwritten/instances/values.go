package instances

import (
	"bytes"
	"encoding/json"
	"fmt"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/catalogs"
)

// userValues are spec.values as they are passed on, with everything that would
// open a way in beside the guarded routes switched off (contract/appliance.md
// C.3). Numbers stay as they were written. The error names the field.
func userValues(instance *appliancev1alpha1.AppInstance, names catalogs.ApplicationRouteServiceName, short, publicHost string) (map[string]any, error) {
	values := map[string]any{}
	if raw := instance.Spec.Values; raw != nil && len(raw.Raw) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(raw.Raw))
		decoder.UseNumber()
		if err := decoder.Decode(&values); err != nil {
			return nil, fmt.Errorf("values: must be an object")
		}
	}
	if values == nil {
		values = map[string]any{}
	}
	server, isObject := values["server"].(map[string]any)
	if given := values["server"]; given != nil && !isObject {
		return nil, fmt.Errorf("values.server: must be an object")
	}
	if server == nil {
		server = map[string]any{}
	}
	var err error
	if values["ingress"], err = noIngress("values.ingress", values["ingress"], publicHost); err != nil {
		return nil, err
	}
	if server["ingress"], err = noIngress("values.server.ingress", server["ingress"], publicHost); err != nil {
		return nil, err
	}
	values["server"] = server
	if names == catalogs.ApplicationRouteServiceNameShortName {
		// The chart derives its Service from these; the route expects the short
		// name (contract/appliance.md H37).
		values["name"] = short
		delete(values, "agentName")
	}
	// The dashboard of older installations left it here (contract/appliance.md H58).
	delete(values, "targetNamespace")
	return values, nil
}

// noIngress keeps what else stands there.
func noIngress(field string, given any, host string) (map[string]any, error) {
	ingress, isObject := given.(map[string]any)
	if given != nil && !isObject {
		return nil, fmt.Errorf("%s: must be an object", field)
	}
	if ingress == nil {
		ingress = map[string]any{}
	}
	ingress["enabled"], ingress["host"] = false, host
	return ingress, nil
}
