package identity

import (
	"strings"

	"magicstick.dev/operator/generated/httpapi"
)

// realmRolePrefix starts the names of the four realm roles in Keycloak
// (contract/appliance.md F.1).
const realmRolePrefix = "magicstick-"

// ladder holds the roles from the lowest to the highest; each includes those before it.
var ladder = [...]httpapi.Role{httpapi.RoleUser, httpapi.RoleViewer, httpapi.RoleOperator, httpapi.RoleAdmin}

// RealmRole is the name of a role in the realm, "" for what is no role of a person.
func RealmRole(role httpapi.Role) string {
	for _, known := range ladder {
		if role == known {
			return realmRolePrefix + role.String()
		}
	}
	return ""
}

// RealmRolesFrom lists the realm roles that open what requires the given role:
// the role itself and all above it, lowest first. It is empty for what is no
// role of a person.
func RealmRolesFrom(required httpapi.Role) []string {
	var names []string
	for _, role := range ladder {
		if RealmRole(required) != "" && role.Includes(required) {
			names = append(names, RealmRole(role))
		}
	}
	return names
}

// HighestRole is the highest role among the names of realm roles; the zero Role,
// which includes nothing, when there is none of ours. Names are compared exactly.
func HighestRole(realmRoles []string) httpapi.Role {
	var highest httpapi.Role
	for _, name := range realmRoles {
		short, ours := strings.CutPrefix(name, realmRolePrefix)
		if !ours {
			continue
		}
		if role := PersonRole(short); role > highest {
			highest = role
		}
	}
	return highest
}

// PersonRole reads a role as spec.access.role writes it: user, viewer, operator
// or admin. Everything else is the zero Role, which includes nothing and is
// included by nothing.
func PersonRole(name string) httpapi.Role {
	for _, role := range ladder {
		if role.String() == name {
			return role
		}
	}
	return 0
}
