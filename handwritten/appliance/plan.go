package appliance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/conditions"
	"magicstick.dev/operator/handwritten/catalogs"
	"magicstick.dev/operator/handwritten/kube"
)

// Applications answers what is asked of the application catalog;
// *catalogs.Applications does.
type Applications interface {
	// Get finds an application by key.
	Get(key string) (catalogs.Application, bool)
}

// Facts is everything that the status is computed from.
type Facts struct {
	Appliance *appliancev1alpha1.Appliance
	// CatalogError says why a catalog cannot be read; the catalogs are nil then.
	CatalogError string
	Modules      Modules
	Applications Applications
	// UnknownModules are keys of spec.modules that no module has.
	UnknownModules []string
	// Unseeded says for modules of spec.modules, by canonical key, why they
	// cannot be switched on.
	Unseeded    map[string]string
	Activations []appliancev1alpha1.ModuleActivation
	Instances   []appliancev1alpha1.AppInstance
	Models      []appliancev1alpha1.ModelActivation
	Now         time.Time
}

// Limits of the aggregate (contract/rulings.md 1). The last one is ours: the
// object, with what the API server notes about the owner of every field, has
// to stay below the 1.5 MiB that etcd takes in one request.
const (
	maxModules      = 256
	maxModels       = 1024
	maxApplications = 64
	maxInstances    = 256 // of one application
	maxBytes        = 900 << 10
	rowOverhead     = 320 // bytes of bookkeeping for one row
)

// class is the order in which rows are looked at and blockers are named.
type class int

const (
	classModule class = iota
	classInstance
	classModel
)

// row is one line of the aggregate.
type row struct {
	class   class
	key     string // as in the map; instances: <application>/<instance>
	phase   string
	message string                                   // of the object
	put     func(*appliancev1alpha1.ApplianceStatus) // nil: counts, but is not listed
	bytes   int
}

func (r row) degraded() bool { return r.phase == "Degraded" }

// settled rows do not keep the Appliance from being Ready (contract/appliance.md C.12).
func (r row) settled() bool {
	return r.phase == "Ready" || r.phase == "Disabled" || r.phase == "Suspended" && r.class != classModel
}

// Aggregate computes the status. It is pure.
func Aggregate(f Facts) appliancev1alpha1.ApplianceStatus {
	status := *f.Appliance.Status.DeepCopy()
	status.ObservedGeneration = ptr.To(f.Appliance.Generation)
	set := func(state metav1.ConditionStatus, reason, message string) appliancev1alpha1.ApplianceStatus {
		kube.SetCondition(&status.Conditions, metav1.Condition{
			Type: conditions.ApplianceConditionReady, Status: state, Reason: reason, Message: message,
			ObservedGeneration: f.Appliance.Generation,
		}, f.Now)
		return status
	}
	if f.CatalogError != "" {
		status.Phase = cmp.Or(status.Phase, appliancev1alpha1.ApplianceStatusPhasePending)
		return set(metav1.ConditionUnknown, conditions.ApplianceReasonCatalogUnavailable,
			"A catalog cannot be used: "+kube.Sanitize(f.CatalogError))
	}
	if kube.FindCondition(status.Conditions, conditions.ApplianceConditionReady) == nil {
		status.Phase = appliancev1alpha1.ApplianceStatusPhasePending
		return set(metav1.ConditionUnknown, conditions.ApplianceReasonReconciling,
			"The operator has seen the Appliance and collects its state.")
	}

	rows := slices.Concat(moduleRows(f), instanceRows(f), modelRows(f))
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.key, b.key))
	})
	omitted := place(&status, rows)
	var failed, waiting *row
	for i := range rows {
		switch {
		case rows[i].degraded() && failed == nil:
			failed = &rows[i]
		case !rows[i].settled() && !rows[i].degraded() && waiting == nil:
			waiting = &rows[i]
		}
	}
	switch {
	case failed != nil:
		status.Phase = appliancev1alpha1.ApplianceStatusPhaseDegraded
		return set(metav1.ConditionFalse, conditions.ApplianceReasonDegraded, failed.title()+" is degraded"+detail(failed.message)+omitted)
	case waiting != nil:
		status.Phase = appliancev1alpha1.ApplianceStatusPhaseReconciling
		reasons := map[class]string{
			classModule:   conditions.ApplianceReasonWaitingForModules,
			classInstance: conditions.ApplianceReasonWaitingForInstances,
			classModel:    conditions.ApplianceReasonWaitingForModels,
		}
		return set(metav1.ConditionFalse, reasons[waiting.class], "Waiting for "+waiting.title()+" to become ready"+detail(waiting.message)+omitted)
	}
	status.Phase = appliancev1alpha1.ApplianceStatusPhaseReady
	return set(metav1.ConditionTrue, conditions.ApplianceReasonReady, "Every module, instance and model is ready"+omitted)
}

// title names a row in messages: instances as <application>/<instance>, as the
// seed shows it.
func (r row) title() string {
	switch r.class {
	case classModule:
		return "module " + r.key
	case classModel:
		return "model " + r.key
	}
	return r.key
}

func detail(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// place fills the three maps, rows that are not settled first, as far as they
// may grow, and says how many rows found no place.
func place(status *appliancev1alpha1.ApplianceStatus, rows []row) string {
	status.Modules, status.Instances, status.Models = nil, nil, nil
	ordered := slices.Clone(rows)
	slices.SortStableFunc(ordered, func(a, b row) int {
		switch {
		case a.settled() == b.settled():
			return 0
		case a.settled():
			return 1
		}
		return -1
	})
	left := maxBytes
	omitted := map[class]int{}
	for _, entry := range ordered {
		if entry.put == nil {
			continue
		}
		if cost := entry.bytes + 2*len(entry.key) + rowOverhead; cost <= left && hasRoom(status, entry) {
			entry.put(status)
			left -= cost
			continue
		}
		omitted[entry.class]++
	}
	var texts []string
	for _, kind := range []struct {
		class class
		name  string
	}{{classModule, "modules"}, {classInstance, "instances"}, {classModel, "models"}} {
		if omitted[kind.class] > 0 {
			texts = append(texts, fmt.Sprintf("%d more %s", omitted[kind.class], kind.name))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return "; not listed: " + strings.Join(texts, ", ")
}

func hasRoom(status *appliancev1alpha1.ApplianceStatus, entry row) bool {
	switch entry.class {
	case classModule:
		return len(status.Modules) < maxModules
	case classModel:
		return len(status.Models) < maxModels
	}
	application, _, _ := strings.Cut(entry.key, "/")
	instances, known := status.Instances[application]
	return len(instances) < maxInstances && (known || len(status.Instances) < maxApplications)
}

// current is the phase of an object, or Reconciling while the object was not
// looked at in its present generation: an old "Ready" says nothing about a new wish.
func current[P ~string](phase P, observed *int64, generation int64) string {
	if phase == "" || ptr.Deref(observed, -1) < generation && phase != "Degraded" && phase != "Removing" {
		return "Reconciling"
	}
	return string(phase)
}

// said is what an object says of itself. What it said of a former wish is not
// repeated beside a phase that is about the present one.
func said[P ~string](phase P, message *string, observed *int64, generation int64) string {
	if phase != "" && current(phase, observed, generation) != string(phase) {
		return "The operator has not looked at its latest change yet."
	}
	return ptr.Deref(message, "")
}

func size(value any) int {
	raw, err := json.Marshal(value)
	if err != nil {
		return kube.MaxStatusMessage
	}
	return len(raw)
}
