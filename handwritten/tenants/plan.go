package tenants

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"k8s.io/utils/ptr"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

// What Paperclip and its plugin call things (contract/appliance.md C.5, annex 1).
const (
	application = "paperclip"

	labelManagedBy   = "paperclip.io/managed-by"
	managedByPlugin  = "paperclip-k8s-plugin"
	labelCompany     = "paperclip.io/company-id"
	labelRole        = "paperclip.io/role"
	roleAgent        = "agent"
	policyName       = "magicstick-paperclip-runtime-egress"
	quotaName        = "paperclip-quota"
	limitsName       = "paperclip-limits"
	paperclipPort    = 3100
	gatewayNamespace = "ai"
	gatewayApp       = "litellm"
	gatewayPort      = 4000
)

// Bounds of values.agentExecution.maxConcurrentAgents.
const minAgents, defaultAgents, maxAgents = 1, 2, 10

// Plan is what a tenant namespace gets. Everything is nil without an owner.
type Plan struct {
	Policy *networkingv1ac.NetworkPolicyApplyConfiguration `json:"policy,omitempty"`
	Quota  *corev1ac.ResourceQuotaApplyConfiguration       `json:"quota,omitempty"`
	Limits *corev1ac.LimitRangeApplyConfiguration          `json:"limits,omitempty"`
	// RemovePolicy takes the network policy away again; quota and limits stay,
	// as they belong to the plugin as much as to us.
	RemovePolicy bool `json:"removePolicy,omitempty"`
}

// tenant reports whether a namespace is one of Paperclip's.
func tenant(namespace *corev1.Namespace) bool {
	return namespace.Labels[labelManagedBy] == managedByPlugin
}

// owner is the one instance that the namespace was made for, nil when there is
// none or more than one.
func owner(namespace *corev1.Namespace, instances []*appliancev1alpha1.AppInstance) *appliancev1alpha1.AppInstance {
	company := namespace.Labels[labelCompany]
	if company == "" {
		return nil
	}
	var found *appliancev1alpha1.AppInstance
	for _, instance := range instances {
		if instance.Spec.Application != application || instance.DeletionTimestamp != nil || !ptr.Deref(instance.Spec.Enabled, true) ||
			instance.Name+"-"+company != namespace.Name {
			continue
		}
		if found != nil {
			return nil
		}
		found = instance
	}
	return found
}

// Compute decides what a tenant namespace gets. It is pure.
func Compute(namespace *corev1.Namespace, instances []*appliancev1alpha1.AppInstance) Plan {
	if namespace.DeletionTimestamp != nil {
		return Plan{}
	}
	instance := owner(namespace, instances)
	if !tenant(namespace) || instance == nil {
		return Plan{RemovePolicy: true}
	}
	labels := map[string]string{
		kube.LabelManagedBy: kube.ManagedByOperator,
		kube.LabelInstance:  instance.Name,
		labelCompany:        namespace.Labels[labelCompany],
		labelManagedBy:      managedByPlugin,
	}
	return Plan{
		Policy: policy(namespace.Name, instance).WithLabels(labels),
		Quota:  quota(namespace.Name, agents(instance)).WithLabels(labels),
		Limits: limits(namespace.Name).WithLabels(labels),
	}
}

// policy lets agents talk to the model gateway and to their Paperclip.
func policy(namespace string, instance *appliancev1alpha1.AppInstance) *networkingv1ac.NetworkPolicyApplyConfiguration {
	target := instance.Spec.TargetNamespace
	if target == "" {
		target = gatewayNamespace
	}
	return networkingv1ac.NetworkPolicy(policyName, namespace).WithSpec(networkingv1ac.NetworkPolicySpec().
		WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{labelRole: roleAgent})).
		WithPolicyTypes(networkingv1.PolicyTypeEgress).
		WithEgress(
			egress(gatewayNamespace, map[string]string{"app": gatewayApp}, gatewayPort),
			egress(target, map[string]string{
				"app.kubernetes.io/name":      application,
				"app.kubernetes.io/instance":  instance.Name,
				"app.kubernetes.io/component": "server",
			}, paperclipPort),
		))
}

func egress(namespace string, pods map[string]string, port int) *networkingv1ac.NetworkPolicyEgressRuleApplyConfiguration {
	return networkingv1ac.NetworkPolicyEgressRule().
		WithTo(networkingv1ac.NetworkPolicyPeer().
			WithNamespaceSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{corev1.LabelMetadataName: namespace})).
			WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(pods))).
		WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt(port)))
}

// quota is for n agents at a time.
func quota(namespace string, n int64) *corev1ac.ResourceQuotaApplyConfiguration {
	return corev1ac.ResourceQuota(quotaName, namespace).WithSpec(corev1ac.ResourceQuotaSpec().WithHard(corev1.ResourceList{
		corev1.ResourcePods:           *resource.NewQuantity(n, resource.DecimalSI),
		corev1.ResourceRequestsCPU:    *resource.NewMilliQuantity(500*n, resource.DecimalSI),
		corev1.ResourceRequestsMemory: *resource.NewQuantity(n<<30, resource.BinarySI),
		corev1.ResourceLimitsCPU:      *resource.NewQuantity(2*n, resource.DecimalSI),
		corev1.ResourceLimitsMemory:   *resource.NewQuantity(4*n<<30, resource.BinarySI),
	}))
}

func limits(namespace string) *corev1ac.LimitRangeApplyConfiguration {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return corev1ac.LimitRange(limitsName, namespace).WithSpec(corev1ac.LimitRangeSpec().WithLimits(corev1ac.LimitRangeItem().
		WithType(corev1.LimitTypeContainer).
		WithDefaultRequest(list("500m", "1Gi")).
		WithDefault(list("2", "4Gi")).
		WithMin(list("100m", "128Mi")).
		WithMax(list("2", "4Gi"))))
}

// agents is values.agentExecution.maxConcurrentAgents; what is no number counts
// as absent.
func agents(instance *appliancev1alpha1.AppInstance) int64 {
	var values struct {
		AgentExecution any `json:"agentExecution"`
	}
	if instance.Spec.Values == nil {
		return defaultAgents
	}
	decoder := json.NewDecoder(bytes.NewReader(instance.Spec.Values.Raw))
	decoder.UseNumber()
	if decoder.Decode(&values) != nil {
		return defaultAgents
	}
	execution, _ := values.AgentExecution.(map[string]any)
	text := ""
	switch given := execution["maxConcurrentAgents"].(type) {
	case json.Number:
		text = given.String()
	case string:
		text = strings.TrimSpace(given)
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || number != number { // NaN
		return defaultAgents
	}
	return int64(max(minAgents, min(maxAgents, number)))
}
