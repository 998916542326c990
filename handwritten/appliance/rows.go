package appliance

import (
	"fmt"
	"maps"
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
// one per module of spec.modules that cannot be switched on, and one per
// duplicate, under a name that cannot be taken for another module.
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
	rows := moduleTable{taken: map[string]bool{}}
	canonical := func(name string) string {
		if module, known := f.Modules.Resolve(name); known {
			return module.Key
		}
		return name
	}
	var duplicates []*appliancev1alpha1.ModuleActivation
	for _, activation := range ordered {
		key := canonical(activation.Spec.Module)
		if rows.taken[key] {
			duplicates = append(duplicates, activation)
			continue
		}
		rows.activation(key, activation)
	}
	degraded := appliancev1alpha1.ApplianceStatusModulesValue{Phase: appliancev1alpha1.ApplianceStatusModulesValuePhaseDegraded}
	for _, key := range f.UnknownModules {
		rows.add(key, degraded, "spec.modules: the module catalog has no module "+key)
	}
	for _, key := range slices.Sorted(maps.Keys(f.Unseeded)) {
		if !rows.taken[key] { // otherwise somebody has switched it on since
			rows.add(key, degraded, f.Unseeded[key])
		}
	}
	for _, activation := range duplicates {
		key := activation.Name
		if _, isModule := f.Modules.Resolve(key); isModule || rows.taken[key] {
			key = rows.free(canonical(activation.Spec.Module) + "/" + activation.Name)
		}
		rows.activation(key, activation)
	}
	return rows.rows
}

// moduleTable collects the rows of the modules under keys that are used once.
type moduleTable struct {
	taken map[string]bool
	rows  []row
}

// free is the key, made longer until nobody has it.
func (t *moduleTable) free(key string) string {
	for t.taken[key] {
		key += "+"
	}
	return key
}

func (t *moduleTable) activation(key string, activation *appliancev1alpha1.ModuleActivation) {
	value := appliancev1alpha1.ApplianceStatusModulesValue{
		Phase:         appliancev1alpha1.ApplianceStatusModulesValuePhase(current(activation.Status.Phase, activation.Status.ObservedGeneration, activation.Generation)),
		Kustomization: activation.Status.Kustomization,
	}
	if activation.Annotations[kube.AnnotationAutoEnabled] == "true" {
		value.AutoEnabled = ptr.To(true)
	}
	t.add(key, value, said(activation.Status.Phase, activation.Status.Message, activation.Status.ObservedGeneration, activation.Generation))
}

// add never loses trouble: a row whose key is taken is not listed a second time,
// but counts for the phase and may be the first one that the message names.
func (t *moduleTable) add(key string, value appliancev1alpha1.ApplianceStatusModulesValue, message string) {
	value.Message = text(message)
	entry := row{class: classModule, key: key, phase: string(value.Phase), message: message, bytes: size(value)}
	if !t.taken[key] {
		entry.put = func(status *appliancev1alpha1.ApplianceStatus) {
			if status.Modules == nil {
				status.Modules = map[string]appliancev1alpha1.ApplianceStatusModulesValue{}
			}
			status.Modules[key] = value
		}
	}
	t.taken[key] = true
	t.rows = append(t.rows, entry)
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
		// Its full name may be the short name of an older one.
		for n := 2; taken[application+"/"+name]; n++ {
			name = fmt.Sprintf("%s-%d", instance.Name, n)
		}
		taken[application+"/"+name] = true
		value := appliancev1alpha1.ApplianceStatusInstancesValueValue{
			Phase:     appliancev1alpha1.ApplianceStatusInstancesValueValuePhase(current(instance.Status.Phase, instance.Status.ObservedGeneration, instance.Generation)),
			Kind:      ptr.To(helmRelease),
			Namespace: ptr.To(instance.Namespace),
			Name:      ptr.To(instance.Name),
			URL:       instance.Status.URL,
			Message:   text(said(instance.Status.Phase, instance.Status.Message, instance.Status.ObservedGeneration, instance.Generation)),
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
			Message:                 text(said(model.Status.Phase, model.Status.Message, model.Status.ObservedGeneration, model.Generation)),
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
