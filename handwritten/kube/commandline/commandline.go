// Package commandline reads the choices of a process from flags and, where a
// flag is not given, from environment variables, in the same way for every
// command of the appliance.
//
// In: a pflag.FlagSet and the environment. Out: the values behind the flags, and
// what every process needs before it can begin: where the cluster is, and a log.
package commandline

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
)

// environmentAnnotation holds the name of the variable that sets a flag.
const environmentAnnotation = "environment"

// Flags registers flags that have an environment variable each. Defaults are
// what the targets hold.
type Flags struct{ *pflag.FlagSet }

// Text registers a string.
func (f Flags) Text(target *string, name, variable, usage string) {
	f.StringVar(target, name, *target, described(usage, variable))
	f.From(name, variable)
}

// Duration registers a duration such as 10s.
func (f Flags) Duration(target *time.Duration, name, variable, usage string) {
	f.DurationVar(target, name, *target, described(usage, variable))
	f.From(name, variable)
}

// Switch registers a bool.
func (f Flags) Switch(target *bool, name, variable, usage string) {
	f.BoolVar(target, name, *target, described(usage, variable))
	f.From(name, variable)
}

// Number registers a whole number.
func (f Flags) Number(target *int64, name, variable, usage string) {
	f.Int64Var(target, name, *target, described(usage, variable))
	f.From(name, variable)
}

// Value registers a value of a form of its own.
func (f Flags) Value(target pflag.Value, name, variable, usage string) {
	f.Var(target, name, described(usage, variable))
	f.From(name, variable)
}

// From lets a variable set a flag that is registered already.
func (f Flags) From(name, variable string) {
	// SetAnnotation fails only for a flag that does not exist.
	if err := f.SetAnnotation(name, environmentAnnotation, []string{variable}); err != nil {
		panic(err)
	}
}

func described(usage, variable string) string { return fmt.Sprintf("%s [$%s]", usage, variable) }

// Environment fills every flag that was not given from its variable, which
// lookup finds (os.LookupEnv); an empty variable is none. An error names the
// variable, not its value.
func Environment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var problems []error
	flags.VisitAll(func(known *pflag.Flag) {
		variables := known.Annotations[environmentAnnotation]
		if known.Changed || len(variables) == 0 {
			return
		}
		value, found := lookup(variables[0])
		if !found || value == "" {
			return
		}
		if err := known.Value.Set(value); err != nil {
			problems = append(problems, fmt.Errorf("reading $%s for --%s (%s): not a %s", variables[0], known.Name, known.Value.Type(), known.Value.Type()))
		}
	})
	return errors.Join(problems...)
}

// Process are the flags that every process has.
type Process struct {
	// Context of the kubeconfig; empty means its current one.
	Context string

	logFormat, logLevel string
}

// NewProcess logs JSON at level info.
func NewProcess() Process { return Process{logFormat: "json", logLevel: "info"} }

// Register adds the flags. levels explains what the levels of the log show
// beyond their names; it may be empty.
func (p *Process) Register(flags Flags, levels string) {
	flags.Text(&p.logFormat, "log-format", "LOG_FORMAT", "json or text")
	flags.Text(&p.logLevel, "log-level", "LOG_LEVEL", "debug, info, warn or error"+levels)
	flags.Text(&p.Context, "context", "KUBECONTEXT", "context of the kubeconfig; empty for its current one")

	// --kubeconfig belongs to controller-runtime's own lookup.
	lookup := flag.NewFlagSet("kubeconfig", flag.ContinueOnError)
	config.RegisterFlags(lookup)
	flags.AddGoFlagSet(lookup)
	flags.Lookup(config.KubeconfigFlagName).Usage = "file that says how to reach the cluster; not needed in a Pod [$KUBECONFIG]"
	flags.SortFlags = false
}

// LogHandler writes structured logs to out.
func (p *Process) LogHandler(out io.Writer) (slog.Handler, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(p.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", p.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch p.logFormat {
	case "json":
		return orderly{slog.NewJSONHandler(out, options)}, nil
	case "text":
		return orderly{slog.NewTextHandler(out, options)}, nil
	}
	return nil, fmt.Errorf("--log-format %q: want json or text", p.logFormat)
}
