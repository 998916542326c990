package instances

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	envoyv1alpha1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayac "sigs.k8s.io/gateway-api/applyconfiguration/apis/v1"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	envoyac "magicstick.dev/operator/generated/external/envoy/applyconfiguration/api/v1alpha1"
	"magicstick.dev/operator/handwritten/kube"
)

const (
	// finalizerGuard keeps a policy in force until its routes have no backend.
	finalizerGuard = "appliance.magicstick.dev/access-guard"

	keycloakService = "keycloak"
	keycloakPort    = 8080
	jwtProvider     = "keycloak"
	rolesClaim      = "realm_access.roles"
	roleRule        = "required-magicstick-role"
	logoutPath      = "/logout"
	// jwksCache is the gateway's default, written out.
	jwksCache = "300s"
)

// roleLadder are the realm roles from lowest to highest (contract/appliance.md F.1).
var roleLadder = []appliancev1alpha1.AppInstanceSpecAccessRole{
	appliancev1alpha1.AppInstanceSpecAccessRoleUser,
	appliancev1alpha1.AppInstanceSpecAccessRoleViewer,
	appliancev1alpha1.AppInstanceSpecAccessRoleOperator,
	appliancev1alpha1.AppInstanceSpecAccessRoleAdmin,
}

// admittedRoles are the realm roles that include the required one. A role that
// is not on the ladder admits nobody but administrators.
func admittedRoles(required appliancev1alpha1.AppInstanceSpecAccessRole) []string {
	for i, role := range roleLadder {
		if role == required || i == len(roleLadder)-1 {
			admitted := make([]string, 0, len(roleLadder)-i)
			for _, higher := range roleLadder[i:] {
				admitted = append(admitted, "magicstick-"+string(higher))
			}
			return admitted
		}
	}
	return nil
}

func callbackPath(route string) string { return "/oauth2/callback/" + route }

// renderPolicy is the guard of one address: the question to the guard service,
// and with single sign-on the sign-in and the role in front of it. Defaults of
// the CRD are written out, so that what is not ours can be told apart.
func (p *planner) renderPolicy(s *side) *envoyac.SecurityPolicyApplyConfiguration {
	guard := kube.GuardRequest{Namespace: p.Instance.Namespace, Instance: p.Instance.Name, Authentication: string(p.authentication())}
	spec := envoyac.SecurityPolicySpec().
		WithTargetRefs(target(s.route)).
		WithExtAuth(envoyac.ExtAuth().
			WithFailOpen(false).
			WithHTTP(envoyac.HTTPExtAuthService().
				WithBackendRefs(service(kube.GuardService, kube.GuardPort)).
				WithPathOverride(guard.Path())))
	if s.callback != "" {
		spec.WithTargetRefs(target(s.callback))
		spec.ExtAuth.WithHeadersToExtAuth("authorization")
		p.signIn(s, spec)
	}
	return envoyac.SecurityPolicy(s.policy, p.Settings.IdentityNamespace).
		WithLabels(p.labels()).
		WithFinalizers(finalizerGuard).
		WithSpec(spec)
}

// signIn adds single sign-on and the role (contract/appliance.md C.4, F.2).
func (p *planner) signIn(s *side, spec *envoyac.SecurityPolicySpecApplyConfiguration) {
	issuer := p.Domains.Issuer()
	internal := fmt.Sprintf("http://%s.%s.svc.cluster.local:%d/realms/magicstick/protocol/openid-connect", keycloakService, p.Settings.IdentityNamespace, keycloakPort)
	spec.WithOIDC(envoyac.OIDC().
		WithProvider(envoyac.OIDCProvider().
			WithIssuer(issuer).
			WithAuthorizationEndpoint(issuer + "/protocol/openid-connect/auth").
			WithTokenEndpoint(internal + "/token").
			WithEndSessionEndpoint(issuer + "/protocol/openid-connect/logout")).
		WithClientID(p.Settings.OIDCClientID).
		WithClientSecret(gatewayac.SecretObjectReference().
			WithGroup("").WithKind("Secret").WithName(gatewayv1.ObjectName(p.Settings.OIDCClientSecret))).
		WithRedirectURL("https://" + s.callbackHost + callbackPath(s.route)).
		WithLogoutPath(logoutPath).
		WithCookieDomain(s.cookieDomain).
		WithCookieNames(envoyac.OIDCCookieNames().
			WithAccessToken(accessTokenCookie(s.route)).
			WithIDToken(idTokenCookie(s.route))).
		WithForwardAccessToken(true).
		WithRefreshToken(true))
	spec.WithJWT(envoyac.JWT().WithProviders(envoyac.JWTProvider().
		WithName(jwtProvider).
		WithIssuer(issuer).
		WithRemoteJWKS(envoyac.RemoteJWKS().
			WithURI(internal + "/certs").
			WithBackendRefs(service(keycloakService, keycloakPort)).
			WithCacheDuration(jwksCache)).
		WithExtractFrom(envoyac.JWTExtractor().WithCookies(accessTokenCookie(s.route)))))
	spec.WithAuthorization(envoyac.Authorization().
		WithDefaultAction(envoyv1alpha1.AuthorizationActionDeny).
		WithRules(envoyac.AuthorizationRule().
			WithName(roleRule).
			WithAction(envoyv1alpha1.AuthorizationActionAllow).
			WithPrincipal(envoyac.Principal().WithJWT(envoyac.JWTPrincipal().
				WithProvider(jwtProvider).
				WithClaims(envoyac.JWTClaim().
					WithName(rolesClaim).
					WithValueType(envoyv1alpha1.JWTClaimValueTypeStringArray).
					WithValues(admittedRoles(p.role())...))))))
}

