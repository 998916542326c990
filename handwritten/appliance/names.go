package appliance

import (
	"cmp"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
)

// byAge orders by creation, then by name: two objects may share a second.
func byAge[T client.Object](a, b T) int {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
}

// targetNamespace is where the application runs; the schema fills it in.
func targetNamespace(instance *appliancev1alpha1.AppInstance) string {
	return cmp.Or(instance.Spec.TargetNamespace, "ai")
}
