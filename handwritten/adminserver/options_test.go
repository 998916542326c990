package adminserver_test

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/adminserver"
	"magicstick.dev/operator/handwritten/kube"
)

func parsed(t *testing.T, arguments ...string) (*adminserver.Flags, *pflag.FlagSet) {
	t.Helper()
	flags, set := adminserver.NewFlags(), pflag.NewFlagSet("admin", pflag.ContinueOnError)
	flags.Register(set)
	require.NoError(t, set.Parse(arguments))
	return flags, set
}

func TestFlags_a_flag_wins_over_its_variable(t *testing.T) {
	t.Setenv("OIDC_ISSUER", "https://id.from.env/realms/magicstick")
	t.Setenv("OIDC_CLIENT_ID", "from-env")
	t.Setenv("GUARD_MAX_CACHE_AGE", "7m")
	t.Setenv("APPLIANCE_NAMESPACE", "")
	flags, set := parsed(t, "--oidc-client-id", "from-flag")
	require.NoError(t, flags.Environment(set, os.LookupEnv))
	assert.Equal(t, "https://id.from.env/realms/magicstick", flags.Tokens.Issuer)
	assert.Equal(t, "from-flag", flags.Tokens.ClientID)
	assert.Equal(t, 7*time.Minute, flags.MaxCacheAge)
	assert.Equal(t, "ai-system", flags.Namespace, "an empty variable is none")
	assert.NoError(t, flags.Validate())
}

func TestFlags_name_the_variable_and_not_its_value(t *testing.T) {
	t.Setenv("DRAIN_DELAY", "hunter2")
	flags, set := parsed(t)
	err := flags.Environment(set, os.LookupEnv)
	require.ErrorContains(t, err, "$DRAIN_DELAY for --drain-delay")
	assert.NotContains(t, err.Error(), "hunter2")
}

func TestFlags_the_guard_listens_where_policies_point(t *testing.T) {
	flags, _ := parsed(t)
	assert.Equal(t, ":8090", flags.GuardAddress)
	assert.EqualValues(t, 8090, kube.GuardPort)
	assert.ErrorContains(t, flags.Validate(), "issuer", "there is no default issuer: the local domain decides")
}

func TestFlags_logger(t *testing.T) {
	for arguments, want := range map[[2]string]string{
		{"--log-level", "loud"}: `--log-level "loud"`, {"--log-format", "xml"}: `--log-format "xml"`,
		{"--log-level", "debug"}: "", {"--log-format", "text"}: "",
	} {
		flags, _ := parsed(t, arguments[:]...)
		logger, err := flags.Logger(io.Discard)
		if want != "" {
			assert.ErrorContains(t, err, want)
			continue
		}
		require.NoError(t, err)
		assert.NotNil(t, logger)
	}
}