func target(route string) *gatewayac.LocalPolicyTargetReferenceWithSectionNameApplyConfiguration {
	return gatewayac.LocalPolicyTargetReferenceWithSectionName().
		WithGroup(gatewayv1.GroupName).WithKind("HTTPRoute").WithName(gatewayv1.ObjectName(route))
}

func service(name string, port int32) *envoyac.BackendRefApplyConfiguration {
	return envoyac.BackendRef().WithGroup("").WithKind("Service").WithName(gatewayv1.ObjectName(name)).WithPort(port).WithWeight(1)
}

// mark names the policy that routes are written for: what is demanded of it,
// and the object and its generation that stand for it now. Without an object, or
// with one that goes, there is nothing that a route could be opened for. The
// generation alone is not enough: it begins at 1 again with every new object.
func mark(wanted *envoyac.SecurityPolicyApplyConfiguration, live *envoyv1alpha1.SecurityPolicy) (string, error) {
	raw, err := json.Marshal(wanted.Spec)
	if err != nil {
		return "", fmt.Errorf("encoding SecurityPolicy %s: %w", *wanted.Name, err)
	}
	sum := sha256.Sum256(raw)
	demanded := hex.EncodeToString(sum[:8])
	if live == nil || live.DeletionTimestamp != nil {
		return demanded, nil
	}
	return fmt.Sprintf("%s.%s.%d", demanded, live.UID, live.Generation), nil
}

// guardState is what a policy is worth right now.
type guardState struct {
	// rendered: the live spec is exactly the rendered one and is not going away.
	rendered bool
	// extended: everything that was rendered is there, and something else too.
	extended bool
	// accepted: rendered, and the gateway has accepted this generation.
	accepted bool
	// refused: the gateway has said no to it as it is, or what somebody added to
	// it stays there.
	refused bool
	// problem says for people why it is not accepted.
	problem string
}

// judge compares a policy with its rendering and reads the gateway's answer
// (contract/appliance.md C.4 (2)).
func judge(rendered *envoyac.SecurityPolicyApplyConfiguration, live *envoyv1alpha1.SecurityPolicy, gateway, namespace string) (guardState, error) {
	title := "SecurityPolicy " + namespace + "/" + *rendered.Name
	switch {
	case live == nil:
		return guardState{problem: title + " does not exist yet"}, nil
	case live.DeletionTimestamp != nil:
		return guardState{problem: title + " is being deleted"}, nil
	}
	same, err := kube.Unchanged(rendered, live, kube.FieldManager)
	if err != nil {
		return guardState{}, err
	}
	if !same {
		return guardState{problem: title + " is being changed"}, nil
	}
	raw, err := json.Marshal(rendered.Spec)
	if err != nil {
		return guardState{}, fmt.Errorf("encoding %s: %w", title, err)
	}
	var want envoyv1alpha1.SecurityPolicySpec
	if err := json.Unmarshal(raw, &want); err != nil {
		return guardState{}, fmt.Errorf("reading %s: %w", title, err)
	}
	if !equality.Semantic.DeepEqual(want, live.Spec) {
		return guardState{extended: true, refused: true, problem: title + " has fields that somebody else added"}, nil
	}
	problem, refused := refusal(live, gateway, namespace)
	if problem != "" {
		return guardState{rendered: true, refused: refused, problem: title + " " + problem}, nil
	}
	return guardState{rendered: true, accepted: true}, nil
}

// refusal is why the gateway has not accepted a policy as it is now, empty when
// it has, and whether that is a no rather than silence. Every answer that the gateway gives must be a yes to this generation:
// a policy with two targets has more than one. Only Envoy Gateway speaks for it.
func refusal(policy *envoyv1alpha1.SecurityPolicy, gateway, namespace string) (problem string, refused bool) {
	answers := 0
	for _, ancestor := range policy.Status.Ancestors {
		ref := ancestor.AncestorRef
		if string(ancestor.ControllerName) != envoyv1alpha1.GatewayControllerName ||
			string(ref.Name) != gateway || ref.Kind != nil && *ref.Kind != "Gateway" ||
			ref.Group != nil && *ref.Group != gatewayv1.GroupName ||
			ref.Namespace != nil && string(*ref.Namespace) != namespace {
			continue
		}
		answers++
		accepted := kube.FindCondition(ancestor.Conditions, string(gatewayv1.PolicyConditionAccepted))
		switch {
		case accepted == nil:
			return "has no answer from the gateway yet", false
		case accepted.ObservedGeneration != policy.Generation:
			return "waits for the gateway to look at its present form", false
		case accepted.Status != metav1.ConditionTrue:
			return "is not accepted by the gateway: " + accepted.Reason + ": " + kube.Sanitize(accepted.Message), true
		}
	}
	if answers == 0 {
		return "has no answer from the gateway yet", false
	}
	return "", false
}
