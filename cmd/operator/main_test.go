package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func run(arguments ...string) (string, error) {
	out := &bytes.Buffer{}
	cmd := command()
	cmd.SetOut(out)
	cmd.SetErr(out)
	cmd.SetArgs(arguments)
	err := cmd.Execute()
	return out.String(), err
}

func TestHelpNamesEveryFlagWithItsVariable(t *testing.T) {
	help, err := run("--help")
	require.NoError(t, err)
	for _, part := range []string{
		"Runs the controllers of a Magic Stick appliance.", "--kubeconfig", "$KUBECONFIG", "--leader-elect", "$LEADER_ELECT",
		"--metrics-bind-address", "--health-probe-bind-address", "--log-format", "$APPLIANCE_NAMESPACE", "$FLUX_NAMESPACE",
	} {
		require.Contains(t, help, part)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"surplus"}, `unknown command "surplus"`},
		{[]string{"--no-such-flag"}, "unknown flag: --no-such-flag"},
		{[]string{"--log-format", "xml"}, `--log-format "xml": want json or text`},
		{[]string{"--kubeconfig", "/no/such/file"}, "finding the cluster"},
	} {
		_, err := run(c.arguments...)
		require.ErrorContains(t, err, c.want)
	}
}
