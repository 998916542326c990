package instances

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	helmac "magicstick.dev/operator/generated/external/flux/helm/applyconfiguration/api/v2"
)

// interval is how often Flux compares a release with its chart
// (contract/appliance.md C.13).
const interval = 10 * time.Minute

// releaseValues is what every chart gets (contract/appliance.md C.3, D.2).
type releaseValues struct {
	Instance instanceValues `json:"instance"`
}

type instanceValues struct {
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
	Application string `json:"application"`
	LocalHost   string `json:"localHost"`
	// LocalName is the local host without .local.
	LocalName  string         `json:"localName"`
	PublicHost string         `json:"publicHost"`
	Values     map[string]any `json:"values"`
}

// renderRelease is the HelmRelease of an instance (contract/appliance.md C.3).
func (p *planner) renderRelease(suspend bool) (*helmac.HelmReleaseApplyConfiguration, error) {
	local, public := p.hosts()
	values, err := json.Marshal(releaseValues{Instance: instanceValues{
		Name: p.Instance.Name, Namespace: p.targetNamespace(), Application: p.Application.Key,
		LocalHost: local, LocalName: strings.TrimSuffix(local, ".local"), PublicHost: public, Values: p.values,
	}})
	if err != nil {
		return nil, fmt.Errorf("encoding the values of the release: %w", err)
	}
	// Without this strategy a failed release stalls until a person touches it;
	// with it Flux tries again when the cause has healed (field report D10).
	retry := string(helmv2.ActionStrategyRetryOnFailure)
	return helmac.HelmRelease(p.Instance.Name, p.Instance.Namespace).
		WithLabels(p.labels()).
		WithSpec(helmac.HelmReleaseSpec().
			WithInterval(metav1.Duration{Duration: interval}).
			WithReleaseName(p.Instance.Name).
			WithTargetNamespace(p.targetNamespace()).
			WithStorageNamespace(p.Instance.Namespace).
			WithSuspend(suspend).
			WithInstall(helmac.Install().WithCreateNamespace(true).WithStrategy(helmac.InstallStrategy().WithName(retry))).
			WithUpgrade(helmac.Upgrade().WithCleanupOnFail(true).WithStrategy(helmac.UpgradeStrategy().WithName(retry))).
			WithUninstall(helmac.Uninstall().WithKeepHistory(false)).
			WithChart(helmac.HelmChartTemplate().WithSpec(helmac.HelmChartTemplateSpec().
				WithChart("./" + strings.TrimPrefix(p.Application.ChartPath, "./")).
				WithInterval(metav1.Duration{Duration: interval}).
				WithReconcileStrategy("Revision").
				WithSourceRef(helmac.CrossNamespaceObjectReference().
					WithKind(p.Source.Kind).WithName(p.Source.Name).WithNamespace(p.Source.Namespace)))).
			WithValues(apiextensionsv1.JSON{Raw: values})), nil
}
