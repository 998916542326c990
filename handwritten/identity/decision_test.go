package identity_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/generated/httpapi"
	"magicstick.dev/operator/handwritten/identity"
)

type (
	authentication = appliancev1alpha1.AppInstanceSpecAccessAuthentication
	sharingMode    = appliancev1alpha1.AppInstanceSpecAccessSharingMode
)

const (
	ada      = "5f0d6a52-0000-4000-8000-00000000000a"
	bob      = "5f0d6a52-0000-4000-8000-00000000000b"
	builders = "9c1e0000-0000-4000-8000-000000000001"
	painters = "9c1e0000-0000-4000-8000-000000000002"
)

// The dimensions of the table. Each has the values that the schema allows and
// those that it does not.
var (
	lookups         = []identity.Lookup{identity.LookupUnavailable, identity.LookupAbsent, identity.LookupFound, 7}
	authentications = []authentication{"sso", "none", "", "SSO", "basic"}
	roles           = []httpapi.Role{0, httpapi.RoleNone, httpapi.RoleUser, httpapi.RoleViewer, httpapi.RoleOperator, httpapi.RoleAdmin, 99}
	sharings        = []struct {
		mode          sharingMode
		users, groups []string
	}{
		{"", nil, nil}, {"all", nil, nil},
		{"selected", nil, nil}, {"selected", []string{ada}, nil}, {"selected", nil, []string{builders}}, {"selected", []string{ada}, []string{builders}},
		{"all", []string{ada}, nil}, {"", nil, []string{builders}}, {"everyone", nil, nil},
	}
	people = []struct {
		id     string
		groups []string
	}{
		{ada, nil}, {bob, nil}, {bob, []string{builders}}, {ada, []string{painters, builders}}, {bob, []string{painters}}, {"", []string{builders}}, {bob, []string{""}},
	}
	tokens = []identity.TokenState{
		identity.TokenMissing, identity.TokenValid, identity.TokenOversize, identity.TokenMalformed, identity.TokenAlgorithm,
		identity.TokenKeysUnavailable, identity.TokenUnknownKey, identity.TokenSignature, identity.TokenIssuer,
		identity.TokenClient, identity.TokenAudience, identity.TokenType, identity.TokenExpired, identity.TokenNotYetValid, 99,
	}
)

// ladder is the order of roles, written down a second time on purpose.
var ladder = map[httpapi.Role]int{httpapi.RoleUser: 1, httpapi.RoleViewer: 2, httpapi.RoleOperator: 3, httpapi.RoleAdmin: 4}

// expected is the rule of contract/appliance.md C.4 and F.3 in other words than
// the code's: the one list of ways in.
func expected(i identity.Instance, c identity.Caller) bool {
	usable := i.Lookup == identity.LookupFound && i.Enabled && !i.Deleting && ladder[i.Role] > 0
	noList := len(i.Users) == 0 && len(i.Groups) == 0 && (i.Sharing == "" || i.Sharing == "all")
	if usable && i.Authentication == "none" && c.Authentication == "none" && noList {
		return true
	}
	person := c.Token == identity.TokenValid && c.UserID != ""
	if !usable || i.Authentication != "sso" || c.Authentication != "sso" || !person || ladder[c.Role] < ladder[i.Role] {
		return false
	}
	if noList {
		return true
	}
	if i.Sharing != "selected" {
		return false
	}
	listed := false
	for _, user := range i.Users {
		listed = listed || user == c.UserID
	}
	for _, group := range i.Groups {
		for _, mine := range c.Groups {
			listed = listed || mine == group
		}
	}
	return listed
}

