package instances

import (
	"fmt"
	"slices"
	"strings"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	generated "magicstick.dev/operator/generated/catalogs"
	"magicstick.dev/operator/generated/conditions"
	helmac "magicstick.dev/operator/generated/external/flux/helm/applyconfiguration/api/v2"
	"magicstick.dev/operator/handwritten/kube"
)

// Plan is what one pass over an instance does, in this order.
type Plan struct {
	// AddFinalizer comes before every side effect.
	AddFinalizer bool
	// Enable are the canonical keys of modules to switch on.
	Enable []string
	// Access are the calls on routes, policies and the grant.
	Access []Step
	// Release is the HelmRelease to write, nil when the one in the cluster says the same.
	Release *helmac.HelmReleaseApplyConfiguration
	// SuspendRelease stops Flux from changing a release that cannot be rendered.
	SuspendRelease bool
	// RemoveRelease un-suspends, where needed, and deletes: Flux uninstalls only
	// what is not suspended.
	RemoveRelease bool
	// DropFinalizer lets the instance go; no status is written then.
	DropFinalizer bool
	// Status is the whole new status.
	Status appliancev1alpha1.AppInstanceStatus
}

type planner struct {
	Facts
	plan    Plan
	backend backend
	values  map[string]any

	wanted  []*side // the addresses that count
	guarded bool    // every wanted policy is accepted
	granted bool    // the grant is there
	closed  bool    // a wanted route is not open as rendered
}

// Compute decides. It is pure: the same facts give the same plan.
func Compute(f Facts) (Plan, error) {
	p := planner{Facts: f, plan: Plan{Status: *f.Instance.Status.DeepCopy()}}
	if f.Instance.DeletionTimestamp != nil {
		p.deleted()
		return p.plan, nil
	}
	p.plan.Status.ObservedGeneration = ptr.To(f.Instance.Generation)
	p.plan.AddFinalizer = true
	err := p.alive()
	if err == nil && kube.FindCondition(f.Instance.Status.Conditions, conditions.AppInstanceConditionReady) == nil {
		// Nothing of what this pass does was observed yet, so nothing is claimed.
		p.plan.Status = appliancev1alpha1.AppInstanceStatus{ObservedGeneration: ptr.To(f.Instance.Generation)}
		p.phase(appliancev1alpha1.AppInstanceStatusPhaseReconciling, metav1.ConditionUnknown,
			conditions.AppInstanceReasonReconciling, "The operator has seen the instance and works on it.")
	}
	return p.plan, err
}

// alive goes through the gates (contract/appliance.md C.3).
func (p *planner) alive() error {
	if !ptr.Deref(p.Instance.Spec.Enabled, true) {
		return p.disabled()
	}
	if p.CatalogError != "" {
		// The last good state stays, as long as it is guarded.
		err := p.access(false)
		p.plan.Status.AccessGuardReady = ptr.To(p.guarded)
		p.ready(metav1.ConditionUnknown, conditions.AppInstanceReasonCatalogUnavailable,
			sentences("A catalog cannot be used: "+kube.Sanitize(p.CatalogError), p.failures()...))
		if p.plan.Status.Phase == "" {
			p.plan.Status.Phase = appliancev1alpha1.AppInstanceStatusPhaseReconciling
		}
		return err
	}
	if reason, problem := p.invalid(); problem != "" {
		err := p.access(false)
		p.failed(reason, sentences(problem, p.failures()...))
		return err
	}
	p.names()
	if rule := p.Settings.reserved(p.targetNamespace()); rule != "" {
		p.removeAccess(nil)
		p.noAddress()
		p.failed(conditions.AppInstanceReasonInvalidTargetNamespace, rule)
		return nil
	}
	if p.Rival != nil {
		p.removeAccess(nil)
		p.failed(conditions.AppInstanceReasonDuplicateShortName, fmt.Sprintf(
			"AppInstance %s is older and has the short name %s of application %s too; give this one another values.name.",
			p.Rival.Name, p.Short, p.Instance.Spec.Application))
		p.noAddress()
		return nil
	}
	for _, requirement := range p.Requires {
		if requirement.ToEnable() {
			p.plan.Enable = append(p.plan.Enable, requirement.Key)
		}
	}
	modules, crds := p.missingModules(), p.missingCRDs()
	if len(modules)+len(crds) == 0 || p.exists() {
		if err := p.access(true); err != nil {
			return err
		}
		p.address()
	}
	p.plan.Status.AccessGuardReady = ptr.To(p.guarded)
	switch {
	case len(modules) > 0:
		p.gate(appliancev1alpha1.AppInstanceStatusPhaseWaitingForModules,
			conditions.AppInstanceReasonWaitingForModules, "Waiting for "+strings.Join(modules, ", "))
		return nil
	case len(crds) > 0:
		p.gate(appliancev1alpha1.AppInstanceStatusPhaseWaitingForCRDs,
			conditions.AppInstanceReasonWaitingForCRDs, "Waiting: "+strings.Join(crds, "; "))
		return nil
	}
	return p.installed()
}

