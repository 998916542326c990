package identity_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"magicstick.dev/operator/generated/httpapi"
	"magicstick.dev/operator/handwritten/identity"
)

func TestRealmRolesFrom_is_the_ladder(t *testing.T) {
	for role, want := range map[httpapi.Role][]string{
		httpapi.RoleUser:     {"magicstick-user", "magicstick-viewer", "magicstick-operator", "magicstick-admin"},
		httpapi.RoleViewer:   {"magicstick-viewer", "magicstick-operator", "magicstick-admin"},
		httpapi.RoleOperator: {"magicstick-operator", "magicstick-admin"},
		httpapi.RoleAdmin:    {"magicstick-admin"},
		httpapi.RoleNone:     nil,
		0:                    nil,
		99:                   nil,
	} {
		assert.Equal(t, want, identity.RealmRolesFrom(role), "%v", role)
	}
}

func TestHighestRole(t *testing.T) {
	for name, test := range map[string]struct {
		roles []string
		want  httpapi.Role
	}{
		"none":                            {nil, 0},
		"of others":                       {[]string{"offline_access", "default-roles-magicstick", "uma_authorization"}, 0},
		"one":                             {[]string{"magicstick-user"}, httpapi.RoleUser},
		"the highest in any order":        {[]string{"magicstick-admin", "magicstick-user", "magicstick-viewer"}, httpapi.RoleAdmin},
		"operator is above viewer":        {[]string{"magicstick-viewer", "magicstick-operator"}, httpapi.RoleOperator},
		"the recovery group is no role":   {[]string{"magicstick-recovery"}, 0},
		"another case is another name":    {[]string{"magicstick-Admin", "Magicstick-admin"}, 0},
		"without the prefix":              {[]string{"admin"}, 0},
		"none is no role of a person":     {[]string{"magicstick-none"}, 0},
		"spaces are part of a name":       {[]string{" magicstick-admin", "magicstick-admin "}, 0},
		"prefix twice":                    {[]string{"magicstick-magicstick-admin"}, 0},
		"a zero byte is part of the name": {[]string{"magicstick-admin\x00"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, identity.HighestRole(test.roles))
		})
	}
}

func TestPersonRole_knows_the_four_roles_only(t *testing.T) {
	for name, want := range map[string]httpapi.Role{
		"user": httpapi.RoleUser, "viewer": httpapi.RoleViewer, "operator": httpapi.RoleOperator, "admin": httpapi.RoleAdmin,
		"": 0, "none": 0, "root": 0, "Admin": 0, "admin ": 0, "magicstick-admin": 0,
	} {
		assert.Equal(t, want, identity.PersonRole(name), "%q", name)
	}
}