// TestDecide_for_every_combination goes through all values of all dimensions:
// lookup x enabled x deleting x authentication x stated authentication x
// required role x sharing x caller's role x membership x token.
func TestDecide_for_every_combination(t *testing.T) {
	cases, allowed := 0, 0
	reasons := map[identity.Reason]int{}
	for _, lookup := range lookups {
		for _, enabled := range []bool{true, false} {
			for _, deleting := range []bool{true, false} {
				for _, mode := range authentications {
					for _, stated := range authentications {
						for _, required := range roles {
							for _, sharing := range sharings {
								instance := identity.Instance{
									Lookup: lookup, Enabled: enabled, Deleting: deleting, Authentication: mode, Role: required,
									Sharing: sharing.mode, Users: sharing.users, Groups: sharing.groups,
								}
								for _, has := range roles {
									for _, person := range people {
										for _, token := range tokens {
											caller := identity.Caller{Authentication: stated, Token: token, UserID: person.id, Groups: person.groups, Role: has}
											decision := identity.Decide(instance, caller)
											if want := expected(instance, caller); decision.Allow != want {
												t.Fatalf("%+v\n%+v\ngot %+v, want allow=%v", instance, caller, decision, want)
											}
											cases++
											reasons[decision.Reason]++
											if decision.Allow {
												allowed++
											}
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d cases, %d allowed, reasons %v", cases, allowed, reasons)
	assert.Positive(t, allowed)
	for _, reason := range []identity.Reason{
		identity.ReasonPublic, identity.ReasonRole, identity.ReasonSelectedUser, identity.ReasonSelectedGroup,
		identity.ReasonCacheNotReady, identity.ReasonUnknownInstance, identity.ReasonInstanceDeleting,
		identity.ReasonInstanceDisabled, identity.ReasonInstanceNotUnderstood, identity.ReasonAuthenticationDiffers,
		identity.ReasonRoleTooLow, identity.ReasonNotSelected, "TokenMissing", "TokenExpired", "TokenKeysUnavailable",
	} {
		assert.Positive(t, reasons[reason], "no case has reason %s", reason)
	}
}

// TestDecide_reasons reads like the rules; the table above proves there are no others.
func TestDecide_reasons(t *testing.T) {
	instance := func(change func(*identity.Instance)) identity.Instance {
		i := identity.Instance{Lookup: identity.LookupFound, Enabled: true, Authentication: "sso", Role: httpapi.RoleUser}
		if change != nil {
			change(&i)
		}
		return i
	}
	caller := func(change func(*identity.Caller)) identity.Caller {
		c := identity.Caller{Authentication: "sso", Token: identity.TokenValid, UserID: ada, Role: httpapi.RoleUser, Groups: []string{builders}}
		if change != nil {
			change(&c)
		}
		return c
	}
	selected := func(users, groups []string) identity.Instance {
		return instance(func(i *identity.Instance) { i.Sharing, i.Users, i.Groups = "selected", users, groups })
	}
	for name, test := range map[string]struct {
		instance identity.Instance
		caller   identity.Caller
		want     identity.Decision
	}{
		"role suffices":                        {instance(nil), caller(nil), identity.Decision{Allow: true, Reason: identity.ReasonRole}},
		"mode all":                             {instance(func(i *identity.Instance) { i.Sharing = "all" }), caller(nil), identity.Decision{Allow: true, Reason: identity.ReasonRole}},
		"user is selected":                     {selected([]string{bob, ada}, nil), caller(nil), identity.Decision{Allow: true, Reason: identity.ReasonSelectedUser}},
		"group is selected":                    {selected([]string{bob}, []string{painters, builders}), caller(nil), identity.Decision{Allow: true, Reason: identity.ReasonSelectedGroup}},
		"not selected":                         {selected([]string{bob}, []string{painters}), caller(nil), identity.Decision{Reason: identity.ReasonNotSelected}},
		"empty selection denies everyone":      {selected(nil, nil), caller(func(c *identity.Caller) { c.Role = httpapi.RoleAdmin }), identity.Decision{Reason: identity.ReasonNotSelected}},
		"selected needs the role too":          {selected([]string{ada}, nil), caller(func(c *identity.Caller) { c.Role = 0 }), identity.Decision{Reason: identity.ReasonRoleTooLow}},
		"a user ID is no group ID":             {selected(nil, []string{ada}), caller(func(c *identity.Caller) { c.Groups = nil }), identity.Decision{Reason: identity.ReasonNotSelected}},
		"a group ID is no user ID":             {selected([]string{builders}, nil), caller(nil), identity.Decision{Reason: identity.ReasonNotSelected}},
		"role too low":                         {instance(func(i *identity.Instance) { i.Role = httpapi.RoleViewer }), caller(nil), identity.Decision{Reason: identity.ReasonRoleTooLow}},
		"open instance asks for no token":      {instance(func(i *identity.Instance) { i.Authentication = "none" }), identity.Caller{Authentication: "none"}, identity.Decision{Allow: true, Reason: identity.ReasonPublic}},
		"open instance behind an SSO policy":   {instance(func(i *identity.Instance) { i.Authentication = "none" }), caller(nil), identity.Decision{Reason: identity.ReasonAuthenticationDiffers}},
		"SSO instance behind an open policy":   {instance(nil), identity.Caller{Authentication: "none"}, identity.Decision{Reason: identity.ReasonAuthenticationDiffers}},
		"open instance that is off":            {instance(func(i *identity.Instance) { i.Authentication, i.Enabled = "none", false }), identity.Caller{Authentication: "none"}, identity.Decision{Reason: identity.ReasonInstanceDisabled}},
		"being deleted":                        {instance(func(i *identity.Instance) { i.Deleting = true }), caller(nil), identity.Decision{Reason: identity.ReasonInstanceDeleting}},
		"token missing":                        {instance(nil), identity.Caller{Authentication: "sso"}, identity.Decision{Reason: "TokenMissing"}},
		"zero facts deny":                      {identity.Instance{}, identity.Caller{}, identity.Decision{Reason: identity.ReasonCacheNotReady}},
		"selection on an open instance denies": {instance(func(i *identity.Instance) { i.Authentication, i.Sharing = "none", "selected" }), identity.Caller{Authentication: "none"}, identity.Decision{Reason: identity.ReasonInstanceNotUnderstood}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, identity.Decide(test.instance, test.caller)) })
	}
}

func TestDecide_takes_lists_of_a_hundred(t *testing.T) {
	var users, groups []string
	for i := range 100 {
		users = append(users, fmt.Sprintf("user-%d", i))
		groups = append(groups, fmt.Sprintf("group-%d", i))
	}
	instance := identity.Instance{Lookup: identity.LookupFound, Enabled: true, Authentication: "sso", Role: httpapi.RoleUser, Sharing: "selected", Users: users, Groups: groups}
	caller := identity.Caller{Authentication: "sso", Token: identity.TokenValid, Role: httpapi.RoleUser, UserID: "user-99"}
	assert.True(t, identity.Decide(instance, caller).Allow)
	caller.UserID, caller.Groups = "user-100", []string{"group-100", "group-99"}
	assert.True(t, identity.Decide(instance, caller).Allow)
	caller.Groups = []string{"group-100"}
	assert.False(t, identity.Decide(instance, caller).Allow)
}

// TestDecide_never_opens_by_taking_away: with fewer people, groups or rights
// nobody gets in who was out before.
func TestDecide_never_opens_by_taking_away(t *testing.T) {
	ids := rapid.SampledFrom([]string{ada, bob, builders, painters, ""})
	rapid.Check(t, func(t *rapid.T) {
		instance := identity.Instance{
			Lookup: identity.LookupFound, Enabled: rapid.Bool().Draw(t, "enabled"), Authentication: "sso",
			Role:    rapid.SampledFrom(roles).Draw(t, "required"),
			Sharing: "selected",
			Users:   rapid.SliceOfN(ids, 0, 3).Draw(t, "users"), Groups: rapid.SliceOfN(ids, 0, 3).Draw(t, "groups"),
		}
		caller := identity.Caller{
			Authentication: "sso", Token: rapid.SampledFrom(tokens).Draw(t, "token"), UserID: ids.Draw(t, "user"),
			Groups: rapid.SliceOfN(ids, 0, 3).Draw(t, "memberships"), Role: rapid.SampledFrom(roles).Draw(t, "role"),
		}
		before := identity.Decide(instance, caller).Allow
		less, lessCaller := instance, caller
		if len(less.Users) > 0 {
			less.Users = less.Users[1:]
		}
		if len(less.Groups) > 0 {
			less.Groups = less.Groups[1:]
		}
		if len(lessCaller.Groups) > 0 {
			lessCaller.Groups = lessCaller.Groups[1:]
		}
		if after := identity.Decide(less, lessCaller).Allow; after && !before {
			t.Fatalf("opened by taking away: %+v %+v", instance, caller)
		}
	})
}

func TestFactsOf_applies_the_defaults_of_the_schema(t *testing.T) {
	now := metav1.NewTime(time.Now())
	for name, test := range map[string]struct {
		spec   appliancev1alpha1.AppInstanceSpec
		change func(*identity.Instance)
	}{
		"nothing said":           {appliancev1alpha1.AppInstanceSpec{}, func(*identity.Instance) {}},
		"empty access":           {appliancev1alpha1.AppInstanceSpec{Access: &appliancev1alpha1.AppInstanceSpecAccess{}}, func(*identity.Instance) {}},
		"switched off":           {appliancev1alpha1.AppInstanceSpec{Enabled: ptr.To(false)}, func(i *identity.Instance) { i.Enabled = false }},
		"switched on":            {appliancev1alpha1.AppInstanceSpec{Enabled: ptr.To(true)}, func(*identity.Instance) {}},
		"open":                   {appliancev1alpha1.AppInstanceSpec{Access: &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}}, func(i *identity.Instance) { i.Authentication = "none" }},
		"role":                   {appliancev1alpha1.AppInstanceSpec{Access: &appliancev1alpha1.AppInstanceSpecAccess{Role: "operator"}}, func(i *identity.Instance) { i.Role = httpapi.RoleOperator }},
		"role that is none":      {appliancev1alpha1.AppInstanceSpec{Access: &appliancev1alpha1.AppInstanceSpecAccess{Role: "none"}}, func(i *identity.Instance) { i.Role = 0 }},
		"sharing without a mode": {appliancev1alpha1.AppInstanceSpec{Access: &appliancev1alpha1.AppInstanceSpecAccess{Sharing: &appliancev1alpha1.AppInstanceSpecAccessSharing{}}}, func(i *identity.Instance) { i.Sharing = "missing" }},
		"selected": {
			appliancev1alpha1.AppInstanceSpec{Access: &appliancev1alpha1.AppInstanceSpecAccess{Sharing: &appliancev1alpha1.AppInstanceSpecAccessSharing{Mode: "selected", Users: []string{ada}, Groups: []string{builders}}}},
			func(i *identity.Instance) {
				i.Sharing, i.Users, i.Groups = "selected", []string{ada}, []string{builders}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := identity.Instance{Lookup: identity.LookupFound, Enabled: true, Authentication: "sso", Role: httpapi.RoleUser}
			test.change(&want)
			object := &appliancev1alpha1.AppInstance{Spec: test.spec}
			require.Equal(t, want, identity.FactsOf(object))
			object.DeletionTimestamp = &now
			want.Deleting = true
			require.Equal(t, want, identity.FactsOf(object))
		})
	}
}