// invalid is what makes it impossible to render the instance.
func (p *planner) invalid() (reason, problem string) {
	application := p.Application
	switch {
	case application == nil:
		return conditions.AppInstanceReasonUnknownApplication,
			fmt.Sprintf("The application catalog has no application %q.", p.Instance.Spec.Application)
	case p.NameProblem != "":
		return conditions.AppInstanceReasonInvalidValues, p.NameProblem
	case application.ChartPath == "":
		return conditions.AppInstanceReasonInvalidCatalogEntry, fmt.Sprintf("applications.%s.chartPath: missing", application.Key)
	case application.Route.RequestTimeout != "" && application.Route.RequestTimeout != noTimeout:
		return conditions.AppInstanceReasonInvalidCatalogEntry,
			fmt.Sprintf("applications.%s.route.requestTimeout: %q, must be absent or 0s", application.Key, application.Route.RequestTimeout)
	case application.Route.Port < 1 || application.Route.Port > 65535:
		return conditions.AppInstanceReasonInvalidCatalogEntry,
			fmt.Sprintf("applications.%s.route.port: %d, must be 1 to 65535", application.Key, application.Route.Port)
	}
	_, public := p.hosts()
	var err error
	if p.values, err = userValues(p.Instance, application.Route.ServiceName, p.Short, public); err != nil {
		return conditions.AppInstanceReasonInvalidValues, err.Error()
	}
	if problem := p.serviceProblem(); problem != "" {
		return conditions.AppInstanceReasonInvalidValues, problem
	}
	p.backend = backend{
		service:   application.ServiceName(p.Instance.Name, p.Short),
		namespace: p.targetNamespace(),
		port:      int32(application.Route.Port),
	}
	return "", ""
}

// serviceProblem is why the application's Service cannot have the name that
// follows from the instance, empty when it can.
func (p *planner) serviceProblem() string {
	service := p.Application.ServiceName(p.Instance.Name, p.Short)
	problems := validation.IsDNS1035Label(service)
	if len(problems) == 0 {
		return ""
	}
	field := "metadata.name"
	if p.Application.Route.ServiceName == generated.ApplicationRouteServiceNameShortName {
		field = "values.name (or metadata.name, where it is absent)"
	}
	return fmt.Sprintf("%s: the application's Service would be named %q, which no Service can be: %s", field, kube.Truncate(service, 80), problems[0])
}

func (p *planner) missingCRDs() []string {
	missing := slices.Clone(p.MissingCRDs)
	for _, kind := range p.Kinds.all() {
		if !kind.present() {
			missing = append(missing, kind.Detail)
		}
	}
	return missing
}

// disabled keeps the release and its data and takes every way in away
// (contract/appliance.md H50).
func (p *planner) disabled() error {
	p.removeAccess(nil)
	p.noAddress()
	p.plan.Status.AccessGuardReady = nil
	if p.Release != nil && p.Release.DeletionTimestamp == nil {
		p.names()
		_, problem := "", ""
		if p.CatalogError == "" {
			_, problem = p.invalid()
		}
		if p.CatalogError == "" && problem == "" {
			desired, err := p.renderRelease(true)
			if err != nil {
				return err
			}
			same, err := kube.Unchanged(desired, p.Release, kube.FieldManager)
			if err != nil {
				return err
			}
			if !same {
				p.plan.Release = desired
			}
		} else if !p.Release.Spec.Suspend {
			p.plan.SuspendRelease = true
		}
	}
	p.phase(appliancev1alpha1.AppInstanceStatusPhaseSuspended, metav1.ConditionTrue,
		conditions.AppInstanceReasonSuspended, "The instance is switched off; its data stay.")
	return nil
}

