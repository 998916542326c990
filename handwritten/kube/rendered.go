package kube

import (
	"encoding/json"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rendered makes an apply configuration of an object of a kind that has no
// generated one. It says what the object says: a field that must be said to be
// empty, or false, needs a pointer in the Go type. The object is left alone; the
// answer of the API server goes into a field of its own.
type Rendered struct {
	object client.Object
	// version that WithResourceVersion asked for.
	version *string
	answer  struct {
		Metadata struct {
			ResourceVersion *string `json:"resourceVersion"`
		} `json:"metadata"`
	}
}

// Render wraps an object with its apiVersion and kind filled in.
func Render(object client.Object) *Rendered { return &Rendered{object: object} }

// WithResourceVersion binds the apply to the version that was looked at.
func (r *Rendered) WithResourceVersion(version string) *Rendered {
	r.version = ptr.To(version)
	return r
}

// IsApplyConfiguration makes it a runtime.ApplyConfiguration.
func (r *Rendered) IsApplyConfiguration() {}

// GetName is the object's name.
func (r *Rendered) GetName() *string { return ptr.To(r.object.GetName()) }

// GetNamespace is the object's namespace.
func (r *Rendered) GetNamespace() *string { return ptr.To(r.object.GetNamespace()) }

// GetKind is the object's kind.
func (r *Rendered) GetKind() *string {
	return ptr.To(r.object.GetObjectKind().GroupVersionKind().Kind)
}

// GetAPIVersion is the object's group and version.
func (r *Rendered) GetAPIVersion() *string {
	return ptr.To(r.object.GetObjectKind().GroupVersionKind().GroupVersion().String())
}

// MarshalJSON writes the object without its status and with the version to apply over.
func (r *Rendered) MarshalJSON() ([]byte, error) {
	raw, err := json.Marshal(r.object)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
		if r.version != nil {
			metadata["resourceVersion"] = *r.version
		}
	}
	return json.Marshal(fields)
}

// UnmarshalJSON takes the answer of the API server.
func (r *Rendered) UnmarshalJSON(raw []byte) error { return json.Unmarshal(raw, &r.answer) }

// appliedResourceVersion is the version that the API server answered.
func (r *Rendered) appliedResourceVersion() *string { return r.answer.Metadata.ResourceVersion }
