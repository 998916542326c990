package kube

// Names that objects of the appliance plane share. They are facts of the
// interface (contract/appliance.md annex 1): other programs select by them.
const (
	// FieldManager is the owner of every field that the operator applies.
	FieldManager = "magicstick-operator"

	// LabelManagedBy says which program created an object.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedByOperator is the value of LabelManagedBy on what the operator creates.
	ManagedByOperator = "magicstick-operator"
	// LabelModule names the module that an activation or a Kustomization belongs to.
	LabelModule = "appliance.magicstick.dev/module"

	// LabelInstance names the AppInstance that an object was made for.
	LabelInstance = "appliance.magicstick.dev/appinstance"
	// LabelApplication is the AppInstance's spec.application.
	LabelApplication = "appliance.magicstick.dev/application"

	// AnnotationAutoEnabled is "true" on activations that the operator created.
	// The API removes it when a person takes over.
	AnnotationAutoEnabled = "appliance.magicstick.dev/auto-enabled"
	// AnnotationActivationSource is "manual" on activations that a person made.
	AnnotationActivationSource = "appliance.magicstick.dev/activation-source"

	// AnnotationIndexError of the model index says in a sentence why the index may be
	// out of date. Absent while all is well. It never holds a key.
	AnnotationIndexError = "ai-appliance.io/last-error"
	// AnnotationIndexLeftOut of the model index is a JSON object from model name to a
	// sentence that says why the model is not listed. Absent when there is none.
	AnnotationIndexLeftOut = "ai-appliance.io/left-out"

	// FinalizerModule keeps a ModuleActivation until its Kustomization is gone.
	FinalizerModule = "appliance.magicstick.dev/module-cleanup"
	// FinalizerModel keeps a ModelActivation until its runtime is gone.
	FinalizerModel = "appliance.magicstick.dev/model-cleanup"
	// FinalizerInstance keeps an AppInstance until its routes and its release are gone.
	FinalizerInstance = "appliance.magicstick.dev/appinstance-cleanup"
)
