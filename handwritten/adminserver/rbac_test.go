package adminserver_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-tools/pkg/genall"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
	"sigs.k8s.io/controller-tools/pkg/rbac"

	appliancev1alpha1 "magicstick.dev/operator/generated/apis/appliance/v1alpha1"
	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

// permission is the one Role that the markers of the process ask for.
func permission(t *testing.T) rbacv1.Role {
	t.Helper()
	roots, err := loader.LoadRoots("../identity", ".")
	require.NoError(t, err)
	collector := &markers.Collector{Registry: &markers.Registry{}}
	require.NoError(t, rbac.Generator{}.RegisterMarkers(collector.Registry))
	made, err := rbac.GenerateRoles(&genall.GenerationContext{Collector: collector, Roots: roots}, "magicstick-admin")
	require.NoError(t, err)
	require.Len(t, made, 1, "nothing cluster-wide, one namespace")
	role, ok := made[0].(rbacv1.Role)
	require.True(t, ok, "%T", made[0])
	return role
}

// TestPermissions_are_reading_instances_and_nothing_else, and they are enough.
func TestPermissions_are_reading_instances_and_nothing_else(t *testing.T) {
	role := permission(t)
	assert.Equal(t, "ai-system", role.Namespace)
	assert.Equal(t, []rbacv1.PolicyRule{{
		APIGroups: []string{"appliance.magicstick.dev"}, Resources: []string{"appinstances"}, Verbs: []string{"get", "list", "watch"},
	}}, role.Rules)

	config := controlplanetest.Shared(t)
	h := newHouse(t, config)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	role.Namespace = h.namespace
	_, err = client.RbacV1().Roles(h.namespace).Create(t.Context(), &role, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().RoleBindings(h.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "admin-" + h.namespace}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	h.create("open", func(s *appliancev1alpha1.AppInstanceSpec) {
		s.Access = &appliancev1alpha1.AppInstanceSpecAccess{Authentication: "none"}
	})
	h.config = rest.CopyConfig(config)
	h.config.Impersonate.UserName = "admin-" + h.namespace
	h.start()
	h.eventually(200, "open", "none", "")
}
