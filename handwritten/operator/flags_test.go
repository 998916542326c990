package operator_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"magicstick.dev/operator/handwritten/operator"
)

func parse(t *testing.T, environment map[string]string, arguments ...string) (*operator.Flags, error) {
	t.Helper()
	flags, set := operator.NewFlags(), pflag.NewFlagSet("operator", pflag.ContinueOnError)
	flags.Register(set)
	require.NoError(t, set.Parse(arguments))
	return flags, flags.Environment(set, func(name string) (string, bool) {
		value, found := environment[name]
		return value, found
	})
}

// The variables and defaults of contract/appliance.md C.0.
func TestFlagsAndEnvironment(t *testing.T) {
	flags, err := parse(t, nil)
	require.NoError(t, err)
	require.Equal(t, "ai-system/local", flags.Appliance.String())
	require.Equal(t, "ai-system/magicstick-module-catalog", flags.ModuleCatalog.String())
	require.Equal(t, "ai-system/magicstick-app-catalog", flags.ApplicationCatalog.String())
	require.Equal(t, "flux-system", flags.FluxNamespace)
	require.Equal(t, "ai-appliance-settings", flags.SettingsConfigMap)
	require.True(t, flags.LeaderElection)

	flags, err = parse(t, map[string]string{
		"APPLIANCE_NAMESPACE": "a", "APPLIANCE_NAME": "b", "MODULE_CATALOG_NAMESPACE": "c", "MODULE_CATALOG_NAME": "d",
		"APP_CATALOG_NAMESPACE": "e", "APP_CATALOG_NAME": "f", "FLUX_NAMESPACE": "g", "SETTINGS_CONFIGMAP_NAME": "h", "LEADER_ELECT": "false",
	}, "--flux-namespace", "flag-wins")
	require.NoError(t, err)
	require.Equal(t, "a/b c/d e/f", flags.Appliance.String()+" "+flags.ModuleCatalog.String()+" "+flags.ApplicationCatalog.String())
	require.Equal(t, "flag-wins", flags.FluxNamespace)
	require.Equal(t, "h", flags.SettingsConfigMap)
	require.False(t, flags.LeaderElection)

	_, err = parse(t, map[string]string{"LEADER_ELECT": "perhaps", "SHUTDOWN_TIMEOUT": "soon"})
	require.ErrorContains(t, err, "$LEADER_ELECT for --leader-elect (bool)")
	require.ErrorContains(t, err, "$SHUTDOWN_TIMEOUT for --shutdown-timeout (duration)")
}

func TestLogs(t *testing.T) {
	for format, want := range map[string]string{"json": `"msg":"hello"`, "text": "msg=hello"} {
		flags, err := parse(t, nil, "--log-format", format, "--log-level", "warn")
		require.NoError(t, err)
		out := &bytes.Buffer{}
		handler, err := flags.LogHandler(out)
		require.NoError(t, err)
		slog.New(handler).Info("quiet")
		slog.New(handler).Warn("hello")
		require.Contains(t, out.String(), want)
		require.NotContains(t, out.String(), "quiet")
	}
	for _, arguments := range [][]string{{"--log-format", "xml"}, {"--log-level", "loud"}} {
		flags, err := parse(t, nil, arguments...)
		require.NoError(t, err)
		_, err = flags.LogHandler(&bytes.Buffer{})
		require.ErrorContains(t, err, arguments[0]+` "`+arguments[1]+`"`)
	}
}

// contract/appliance.md C.0: the names of what models need.
func TestFlagsOfModels(t *testing.T) {
	flags, err := parse(t, nil)
	require.NoError(t, err)
	require.Equal(t, "ai-system/magicstick-model-presets ai-system/magicstick-engine-catalog ai-system/magicstick-realtime-profiles",
		flags.ModelPresets.String()+" "+flags.EngineCatalog.String()+" "+flags.RealtimeProfiles.String())
	require.Equal(t, "ai/ai-model-catalog", flags.ModelNamespace+"/"+flags.ModelIndex)

	flags, err = parse(t, map[string]string{
		"MODEL_PRESETS_NAMESPACE": "a", "MODEL_PRESETS_NAME": "b", "LITELLM_NAMESPACE": "models", "MODEL_REGISTRY": "registry:5000/x",
	}, "--model-cache=", "--huggingface-secret-name=")
	require.NoError(t, err)
	require.Equal(t, "a/b", flags.ModelPresets.String())
	require.Equal(t, "models registry:5000/x", flags.ModelNamespace+" "+flags.ModelRegistry)
	require.Empty(t, flags.ModelCache+flags.HuggingFaceSecret)
	require.NoError(t, flags.Options.Validate())
}

func TestBadOptionsOfModels(t *testing.T) {
	for _, cache := range []string{"relative", "/", "/a/../b", "/a/"} {
		options := operator.DefaultOptions()
		options.ModelCache, options.ModelNamespace, options.ModelRegistry = cache, "Not One", "https://registry"
		options.EngineCatalog.Name, options.HuggingFaceSecret, options.ModelIndex = "Bad_Name", "Bad Secret", ""
		err := options.Validate()
		for _, part := range []string{
			fmt.Sprintf("model cache %q", cache), `model namespace "Not One"`, `model registry "https://registry"`,
			`engine catalog name "Bad_Name"`, `Hugging Face secret "Bad Secret"`, `model index ""`,
		} {
			require.ErrorContains(t, err, part)
		}
	}
}

func TestBadOptionsAreNamedTogether(t *testing.T) {
	options := operator.DefaultOptions()
	options.Appliance.Namespace, options.FluxNamespace, options.MetricsAddress, options.ShutdownTimeout = "Not A Namespace", "", "8080", -1
	_, err := operator.New(context.Background(), &rest.Config{}, options)
	for _, part := range []string{`appliance namespace "Not A Namespace"`, `Flux namespace ""`, `metrics address "8080"`, "shutdown timeout"} {
		require.ErrorContains(t, err, part)
	}
}
