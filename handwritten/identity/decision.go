package identity

import (
	"slices"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/httpapi"
)

// Lookup says what is known about an AppInstance.
type Lookup int

// The results of looking an AppInstance up. The zero value denies.
const (
	// LookupUnavailable: the cache is not filled, or has not heard from the API
	// server for too long, so nothing is known.
	LookupUnavailable Lookup = iota
	// LookupAbsent: there is no AppInstance of that name.
	LookupAbsent
	// LookupFound: the other fields of Instance hold.
	LookupFound
)

// Instance is what a decision needs to know about an AppInstance.
type Instance struct {
	// Lookup says whether the rest is filled in.
	Lookup Lookup
	// Enabled is spec.enabled with its default applied.
	Enabled bool
	// Deleting is true from the moment the object has a deletion timestamp.
	Deleting bool
	// Authentication is spec.access.authentication with its default applied.
	Authentication appliancev1alpha1.AppInstanceSpecAccessAuthentication
	// Role is spec.access.role with its default applied; zero when it is no role.
	Role httpapi.Role
	// Sharing is the mode of spec.access.sharing, "" when that is left out.
	Sharing appliancev1alpha1.AppInstanceSpecAccessSharingMode
	// Users and Groups are the Keycloak IDs that mode selected admits.
	Users, Groups []string
}

// Caller is what a decision needs to know about a request.
type Caller struct {
	// Authentication is the mode that the policy in front of the instance was
	// rendered for.
	Authentication appliancev1alpha1.AppInstanceSpecAccessAuthentication
	// Token is what became of the access token. The fields below hold only
	// with TokenValid.
	Token TokenState
	// UserID is the stable Keycloak ID of the person.
	UserID string
	// Groups are the stable Keycloak IDs of the person's groups.
	Groups []string
	// Role is the person's highest role; zero for none.
	Role httpapi.Role
}

// Reason says why a decision was made. It goes into metrics and debug logs and
// never into an answer.
type Reason string

// Reasons to allow.
const (
	// ReasonPublic: the instance is open to everyone on purpose.
	ReasonPublic Reason = "Public"
	// ReasonRole: the role suffices, and nothing else is asked for.
	ReasonRole Reason = "Role"
	// ReasonSelectedUser: the role suffices and the person is on the allow-list.
	ReasonSelectedUser Reason = "SelectedUser"
	// ReasonSelectedGroup: the role suffices and a group of the person is on the allow-list.
	ReasonSelectedGroup Reason = "SelectedGroup"
)

// Reasons to deny. A token that is not valid denies with "Token" and its state.
const (
	// ReasonPathNotUnderstood: the path names no instance and no mode.
	ReasonPathNotUnderstood Reason = "PathNotUnderstood"
	// ReasonCacheNotReady: nothing is known about instances now.
	ReasonCacheNotReady Reason = "CacheNotReady"
	// ReasonUnknownInstance: there is no such instance.
	ReasonUnknownInstance Reason = "UnknownInstance"
	// ReasonInstanceDeleting: the instance is being removed.
	ReasonInstanceDeleting Reason = "InstanceDeleting"
	// ReasonInstanceDisabled: the instance is switched off.
	ReasonInstanceDisabled Reason = "InstanceDisabled"
	// ReasonInstanceNotUnderstood: the instance has a value that no version of
	// the schema allows, so what its owner wanted is not known.
	ReasonInstanceNotUnderstood Reason = "InstanceNotUnderstood"
	// ReasonAuthenticationDiffers: the policy was rendered for another mode.
	ReasonAuthenticationDiffers Reason = "AuthenticationDiffers"
	// ReasonRoleTooLow: the person lacks the role.
	ReasonRoleTooLow Reason = "RoleTooLow"
	// ReasonNotSelected: the person is not on the allow-list.
	ReasonNotSelected Reason = "NotSelected"
)

// Decision is the answer to one question.
type Decision struct {
	// Allow is false in the zero value.
	Allow bool
	// Reason says why.
	Reason Reason
}

func deny(reason Reason) Decision  { return Decision{Reason: reason} }
func allow(reason Reason) Decision { return Decision{Allow: true, Reason: reason} }

const (
	authenticationSSO  = appliancev1alpha1.AppInstanceSpecAccessAuthenticationSSO
	authenticationNone = appliancev1alpha1.AppInstanceSpecAccessAuthenticationNone
	sharingAll         = appliancev1alpha1.AppInstanceSpecAccessSharingModeAll
	sharingSelected    = appliancev1alpha1.AppInstanceSpecAccessSharingModeSelected
)

// Decide says whether a caller may enter an instance. It is pure: the same facts
// give the same decision. Whatever is not known to be fine denies.
func Decide(instance Instance, caller Caller) Decision {
	switch {
	case instance.Lookup == LookupAbsent:
		return deny(ReasonUnknownInstance)
	case instance.Lookup != LookupFound:
		return deny(ReasonCacheNotReady)
	case instance.Deleting:
		return deny(ReasonInstanceDeleting)
	case !instance.Enabled:
		return deny(ReasonInstanceDisabled)
	case !instance.understood():
		return deny(ReasonInstanceNotUnderstood)
	case caller.Authentication != instance.Authentication:
		return deny(ReasonAuthenticationDiffers)
	case instance.Authentication == authenticationNone:
		return allow(ReasonPublic)
	case caller.Token != TokenValid:
		return deny("Token" + Reason(caller.Token.String()))
	case caller.UserID == "":
		return deny("Token" + Reason(TokenMalformed.String()))
	case !caller.Role.Includes(instance.Role):
		return deny(ReasonRoleTooLow)
	case instance.Sharing != sharingSelected:
		return allow(ReasonRole)
	case slices.Contains(instance.Users, caller.UserID):
		return allow(ReasonSelectedUser)
	}
	for _, group := range caller.Groups {
		if group != "" && slices.Contains(instance.Groups, group) {
			return allow(ReasonSelectedGroup)
		}
	}
	return deny(ReasonNotSelected)
}

// understood repeats the rules of the CRD, so that an object which came past
// them opens nothing.
func (i Instance) understood() bool {
	listed := len(i.Users) + len(i.Groups)
	switch i.Authentication {
	case authenticationSSO, authenticationNone:
	default:
		return false
	}
	switch i.Sharing {
	case "", sharingAll:
		if listed > 0 {
			return false
		}
	case sharingSelected:
		if i.Authentication != authenticationSSO {
			return false
		}
	default:
		return false
	}
	return RealmRole(i.Role) != ""
}

// FactsOf takes from an AppInstance what decisions need, with the defaults of
// the schema. The lists are the object's own and must not be changed.
func FactsOf(object *appliancev1alpha1.AppInstance) Instance {
	facts := Instance{
		Lookup:         LookupFound,
		Enabled:        object.Spec.Enabled == nil || *object.Spec.Enabled,
		Deleting:       object.DeletionTimestamp != nil,
		Authentication: authenticationSSO,
		Role:           httpapi.RoleUser,
	}
	access := object.Spec.Access
	if access == nil {
		return facts
	}
	if access.Authentication != "" {
		facts.Authentication = access.Authentication
	}
	if access.Role != "" {
		facts.Role = PersonRole(string(access.Role))
	}
	if access.Sharing != nil {
		// An empty mode is no mode: it must not read as "left out".
		facts.Sharing = access.Sharing.Mode
		if facts.Sharing == "" {
			facts.Sharing = "missing"
		}
		facts.Users, facts.Groups = access.Sharing.Users, access.Sharing.Groups
	}
	return facts
}
