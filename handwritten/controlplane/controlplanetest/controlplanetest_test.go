package controlplanetest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"

	"magicstick.dev/operator/handwritten/controlplane/controlplanetest"
)

func TestMain(m *testing.M) { os.Exit(controlplanetest.Main(m)) }

func TestShared_is_one_control_plane_for_the_package(t *testing.T) {
	first, second := controlplanetest.Shared(t), controlplanetest.Shared(t)
	assert.Equal(t, first.Host, second.Host)
	assert.NotSame(t, first, second, "a test may change its copy")
}

func TestNamespace_makes_a_fresh_one_each_time(t *testing.T) {
	config := controlplanetest.Shared(t)
	t.Run("Odd_name/with (signs) and a lot of words that do not fit into a label", func(t *testing.T) {
		first, second := controlplanetest.Namespace(t, config), controlplanetest.Namespace(t, config)
		assert.NotEqual(t, first, second)
		assert.True(t, strings.HasPrefix(first, "testnamespace-makes"), first)
	})
}

func TestStart_is_apart_from_the_shared_one(t *testing.T) {
	own := controlplanetest.Start(t, controlplanetest.WithAPIServerArgs("--max-requests-inflight=50"))
	assert.NotEqual(t, controlplanetest.Shared(t).Host, own.Host)
	client, err := kubernetes.NewForConfig(own)
	require.NoError(t, err)
	_, err = client.Discovery().ServerVersion()
	require.NoError(t, err)
}