// deleted comes before anything that a reference could block. Routes and
// policies go first, then the release.
func (p *planner) deleted() {
	p.plan.Status.ObservedGeneration = ptr.To(p.Instance.Generation)
	if !p.removeAccess(nil) {
		p.removing("Waiting until the routes and policies are gone.")
		return
	}
	for _, kind := range p.Kinds.all() {
		if kind.Presence == kube.Starting || kind.Presence == kube.Unreadable {
			p.removing("Waiting: " + kind.Detail)
			return
		}
	}
	if p.Release == nil || !p.ours(p.Release) {
		p.plan.DropFinalizer = true
		return
	}
	if p.Release.DeletionTimestamp == nil {
		p.plan.RemoveRelease = true
	}
	message := "Waiting until Flux has removed HelmRelease " + p.Release.Namespace + "/" + p.Release.Name
	state := kube.ConditionReadiness(p.Release.Status.Conditions, p.Release.Generation, p.Release.Status.ObservedGeneration)
	if p.Release.DeletionTimestamp != nil && state.Status == metav1.ConditionFalse {
		message += ": " + state.Reason + ": " + kube.Sanitize(state.Message)
	}
	p.removing(message)
}

func (p *planner) removing(message string) {
	p.noAddress()
	p.plan.Status.AccessGuardReady = nil
	p.phase(appliancev1alpha1.AppInstanceStatusPhaseRemoving, metav1.ConditionFalse, conditions.AppInstanceReasonRemoving, message)
}

// names says what carries the workload.
func (p *planner) names() {
	p.plan.Status.Kind = ptr.To(helmv2.HelmReleaseKind)
	p.plan.Status.Name = ptr.To(p.Instance.Name)
	p.plan.Status.Namespace = ptr.To(p.Instance.Namespace)
}

// address says where the instance is reached, and by whom.
func (p *planner) address() {
	local, public := p.hosts()
	status := &p.plan.Status
	status.URL, status.LocalURL, status.PublicURL = ptr.To("https://"+local+"/"), ptr.To("https://"+local+"/"), nil
	if p.exposure() == appliancev1alpha1.AppInstanceSpecAccessExposureLocalAndPublic {
		status.PublicURL = ptr.To("https://" + public + "/")
	}
	status.Authentication = appliancev1alpha1.AppInstanceStatusAuthentication(p.authentication())
	status.RequiredRole = ""
	if p.authentication() == appliancev1alpha1.AppInstanceSpecAccessAuthenticationSSO {
		status.RequiredRole = appliancev1alpha1.AppInstanceStatusRequiredRole(p.role())
	}
}

func (p *planner) noAddress() {
	status := &p.plan.Status
	status.URL, status.LocalURL, status.PublicURL = nil, nil, nil
	status.Authentication, status.RequiredRole = "", ""
}

func (p *planner) failed(reason, message string) {
	p.plan.Status.AccessGuardReady = ptr.To(p.guarded)
	p.phase(appliancev1alpha1.AppInstanceStatusPhaseDegraded, metav1.ConditionFalse, reason, message)
}

func (p *planner) phase(phase appliancev1alpha1.AppInstanceStatusPhase, status metav1.ConditionStatus, reason, message string) {
	p.plan.Status.Phase = phase
	p.plan.Status.Message = ptr.To(kube.Truncate(message, kube.MaxStatusMessage))
	p.ready(status, reason, message)
}

func (p *planner) ready(status metav1.ConditionStatus, reason, message string) {
	kube.SetCondition(&p.plan.Status.Conditions, metav1.Condition{
		Type: conditions.AppInstanceConditionReady, Status: status, Reason: reason, Message: message,
		ObservedGeneration: p.Instance.Generation,
	}, p.Now)
}
