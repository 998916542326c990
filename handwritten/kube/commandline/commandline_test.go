package commandline_test

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"magicstick.dev/operator/handwritten/kube/commandline"
)

type choices struct {
	name   string
	pause  time.Duration
	on     bool
	number int64
}

func read(t *testing.T, environment map[string]string, arguments ...string) (choices, *pflag.FlagSet, error) {
	t.Helper()
	set := pflag.NewFlagSet("process", pflag.ContinueOnError)
	flags, process := commandline.Flags{FlagSet: set}, commandline.NewProcess()
	found := choices{name: "default", pause: time.Second, on: true, number: 7}
	flags.Text(&found.name, "name", "NAME", "a name")
	flags.Duration(&found.pause, "pause", "PAUSE", "a pause")
	flags.Switch(&found.on, "on", "ON", "a switch")
	flags.Number(&found.number, "number", "NUMBER", "a number")
	process.Register(flags, "")
	require.NoError(t, set.Parse(arguments))
	err := commandline.Environment(set, func(name string) (string, bool) {
		value, known := environment[name]
		return value, known
	})
	return found, set, err
}

// A flag wins over its variable, a variable over the default; an empty one is none.
func TestFlagsWinOverVariables(t *testing.T) {
	found, set, err := read(t, nil)
	require.NoError(t, err)
	require.Equal(t, choices{"default", time.Second, true, 7}, found)
	require.Equal(t, "a pause [$PAUSE]", set.Lookup("pause").Usage)

	found, _, err = read(t, map[string]string{"NAME": "variable", "PAUSE": "3s", "ON": "false", "NUMBER": "", "LOG_LEVEL": "debug"}, "--name", "flag")
	require.NoError(t, err)
	require.Equal(t, choices{"flag", 3 * time.Second, false, 7}, found)
}

// Mistakes are named together, by variable and flag, and what stood there is not
// repeated: a secret may have got into the wrong variable.
func TestMistakesNameTheVariableAndNotItsValue(t *testing.T) {
	_, _, err := read(t, map[string]string{"PAUSE": "hunter2", "ON": "hunter2", "NUMBER": "hunter2"})
	for _, part := range []string{"$PAUSE for --pause (duration)", "$ON for --on (bool)", "$NUMBER for --number (int64)"} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), "hunter2")
}

// A variable for a flag that does not exist is a mistake of the program.
func TestVariableWithoutAFlag(t *testing.T) {
	require.Panics(t, func() {
		commandline.Flags{FlagSet: pflag.NewFlagSet("process", pflag.ContinueOnError)}.From("nothing", "NOTHING")
	})
}
