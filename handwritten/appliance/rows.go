package appliance

import (
	"slices"

	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// helmRelease is the kind that stands for an instance whose application makes
// no object of its own kind (contract/appliance.md H03).
const helmRelease = "HelmRelease"

// maxShortName cuts names that no host could have, so that one of them cannot
// make the whole status unwritable. Short names are ASCII.
const maxShortName = 63

// moduleRows has one row per module, from the activation that decides for it,
// one per duplicate under its own name, and one per unknown key of spec.modules.
func moduleRows(f Facts) []row {
	ordered := make([]*appliancev1alpha1.ModuleActivation, 0, len(f.Activations))
	for i := range f.Activations {
		ordered = append(ordered, &f.Activations[i])
	}
	// The one that decides comes first: not being deleted, then the oldest.
	slices.SortFunc(ordered, func(a, b *appliancev1alpha1.ModuleActivation) int {
		if going := a.DeletionTimestamp != nil; going != (b.DeletionTimestamp != nil) {
			if going {
				return 1
			}
			return -1
		}
		return byAge(a, b)
	})
	taken := map[string]bool{}
	var rows []row
	add := func(key string, value appliancev1alpha1.ApplianceStatusModulesValue, message string) {
		if taken[key] {
			return
		}
		taken[key] = true
		value.Message = text(message)
		rows = append(rows, row{
			class: classModule, key: key, phase: string(value.Phase), message: message, bytes: size(value),
			put: func(status *appliancev1alpha1.ApplianceStatus) {
				if status.Modules == nil {
					status.Modules = map[string]appliancev1alpha1.ApplianceStatusModulesValue{}
				}
				status.Modules[key] = value
			},
		})
	}
	for _, activation := range ordered {
		key := activation.Spec.Module
		if module, known := f.Modules.Resolve(key); known {
			key = module.Key
		}
		if taken[key] {
			key = activation.Name
		}
		value := appliancev1alpha1.ApplianceStatusModulesValue{
			Phase:         appliancev1alpha1.ApplianceStatusModulesValuePhase(current(activation.Status.Phase, activation.Status.ObservedGeneration, activation.Generation)),
			Kustomization: activation.Status.Kustomization,
		}
		if activation.Annotations[kube.AnnotationAutoEnabled] == "true" {
			value.AutoEnabled = ptr.To(true)
		}
		add(key, value, ptr.Deref(activation.Status.Message, ""))
	}
	for _, key := range f.UnknownModules {
		add(key, appliancev1alpha1.ApplianceStatusModulesValue{Phase: appliancev1alpha1.ApplianceStatusModulesValuePhaseDegraded},
			"spec.modules: the module catalog has no module "+key)
	}
	return rows
}

// instanceRows are keyed by application and short name; of two instances with
// one short name the younger one shows under its full name.
func instanceRows(f Facts) []row {
	ordered := make([]*appliancev1alpha1.AppInstance, 0, len(f.Instances))
	for i := range f.Instances {
		ordered = append(ordered, &f.Instances[i])
	}
	slices.SortFunc(ordered, byAge)
	taken := map[string]bool{}
	var rows []row
	for _, instance := range ordered {
		application := instance.Spec.Application
		// A bad name is the instance's own matter; here it is listed all the same.
		short, _ := kube.InstanceShortName(instance)
		short = short[:min(len(short), maxShortName)]
		name := short
		if taken[application+"/"+name] {
			name = instance.Name
		}
		taken[application+"/"+name] = true
		value := appliancev1alpha1.ApplianceStatusInstancesValueValue{
			Phase:     appliancev1alpha1.ApplianceStatusInstancesValueValuePhase(current(instance.Status.Phase, instance.Status.ObservedGeneration, instance.Generation)),
			Kind:      ptr.To(helmRelease),
			Namespace: ptr.To(instance.Namespace),
			Name:      ptr.To(instance.Name),
			URL:       instance.Status.URL,
			Message:   text(ptr.Deref(instance.Status.Message, "")),
		}
		if found, known := f.Applications.Get(application); known && found.NativeKind != "" {
			// The seed shows the short name here, whatever the chart calls the object (rulings H03).
			value.Kind, value.Name, value.Namespace = ptr.To(found.NativeKind), ptr.To(short), ptr.To(targetNamespace(instance))
		}
		rows = append(rows, row{
			class: classInstance, key: application + "/" + name, phase: string(value.Phase),
			message: ptr.Deref(value.Message, ""), bytes: size(value),
			put: func(status *appliancev1alpha1.ApplianceStatus) {
				if status.Instances == nil {
					status.Instances = map[string]appliancev1alpha1.ApplianceStatusInstancesValue{}
				}
				if status.Instances[application] == nil {
					status.Instances[application] = appliancev1alpha1.ApplianceStatusInstancesValue{}
				}
				status.Instances[application][name] = value
			},
		})
	}
	return rows
}

func modelRows(f Facts) []row {
	rows := make([]row, 0, len(f.Models))
	for i := range f.Models {
		model := &f.Models[i]
		value := appliancev1alpha1.ApplianceStatusModelsValue{
			Phase:                   appliancev1alpha1.ApplianceStatusModelsValuePhase(current(model.Status.Phase, model.Status.ObservedGeneration, model.Generation)),
			ModelRef:                model.Status.ModelRef,
			CatalogID:               model.Status.CatalogID,
			ComputeTarget:           appliancev1alpha1.ApplianceStatusModelsValueComputeTarget(model.Status.ComputeTarget),
			Engine:                  appliancev1alpha1.ApplianceStatusModelsValueEngine(model.Status.Engine),
			ResolvedResourceProfile: model.Status.ResolvedResourceProfile,
			VRAMRequiredMi:          model.Status.VRAMRequiredMi,
			Message:                 text(ptr.Deref(model.Status.Message, "")),
		}
		rows = append(rows, row{
			class: classModel, key: model.Name, phase: string(value.Phase),
			message: ptr.Deref(value.Message, ""), bytes: size(value),
			put: func(status *appliancev1alpha1.ApplianceStatus) {
				if status.Models == nil {
					status.Models = map[string]appliancev1alpha1.ApplianceStatusModelsValue{}
				}
				status.Models[model.Name] = value
			},
		})
	}
	return rows
}

// text is an optional message: empty ones are left out.
func text(message string) *string {
	if message == "" {
		return nil
	}
	return ptr.To(kube.Truncate(message, kube.MaxStatusMessage))
}
